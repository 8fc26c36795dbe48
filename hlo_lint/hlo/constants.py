"""Numbers that the text determines: constants, iotas, rearrangements of these."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import takewhile
from math import prod
from typing import Final

from hlo_lint.hlo.arrays import operand_array, result_array
from hlo_lint.hlo.dtypes import integer_range, is_integer
from hlo_lint.hlo.ir import Instruction
from hlo_lint.hlo.records import opcode_of
from hlo_lint.hlo.shape import ArrayShape
from hlo_lint.text.patterns import late

INDEX_MAPS: Final = {"gather": "start_index_map", "scatter": "scatter_dims_to_operand_dims"}
"""The attribute that names the dimensions of the indices of an opcode."""
MAX_ELEMENTS: Final = 1 << 12
"""The largest number of elements of an array that is read."""
_KEEPS: Final = frozenset({"convert", "copy", "reshape"})
_KNOWN: Final = _KEEPS | {"broadcast", "concatenate", "constant", "iota"}
_find_numbers = late(r"-?\d+").findall
_has_words = late(r"[a-zA-Z./]").search


def constant_of(value: Instruction | None) -> Instruction | None:
    """The constant that a value is or broadcasts, else None."""
    if value is not None and value.opcode == "broadcast":
        value = value.producer()
    return value if value is not None and value.opcode == "constant" else None


def number_of(constant: Instruction | None) -> float | None:
    """The number of a scalar constant, infinities and nan included; else None."""
    if constant is None or constant.opcode != "constant":
        return None
    try:
        return float(constant.operands_text.strip())
    except ValueError:
        return None


def constant_integers(value: Instruction | None, depth: int = 8) -> list[int] | None:
    """The elements of an array of integers in row-major order; None if unknown."""
    shape = None if value is None else result_array(value)
    if value is None or shape is None or depth == 0 or not is_integer(shape.dtype):
        return None
    if prod(shape.dims) > MAX_ELEMENTS:
        return None
    numbers, fitting = _elements(value, shape, depth), integer_range(shape.dtype)
    # Numbers that do not fit wrap around or are clamped, depending on the backend.
    return numbers if numbers is None or all(number in fitting for number in numbers) else None


def _elements(value: Instruction, shape: ArrayShape, depth: int) -> list[int] | None:
    inputs = [operand.instruction for operand in value.operands]
    match value.opcode:
        case "constant":
            text = value.operands_text
            numbers = [] if _has_words(text) else [int(number) for number in _find_numbers(text)]
            return numbers if len(numbers) == prod(shape.dims) else None
        case "iota":
            dimensions = value.dimensions_attribute("iota_dimension", shape.rank)
            if not dimensions:
                return None
            (dimension,) = dimensions
            inner = prod(shape.dims[dimension + 1 :])
            return [place // inner % shape.dims[dimension] for place in range(prod(shape.dims))]
        case "broadcast":
            numbers = constant_integers(inputs[0], depth - 1) or []
            return numbers * prod(shape.dims) if len(numbers) == 1 else None
        case "concatenate":
            dimensions = value.dimensions_attribute("dimensions", shape.rank)
            if not dimensions:
                return None
            parts = [constant_integers(part, depth - 1) for part in inputs]
            rows: list[list[int]] = [[] for _ in range(prod(shape.dims[: dimensions[0]]))]
            for part in parts:
                if part is None or not rows:
                    return None
                width = len(part) // len(rows)
                for number, row in enumerate(rows):
                    row += part[number * width : (number + 1) * width]
            return [number for row in rows for number in row]
        case opcode if opcode in _KEEPS and inputs:
            return constant_integers(inputs[0], depth - 1)
        case _:
            return None


def indexed_dimensions(instruction: Instruction) -> list[int]:
    """The dimensions that a gather or scatter indexes; empty if they are invalid."""
    whole = operand_array(instruction, 0)
    if whole is None:
        return []
    name = INDEX_MAPS[instruction.opcode]
    return sorted(instruction.dimensions_attribute(name, whole.rank) or ())


def index_rows(instruction: Instruction) -> Sequence[tuple[int, ...]]:
    """The indices of a gather or scatter, ordered by dimension; empty if unknown."""
    columns = _index_columns(instruction)
    return list(zip(*filter(None, columns), strict=True)) if all(columns) else ()


def leading_index_rows(instruction: Instruction) -> Sequence[tuple[int, ...]]:
    """The indices of a gather or scatter up to the first dimension whose index is unknown."""
    columns = takewhile(bool, _index_columns(instruction))
    return list(zip(*filter(None, columns), strict=True))


def _index_columns(instruction: Instruction) -> Sequence[list[int] | None]:
    """The indices of each dimension, ordered by dimension; None for unknown indices."""
    # `constant_integers` reads no other opcode.
    references, computation = instruction.operand_names, instruction.computation
    number = computation.index.get(references[1]) if len(references) > 1 else None
    if number is None or opcode_of(computation.rows[number]) not in _KNOWN:
        return ()
    indices = operand_array(instruction, 1)
    dimensions = instruction.integers_attribute(INDEX_MAPS[instruction.opcode]) or ()
    if indices is None or len(instruction.operands) not in (2, 3):
        return ()
    if not indexed_dimensions(instruction):
        return ()
    if "batching_dims={" in instruction.attributes_text.replace("batching_dims={}", ""):
        return ()
    count = len(dimensions)
    vector = instruction.integer_attribute("index_vector_dim")
    last = len(indices.dims) - 1
    if vector is None or not (vector == last or (vector == last + 1 and count == 1)):
        return ()
    source = instruction.producer(1)
    joined = None if source is None else source.dimensions_attribute("dimensions", last + 1)
    parts = [source]
    if source is not None and source.opcode == "concatenate" and joined == (vector,):
        parts = [operand.instruction for operand in source.operands]
    columns: list[list[int] | None] = []
    for part in parts:
        array = None if part is None else result_array(part)
        width = count if part is source else 0 if array is None else array.dims[-1]
        numbers = constant_integers(part)
        columns += [None if numbers is None else numbers[n::width] for n in range(width)]
    if len(columns) != count:
        return ()
    return [columns[number] for number in sorted(range(count), key=dimensions.__getitem__)]
