"""Looks up the tuned configuration of a kernel for a launch."""

from __future__ import annotations

import os
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gemm_tuner.core.errors import UserError
from gemm_tuner.core.records import Verified
from gemm_tuner.export.trust import Trust
from gemm_tuner.kernels.kernel_spec import Scalar
from gemm_tuner.kernels.problem import KernelProblem

DTYPE = "dtype"


def misfit(config: Collection[str], accepted: Collection[str], needed: Collection[str], given: Collection[str]) -> str:
    """Why a kernel cannot be launched with a configuration of these names; "" if it can. The configuration may be for
    another kernel of the same name, or older than a change of its parameters.

    accepted: parameters of the kernel and launch options. needed: parameters that the configuration must set. given:
    those that the launch sets.
    """
    faults = {
        "no parameters of it": sorted(set(config) - set(accepted)),
        "without a value": sorted(set(needed) - set(config)),
        "arguments of the launch": sorted(set(config) & set(given)),
    }
    return "; ".join(f"{fault}: {', '.join(names)}" for fault, names in faults.items() if names)


@dataclass(frozen=True)
class TunedResults:
    """Cases and configurations by kernel. left_out: the number of rows that were predicted and are not taken."""

    of_kernel: Mapping[str, tuple[tuple[Mapping[str, Scalar], Mapping[str, Any]], ...]]
    left_out: int = 0

    @classmethod
    def read(
        cls, paths: Iterable[str | os.PathLike[str]], verified: Collection[str], *, predicted: bool = False
    ) -> TunedResults:
        """Reads results files of ``tune_gemm.py kernel``. verified: accepted values of ``verified``. predicted: takes
        rows that were never timed, also those checked only in the interpreter. Raises UserError."""
        from gemm_tuner.store import results

        found: dict[str, list[tuple[Mapping[str, Scalar], Mapping[str, Any]]]] = {}
        trust, left_out = Trust(predicted=predicted), 0
        for path in paths:
            if not Path(path).exists():
                hint = "leave results out until tune_gemm.py kernel -o has written it"
                raise UserError("there is no such file", where=str(path), hint=hint)
            read = results.read(Path(path))
            for row in read.rows:
                source = read.source_of(row)
                ran = not Trust().fault(Verified.TRUE, source)
                accepted = verified if ran else {*verified, Verified.INTERPRETED.value}
                if not isinstance(row.problem, KernelProblem) or not row.config or row.verified.value not in accepted:
                    continue
                if trust.fault(Verified.TRUE, source):
                    left_out += 1
                    continue
                found.setdefault(row.problem.name, []).append((row.problem.values, row.config.options()))
        return cls({name: tuple(rows) for name, rows in found.items()}, left_out)

    def config(self, kernel: str, case: Mapping[str, Scalar], key: Collection[str]) -> dict[str, Any] | None:
        """The configuration of the row whose case has the same values of ``key`` and the same types (a type per tensor,
        or one ``dtype`` for all); None for none. A key that the case or the row lacks does not match."""
        dtypes = {name: value for name, value in case.items() if name.endswith(f"_{DTYPE}")}
        for values, config in self.of_kernel.get(kernel, ()):
            same_key = all(name in values and name in case and values[name] == case[name] for name in key)
            of_all = values.get(DTYPE)
            same_types = all(values.get(name, of_all) == dtype for name, dtype in dtypes.items())
            if same_key and same_types:
                return dict(config)
        return None
