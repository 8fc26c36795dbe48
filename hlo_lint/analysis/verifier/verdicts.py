"""Runs the checks of the verifier over a module: what dumps share is judged once.

A computation that changed is judged where it changed: rows that the last computation of its name
has as well, with the same rows as operands and the same computations called, were judged there.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final, NamedTuple
from weakref import WeakValueDictionary

from hlo_lint.analysis.layout_mismatches import name_in
from hlo_lint.analysis.shape_inference import ShapeInference
from hlo_lint.analysis.verifier import (
    aliasing,
    asynchronous,
    attributes,
    buffers,
    calls,
    channels,
    collectives,
    custom_calls,
    entry,
    layouts,
    schedule,
    shapes,
    sharding,
    structure,
)
from hlo_lint.analysis.verifier.scope import (
    Check,
    Demands,
    Header,
    RowCheck,
    Scope,
    Violation,
)
from hlo_lint.hlo.ir import Computation, Module
from hlo_lint.hlo.records import attributes_of, name_of, opcode_of, operands_of, references_of

_FAMILIES: Final = (
    shapes,
    layouts,
    attributes,
    collectives,
    calls,
    asynchronous,
    custom_calls,
    aliasing,
    channels,
    buffers,
    sharding,
    schedule,
    structure,
    entry,
)


def _merged(tables: Iterable[Mapping[str, tuple[Check, ...]]]) -> dict[str, tuple[Check, ...]]:
    merged: dict[str, tuple[Check, ...]] = {}
    for table in tables:
        for opcode, checks in table.items():
            merged[opcode] = (*merged.get(opcode, ()), *checks)
    return merged


_BY_OPCODE: Final = _merged(family.CHECKS for family in _FAMILIES)
_OF_ROWS: Final[dict[RowCheck, tuple[str, ...]]] = {
    check: marks for family in _FAMILIES for check, marks in family.OF_ROWS.items()
}
"""Checks of every opcode, and a word of which an instruction has one where they may say more."""
_OF_COMPUTATIONS: Final = tuple(check for family in _FAMILIES for check in family.OF_COMPUTATIONS)
_OF_MODULES: Final = tuple(check for family in _FAMILIES for check in family.OF_MODULES)

_OF_HEADERS: Final = (*aliasing.OF_HEADERS, *entry.OF_HEADERS)
"""Checks of a header beside the parameters and the root of the entry."""
_FINE: Final[set[object]] = set()
"""Headers that agree with their entries."""
_MAX_REMEMBERED = 1 << 10

Verdict = Mapping[str, tuple[Violation, ...]]
"""What was found, by row of the list."""

_latest: WeakValueDictionary[tuple[int, str], Computation] = WeakValueDictionary()
"""The computation of a name that was judged last, by what bound it."""
_BINDINGS: Final[dict[tuple[Demands, Header], int]] = {}
"""A number for what binds, which is quickly compared."""


class _State(NamedTuple):
    """What is known of one computation under some demands."""

    callees: Mapping[str, Computation | None]
    """What it calls, by name."""
    by_name: tuple[tuple[str, Violation], ...]
    """What was said of single instructions, by their names."""
    whole: tuple[Violation, ...]
    """What was said of it as a whole."""


def verify(module: Module, demands: Demands) -> Verdict:
    """Everything that XLA's verifier would refuse in a module, and what it forgets to look at."""
    known = module.memo.get(demands)
    if known is None:
        found: dict[str, list[Violation]] = {}
        for violation in _verify(module, demands):
            found.setdefault(violation.row, []).append(violation)
        known = module.memo[demands] = {row: tuple(each) for row, each in found.items()}
    return known  # type: ignore[return-value]  # nobody else writes under such a key


def _verify(module: Module, demands: Demands) -> Iterator[Violation]:
    by_name: dict[str, Computation] = {}
    for computation in module.computations:
        by_name.setdefault(computation.name, computation)
    header = entry.header_of(module)
    judge = _Judge(module, demands, header, by_name)
    for computation in module.computations:
        yield from judge.computation(computation)
    for check in _OF_MODULES:
        yield from check(module, demands, by_name)
    if module.entry is None or module.entry.parse_errors:
        return  # what is missing may stand where the text cannot be read
    key = (module.header, demands, entry.face_of(module.entry))
    if key not in _FINE:
        found = [each for check in _OF_HEADERS for each in check(module, demands, by_name)]
        if not found:
            if len(_FINE) >= _MAX_REMEMBERED:
                _FINE.clear()
            _FINE.add(key)
        yield from found


