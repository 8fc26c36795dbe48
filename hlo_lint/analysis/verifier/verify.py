"""Runs all checks over a module in a single pass, reusing the results of earlier dumps."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache, cached_property
from itertools import chain, repeat
from operator import itemgetter
from typing import Final, NamedTuple, TypeAlias

from hlo_lint.analysis.calls import callees_in, calls_of, may_call
from hlo_lint.analysis.grouping import by_key
from hlo_lint.analysis.kinds import RowPlace, template_of, without_channel
from hlo_lint.analysis.shape_inference import Signature, inference_in, signature_of
from hlo_lint.analysis.stage import Stage
from hlo_lint.analysis.verifier.checks import Checks, ComputationCheck, InstructionCheck, Mark
from hlo_lint.analysis.verifier.scope import Header, Scope, Violation, header_of
from hlo_lint.analysis.verifier.shapes import (
    has_shape_checks,
    shape_violations,
    type_errors,
    type_violations,
    without_callees,
)
from hlo_lint.hlo.ir import Computation, Module
from hlo_lint.hlo.ir.computation import shared_range
from hlo_lint.hlo.kinds import ATTRIBUTES, OPCODE, TYPE, RowKind, reading_of
from hlo_lint.text.patterns import late

_Located: TypeAlias = tuple[Computation, int, Violation]
"""A violation of the instruction at a position."""


class Violations(NamedTuple):
    """Everything that XLA's verifier would reject in a module, and defects that it overlooks."""

    module: Module
    by_check: Mapping[str, tuple[Violation, ...]]


def verify(module: Module, stage: Stage, checks: Checks, memo: VerifierMemo) -> Violations:
    """The violations of a module."""
    options = stage.options
    violations = _found(module, options, checks, memo)
    if violations and options.assumed and options.layouts and not module.is_scheduled:
        # Layouts may not be assigned yet: violations that depend on it are only warnings.
        loose = _found(module, options._replace(layouts=False), checks, memo)
        certain = {(violation.check, violation.at) for violation in loose}
        for number, violation in enumerate(violations):
            if (violation.check, violation.at) not in certain:
                violations[number] = violation._replace(is_warning=True)
    if stage.final and stage.backend == "gpu":
        # Buffer assignment gives layouts memory spaces, but not those in bodies of fusions.
        violations = [violation for violation in violations if "S(1)" not in violation.message]
    by_check = by_key((violation.check, violation) for violation in violations)
    return Violations(module, {check: tuple(held) for check, held in by_check.items()})


def _found(module: Module, options: Stage, checks: Checks, memo: VerifierMemo) -> list[Violation]:
    verifier = _Verifier(module, options, checks, memo)
    return [*verifier.violations(), *verifier.of_module()]


