"""Runs all checks over a module in one pass: what dumps share is checked once.

A computation that changed is checked where it changed: instructions that the previous computation
of its name has as well, with the same operands and the same callees, were checked there.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cached_property, lru_cache
from itertools import chain
from operator import itemgetter
from typing import Final, cast
from weakref import WeakValueDictionary

from hlo_lint.analysis.calls import calls_of, opcodes_of
from hlo_lint.analysis.kinds import RowKind, Template, template_of
from hlo_lint.analysis.shape_inference import ShapeInference
from hlo_lint.analysis.shape_inference.module import IGNORES_TYPE
from hlo_lint.analysis.shape_inference.shape_check import inference_of
from hlo_lint.analysis.stage import Stage
from hlo_lint.analysis.verifier.batch import Batch
from hlo_lint.analysis.verifier.checks import Checks
from hlo_lint.analysis.verifier.scope import Header, Scope, Violation, header_of
from hlo_lint.analysis.verifier.shapes import (
    Key,
    is_evident,
    is_known,
    is_right,
    key_of,
    shape_violations,
    summary_of,
    type_errors,
    type_violations,
)
from hlo_lint.hlo.ir import Computation, Module, cached_analysis
from hlo_lint.hlo.records import (
    attributes_of,
    name_in,
    name_of,
    opcode_of,
    operands_of,
    references_of,
    type_of,
    without_metadata,
)
from hlo_lint.text.lazy_dataclasses import NamedTuple, replace

Violations = Mapping[str, tuple[Violation, ...]]
"""The violations, by name of the check."""

_GOOD_SHAPES: Final[dict[Stage, dict[str, set[Key]]]] = {}
"""Keys of instructions that passed, by opcode: most lines of a dump are like many others."""
_GOOD_COMPUTATIONS: Final[dict[int, set[Template]]] = {}
"""Small computations that passed, by what bound them."""
_GOOD_HEADERS: Final[set[tuple[object, ...]]] = set()
_MAX_CACHED: Final = 1 << 15

_latest: WeakValueDictionary[tuple[int, str], Computation] = WeakValueDictionary()
"""The computation of a name that was checked last, by what bound it."""
_BINDINGS: Final[dict[tuple[Stage, Header], int]] = {}
"""A number for what binds, which is quickly compared."""


class _State(NamedTuple):
    """The result for one computation under some stage."""

    callees: Mapping[str, Computation | None]
    """The computations it calls, by name."""
    of_instructions: tuple[tuple[str, Violation], ...]
    """Violations of single instructions, by their names."""
    of_whole: tuple[Violation, ...]
    """Violations of the computation as a whole."""


_GOOD_STATE: Final = _State({}, (), ())


def clear_caches() -> None:
    """Forget what passed; for tests."""
    _latest.clear()
    _GOOD_SHAPES.clear()
    _GOOD_COMPUTATIONS.clear()
    _GOOD_HEADERS.clear()


def verify(module: Module, stage: Stage, checks: Checks) -> Violations:
    """Everything that XLA's verifier would refuse in a module, and what it forgets to check."""
    options = _options_of(module, stage)
    cached = module.analysis_cache.get(options)
    if cached is None:
        by_check: dict[str, list[Violation]] = {}
        for violation in _verify(module, options, checks):
            by_check.setdefault(violation.check, []).append(violation)
        cached = module.analysis_cache[options] = {
            check: tuple(violations) for check, violations in by_check.items()
        }
    return cast("Violations", cached)


def good_computations(
    module: Module, stage: Stage, checks: Checks, numbers: Sequence[int]
) -> list[int]:
    """Those of some computations, by number, that violate nothing as single computations."""
    verifier = _Verifier(module, _options_of(module, stage), _by_name(module), checks)
    verifier.check([module.computations[at] for at in numbers])
    return [at for at in numbers if verifier.is_good(module.computations[at])]


def mark_good(module: Module, stage: Stage, checks: Checks, numbers: Sequence[int]) -> None:
    """Take over from another process which computations violate nothing."""
    verifier = _Verifier(module, _options_of(module, stage), _by_name(module), checks)
    for at in numbers:
        verifier.mark_good(module.computations[at])


def _options_of(module: Module, stage: Stage) -> Stage:
    """The options of a stage; of a loose text without layouts where it shows none."""
    options = stage.options
    if options.assumed and options.layouts and not _shows_layouts(module):
        return _without_layouts(options)
    return options


