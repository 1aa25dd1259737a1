"""General formats with one entry per exact size: CSV, JSON, and the arguments of triton.Config."""

from __future__ import annotations

import csv
import io
import re
from pathlib import Path, PurePosixPath
from typing import Any

from gemm_tuner.consumers.consumer import Body, Consumer, Entry, ExportTarget, Offer, tile_fault
from gemm_tuner.core.errors import UserError
from gemm_tuner.gemm.config import CONFIG_FIELDS, KernelConfig
from gemm_tuner.gemm.problem import GemmProblem
from gemm_tuner.gemm.problem_keys import problem_row
from gemm_tuner.system.documents import MAX_FILE_BYTES
from gemm_tuner.system.input_files import printable, read_text
from gemm_tuner.system.row_facts import KNOWN_KEYS


class Everything(Consumer):
    """A format that accepts every size and family, and has all columns of the results."""

    device_key = ""  # file names do not contain the device

    def problem_fault(self, problem: GemmProblem, arch: str) -> str:
        return ""

    def config_fault(self, problem: GemmProblem, config: KernelConfig, arch: str) -> str:
        return ""

    def places(self, problem: GemmProblem, target: ExportTarget) -> tuple[PurePosixPath, ...]:
        return (PurePosixPath(f"gemm_configs.{self.name}"),)

    def key(self, problem: GemmProblem) -> str:
        return problem.key

    def order(self, key: str) -> tuple[Any, ...]:
        """By M, N and K, which are the start of every key."""
        return ([int(number) for number in re.findall(r"\d+", key)], key)

    def entry(self, offer: Offer, arch: str) -> Entry:
        config = {"family": offer.config.family, **offer.config.options()}
        known = {**offer.facts, "verified": offer.verified.scalar}
        return {**problem_row(offer.problem), **config, **{key: known[key] for key in KNOWN_KEYS if key in known}}


class Json(Everything):
    name = "json"


class Csv(Everything):
    """CSV with one line per size; unknown values and defaults are empty cells."""

    name = "csv"
    columns = (
        *("M", "N", "K", "dtype_a", "dtype_b", "dtype_c", "layout_a", "layout_b", "bias"),
        *("batch", "activation", "alpha", "beta", "scaling", "precision", *CONFIG_FIELDS, *KNOWN_KEYS),
    )

    def entry(self, offer: Offer, arch: str) -> Entry:
        row = super().entry(offer, arch)
        texts = {key: str(value).lower() if isinstance(value, bool) else str(value) for key, value in row.items()}
        return {column: texts.get(column, "") for column in self.columns}

    def text(self, body: Body, target: ExportTarget) -> str:
        out = io.StringIO()
        writer = csv.DictWriter(out, ("key", *self.columns), lineterminator="\n")
        writer.writeheader()
        writer.writerows({"key": key, **row} for key, row in body.items())
        return out.getvalue()

    def load(self, path: Path) -> Body:
        where, accepted = printable(path), "a CSV that this command wrote"
        text = read_text(path, "config file", "CSV", MAX_FILE_BYTES)
        try:
            rows = list(csv.reader(text.splitlines(), strict=True))
        except csv.Error as error:
            raise UserError(f"cannot be read: {error}", where=where, accepted=accepted) from error
        header = ["key", *self.columns]
        for number, row in enumerate(rows, 1):
            if len(row) != len(header) or (number == 1 and row != header):
                raise UserError("has other columns", where=f"{where}, line {number}", accepted=accepted)
        return {row[0]: dict(zip(self.columns, row[1:], strict=True)) for row in rows[1:]}


class TritonConfig(Everything):
    """Arguments for ``triton.Config(**entry)``, for kernels with the usual constants of a tile kernel."""

    name = "triton"
    has_default = False
    splits_k = True

    def config_fault(self, problem: GemmProblem, config: KernelConfig, arch: str) -> str:
        return tile_fault(config, split_k=True)

    def places(self, problem: GemmProblem, target: ExportTarget) -> tuple[PurePosixPath, ...]:
        return (PurePosixPath("triton_configs.json"),)

    def entry(self, offer: Offer, arch: str) -> Entry:
        config = offer.config
        blocks = ("BLOCK_SIZE_M", "BLOCK_SIZE_N", "BLOCK_SIZE_K", "GROUP_SIZE_M", "SPLIT_K")
        kwargs: dict[str, Any] = {key: getattr(config, key) for key in blocks}
        if config.kpack:
            kwargs |= {key: getattr(config, key) for key in ("waves_per_eu", "matrix_instr_nonkdim", "kpack")}
        return {"kwargs": kwargs, "num_warps": config.num_warps, "num_stages": config.num_stages}
