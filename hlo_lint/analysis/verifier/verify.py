"""Runs all checks over a module in one pass: what dumps share is checked once.

A computation that changed is checked where it changed: instructions that the previous computation
of its name has as well, with the same operands and the same callees, were checked there.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import lru_cache
from typing import Final, NamedTuple, cast
from weakref import WeakValueDictionary

from hlo_lint.analysis.layout_mismatches import name_in
from hlo_lint.analysis.shape_inference import ShapeInference
from hlo_lint.analysis.stage import Stage
from hlo_lint.analysis.verifier.checks import Checks
from hlo_lint.analysis.verifier.scope import Header, Scope, Violation, header_of
from hlo_lint.analysis.verifier.shapes import keys, shape_violations
from hlo_lint.hlo.ir import Computation, Module, cached_analysis
from hlo_lint.hlo.opcodes import CALLERS
from hlo_lint.hlo.records import (
    attributes_of,
    name_of,
    opcode_of,
    operands_of,
    references_of,
    type_of,
)

Violations = Mapping[str, tuple[Violation, ...]]
"""The violations, by name of the check."""

KNOWN_GOOD_CACHE: Final[set[object]] = set()
"""Keys of instructions and of headers that passed: most lines of a dump are like many others."""
_MAX_CACHED = 1 << 15

_latest: WeakValueDictionary[tuple[int, str], Computation] = WeakValueDictionary()
"""The computation of a name that was checked last, by what bound it."""
_BINDINGS: Final[dict[tuple[Stage, Header], int]] = {}
"""A number for what binds, which is quickly compared."""
_STAGES: Final[dict[Stage, int]] = {}


class _State(NamedTuple):
    """The result for one computation under some stage."""

    callees: Mapping[str, Computation | None]
    """The computations it calls, by name."""
    of_instructions: tuple[tuple[str, Violation], ...]
    """Violations of single instructions, by their names."""
    of_whole: tuple[Violation, ...]
    """Violations of the computation as a whole."""


def clear_caches() -> None:
    """Forget what passed; for tests."""
    _latest.clear()
    KNOWN_GOOD_CACHE.clear()


def verify(module: Module, stage: Stage, checks: Checks) -> Violations:
    """Everything that XLA's verifier would refuse in a module, and what it forgets to check."""
    options = stage.options
    if options.assumed and options.layouts and not _shows_layouts(module):
        options = _without_layouts(options)
    cached = module.analysis_cache.get(options)
    if cached is None:
        by_check: dict[str, list[Violation]] = {}
        for violation in _verify(module, options, checks):
            by_check.setdefault(violation.check, []).append(violation)
        cached = module.analysis_cache[options] = {
            check: tuple(violations) for check, violations in by_check.items()
        }
    return cast("Violations", cached)


@lru_cache(maxsize=1 << 8)
def _without_layouts(options: Stage) -> Stage:
    return replace(options, layouts=False)


def _shows_layouts(module: Module) -> bool:
    """True if a loose text shows passes that run when layouts are assigned."""
    return module.is_scheduled or any(
        computation.with_opcode(opcode)
        for computation in module.computations
        for opcode in ("fusion", "bitcast", "copy-start", "async-start")
    )


def _verify(module: Module, stage: Stage, checks: Checks) -> Iterator[Violation]:
    by_name: dict[str, Computation] = {}
    for computation in module.computations:
        by_name.setdefault(computation.name, computation)
    verifier = _Verifier(module, stage, by_name, checks)
    for computation in module.computations:
        yield from verifier.computation(computation)
    for check in checks.modules:
        yield from check(module, stage, by_name)
    if module.entry is None or module.entry.parse_errors:
        return  # what is missing may be where the text cannot be read
    key = (module.header, stage, _face_of(module.entry))
    if key not in KNOWN_GOOD_CACHE:
        violations = [
            violation for check in checks.entries for violation in check(module, stage, by_name)
        ]
        if not violations:
            _remember(key)
        yield from violations


def _remember(key: object) -> None:
    if len(KNOWN_GOOD_CACHE) >= _MAX_CACHED:
        KNOWN_GOOD_CACHE.clear()
    KNOWN_GOOD_CACHE.add(key)


@cached_analysis
def _face_of(entry: Computation) -> tuple[str, ...]:
    """The numbers and types of its parameters and the type of its root: all a header depends on."""
    rows = [row for row in entry.rows if opcode_of(row) == "parameter"]
    if entry.root is not None:
        rows.append(entry.root.row)
    return tuple(text for row in rows for text in (operands_of(row), type_of(row)))