def _by_name(module: Module) -> dict[str, Computation]:
    by_name: dict[str, Computation] = {}
    for computation in module.computations:
        by_name.setdefault(computation.name, computation)
    return by_name


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
    by_name = _by_name(module)
    yield from _Verifier(module, stage, by_name, checks).violations()
    for check in checks.modules:
        yield from check(module, stage, by_name)
    if module.entry is None or module.entry.parse_errors:
        return  # what is missing may be where the text cannot be read
    key = (module.header, stage, _face_of(module.entry))
    if key not in _GOOD_HEADERS:
        violations = [
            violation for check in checks.entries for violation in check(module, stage, by_name)
        ]
        if not violations:
            if len(_GOOD_HEADERS) >= _MAX_CACHED:
                _GOOD_HEADERS.clear()
            _GOOD_HEADERS.add(key)
        yield from violations


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
        self.good = _GOOD_SHAPES.setdefault(stage, {})
        self.templates = _GOOD_COMPUTATIONS.setdefault(self.binding, set())
        if len(self.templates) > _MAX_CACHED:
            self.templates.clear()
        self._scopes: dict[Computation, Scope] = {}
        self._states: dict[Computation, _State] = {}

    @cached_property
    def inference(self) -> ShapeInference:
        """Shape inference over the module: made when an instruction is not like one before."""
        return ShapeInference(self.module.computations)

    @cached_property
    def _infers_types(self) -> bool:
        """True if some operand may have another type than the printed one."""
        return not IGNORES_TYPE.isdisjoint(opcodes_of(self.module))

    def violations(self) -> Iterator[Violation]:
        """Those of all computations, cached for as long as what they call is the same."""
        computations = self.module.computations
        self.check(computations)
        for computation in computations:
            state = self._state(computation)
            if state is not None and (state.of_instructions or state.of_whole):
                yield from (violation for _, violation in state.of_instructions)
                yield from state.of_whole

    def check(self, computations: Sequence[Computation]) -> None:
        """Find the violations of some computations, where they are not known."""
        # Of computations that do the same one is checked, and the others if that one is not good.
        examples: dict[object, Computation] = {}
        others = []
        for computation in self._unchecked(computations):
            template = template_of(computation) or computation
            if examples.setdefault(template, computation) is not computation:
                others.append(computation)
        self._check(list(examples.values()))
        self._check(self._unchecked(others))

    def is_good(self, computation: Computation) -> bool:
        """True if it was checked, and violates nothing."""
        state = self._state(computation)
        return state is not None and not state.of_instructions and not state.of_whole

    def mark_good(self, computation: Computation) -> None:
        """Note that it violates nothing."""
        callees = self._callees(computation)
        state = _State(dict(zip(_called(computation), callees, strict=True)), (), ())
        computation.analysis_cache[self.binding, callees] = state

    def _unchecked(self, computations: Sequence[Computation]) -> list[Computation]:
        return [computation for computation in computations if self._state(computation) is None]

    def _state(self, computation: Computation) -> _State | None:
        """The facts of a computation with these callees, shared with one that does the same."""
        state = self._states.get(computation)
        if state is None:
            key = self.binding, self._callees(computation)
            cached = computation.analysis_cache.get(key)
            if cached is None and template_of(computation) in self.templates:
                cached = computation.analysis_cache[key] = _GOOD_STATE
            if isinstance(cached, _State):
                state = self._states[computation] = cached
        return state

    def _callees(self, computation: Computation) -> tuple[Computation | None, ...]:
        return tuple(map(self.by_name.get, _called(computation)))

    def _scope(self, computation: Computation) -> Scope:
        scope = self._scopes.get(computation)
        if scope is None:
            scope = self._scopes[computation] = Scope(
                computation, self.by_name, self.stage, self.header
            )
        return scope

    def _check(self, computations: Sequence[Computation]) -> None:
        """Find the violations of computations that were not checked with these callees."""
        if not computations:
            return
        violations: dict[Computation, list[tuple[int, Violation]]] = {}
        places = {computation: self._places(computation) for computation in computations}
        batch = Batch()
        for computation, numbers in places.items():
            batch.add(computation, numbers)
        of_rows = sorted(self._of_rows(batch), key=itemgetter(0))
        for at, violation in (*of_rows, *self._of_attributes(batch)):
            computation, number = batch.place(at)
            violations.setdefault(computation, []).append((number, violation))
        opcodes = opcodes_of(self.module)
        whole = [
            check
            for check, concerns in self.checks.computations
            if not concerns or concerns(opcodes)
        ]
        for computation in computations:
            scope, rows = self._scope(computation), computation.rows
            state = _State(
                dict(zip(_called(computation), self._callees(computation), strict=True)),
                tuple(
                    [
                        (name_of(rows[at]), violation)
                        for at, violation in violations.get(computation, ())
                    ]
                ),
                ()
                if computation.parse_errors
                else tuple([violation for check in whole for violation in check(scope)]),
            )
            computation.analysis_cache[self.binding, self._callees(computation)] = state
            computation.analysis_cache[self.binding] = state
            _latest[self.binding, computation.name] = computation
            template = template_of(computation)
            if template is not None and state == _GOOD_STATE:
                self.templates.add(template)

    def _places(self, computation: Computation) -> Sequence[int]:
        """The positions of the instructions that the computation of that name did not have."""
        before = _latest.get((self.binding, computation.name))
        state = None if before is None else before.analysis_cache.get(self.binding)
        if before is None or not isinstance(state, _State):
            return range(len(computation.rows))
        callees = dict(zip(_called(computation), self._callees(computation), strict=True))
        return _changed(computation, callees, before, state)

    def _of_rows(self, batch: Batch) -> Iterator[tuple[int, Violation]]:
        """The violations of single instructions, by what is wrong: type, shape, the rest."""
        kinds_of_all = chain.from_iterable(batch.kinds.values())
        for at in batch.of_kinds(kind for kind in kinds_of_all if type_errors(kind[1])):
            yield from self._at(batch, at, type_violations)
        for opcode, kinds in batch.kinds.items():
            yield from self._of_shapes(batch, opcode, kinds)
        for opcode in self.checks.opcodes.keys() & batch.kinds.keys():
            for check, option, word in self.checks.opcodes[opcode]:
                if option and not getattr(self.stage, option):
                    continue
                holding = [kind for kind in batch.kinds[opcode] if word in kind[2]]
                for at in batch.of_kinds(holding):
                    computation, number = batch.place(at)
                    for violation in check(self._scope(computation), computation.at(number)):
                        yield at, violation

    def _at(
        self, batch: Batch, at: int, check: Callable[[Scope, int], Iterator[Violation]]
    ) -> Iterator[tuple[int, Violation]]:
        computation, number = batch.place(at)
        for violation in check(self._scope(computation), number):
            yield at, violation

    def _of_shapes(
        self, batch: Batch, opcode: str, kinds: Mapping[RowKind, int]
    ) -> Iterator[tuple[int, Violation]]:
        """The violations of one opcode's shapes, of which equal ones are looked at once."""
        is_checked = opcode in self.checks.local
        inference = inference_of(opcode)
        calls = inference is not None and inference.calls
        good = self.good.setdefault(opcode, set())
        bad = []
        for kind, at in kinds.items():
            callees = batch.callees(at) if calls else ()
            key = key_of(kind, callees, self.by_name, is_checked=is_checked)
            if key is None or key in good:
                continue
            if self._is_good(batch, at, opcode, key, good):
                good.add(key)
            else:
                bad.append(kind)
        if len(good) > _MAX_CACHED:
            good.clear()
        for at in batch.of_kinds(bad):
            yield from self._at(batch, at, self._shape_violations)

    def _is_good(self, batch: Batch, at: int, opcode: str, key: Key, good: set[Key]) -> bool:
        """True if instructions with a key have no violations."""
        if not is_known(key):
            return False
        if is_evident(opcode, key):
            return True
        summary = summary_of(opcode, key)
        if summary in good:
            return True
        if self._infers_types or not is_right(opcode, key, self.stage):
            violations = self._at(batch, at, self._shape_violations)
        else:
            has_checks = opcode in self.checks.local
            violations = self._at(batch, at, self._local_violations) if has_checks else iter(())
        if any(violations):
            return False
        if summary is not None:
            good.add(summary)
        return True

    def _shape_violations(self, scope: Scope, number: int) -> Iterator[Violation]:
        yield from shape_violations(scope, self.inference, number, self.checks)
        yield from self._local_violations(scope, number)

    def _local_violations(self, scope: Scope, number: int) -> Iterator[Violation]:
        instruction = scope.computation.at(number)
        for check in self.checks.local.get(instruction.opcode, ()):
            yield from check(scope, instruction)

    def _of_attributes(self, batch: Batch) -> Iterator[tuple[int, Violation]]:
        """The checks of every opcode, where the text has an attribute of theirs: few texts have."""
        for check, words, other_than, option, is_local in self.checks.attributes:
            if option and not getattr(self.stage, option):
                continue
            for word in words:
                good = self.good.setdefault(word, set())
                for at in batch.with_attribute(word, other_than):
                    row = batch.row(at)
                    attributes = without_metadata(attributes_of(row))
                    key = self.header, opcode_of(row), type_of(row), attributes
                    if is_local and key in good:
                        continue
                    computation, number = batch.place(at)
                    violations = [*check(self._scope(computation), computation.at(number))]
                    yield from ((at, violation) for violation in violations)
                    if not violations:
                        good.add(key)


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
        for number, names in calls_of(computation).items():
            if number not in taken and not other.isdisjoint(names):
                places.append(number)
        places.sort()
    return places


@cached_analysis
def _called(computation: Computation) -> tuple[str, ...]:
    """The names of the computations that it calls, each once."""
    calls = calls_of(computation)
    return tuple(dict.fromkeys(chain.from_iterable(calls.values()))) if calls else ()
