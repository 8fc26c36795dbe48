"""Whole graphs as two releases of XLA read them, side by side, field by field."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Collection, Iterator, Sequence
from pathlib import Path
from typing import Any

from tests.oracle.xla import Oracle, as_utf8

_ROOT = Path(__file__).resolve().parents[2]
_PATIENCE_IN_SECONDS = 300

METADATA = "7"
SHARDING = "40"
REPLICA_GROUPS = {"49", "87", "92", "93"}
"""Listed, as an iota, or on a mesh."""
COMPARISON_TYPE = "72"
COMPARISON_ORDER = "102"
"""New in 0.11: says what the field of the comparison's type says as well."""
IS_STABLE = "60"
"""Of a topk, new in 0.11, which reads a topk that does not say it as stable."""
ORIGIN = "88"
ACCURACY = "91"
OF_NEWER_RELEASES = {
    METADATA,
    SHARDING,
    *REPLICA_GROUPS,
    COMPARISON_ORDER,
    ORIGIN,
    ACCURACY,
}
"""Fields that a dialect for a release before 0.10 respells or drops."""
NUMBERED = {"6", "17"}
"""Of a module: the entry's number, which releases count differently, and the stack frames."""
SCHEDULE_OF_ELEMENTS = "schedule of get-tuple-elements"
"""XLA makes those of compact text where their first reader stands."""

Fields = dict[str, Any]
"""The value of `read_fields.module_fields`, or `{"error": …}`."""


def read_fields(oracle: Oracle, texts: Sequence[str]) -> list[Fields]:
    """The fields that a release reads of each text; `{"error": …}` if it refuses or dies."""
    found: list[Fields] = []
    while len(found) < len(texts):
        child = subprocess.run(
            [oracle.python, "-P", "-m", "tests.oracle.read_fields"],
            env={**os.environ, "PYTHONPATH": str(_ROOT)},
            input=json.dumps([as_utf8(text) for text in texts[len(found) :]]).encode(),
            capture_output=True,
            timeout=_PATIENCE_IN_SECONDS,
            check=False,
        )
        whole, _, _ = child.stdout.decode().rpartition("\n")
        found += map(json.loads, whole.splitlines())
        if len(found) < len(texts):
            if child.returncode >= 0:  # no signal: the child is broken, not the text
                raise RuntimeError(f"{oracle.python}: {child.stderr.decode(errors='replace')}")
            found.append({"error": "died"})
    return found


def less_numbered(fields: Fields) -> Fields:
    """The fields that were read, less those of the module in `NUMBERED`."""
    if "error" in fields:
        return fields
    kept = {name: value for name, value in fields["fields"].items() if name not in NUMBERED}
    return {**fields, "fields": kept}


def differences(one: Fields, other: Fields, without: Collection[str] = ()) -> Iterator[str]:
    """Every difference of two graphs, less that of the instructions' fields in `without`.

    XLA renames an instruction (`x_0` to `x_0.1`) where its own name for a get-tuple-element is
    taken: instructions count as the same where they stand in the same place.
    """
    if "error" in one or "error" in other:
        yield f"not read: {one.get('error')}, {other.get('error')}"
        return
    renamed = _renamed(one, other)
    yield from _unequal("module", one["fields"], other["fields"])
    schedule = {
        name: [renamed.get(each, each) for each in order]
        for name, order in other["schedule"].items()
    }
    orders = (one["schedule"], schedule)
    if SCHEDULE_OF_ELEMENTS in without:
        orders = (_without_elements(orders[0]), _without_elements(orders[1]))
    yield from _unequal("schedule", *orders)
    yield from _unequal("computations", set(one["computations"]), set(other["computations"]))
    for name in one["computations"].keys() & other["computations"].keys():
        first, second = one["computations"][name], other["computations"][name]
        yield from _unequal(
            f"{name}: root", first["root"], renamed.get(second["root"], second["root"])
        )
        for field in ("fields", "shape"):
            yield from _unequal(f"{name}: {field}", first[field], second[field])
        seconds = {renamed.get(at, at): each for at, each in second["instructions"].items()}
        yield from _unequal(f"{name}: names", set(first["instructions"]), set(seconds))
        for at in first["instructions"].keys() & seconds.keys():
            left, right = first["instructions"][at], dict(seconds[at])
            right["operands"] = [renamed.get(each, each) for each in right["operands"]]
            right["waits for"] = sorted(renamed.get(each, each) for each in right["waits for"])
            for field in (left.keys() | right.keys()) - set(without):
                yield from _unequal(f"{name}: %{at}: {field}", left.get(field), right.get(field))


def _renamed(one: Fields, other: Fields) -> dict[str, str]:
    names: dict[str, str] = {}
    for name in one["computations"].keys() & other["computations"].keys():
        ours = one["computations"][name]["instructions"]
        theirs = other["computations"][name]["instructions"]
        if len(ours) == len(theirs):
            pairs = zip(ours, theirs, strict=True)
            names |= {
                yours: mine
                for mine, yours in pairs
                if yours not in ours and mine not in theirs and _stem(mine) == _stem(yours)
            }
    return names


def _without_elements(schedule: dict[str, list[str]]) -> dict[str, list[str]]:
    return {name: [each for each in order if "#" not in each] for name, order in schedule.items()}


def _stem(name: str) -> str:
    whole, _, number = name.rpartition(".")
    return whole if number.isdecimal() else name


def _unequal(what: str, one: object, other: object) -> Iterator[str]:
    if one != other:
        yield f"{what}: {one!r}, {other!r}"