class _Verifier:
    """The checks of a module, against the memo of a run."""

    def __init__(self, module: Module, stage: Stage, checks: Checks, memo: VerifierMemo) -> None:
        self.module = module
        self.stage = stage
        self.header = header_of(module, stage)
        self.checks = checks
        self.memo = memo.of(stage, self.header)
        self._outcomes: dict[Computation, tuple[Violation, ...]] = {}
        self._callees = cache(self._callees_of)

    def of_module(self) -> Iterator[Violation]:
        """The violations of the module and its header."""
        module, stage = self.module, self.stage
        for check in self.checks.modules:
            yield from check(module, stage)
        if module.entry is None or module.entry.parse_errors:
            return  # a missing parameter may be in unreadable text
        for check in self.checks.entries:
            yield from check(module, stage)

    def violations(self) -> Iterator[Violation]:
        """The violations of all computations; results hold while the callees are the same."""
        waiting = []
        for computation in self.module.computations:
            outcome = self.memo.outcomes.get((computation, self._callees(computation)))
            if outcome is None:
                waiting.append(computation)
            else:
                self._outcomes[computation] = outcome
        self._check(waiting)
        for computation in self.module.computations:
            yield from self._outcomes[computation]

    def _callees_of(self, computation: Computation) -> Callees:
        names = dict.fromkeys(chain.from_iterable(calls_of(computation).values()))
        return tuple(map(self.module.computation, names))

    def _scope(self, computation: Computation) -> Scope:
        return Scope(computation, self.module, self.stage, self.header)

    def _check(self, computations: Sequence[Computation]) -> None:
        """Find the violations of computations that were not checked with these callees.

        Of computations that are equal except for their names, the first is checked; the others only
        if it has violations.
        """
        first: dict[object, Computation] = {}
        others: list[tuple[Computation, Computation]] = []
        for computation in computations:
            # With `names_unchanged`, names and metadata count, too.
            template = None if self.stage.names_unchanged else template_of(computation)
            equal = first.setdefault(template or computation, computation)
            if equal is not computation:
                others.append((computation, equal))
        self._check_each([*first.values()])
        wrong: list[Computation] = []
        for computation, equal in others:
            if self._outcomes[equal]:
                wrong.append(computation)
            else:
                self._keep(computation, ())
        self._check_each(wrong)

    def _keep(self, computation: Computation, outcome: tuple[Violation, ...]) -> None:
        self._outcomes[computation] = outcome
        self.memo.outcomes[computation, self._callees(computation)] = outcome

    def _check_each(self, computations: Sequence[Computation]) -> None:
        if not computations:
            return
        batch = _Batch(computations)
        of_instructions = sorted(self._of_instructions(batch), key=itemgetter(1))
        located = chain(of_instructions, self._of_attributes(batch))
        violations = by_key((computation, violation) for computation, _, violation in located)
        enabled = [(check, mark) for check, mark in self.checks.computations if self._binds(mark)]
        whole: dict[frozenset[str], list[tuple[ComputationCheck, bool]]] = {}
        """By opcodes, the checks that they concern, each with its `Mark.is_of_names`."""
        for computation in computations:
            opcodes = computation.opcodes
            of_whole: list[Violation] = []
            if not computation.parse_errors:
                if opcodes not in whole:
                    whole[opcodes] = [
                        (check, mark.is_of_names)
                        for check, mark in enabled
                        if mark.concerns_opcodes is None or mark.concerns_opcodes(opcodes)
                    ]
                scope = self._scope(computation)
                is_sound = reading_of(computation).is_sound
                for check, is_of_names in whole[opcodes]:
                    if not (is_sound and is_of_names):
                        of_whole += check(scope)
            self._keep(computation, (*violations.get(computation, ()), *of_whole))

    def _binds(self, mark: Mark) -> bool:
        return not mark.option or getattr(self.stage, mark.option)

    def _of_instructions(self, batch: _Batch) -> Iterator[_Located]:
        """The violations of single instructions: of types, of shapes, of other checks."""
        wrong = {text for text in {kind[TYPE] for kind in batch.kinds} if type_errors(text)}
        for place in batch.of_kinds({kind for kind in batch.kinds if kind[TYPE] in wrong}):
            yield from self._at(place, type_violations)
        for opcode, kinds in batch.by_opcode.items():
            of_opcode = self.checks.opcodes.get(opcode, ())
            checks = [(check, mark) for check, mark in of_opcode if self._binds(mark)]
            local = [check for check, mark in checks if mark.is_local]
            for place in batch.of_kinds(self._bad_kinds(batch, opcode, kinds, local)):
                yield from self._at(place, self._shape_violations)
                yield from self._by(local, place)
            for check, mark in checks:
                if not mark.is_local:
                    places = batch.places(opcode)
                    if mark.concerns is not None:
                        places = batch.of_kinds(set(filter(mark.concerns, kinds)))
                    for place in places:
                        yield from self._by((check,), place)

    def _bad_kinds(
        self,
        batch: _Batch,
        opcode: str,
        kinds: Iterable[RowKind],
        local: Sequence[InstructionCheck],
    ) -> set[RowKind]:
        """The kinds of an opcode that have violations in some place. Kinds with equal types,
        attributes and callee signatures are judged once."""
        bad: set[RowKind] = set()
        has_shape = has_shape_checks(opcode)
        if not has_shape and not local:
            return bad
        good = self.memo.kinds.setdefault(opcode, set())
        calls = may_call(opcode)
        has_inline = calls and any(part.inline for part in self.module.computations)
        for kind in kinds:
            _, result, attributes, operands = kind
            signatures: tuple[Signature | None, ...] = ()
            if calls:
                callees = callees_in(attributes)
                if has_inline and "={" in attributes:
                    computation, number = batch.place(kind)
                    callees = calls_of(computation).get(number, ())
                named = map(self.module.computation, callees)
                signatures = tuple([None if body is None else signature_of(body) for body in named])
                attributes = without_callees(attributes, callees)
            if attributes:
                attributes = _without_numbers(attributes)
            key = attributes, signatures, result, operands
            if key in good:
                continue
            is_known = result and all(operands) and all(signatures)
            is_good = not has_shape or (
                is_known and not any(self._at(batch.place(kind), self._shape_violations))
            )
            if is_good and not (local and any(self._by(local, batch.place(kind)))):
                good.add(key)
            else:
                bad.add(kind)
        if len(good) > MAX_HELD:
            good.clear()
        return bad

    def _shape_violations(self, scope: Scope, number: int) -> Iterator[Violation]:
        return shape_violations(scope, inference_in(self.module), number, self.checks)

    def _at(
        self, place: RowPlace, check: Callable[[Scope, int], Iterator[Violation]]
    ) -> Iterator[_Located]:
        computation, number = place
        for violation in check(self._scope(computation), number):
            yield computation, number, violation

    def _by(self, checks: Iterable[InstructionCheck], place: RowPlace) -> Iterator[_Located]:
        computation, number = place
        for check in checks:
            for violation in check(self._scope(computation), computation.at(number)):
                yield computation, number, violation

    def _of_attributes(self, batch: _Batch) -> Iterator[_Located]:
        texts = {
            opcode: "\n".join({kind[ATTRIBUTES] for kind in kinds})
            for opcode, kinds in batch.by_opcode.items()
        }
        attributes = "\n".join(texts.values())
        for check, mark in self.checks.attributes:
            for word in mark.words if self._binds(mark) else ():
                if word not in attributes:
                    continue
                good = self.memo.attributes.setdefault(word, set())
                bad = {
                    kind
                    for opcode, text in texts.items()
                    if opcode not in mark.other_than and word in text
                    for kind in batch.by_opcode[opcode]
                    if word in kind[ATTRIBUTES] and kind[:3] not in good
                }
                if mark.is_local:
                    right = {kind for kind in bad if not any(self._by((check,), batch.place(kind)))}
                    good.update(kind[:3] for kind in right)
                    bad -= right
                for place in batch.of_kinds(bad):
                    yield from self._by((check,), place)