class _Verifier:
    """The computations of one module."""

    def __init__(
        self, module: Module, stage: Stage, by_name: Mapping[str, Computation], checks: Checks
    ) -> None:
        self.module = module
        self.stage = stage
        self.header = header_of(module, stage)
        self.by_name = by_name
        self.checks = checks
        self.binding = _BINDINGS.setdefault((stage, self.header), len(_BINDINGS))
        self.stage_number = _STAGES.setdefault(stage, len(_STAGES))
        self._inference: ShapeInference | None = None

    def inference(self) -> ShapeInference:
        """Shape inference over the module: made when an instruction is not like one before."""
        if self._inference is None:
            self._inference = ShapeInference(self.module.computations)
        return self._inference

    def computation(self, computation: Computation) -> tuple[Violation, ...]:
        """The violations of a computation, cached for as long as its callees are the same."""
        called = _called(computation)
        callees = tuple(map(self.by_name.get, called))
        key = (self.binding, callees)
        state = computation.analysis_cache.get(key)
        if not isinstance(state, _State):
            state = computation.analysis_cache[key] = self._check(computation, called, callees)
            _latest[self.binding, computation.name] = computation
            computation.analysis_cache[self.binding] = state
        if not state.of_instructions and not state.of_whole:
            return ()
        return (*(violation for _, violation in state.of_instructions), *state.of_whole)

    def _check(
        self,
        computation: Computation,
        called: tuple[str, ...],
        callees: tuple[Computation | None, ...],
    ) -> _State:
        by_name = dict(zip(called, callees, strict=True))
        before = _latest.get((self.binding, computation.name))
        state = None if before is None else before.analysis_cache.get(self.binding)
        places: Sequence[int] = range(len(computation.rows))
        if before is not None and isinstance(state, _State):
            places = _changed(computation, by_name, before, state)
        scope = Scope(computation, self.by_name, self.stage, self.header)
        rows = computation.rows
        numbered = [*self._of_instructions(scope, places), *self._of_attributes(scope, places)]
        whole = () if computation.parse_errors else self.checks.computations
        return _State(
            by_name,
            tuple([(name_of(rows[number]), violation) for number, violation in numbered]),
            tuple([violation for check in whole for violation in check(scope)]),
        )

    def _of_instructions(
        self, scope: Scope, places: Iterable[int]
    ) -> Iterator[tuple[int, Violation]]:
        computation, rows = scope.computation, scope.computation.rows
        opcodes, local, good = self.checks.opcodes, self.checks.local, KNOWN_GOOD_CACHE
        key_of = keys(scope, self.stage_number, local.keys(), good)
        checked = opcodes.keys() & scope.opcodes
        for number in places:
            key = key_of(number)
            if key not in good:
                violations = list(shape_violations(scope, self.inference, number, self.checks))
                for check in local.get(opcode_of(rows[number]), ()):
                    violations += check(scope, computation.at(number))
                if violations:
                    yield from ((number, violation) for violation in violations)
                elif key is not None:
                    _remember(key)
                    _remember((self.stage_number, type_of(rows[number])))
            if checked and (opcode := opcode_of(rows[number])) in checked:
                instruction = computation.at(number)
                for check in opcodes[opcode]:
                    for violation in check(scope, instruction):
                        yield number, violation

    def _of_attributes(
        self, scope: Scope, places: Sequence[int]
    ) -> Iterator[tuple[int, Violation]]:
        """The checks of every opcode, where the text has an attribute of theirs: few texts have."""
        computation, rows = scope.computation, scope.computation.rows
        texts: dict[frozenset[str], tuple[Sequence[int], str]] = {}
        for check, words, other_than, option in self.checks.attributes:
            if option and not getattr(scope.stage, option):
                continue
            excluded = other_than & scope.opcodes
            if excluded not in texts:
                among = [n for n in places if opcode_of(rows[n]) not in excluded]
                texts[excluded] = among, "".join([attributes_of(rows[n]) for n in among])
            numbers, joined = texts[excluded]
            for word in words:
                if word in joined:
                    for number in [n for n in numbers if word in attributes_of(rows[n])]:
                        for violation in check(scope, computation.at(number)):
                            yield number, violation


def _changed(
    computation: Computation,
    callees: Mapping[str, Computation | None],
    before: Computation,
    state: _State,
) -> Sequence[int]:
    """The instructions to check, where the others were checked in an earlier computation."""
    rows = computation.rows
    fresh = set(map(id, rows)).difference(map(id, before.rows))
    if 2 * len(fresh) > len(rows):
        return range(len(rows))  # another module's computation, most likely
    new = {name_of(row) for row in rows if id(row) in fresh} if fresh else set()
    new |= before.index.keys() - computation.index.keys()
    new |= {name for name, _ in state.of_instructions}
    other = {name for name, callee in callees.items() if state.callees.get(name) is not callee}
    if not new and not other:
        return []
    untouched = new.isdisjoint
    places = [
        number
        for number, row in enumerate(rows)
        if name_of(row) in new or not untouched(references_of(row))
    ]
    if "#" in "".join([operands_of(row) for row in rows]):
        taken = set(places)
        for number, row in enumerate(rows):
            if number not in taken and not untouched(map(name_in, references_of(row))):
                places.append(number)
        places.sort()
    if other:
        taken = set(places)
        for number, names in _calls(computation):
            if number not in taken and not other.isdisjoint(names):
                places.append(number)
        places.sort()
    return places


@cached_analysis
def _calls(computation: Computation) -> tuple[tuple[int, tuple[str, ...]], ...]:
    """The instructions that call computations, and the names; of known opcodes alone."""
    callers = {
        opcode for opcode in computation.opcodes if opcode in CALLERS or opcode.endswith("-start")
    }
    if not callers:
        return ()
    return tuple(
        [
            (number, computation.at(number).called_computations)
            for number, row in enumerate(computation.rows)
            if opcode_of(row) in callers
        ]
    )


@cached_analysis
def _called(computation: Computation) -> tuple[str, ...]:
    """The names of the computations that it calls, each once."""
    return tuple(dict.fromkeys(name for _, names in _calls(computation) for name in names))
