"""Selects what to export from a results file: for every row that may be exported, the best configuration that the
consumer can launch.

This is the size's winner, or, if the consumer cannot launch it (another kernel family, split K), a stand-in: the
fastest configuration in the run's table that it can launch and that passes a check. A consumer without a default gets
what the row has beside its winner where there is no table, or no GPU for the check.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from gemm_tuner.consumers import SERVERS
from gemm_tuner.consumers.consumer import STAND_IN, Consumer, Offer
from gemm_tuner.core.errors import EnvironmentFault, UserError
from gemm_tuner.core.records import Verified
from gemm_tuner.export.beside import SERVED, checked_beside, served_for
from gemm_tuner.export.gemm.rows import gemm_of, tile_of
from gemm_tuner.export.gemm.run_timings import SCREEN, read_predictions, read_timings
from gemm_tuner.export.trust import Trust
from gemm_tuner.gemm.config import KernelConfig, tile
from gemm_tuner.gemm.problem import GemmProblem
from gemm_tuner.pipeline.check_now import CheckNow, Finding
from gemm_tuner.store import run_record
from gemm_tuner.store.results import Results, Row
from gemm_tuner.store.run_record import TABLES
from gemm_tuner.system.gpu_lock import GpuInUse

RESULTS, MODEL = "results", "model"
MAX_CHECKED = 8  # maximum number of stand-ins per size

# (problem, config) -> why the consumer cannot launch it; "" if it can.
ConfigFault = Callable[[GemmProblem, KernelConfig], str]


CHECKED_HOW = {
    Verified.TRUE: "checked on the GPU",
    Verified.INTERPRETED: "checked in the interpreter only",
    Verified.AGREED: "compared with other configurations only",
    Verified.FALSE: "not checked",
}


def known_wrong(row: Row) -> str:
    """Why a row's configuration must never be exported (a later run found it wrong); "" otherwise."""
    found = row.facts.get("found_wrong", "")
    return f"was found wrong by a later run ({found})" if found else ""


def remark(verified: Verified) -> str:
    """A remark to print about an exported row; "" for one that was checked on the GPU."""
    return "" if verified is Verified.TRUE else CHECKED_HOW[verified]


@dataclass(frozen=True)
class LeftOut:
    """A size that is not exported, with the reason. config: the configuration's name; "" if there is none.

    served: the consumer's files do not lack it: another row with the same key is used, or it is for another consumer.
    """

    size: str
    config: str
    reason: str
    served: bool = False


@dataclass(frozen=True)
class _StandIns:
    """A size whose winner the consumer cannot launch.

    fault:  why. own: the winner.
    offers: the stand-ins, best first.
    beside: what the row has beside its winner, for where none of these can be checked; None for nothing.
    """

    fault: str
    own: KernelConfig
    offers: tuple[Offer, ...]
    beside: Offer | None = None


def collect(
    found: Results,
    path: Path,
    consumer: Consumer,
    config_fault: ConfigFault,
    trust: Trust,
    find_check: Callable[[], CheckNow],
) -> tuple[list[Offer], list[LeftOut]]:
    """(what can be exported of a results file, in order; what cannot, with reasons).

    Configurations that tuning with --serve found for this consumer are preferred to a row's winner.

    path: of the results file. find_check: creates the check of stand-ins; called at most once, if there are any.
    """
    offers: dict[GemmProblem, Offer] = {}
    waiting: dict[GemmProblem, _StandIns] = {}
    left_out = without_config(found, consumer)
    mine = [row for row in found.rows if row.problem.kind == GemmProblem.kind]
    left_out += [elsewhere(row) for row in found.rows if mine and row not in mine]
    for row in mine or found.rows:
        source = found.source_of(row)
        unfit = consumer.problem_fault(gemm_of(row), str(found.header.get("arch", "")))
        served = None if unfit else served_for(row, source, consumer.name)
        if served and not (config_fault(gemm_of(row), served.config) or trust.fault(served.verified, source)):
            offers[gemm_of(row)] = served
            continue
        fault = config_fault(gemm_of(row), tile_of(row))
        # A stand-in replaces a configuration that cannot be launched, and is checked separately.
        untrusted = trust.fault(Verified.TRUE if fault else row.verified, source)
        refused = unfit or ("" if fault else known_wrong(row)) or untrusted
        folder = run_record.tables_folder(path, found.header_of(row))
        offer = refused or _offer(row, source, folder, fault, config_fault, what_finds_one(consumer))
        if not refused and fault and not consumer.has_default:
            offer = _with_beside(offer, row, source, config_fault)
        if isinstance(offer, Offer):
            offers[gemm_of(row)] = offer
        elif isinstance(offer, _StandIns):
            waiting[gemm_of(row)] = offer
        else:
            left_out.append(LeftOut(gemm_of(row).key, tile_of(row).name, offer))
    for problem, checked in _checked(waiting, trust, find_check).items():
        if isinstance(checked, Offer):
            offers[problem] = checked
        else:
            left_out.append(LeftOut(problem.key, waiting[problem].own.name, f"{waiting[problem].fault}, and {checked}"))
    return [offers[problem] for problem in dict.fromkeys(gemm_of(row) for row in mine) if problem in offers], left_out


