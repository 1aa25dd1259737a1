"""Runs' folders for the tests of reports, written by the tuner's own writers."""

from __future__ import annotations

import itertools
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import pandas as pd
from samples import config, device

from gemm_tuner.core.choice import ServedChoice
from gemm_tuner.core.records import Verified
from gemm_tuner.gemm.config import KernelConfig
from gemm_tuner.gemm.problem import GemmProblem
from gemm_tuner.launch.plan import VENDOR
from gemm_tuner.space.size_state import COLUMNS
from gemm_tuner.store import run_record
from gemm_tuner.store.run_record import Final, RunRecord, SizeRecord
from gemm_tuner.store.served import served_rows

HOSTILE = '</script><script>alert("x")</script><img src=x onerror=alert(1)> [bold]&amp;'
FUNNEL = ({"rule": "shared_memory_fits", "kind": "validity", "why": "It must fit.", "cut": 90, "remain": 4},)


def samples(middle: float, count: int = 30) -> tuple[float, ...]:
    """Samples about a middle, out of order, 0.01 apart."""
    order = sorted(range(count), key=lambda i: i * 7 % count)
    return tuple(round(middle + (i - (count - 1) / 2) / 100, 3) for i in order)


def configs() -> list[KernelConfig]:
    return [config(num_warps=warps, num_stages=stages) for warps, stages in itertools.product((4, 8), (2, 3))]


def table(of: list[KernelConfig], **columns: list[Any]) -> pd.DataFrame:
    """A table as SizeState.table makes it: name, fields, COLUMNS; those not given are blank."""
    made = pd.DataFrame([one.to_dict() for one in of])
    made.insert(0, "name", [one.name for one in of])
    for column in COLUMNS:
        made[column] = columns.get(column, [None] * len(of))
    return made


def write_table(folder: Path, key: str, made: pd.DataFrame) -> None:
    (folder / run_record.TABLES).mkdir(parents=True, exist_ok=True)
    made.to_csv(folder / run_record.TABLES / f"{key}.csv.gz", index=False)


def measured_table(message: str = "spills 152, more than 64") -> pd.DataFrame:
    """Three timed configurations, one in the finals, and one that failed with a message."""
    return table(
        configs(),
        status=["ok", "ok", "early_stopped", "spilled"],
        predicted_us=[9.0, 11.0, 12.0, 13.0],
        screen_us=[10.5, 10.25, 20.0, None],
        finals_us=[None, 10.0, None, None],
        registers=[90, 91, 92, 255],
        compile_s=[0.5, 0.25, 0.125, 1.0],
        message=[None, None, None, message],
    )


def size(m: int = 512, **changes: Any) -> SizeRecord:
    """A size whose second configuration won the finals with 10 us next to the vendor's 12 us."""
    chosen = configs()[1].name
    made = SizeRecord(
        problem=GemmProblem(m, 512, 512),
        total=94,
        funnel=FUNNEL,
        counts={"pruned": 90, "ok": 2, "early_stopped": 1, "spilled": 1},
        roofline_us=5.0,
        finals=(
            Final(VENDOR, samples(12.0), 12.0, 11.9, 12.1, 5, 0.9),
            Final(chosen, samples(10.0), 10.0, 9.95, 10.05, 5, 0.5),
        ),
        chosen=chosen,
    )
    return replace(made, **changes)


def served(**times: tuple[float, float | None]) -> dict[str, Any]:
    """What a size has for servers, each with its third configuration: (us, us of its default)."""
    made = (
        ServedChoice(consumer, configs()[2], us, Verified.TRUE, default_us, processes=5, process_spread_pct=1.5)
        for consumer, (us, default_us) in times.items()
    )
    return dict(served_rows(list(made), predicted=False)["served"])


def record(*sizes: SizeRecord, **changes: Any) -> RunRecord:
    made = RunRecord(
        command=("tune_gemm.py", "--gemm_size_file", "sizes.yaml"),
        seconds=20.0,
        header={"device": "NVIDIA H200", "arch": "sm_90", "source": "measured", "profiler": "nsys", "driver": "580.1"},
        device=asdict(device("sm_90")),
        stages={"compile": 5.0, "screen": 12.0},
        facts={"kernels compiled": 4},
        sizes=sizes,
        results_file="tuned.yaml",
        notes={"noise_pct": 0.4},
    )
    return replace(made, **changes)


