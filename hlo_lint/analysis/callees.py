"""The data of `callees.toml`: calls that XLA's libraries take, regions that its emitters take."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any, Final, NamedTuple

from hlo_lint.analysis.grouping import by_key
from hlo_lint.hlo.attributes.configuration import Json, json_fields
from hlo_lint.hlo.shape import ArrayShape, Shape, TupleShape

_ARRAY: Final = re.compile(r"(\w+)\[([^\]]*)\]").fullmatch

_Bound = dict[str, object]
"""The values of the letters of a row: element types, sizes, and runs of dimensions."""


class Call(NamedTuple):
    """A way to call a target."""

    targets: tuple[str, ...]
    operands: tuple[str, ...]
    results: tuple[str, ...]
    asked: str
    when: Mapping[str, Any] = {}
    counts: Mapping[str, str] = {}
    """For a name in the list `ops`, the field with a value for each of its occurrences."""
    reads: tuple[str, ...] = ()
    """Names in the list `ops` that each add an operand, after those of all calls."""

    def holds(self, config: Mapping[str, Json]) -> bool:
        """True if the configuration has all values that the row requires."""
        return all(
            name in config and (config[name] != 0 if wanted == "not 0" else config[name] in wanted)
            for name, wanted in self.when.items()
        )

    def mismatch(
        self, operands: Sequence[Shape | None], result: Shape, config: Mapping[str, Json]
    ) -> str:
        """The first mismatch; "" if there is no known mismatch."""
        ops = config.get("ops")
        for name, field in self.counts.items():
            values = config.get(field)
            wanted = ops.count(name) if isinstance(ops, list) else 0
            count = len(values) if isinstance(values, list) else int(values is not None)
            if wanted != count and wanted:
                return f"has {wanted} times {name} in ops, {count} of {field}"
        read = [name for name in ops if name in self.reads] if isinstance(ops, list) else []
        least = len(self.operands) - 1 + len(read)
        if read and len(operands) < least:
            names = ", ".join(map(str, read))
            return f"takes {least} operands with {names}, got {len(operands)}"
        results = result.elements if isinstance(result, TupleShape) else (result,)
        bound: _Bound = {}
        return _differs("takes", "operand", self.operands, operands, bound) or _differs(
            "of these operands gives", "result", self.results, results, bound
        )


class EmittedRegion(NamedTuple):
    """A computation that has a special emitter."""

    name: str
    opcode: str
    why: str
    asked: str
    spells: tuple[str, ...] = ()
    """The instruction that runs it has any of these attributes; empty for all instructions."""
    holds_no: tuple[str, ...] = ()
    tuples: tuple[str, ...] = ()
    moves: bool = False
    releases: tuple[str, ...] = ()
    """The first and the last release of jax; empty for all."""
    is_silent_unless_known: bool = False
    """True if it is not reported for an unknown release: other releases accept it."""

    def is_of(self, release: tuple[int, ...]) -> bool:
        """True if a release has this emitter; `()` is an unknown release."""
        if not release:
            return not self.is_silent_unless_known
        bounds = [tuple(map(int, text.split("."))) for text in self.releases]
        return not bounds or bounds[0] <= release <= bounds[1]


@cache
def callees() -> tuple[Mapping[str, Sequence[Call]], tuple[EmittedRegion, ...]]:
    """The ways to call each target, and the regions."""
    import tomllib

    data = tomllib.loads(Path(__file__).with_suffix(".toml").read_text("utf-8"))
    rows = [Call(**_frozen(row)) for row in data["call"]]
    calls = by_key((target, call) for call in rows for target in call.targets)
    return calls, tuple(EmittedRegion(**_frozen(row)) for row in data["region"])


def _frozen(row: Mapping[str, Any]) -> dict[str, Any]:
    return {key: tuple(held) if isinstance(held, list) else held for key, held in row.items()}


def configuration(text: str) -> Mapping[str, Json]:
    """The fields of a backend_config, and of the messages in it."""
    return dict(_fields(json_fields(text) or {}))


def _fields(config: Mapping[str, Json]) -> Iterator[tuple[str, Json]]:
    for name, value in config.items():
        if isinstance(value, Mapping):
            yield from _fields(value)
        else:
            yield name, value


def _differs(
    verb: str, noun: str, rows: Sequence[str], shapes: Sequence[Shape | None], bound: _Bound
) -> str:
    is_open = bool(rows) and rows[-1] == "..."
    wanted = rows[:-1] if is_open else rows
    if len(shapes) < len(wanted) or (len(shapes) > len(wanted) and not is_open):
        least = "at least " * is_open
        return f"{verb} {least}{len(wanted)} {noun}s, got {len(shapes)}"
    for number, (row, shape) in enumerate(zip(wanted, shapes, strict=False)):
        if shape is not None and not _fits(row, shape, bound):
            given = shape.with_layout(None) if isinstance(shape, ArrayShape) else "a tuple"
            return f"{verb} {_filled(row, bound)} as {noun} {number}, got {given}"
    return ""


def _fits(row: str, shape: Shape, bound: _Bound) -> bool:
    if row in ("_", "?"):
        return row == "?" or isinstance(shape, ArrayShape)
    match = _ARRAY(row)
    if not isinstance(shape, ArrayShape) or match is None:
        return False
    if not (match[1] == shape.dtype if match[1].islower() else _is(match[1], shape.dtype, bound)):
        return False
    names = match[2].split(",") if match[2] else []
    lengths = [_length(name, bound) for name in names]
    free = len(shape.dims) - sum(length for length in lengths if length is not None)
    if free < 0 or (free and None not in lengths):
        return False
    dims = list(shape.dims)
    for name, length in zip(names, lengths, strict=True):
        count = free if length is None else length
        part, dims = tuple(dims[:count]), dims[count:]
        if not _is(name, part if name.startswith("*") else part[0], bound):
            return False
    return True


def _length(name: str, bound: _Bound) -> int | None:
    """The number of dimensions that a name stands for; None if still unbound."""
    held = bound.get(name)
    return (len(held) if isinstance(held, tuple) else None) if name.startswith("*") else 1


def _is(name: str, thing: object, bound: _Bound) -> bool:
    return name == "_" or bound.setdefault(name, thing) == thing


def _filled(row: str, bound: _Bound) -> str:
    """The row with its bound letters filled in: `array[…,7]`."""

    def spelled(match: re.Match[str]) -> str:
        held = bound.get(match[0], "…")
        return ",".join(map(str, held)) if isinstance(held, tuple) else str(held)

    dtype, _, dims = row.partition("[")
    if not dtype.islower():
        dtype = str(bound.get(dtype, "array"))
    return dtype + re.sub(r"\*?\b[A-Za-z_]\b", spelled, "[" + dims if dims else "")