def without_config(found: Results, consumer: Consumer) -> list[LeftOut]:
    """The sizes that have no configuration; other consumers' are not missing here."""
    return [
        LeftOut(one.key, "", f"has no config: {reason}",
                served=one.kind != consumer.kind or bool(consumer.other_consumer_fault(one)))
        for one, reason in found.without_config
    ]  # fmt: skip


def elsewhere(row: Row) -> LeftOut:
    """The LeftOut of a row of another kind than the consumer's."""
    name = row.config.name if row.config else ""
    return LeftOut(row.problem.key, name, f"is a problem of the kind {row.problem.kind}", served=True)


def collect_of_kind(found: Results, consumer: Consumer, trust: Trust) -> tuple[list[Offer], list[LeftOut]]:
    """As ``collect``, for a kind whose rows are tuned for one consumer, so the winners can be used directly."""
    offers: list[Offer] = []
    left_out = without_config(found, consumer)
    mine = [row for row in found.rows if row.problem.kind == consumer.kind]
    if not mine:
        raise UserError(f"has no row of the kind {consumer.kind}", where="the results", accepted=consumer.takes)
    left_out += [elsewhere(row) for row in found.rows if row not in mine]
    hint = consumer.tuned_by if all(consumer.other_consumer_fault(row.problem) for row in mine) else ""
    for row in mine:
        source, name = found.source_of(row), row.config.name if row.config else ""
        if other := consumer.other_consumer_fault(row.problem):
            left_out.append(LeftOut(row.problem.key, name, "; ".join(filter(None, (other, hint))), served=True))
            continue
        arch = str(found.header_of(row).get("arch", ""))
        fault = consumer.problem_fault(row.problem, arch)
        if row.config is not None:
            fault = fault or consumer.config_fault(row.problem, row.config, arch)
        fault = fault or known_wrong(row) or trust.fault(row.verified, source)
        if fault or row.config is None:
            left_out.append(LeftOut(row.problem.key, name, fault or "has no config"))
            continue
        time_us = None if source == "predicted" else row.facts.get("median_us")
        facts = {**row.facts, **({"default_us": row.facts["vendor_us"]} if "vendor_us" in row.facts else {})}
        offers.append(
            Offer(
                row.problem, row.config, time_us, SERVED, source, verified=row.verified, tuned=name, tuned_us=time_us,
                facts=facts, timings={} if time_us is None else {name: time_us},
            )
        )  # fmt: skip
    return offers, left_out


def what_finds_one(consumer: Consumer) -> str:
    """The end of a reason that says how to tune what a consumer can launch; "" for one that is no server."""
    return (
        f"; tuning with --serve {consumer.name}, or --families {STAND_IN}, finds one"
        if consumer.name in SERVERS
        else ""
    )


