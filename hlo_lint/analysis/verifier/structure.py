"""Errors in the structure of a computation that XLA's parser refuses, and its verifier too."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from hlo_lint.hlo.ir import Computation
from hlo_lint.hlo.records import name_of, root_mark_of


class StructureError(NamedTuple):
    """An error at one instruction."""

    number: int
    """The position of the instruction."""
    message: str


def doubled_names(computation: Computation) -> Iterator[StructureError]:
    """The instructions that have the name of one above."""
    seen: set[str] = set()
    for number, row in enumerate(computation.rows):
        if name_of(row) in seen:
            yield StructureError(number, f"instruction already exists: %{name_of(row)}")
        seen.add(name_of(row))


def doubled_roots(computation: Computation) -> Iterator[StructureError]:
    """The instructions that are a ROOT after the first."""
    roots = [number for number, row in enumerate(computation.rows) if root_mark_of(row)]
    for number in roots[1:]:
        first = name_of(computation.rows[roots[0]])
        message = f"one computation should have only one ROOT: %{first} is the first"
        yield StructureError(number, message)


def misnumbered_parameters(computation: Computation) -> Iterator[StructureError]:
    """The parameters that have the number of another, and the last if one before it is missing."""
    numbers: dict[int, int] = {}
    for parameter in computation.with_opcode("parameter"):
        number = parameter.parameter_number
        if number in numbers:
            first = name_of(computation.rows[numbers[number]])
            message = f"duplicate parameter number {number}: %{first} is the first"
            yield StructureError(parameter.number, message)
        elif number is not None:
            numbers[number] = parameter.number
    last = max(numbers, default=-1)
    if last >= len(numbers):
        missing = next(number for number in range(last) if number not in numbers)
        message = f"parameter {last} is there, and parameter {missing} is not"
        yield StructureError(numbers[last], message)