def _without_numbers(attributes: str) -> str:
    """The attributes without channel numbers and control predecessors: no shape and no local check
    depends on them."""
    if "control-predecessors=" in attributes:
        attributes = _sub_predecessors("", attributes)
    return without_channel(attributes)


_sub_predecessors = late(r", control-predecessors=\{[^{}]*\}").sub


class _Batch:
    """The instructions of some computations, to be checked."""

    def __init__(self, computations: Sequence[Computation]) -> None:
        self._computations = computations
        self._examples: dict[Computation, Mapping[int, int]] = {}
        self.kinds: dict[RowKind, tuple[Computation, int]] = {}
        """The kinds, and a computation that holds each with its number there."""
        for computation in computations:
            kinds = reading_of(computation).kinds
            places = zip(repeat(computation), shared_range(len(kinds)), strict=False)
            self.kinds.update(zip(kinds, places, strict=False))
        self.by_opcode = by_key((kind[OPCODE], kind) for kind in self.kinds)

    def place(self, kind: RowKind) -> RowPlace:
        """An instruction of a kind."""
        computation, index = self.kinds[kind]
        examples = self._examples.get(computation)
        if examples is None:  # on demand: most kinds are judged without an example
            examples = self._examples[computation] = reading_of(computation).examples()
        return computation, examples[index]

    def places(self, opcode: str) -> Iterator[RowPlace]:
        """The instructions of an opcode."""
        for computation in self._holders.get(opcode, ()):
            yield from zip(repeat(computation), computation.positions(opcode))

    @cached_property
    def _holders(self) -> Mapping[str, Sequence[Computation]]:
        return by_key(
            (opcode, computation)
            for computation in self._computations
            for opcode in computation.opcodes
        )

    def of_kinds(self, kinds: Collection[RowKind]) -> Iterator[RowPlace]:
        """The instructions of some kinds."""
        for opcode in dict.fromkeys([kind[OPCODE] for kind in kinds]):
            for computation, number in self.places(opcode):
                _, different, kind_of = reading_of(computation)
                if different[kind_of[number]] in kinds:
                    yield computation, number


MAX_HELD: Final = 1 << 15
"""The size at which a set of results is emptied."""

Callees: TypeAlias = tuple[Computation | None, ...]
"""The callees of a computation, in the order of their names in its text."""
JudgedKind: TypeAlias = tuple[str, tuple[Signature | None, ...], str, tuple[str | None, ...]]
"""Attributes, signatures of the callees, type, and types of the operands."""


@dataclass(eq=False, repr=False)
class BoundMemo:
    """The results under a stage and the counts of a header."""

    kinds: dict[str, set[JudgedKind]] = field(default_factory=dict)
    """The instructions of each opcode that passed, without their names."""
    attributes: dict[str, set[tuple[str, str, str]]] = field(default_factory=dict)
    """Opcode, type and attributes of instructions that passed the checks of a word."""
    outcomes: dict[tuple[Computation, Callees], tuple[Violation, ...]] = field(default_factory=dict)
    """The violations of each computation with some callees."""


@dataclass(eq=False, repr=False)
class VerifierMemo:
    """The results in all modules of a run."""

    bound: dict[tuple[Stage, Header], BoundMemo] = field(default_factory=dict)

    def of(self, stage: Stage, header: Header) -> BoundMemo:
        """The results under a stage and a header."""
        return self.bound.setdefault((stage, header), BoundMemo())

    def keep(self, computations: Iterable[Computation]) -> None:
        """Forget all other computations."""
        kept = set(computations)
        for memo in self.bound.values():
            memo.outcomes = {key: held for key, held in memo.outcomes.items() if key[0] in kept}