def _offer(
    row: Row, source: str, folder: Path, fault: str, config_fault: ConfigFault, finds_one: str
) -> Offer | _StandIns | str:
    """The offer for a row, or its stand-ins, or the reason why there are none. fault: of its winner. finds_one:
    ``what_finds_one``."""
    config, time_us = tile_of(row), row.facts.get("median_us")
    try:
        table = _table(folder, gemm_of(row).key, config.name, predicted=source == "predicted")
    except UserError as error:
        if fault:
            return f"{fault}, and the run has no other config to take: {error.one_line()}{finds_one}"
        table = []
    timings = {one.name: us for one, us, stage in table if stage != MODEL}
    known = Offer(
        gemm_of(row), config, time_us, RESULTS, source, verified=row.verified, tuned=config.name, tuned_us=time_us,
        facts=row.facts, timings=timings,
    )  # fmt: skip
    if not fault:
        return known
    found = tuple(
        replace(known, config=one, time_us=None if stage == MODEL else us, stage=stage, facts={})
        for one, us, stage in table
        if not config_fault(gemm_of(row), one)
    )
    if not found:
        tried = "compiled" if source == "predicted" else "timed"
        return f"{fault}, and the run {tried} no other that the consumer can launch{finds_one}"
    return _StandIns(fault, config, found[:MAX_CHECKED])


def _with_beside(
    offer: Offer | _StandIns | str, row: Row, source: str, config_fault: ConfigFault
) -> Offer | _StandIns | str:
    """What a row has beside its winner, in place of the reason why there is no stand-in, or added to the stand-ins."""
    beside = checked_beside(row, source, lambda config: not config_fault(gemm_of(row), config))
    if isinstance(offer, _StandIns):
        return replace(offer, beside=beside)
    return beside or offer


def _checked(
    waiting: Mapping[GemmProblem, _StandIns], trust: Trust, find_check: Callable[[], CheckNow]
) -> dict[GemmProblem, Offer | str]:
    """For each size the best stand-in that is correct, or the reason why there is none.

    Where no GPU can check them, what the row has beside its winner is used, which a GPU has checked. A stand-in that
    could not be checked is used as unverified if the user accepts that; a wrong one is never used.
    """
    if not waiting:
        return {}
    found: Mapping[GemmProblem, Finding] = {}
    try:
        check = find_check()
        how, why = check.how, "the check of the others did not come to an end"
        if trust.fault(how, "measured"):
            why = "no GPU of its architecture is here to check another one; --predicted has the interpreter check it"
        else:
            asked = {of: one for of, one in waiting.items() if how is Verified.TRUE or one.beside is None}
            found = check.first_right({of: [offer.config for offer in one.offers] for of, one in asked.items()})
    except GpuInUse:
        raise  # the user limited the waiting time
    except (UserError, EnvironmentFault) as error:
        why, how = f"no other could be checked: {error.one_line()}", Verified.FALSE
    return {problem: _decided(one, found.get(problem), how, why, trust) for problem, one in waiting.items()}


def _decided(one: _StandIns, found: Finding | None, how: Verified, why: str, trust: Trust) -> Offer | str:
    if found is None:
        if one.beside is not None:
            return one.beside
        best = replace(one.offers[0], verified=Verified.FALSE)
        return best if trust.unverified else f"{why}; --unverified exports {best.config.name} without a check"
    named = {offer.config.name: offer for offer in one.offers}
    if found.name in named:
        return replace(named[found.name], verified=how)
    return f"none of the best {len(one.offers)} others is right: {found.why}"


def _table(folder: Path, key: str, chosen: str, *, predicted: bool) -> list[tuple[KernelConfig, float, str]]:
    """(configuration, microseconds, stage) of the configurations of a size that ran, or, for predicted ones, compiled.

    Finalists come first, then screened ones, each fastest first. Raises UserError if there is no table, or if it is not
    from the run that chose ``chosen``.
    """
    if not (folder / TABLES / f"{key}.csv.gz").exists():
        where = f"is not in {folder}" if folder.is_dir() else f"is gone with the run's folder, {folder}"
        raise UserError(f"its table, {TABLES}/{key}.csv.gz, {where}")
    if predicted:
        return [(tile(config), us, MODEL) for config, us in read_predictions(folder, key, chosen)]
    timed = read_timings(folder, key, chosen).values()
    in_order = sorted(timed, key=lambda one: (one.stage == SCREEN, one.time_us))
    return [(tile(one.config), one.time_us, one.stage) for one in in_order]
