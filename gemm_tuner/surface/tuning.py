"""Tunes one call of an autotuned function: prepares inputs and checks for ``tuner``."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from gemm_tuner.core.errors import UserError
from gemm_tuner.store.run_folder import DEFAULT_OUTPUT_DIR
from gemm_tuner.surface import trial_job, trials
from gemm_tuner.surface.configurations import Candidate
from gemm_tuner.surface.judge import copied, flat
from gemm_tuner.surface.learned import Learned, is_verdict
from gemm_tuner.surface.profile_args import ProfileArgs
from gemm_tuner.surface.records import Call, Config, Rejected, Tuned
from gemm_tuner.surface.supply import Supply, TensorSupplyType
from gemm_tuner.surface.time_limit import limited
from gemm_tuner.surface.tunables import Arguments, Built, Tunable
from gemm_tuner.surface.tuner import tune_callables
from gemm_tuner.surface.written import Written, written_by


def _require_taken(program: Callable[..., Any], call: Arguments, names: Sequence[str]) -> None:
    """Raises UserError for a reference that does not take the arguments of its call. names: of the tensors."""
    try:
        inspect.signature(program).bind(*call.args, **call.kwargs)
    except TypeError as error:
        given = names if len(names) == len(call.args) else [f"one {type(value).__name__}" for value in call.args]
        accepted = f"a function of {', '.join([*given, *call.kwargs])}"
        raise UserError(str(error), where="ref_prog", accepted=accepted) from error
    except ValueError:  # a builtin whose signature is not known
        return


@dataclass(frozen=True)
class SideEffects:
    """Side effects of a kernel, by triton.autotune's names: arguments to zero or to restore before each call, and hooks
    that are called with all arguments before and after each call."""

    reset_to_zero: tuple[str, ...] = ()
    restore_value: tuple[str, ...] = ()
    pre_hook: Callable[..., Any] | None = None
    post_hook: Callable[..., Any] | None = None


@dataclass
class Tuning:
    """The tuning of one call.

    given:    the tensors of ``set_autotune_inputs``.
    isolate:  first try candidates in other processes (``trials.tried``); None: only for TileLang, whose compilation
              takes seconds.
    profiler: such as "nsys": candidates run in other processes, the finals under this profiler.
    """

    tunable: Tunable
    profile: ProfileArgs
    given: tuple[Any, ...] | None = None
    effects: SideEffects = field(default_factory=SideEffects)
    output_dir: Path | str | None = DEFAULT_OUTPUT_DIR
    isolate: bool | None = None
    profiler: str = ""
    _random: dict[Any, list[Any]] = field(default_factory=dict)
    _from_program: list[Any] | None = None
    _built: dict[int, Built] = field(default_factory=dict)
    _known: Learned | None = None

    def tune(self, candidates: Sequence[Candidate]) -> Tuned:
        """Tunes the candidates. Raises UserError. ``Tuned.best`` is None if no candidate is correct."""
        self.supply.warn_of_unused()
        if self.profiler:
            return self._external(candidates)
        failed = self._tried(candidates)
        learned = self._learn([one for one in candidates if id(one) not in failed])
        by_values = {repr(sorted(one.values.items(), key=str)): one for one in candidates}
        if len(by_values) < len(candidates):
            raise UserError("two configurations differ in pre_hook alone", where=self.tunable.name)

        def build(config: Config) -> Call:
            candidate = by_values[repr(sorted(config.items(), key=str))]
            if id(candidate) in failed:
                raise failed[id(candidate)]
            return self._call(candidate, learned)

        try:
            return tune_callables(
                [one.values for one in candidates],
                build,
                name=self.tunable.name,
                clock=self.profile.clock(),
                baselines=learned.baselines(),
                effort=self.profile.effort(),
                output_dir=self.output_dir,
            )
        finally:
            learned.put_back()

    def _external(self, candidates: Sequence[Candidate]) -> Tuned:
        from gemm_tuner.surface.rebuilt import build_of

        return tune_callables(
            [one.values for one in candidates],
            build_of(self.tunable, self.profile, self.given),
            name=self.tunable.name,
            effort=self.profile.effort(),
            profiler=self.profiler,
            output_dir=self.output_dir,
        )

    def call(self, candidate: Candidate) -> Call:
        """A candidate that is ready to run; the first one that runs determines how all are checked."""
        if self._known is None or not self._known.has_run:
            self._known = self._learn([candidate])
        return self._call(candidate, self._known)

    def _tried(self, candidates: Sequence[Candidate]) -> dict[int, Rejected]:
        """The candidates that failed in other processes, by id."""
        tunable = self.tunable
        if not (trials.by_default(tunable) if self.isolate is None else self.isolate):
            return {}
        try:
            if self.isolate:
                trial_job.warn_of_no_launch(tunable, self.profile, self.given)
            found = trials.tried(tunable, candidates, self.profile, self.given)
        except UserError:
            if self.isolate:
                raise
            return {}
        return {id(candidates[place]): error for place, error in found.items()}

    @property
    def supply(self) -> Supply:
        return self.profile.supply(self.given)

    def _inputs(self, built: Built) -> list[Any]:
        """The inputs: those of the call, unless others are given or requested. All configurations share random
        inputs."""
        supply = self.supply
        if supply.given is None and supply.program is None:
            if built.inputs is not None and supply.kind is TensorSupplyType.Auto:
                return list(built.inputs)
            key = None if built.params is None else tuple(built.params)
            if key not in self._random:
                self._random[key] = supply.inputs(built.params, self.tunable.name)
            return self._random[key]
        if supply.given is None and self.profile.cache_input_tensors and self._from_program is not None:
            return self._from_program
        self._from_program = supply.inputs(built.params, self.tunable.name)
        if built.inputs is not None and len(self._from_program) != len(built.inputs):
            what = f"{len(self._from_program)} tensors are given, {self.tunable.name} is called with"
            raise UserError(f"{what} {len(built.inputs)}", hint="give one for each")
        return self._from_program

    def _learn(self, candidates: Sequence[Candidate]) -> Learned:
        """The facts from the first candidate that runs: which inputs are outputs, and the kind of reference."""
        for candidate in candidates:
            try:
                with limited(self.profile.timeout):
                    built = self.tunable.build(candidate)
            except UserError:
                raise
            except Exception:  # occurs again during tuning, and is recorded there
                continue
            inputs = self._inputs(built)
            names = [one.name for one in built.params or ()]
            self._require_known(names)
            try:
                self._before(candidate, inputs, names, Written())
                with limited(self.profile.timeout):
                    returned, written = written_by(built.run, inputs)
            except Exception:
                continue
            self._built[id(candidate)] = built
            outputs = flat(returned) if returned is not None else [inputs[place] for place in written.places]
            # A reference that returns outputs needs the original inputs, and gets its own outputs on their device.
            has_reference = self.profile.ref_prog is not None and not self.profile.skip_check
            outputs = [one.clone() if hasattr(one, "clone") else one for one in outputs] if has_reference else []
            written.restore(inputs)
            learned = Learned(self.profile, inputs, names, written, *self._expected(built, inputs, outputs), True)
            learned.put_back()
            return learned
        return Learned(self.profile)

    def _expected(self, built: Built, inputs: list[Any], outputs: list[Any]) -> tuple[Any, Any]:
        """(the expected outputs or None, the reference's call or None). A reference that returns a verdict or raises is
        called for each candidate."""
        program = self.profile.ref_prog
        if program is None or self.profile.skip_check:
            return None, None
        call = built.arguments(inputs, outputs)
        _require_taken(program, call, [one.name for one in built.params or ()])
        try:
            found = program(*call.args, **call.kwargs)
        except Exception:
            return None, None
        if found is None or is_verdict(found):
            return None, None
        # Copies, because the reference may return one of its inputs.
        return [copied(one) for one in flat(found)], functools.partial(program, *call.args, **call.kwargs)

    def _require_known(self, names: Sequence[str]) -> None:
        for key in ("reset_to_zero", "restore_value"):
            for name in getattr(self.effects, key):
                if name not in names:
                    accepted = ", ".join(names) or "none: arguments have no names here"
                    raise UserError(f"{name!r} is no tensor of {self.tunable.name}", where=key, accepted=accepted)

    def _call(self, candidate: Candidate, learned: Learned) -> Call:
        built = self._built.pop(id(candidate), None) or self.tunable.build(candidate)
        inputs = self._inputs(built)
        names = [one.name for one in built.params or ()]
        written = learned.written
        kept = {*self.effects.reset_to_zero, *self.effects.restore_value}
        changed = [inputs[place] for place in written.places]
        filled = [inputs[place] for place in written.places if not names or names[place] not in kept]

        def run() -> Any:
            try:
                returned = built.run(inputs)
            except Exception as error:
                self._after(candidate, inputs, error)
                raise
            self._after(candidate, inputs, None)
            return returned if returned is not None else tuple(changed) or None

        return Call(
            run=run,
            check=learned.check(built, inputs, self.profile),
            outputs=filled,
            before=lambda: self._before(candidate, inputs, names, written),
            kernel=built.kernel,
        )

    def _arguments(self, candidate: Candidate, inputs: Sequence[Any]) -> dict[str, Any]:
        call = getattr(self.tunable, "call", None)
        own = (
            {} if call is None or len(call.tensors()) != len(inputs) else self.tunable.named(call.with_tensors(inputs))
        )
        return {**own, **candidate.values}

    def _before(self, candidate: Candidate, inputs: Sequence[Any], names: Sequence[str], written: Written) -> None:
        if candidate.pre_hook:
            candidate.pre_hook(self._arguments(candidate, inputs))
        if self.effects.pre_hook:
            self.effects.pre_hook(self._arguments(candidate, inputs), reset_only=False)
        self._reset(inputs, names)
        written.restore(inputs, [names.index(name) for name in self.effects.restore_value])

    def _reset(self, inputs: Sequence[Any], names: Sequence[str]) -> None:
        for name in self.effects.reset_to_zero if names else ():
            inputs[list(names).index(name)].zero_()

    def _after(self, candidate: Candidate, inputs: Sequence[Any], error: Exception | None) -> None:
        if self.effects.post_hook:
            self.effects.post_hook(self._arguments(candidate, inputs), exception=error)
