"""Names, parameters and roots: that a computation is one, and a module too."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from functools import lru_cache

from hlo_lint.analysis.verifier.calls import passed_as_they_lie
from hlo_lint.analysis.verifier.scope import (
    Checks,
    Demands,
    RowChecks,
    Scope,
    Violation,
    header_span,
    parameter_number,
)
from hlo_lint.hlo.ir import Computation, Instruction, Module
from hlo_lint.hlo.records import name_of, opcode_of, operands_of, references_of, root_mark_of


def _names(scope: Scope) -> Iterable[Violation]:
    computation = scope.computation
    return () if len(computation.index) == len(computation.rows) else _doubled(computation)


def _doubled(computation: Computation) -> Iterator[Violation]:
    seen: set[str] = set()
    for number, row in enumerate(computation.rows):
        if name_of(row) in seen:
            yield Violation("I-01", computation.at(number), f"%{name_of(row)} is there twice")
        seen.add(name_of(row))


def _parameters(scope: Scope) -> Iterable[Violation]:
    """Parameters are numbered from 0, each number once."""
    rows = scope.computation.rows
    texts = [operands_of(row) for row in rows if opcode_of(row) == "parameter"]
    return () if _up_to(len(texts)) == set(texts) else _misnumbered(scope.computation)


@lru_cache(maxsize=1 << 10)
def _up_to(end: int) -> frozenset[str]:
    return frozenset(map(str, range(end)))


def _misnumbered(computation: Computation) -> Iterator[Violation]:
    numbers: dict[int, str] = {}
    for parameter in computation.with_opcode("parameter"):
        number = parameter_number(parameter)
        if number is None:
            text = parameter.operands_text.strip()
            yield Violation("I-05", parameter, f"{text or 'nothing'} is no number of a parameter")
        elif number in numbers:
            message = f"%{numbers[number]} is parameter {number} already"
            yield Violation("I-05", parameter, message)
        else:
            numbers[number] = parameter.name
    missing = sorted(set(range(len(numbers))) - numbers.keys())
    if missing and computation.rows:
        at = computation.with_opcode("parameter")[0]
        yield Violation(
            "I-05", at, f"there is no parameter {missing[0]}, and {len(numbers)} parameters"
        )


def _roots(scope: Scope) -> Iterable[Violation]:
    roots = [number for number, row in enumerate(scope.computation.rows) if root_mark_of(row)]
    return () if len(roots) < 2 else _doubled_roots(scope.computation, roots)


def _doubled_roots(computation: Computation, roots: list[int]) -> Iterator[Violation]:
    first = computation.at(roots[0])
    message = f"a computation has one root, and %{first.name} is one already"
    for number in roots[1:]:
        yield Violation("I-05r", computation.at(number), message)


def _fusion(scope: Scope, fusion: Instruction) -> Iterator[Violation]:
    """The body of a fusion: one, not the entry, and nothing in it that nobody reads."""
    bodies = scope.called(fusion)
    if len(bodies) != 1:
        yield Violation("S-77", fusion, f"a fusion calls one computation, and not {len(bodies)}")
        return
    (body,) = bodies
    if body is None:
        return
    if body.is_entry:
        yield Violation("M-10", fusion, "the entry computation is the body of a fusion")
    for number in _unread(body):
        message = f"nobody reads %{name_of(body.rows[number])} in the fusion %{body.name}"
        yield Violation("I-05u", body.at(number), message)
    if scope.demands.layouts:
        yield from passed_as_they_lie(scope, fusion)


def _unread(body: Computation) -> tuple[int, ...]:
    known = body.memo.get("unread")
    if known is None:
        root = body.root
        read = {name for row in body.rows for name in references_of(row)}
        unread = [number for number, row in enumerate(body.rows) if name_of(row) not in read]
        if len(unread) > 1:
            elements = {name.partition("#")[0] for name in read}
            unread = [number for number in unread if name_of(body.rows[number]) not in elements]
        known = body.memo["unread"] = tuple(
            [number for number in unread if root is not None and number != root.number]
        )
    return known  # type: ignore[return-value]  # nobody else writes under this key


def _module_name(
    module: Module, demands: Demands, by_name: Mapping[str, Computation]
) -> Iterator[Violation]:
    if module.header and not module.name:
        yield Violation("M-10", header_span(module), "this module has no name")


def _named_once(
    module: Module, demands: Demands, by_name: Mapping[str, Computation]
) -> Iterator[Violation]:
    """XLA prints each name of a module once."""
    if not demands.named_once:
        return
    names: set[str] = set()
    for computation in module.computations:
        names.update(computation.index)
    if len(names) == sum(len(computation.index) for computation in module.computations):
        return
    first: dict[str, Computation] = {}
    for computation in module.computations:
        for number, row in enumerate(computation.rows):
            other = first.setdefault(name_of(row), computation)
            if other is not computation:
                at = computation.at(number)
                yield Violation("I-01", at, f"%{name_of(row)} is in %{other.name}, too")


CHECKS: Checks = {"fusion": (_fusion,)}
OF_ROWS: RowChecks = {}
OF_COMPUTATIONS = (_names, _parameters, _roots)
OF_MODULES = (_module_name, _named_once)