def write_run(folder: Path, *sizes: SizeRecord, **changes: Any) -> Path:
    """A run's folder; every size gets the measured table."""
    run_record.write(folder, record(*sizes, **changes))
    for one in sizes:
        write_table(folder, one.key, measured_table())
    return folder


def hostile_run(folder: Path) -> Path:
    """A run whose every text is markup."""
    funnel = ({"rule": HOSTILE, "kind": HOSTILE, "why": HOSTILE, "cut": 90, "remain": 4},)
    one = size(
        funnel=funnel,
        counts={HOSTILE: 94},
        overruled={HOSTILE: HOSTILE},
        finals=(Final(HOSTILE, samples(9.0)), *size().finals),
    )
    other = size(768, chosen="", failure=HOSTILE)
    texts = {"stages": {HOSTILE: 1.0}, "facts": {HOSTILE: 2}, "notes": {HOSTILE: [HOSTILE]}, "results_file": HOSTILE}
    write_run(folder, one, other, command=(HOSTILE,), header={"device": HOSTILE, HOSTILE: HOSTILE}, **texts)
    made = measured_table(HOSTILE)
    made["name"] = [HOSTILE, *made["name"][1:]]
    made["status"] = HOSTILE
    write_table(folder, one.key, made)
    return folder


def predicted_run(folder: Path) -> Path:
    """A run of a machine without a GPU: nothing was timed."""
    header = {"device": "NVIDIA H200", "source": "predicted"}
    write_run(folder, size(finals=()), header=header)
    made = table(configs(), status=["ok"] * 4, predicted_us=[9.0, 8.0, 10.0, 11.0])
    write_table(folder, size().key, made)
    return folder


def large_run(folder: Path, sizes: int = 20, rows: int = 3000) -> Path:
    """As many configurations as a tuner may keep, no two of a size alike in name or time."""
    tiles = (16, 32, 64, 128, 256)
    axes = {"BLOCK_SIZE_M": tiles, "BLOCK_SIZE_N": tiles, "BLOCK_SIZE_K": (32, 64, 128), "GROUP_SIZE_M": (1, 2, 4, 8),
            "SPLIT_K": (1, 2), "num_warps": (4, 8), "num_stages": (2, 3, 4)}  # fmt: skip
    points = itertools.islice(itertools.product(*axes.values()), rows)
    kept = [config(**dict(zip(axes, point, strict=True))) for point in points]
    assert len(kept) == rows
    made = []
    for number in range(sizes):
        spread = [(row * 7919 + number * 104729) % 100003 / 1000 for row in range(rows)]
        done = table(
            kept,
            status=["spilled" if row % 50 == 0 else "ok" for row in range(rows)],
            predicted_us=[round(100 + s * 1.37, 3) for s in spread],
            screen_us=[None if row % 50 == 0 else round(90 + s * 2.11, 3) for row, s in enumerate(spread)],
            screen_min_us=[None if row % 50 == 0 else round(89 + s * 2.03, 3) for row, s in enumerate(spread)],
            screen_samples=[5] * rows,
            registers=[32 + int(s * 97) % 224 for s in spread],
            spills=[152 if row % 50 == 0 else 0 for row in range(rows)],
            shared_bytes=[int(s * 1000) * 8 for s in spread],
            compile_s=[round(s / 90, 4) for s in spread],
            message=[f"spills {row}, more than 64" if row % 50 == 0 else None for row in range(rows)],
        )
        names = [one.name for one in kept[1:9]]
        finals = tuple(Final(name, samples(100.0 + i)) for i, name in enumerate(names))
        counts = {"pruned": 100_000, "ok": rows - rows // 50, "spilled": rows // 50}
        one = size(1024 + number, total=100_000 + rows, counts=counts, chosen=names[0],
                   finals=(*finals, Final(VENDOR, samples(101.5))))  # fmt: skip
        made.append(one)
        write_table(folder, one.key, done)
    run_record.write(folder, record(*made))
    return folder
