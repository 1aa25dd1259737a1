"""A report as one JSON document, printed by ``--json`` and used by the page's charts. Tables are left out."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from gemm_tuner.core.choice import ServedChoice
from gemm_tuner.report.data import Finalist, Report, SizeView

SUMMARY_VERSION = 1


def of_report(report: Report) -> dict[str, Any]:
    """The summary of the run and of each size. Times are in microseconds unless a name has another unit."""
    record = report.record
    return {
        "summary_version": SUMMARY_VERSION,
        "title": report.title,
        "folder": report.folder,
        "source": report.source,
        "command": list(record.command),
        "seconds": record.seconds,
        "results_file": record.results_file,
        "num_sizes": len(report.sizes),
        "num_chosen": report.num_chosen,
        "vendor_ratio": report.vendor_ratio,
        "counts": report.counts,
        "funnel": report.funnel,
        "roofs_tflops": report.roofs,
        "dram_gbps": report.dram_gbps,
        "stages_s": record.stages,
        "facts": record.facts,
        "header": record.header,
        "device": record.device,
        "notes": record.notes,
        "sizes": [of_size(size) for size in report.sizes],
    }


def of_size(size: SizeView) -> dict[str, Any]:
    record = size.record
    return {
        "key": size.key,
        "label": size.label,
        "problem": size.problem.to_dict(),
        "rate_key": size.problem.rate_key,
        "total": record.total,
        "kept": size.kept,
        "timed": size.timed,
        "has_table": size.table is not None,
        "funnel": list(record.funnel),
        "counts": record.counts,
        "chosen": record.chosen,
        "failure": record.failure,
        "served": {one.consumer: {**record.served[one.consumer], **of_served(size, one)} for one in size.served},
        "overruled": record.overruled,
        "time_us": size.time_us,
        "time_source": size.time_source,
        "tflops": size.tflops,
        "intensity": size.intensity,
        "roofline_us": record.roofline_us,
        "roofline_tflops": size.problem.flops / record.roofline_us / 1e6 if record.roofline_us else None,
        "roofline_pct": size.roofline_pct,
        "vendor_us": size.vendor.median_us if size.vendor else None,
        "vendor_tflops": size.problem.flops / size.vendor.median_us / 1e6 if size.vendor else None,
        "vendor_ratio": size.vendor_ratio,
        "vendor_ratio_interval": size.vendor_ratio_interval,
        "finals": [of_finalist(one) for one in size.finalists],
    }


def of_served(size: SizeView, one: ServedChoice) -> dict[str, Any]:
    return {
        "name": one.config.name,
        "time_us": one.time_us,
        "default_ratio": one.default_ratio,
        "over_best": size.over_best(one),
    }


def of_finalist(one: Finalist) -> dict[str, Any]:
    return {**asdict(one), "is_vendor": one.is_vendor}
