"""A complete export: from a results file to the consumer's files."""

from __future__ import annotations

import hashlib
import tempfile
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path, PurePosixPath
from typing import Any

from gemm_tuner.consumers import sidecar
from gemm_tuner.consumers.consumer import Consumer, ExportTarget
from gemm_tuner.consumers.sidecar import Sidecar
from gemm_tuner.core.errors import UserError
from gemm_tuner.core.language import language_of
from gemm_tuner.core.workload import workload_of
from gemm_tuner.export import offers, plan
from gemm_tuner.export.devices import Fits
from gemm_tuner.export.offers import LeftOut
from gemm_tuner.export.plan import FilePlan
from gemm_tuner.export.trust import Trust
from gemm_tuner.gemm.config import KernelConfig
from gemm_tuner.gemm.problem import GemmProblem
from gemm_tuner.pipeline import check_now
from gemm_tuner.space import space
from gemm_tuner.store import results
from gemm_tuner.system.documents import MAX_FILE_BYTES
from gemm_tuner.system.input_files import read_bytes
from gemm_tuner.system.installation import data_folder


@dataclass(frozen=True)
class Export:
    """The changes that an export would make.

    known:     the present provenance of each folder.
    num_sizes: number of sizes for this consumer in the results file, with and without a configuration.
    """

    plans: tuple[FilePlan, ...]
    left_out: tuple[LeftOut, ...]
    root: Path
    known: dict[PurePosixPath, Sidecar]
    facts: dict[str, Any]
    num_sizes: int

    @property
    def differs(self) -> bool:
        return any(one.differs for one in self.plans)

    @property
    def missing(self) -> list[str]:
        """The sizes of the results file without an entry."""
        return list(dict.fromkeys(one.size for one in self.left_out if not one.served))

    def write(self) -> None:
        """Writes the files and their provenance. Raises EnvironmentFault if one cannot be written."""
        plan.write(self.root, self.plans, self.known, self.facts)


def prepare(
    path: Path,
    consumer: Consumer,
    root: Path,
    *,
    device: str,
    fits: Fits,
    trust: Trust,
    overwrite: bool,
    say: Callable[[str], None],
    gpu_wait_s: float | None = None,
) -> Export:
    """Reads the results and the existing files, checks replacements for configurations that the consumer cannot launch,
    and returns what to write. Writes nothing.

    device:     the device name to use; "" for the one in the header.
    say:        called with a line while waiting for the GPU.
    gpu_wait_s: time to wait for a GPU that another process measures on; None for no limit.
    Raises UserError, and GpuInUse after that time.
    """
    if device and not consumer.device_key:
        raise UserError(f"no file for {consumer.name} is named after the device", where="--device_name")
    found = results.read(path)
    arch = str(found.header.get("arch", ""))
    named = device or str(found.header.get(consumer.device_key, ""))
    target = ExportTarget(root, named, arch, str(found.header.get("triton", "")))

    def config_fault(problem: GemmProblem, config: KernelConfig) -> str:
        return consumer.config_fault(problem, config, arch) or fits(problem, config)

    with tempfile.TemporaryDirectory(prefix="gemm_tuner_check_") as work:

        def find_check() -> check_now.CheckNow:
            rules = data_folder("rules")
            return check_now.find(
                language_of(workload_of(GemmProblem.kind).language),
                space.load(space.space_path(rules, arch), arch).device.target,
                data_folder("templates"),
                Path(work),
                say,
                gpu_wait_s,
            )

        if consumer.kind == GemmProblem.kind:
            offered, left_out = offers.collect(found, path, consumer, config_fault, trust, find_check)
        else:
            offered, left_out = offers.collect_of_kind(found, consumer, trust)
    files, doubles = plan.group(consumer, offered, target)
    left_out += doubles
    known = {folder: sidecar.read(root / folder) for folder in {place.parent for place in files}}
    results_id = f"{consumer.name}-{file_sha(path)}"
    plans = []
    for place, ours in files.items():
        made = plan.plan_file(consumer, place, ours, target, known[place.parent], results_id, overwrite=overwrite)
        if isinstance(made, FilePlan):
            plans.append(made)
        else:
            left_out += [LeftOut(one.problem.key, one.config.name, made) for one in ours]
    left_out = list(dict.fromkeys(left_out))
    facts = {
        "file": path.name,
        "consumer": consumer.name,
        "header": found.header,
        "left_out": [asdict(one) for one in left_out],
    }
    num_sizes = len({one.problem.key for one in offered} | {one.size for one in left_out if not one.served})
    return Export(tuple(plans), tuple(left_out), root, known, {results_id: facts}, num_sizes)


def file_sha(path: Path) -> str:
    """16 hex digits of the hash of a results file."""
    return hashlib.sha256(read_bytes(path, "results file", "YAML", MAX_FILE_BYTES)).hexdigest()[:16]