class _Judge:
    """The computations of one module."""

    def __init__(
        self,
        module: Module,
        demands: Demands,
        header: Header,
        by_name: Mapping[str, Computation],
    ) -> None:
        self.module = module
        self.demands = demands
        self.header = header
        self.by_name = by_name
        self.binding = _BINDINGS.setdefault((demands, header), len(_BINDINGS))
        self._inference: ShapeInference | None = None

    def inference(self) -> ShapeInference:
        if self._inference is None:
            self._inference = ShapeInference(self.module.computations)
        return self._inference

    def computation(self, computation: Computation) -> tuple[Violation, ...]:
        """What is said of a computation, remembered for as long as what it calls is the same."""
        called = _called(computation)
        callees = tuple(map(self.by_name.get, called))
        key = (self.binding, callees)
        known = computation.memo.get(key)
        if not isinstance(known, _State):
            known = computation.memo[key] = self._judge(computation, called, callees)
            _latest[self.binding, computation.name] = computation
            computation.memo[self.binding] = known
        if not known.by_name and not known.whole:
            return ()
        return (*(each for _, each in known.by_name), *known.whole)

    def _judge(
        self,
        computation: Computation,
        called: tuple[str, ...],
        callees: tuple[Computation | None, ...],
    ) -> _State:
        by_name = dict(zip(called, callees, strict=True))
        before = _latest.get((self.binding, computation.name))
        state = None if before is None else before.memo.get(self.binding)
        places: Iterable[int] = range(len(computation.rows))
        if before is not None and isinstance(state, _State):
            places = _changed(computation, by_name, before, state)
        scope = Scope(computation, self.by_name, self.demands, self.header)
        rows = computation.rows
        found = [
            (name_of(rows[number]), each)
            for number, each in shapes.complaints(scope, self.inference, places)
        ]
        found += [
            (name_of(rows[number]), each)
            for check, marked in _of_rows(scope, places)
            for number in marked
            for each in check(scope, number)
        ]
        if not scope.opcodes.isdisjoint(_BY_OPCODE):
            for number in places:
                checks = _BY_OPCODE.get(opcode_of(rows[number]))
                if checks is not None:
                    instruction = computation.at(number)
                    for of_opcode in checks:
                        found += [
                            (instruction.name, each) for each in of_opcode(scope, instruction)
                        ]
        of_all = () if computation.parse_errors else _OF_COMPUTATIONS
        whole = [each for check in of_all for each in check(scope)]
        return _State(by_name, tuple(found), tuple(whole))


def _of_rows(scope: Scope, places: Iterable[int]) -> Iterator[tuple[RowCheck, list[int]]]:
    """The checks of every opcode, with the rows that have a word of theirs: there are few."""
    rows, callers = scope.computation.rows, calls.CALLERS
    others = places
    if not callers.isdisjoint(scope.opcodes):
        others = [number for number in places if opcode_of(rows[number]) not in callers]
    every = "".join([attributes_of(rows[number]) for number in places])
    rest = (
        every if others is places else "".join([attributes_of(rows[number]) for number in others])
    )
    for check, marks in _OF_ROWS.items():
        is_rest = check is calls.called_for_nothing
        words = [mark for mark in marks if mark in (rest if is_rest else every)]
        if words:
            numbers = others if is_rest else places
            marked = [n for n in numbers if any(word in attributes_of(rows[n]) for word in words)]
            yield check, marked


def _changed(
    computation: Computation,
    callees: Mapping[str, Computation | None],
    before: Computation,
    state: _State,
) -> Sequence[int]:
    """Which rows have to be judged, where the others were judged in an earlier computation."""
    rows = computation.rows
    fresh = set(map(id, rows)).difference(map(id, before.rows))
    if 2 * len(fresh) > len(rows):
        return range(len(rows))  # another module's computation, most likely
    new = {name_of(row) for row in rows if id(row) in fresh} if fresh else set()
    new |= before.index.keys() - computation.index.keys()
    new |= {name for name, _ in state.by_name}
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
        judged = set(places)
        for number, row in enumerate(rows):
            if number not in judged and not untouched(map(name_in, references_of(row))):
                places.append(number)
        places.sort()
    if other:
        judged = set(places)
        for number, names in _calls(computation):
            if number not in judged and not other.isdisjoint(names):
                places.append(number)
        places.sort()
    return places


def _calls(computation: Computation) -> tuple[tuple[int, tuple[str, ...]], ...]:
    """Which rows call computations, and which; what an unknown opcode calls does not matter."""
    known = computation.memo.get("calls")
    if known is None:
        rows = computation.rows
        callers = {
            each for each in computation.opcodes if each in calls.CALLERS or each.endswith("-start")
        }
        known = computation.memo["calls"] = tuple(
            [
                (number, computation.at(number).called_computations)
                for number, row in enumerate(rows)
                if opcode_of(row) in callers
            ]
            if callers
            else ()
        )
    return known  # type: ignore[return-value]  # nobody else writes under this key


def _called(computation: Computation) -> tuple[str, ...]:
    """The names of the computations that it calls, each once."""
    known = computation.memo.get("called")
    if known is None:
        names = (name for _, called in _calls(computation) for name in called)
        known = computation.memo["called"] = tuple(dict.fromkeys(names))
    return known  # type: ignore[return-value]  # nobody else writes under this key
