"""Named meshes, as jax prints them of late, or the tiles and lists of devices they stand for.

    sharding={mesh['x'=2,'y'=4], [{'y'}, {}]}    sharding={devices=[4,1,2]<=[2,4]T(1,0) last_tile_…}
    replica_groups=mesh['x'=2,'y'=4] {'x'}       replica_groups=[4,2]<=[2,4]T(1,0)

The tiles are those of `HloSharding::V3ToV2Sharding`.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from math import prod

from hlo_lint.hlo.attributes.cursor import AttributeSyntaxError
from hlo_lint.hlo.attributes.devices import AxisRef, Mesh, MeshReplicaGroups, read_replica_groups
from hlo_lint.hlo.attributes.sharding import NamedSharding, read_sharding
from hlo_lint.hlo.dialects.text_editor import TextEditor, statements
from hlo_lint.hlo.ir import Module
from hlo_lint.hlo.parser.tokens import split_at_commas

_MESHES = ("{mesh[", "{maximal_mesh[")


def tiles(module: Module, editor: TextEditor) -> None:
    """Say by tiles and lists of devices what a named mesh says."""
    for _, instructions in statements(module):
        for statement in instructions.mentioning("mesh["):
            places = statement.values()
            if "sharding" in places:
                _convert_sharding(editor, *places["sharding"])
            if "replica_groups" in places:
                start, end = places["replica_groups"]
                if editor.text.startswith("mesh[", start):
                    _convert_groups(editor, start, end)


def _convert_sharding(editor: TextEditor, start: int, end: int) -> None:
    text = editor.text[start:end]
    if text.startswith(_MESHES):
        parts = [(0, len(text))]
    else:
        parts = [(1 + begin, 1 + stop) for begin, stop in split_at_commas(text[1:-1])]
    for begin, stop in parts:
        if not text.startswith(_MESHES, begin):
            continue
        try:
            sharding = read_sharding(text[begin:stop])
            spelled = _spelled(sharding) if isinstance(sharding, NamedSharding) else None
        except (AttributeSyntaxError, OverflowError, KeyError):
            spelled = None
        if spelled is None or not isinstance(sharding, NamedSharding):
            editor.note("a sharding stays: it cannot be read")
            continue
        editor.replace(start + begin, start + stop, spelled)
        for lost in _lost(sharding):
            editor.note(f"{lost} of a sharding: tiles have none")


def _lost(sharding: NamedSharding) -> list[str]:
    lost = ["metadata"] if sharding.metadata else []
    if not all(dimension.is_closed for dimension in sharding.dimensions):
        lost.append("open dimensions")
    if sharding.unreduced and sharding.reduction != "sum":
        lost.append(f"reduction by {sharding.reduction}")
    return lost


def _spelled(sharding: NamedSharding) -> str:
    mesh = sharding.mesh
    devices = mesh.devices
    if not mesh.axes and devices != (0,):
        return f"{{maximal device={devices[0]}}}"
    factors = _Factors(mesh, _axes_of(sharding))
    sharded = [factors.of(dimension.axes) for dimension in sharding.dimensions]
    manual, unreduced = factors.of(sharding.manual), factors.of(sharding.unreduced)
    named = [number for dimension in sharded for number in dimension] + manual + unreduced
    rest = [number for number in range(len(factors.sizes)) if number not in named]
    subgroups = [
        (kind, numbers)
        for kind, numbers in (("manual", manual), ("unreduced", unreduced), ("replicated", rest))
        if factors.size(numbers) > 1
    ]
    tile_counts = [factors.size(dimension) for dimension in sharded]
    if prod(tile_counts) == 1 and len(subgroups) <= 1:
        return f"{{{subgroups[0][0] if subgroups else 'replicated'}}}"
    counts = tile_counts + [factors.size(numbers) for _, numbers in subgroups]
    kinds = [kind for kind, _ in subgroups]
    tail = f" last_tile_dims={{{', '.join(kinds)}}}" if kinds else ""
    if kinds == ["replicated"]:
        tail = " last_tile_dim_replicate"
    order = factors.order([*named, *rest])
    return f"{{devices=[{','.join(map(str, counts))}]{order}{tail}}}"


def _axes_of(sharding: NamedSharding) -> list[AxisRef]:
    axes = [axis for dimension in sharding.dimensions for axis in dimension.axes]
    return [*axes, *sharding.manual, *sharding.unreduced, *sharding.replicated]


def _convert_groups(editor: TextEditor, start: int, end: int) -> None:
    try:
        groups = read_replica_groups(editor.text[start:end])
        if not isinstance(groups, MeshReplicaGroups):
            return
        factors = _Factors(groups.mesh, groups.axes)
        grouped = factors.of(groups.axes)
        if groups.mesh.order is None:
            rest = [number for number in range(len(factors.sizes)) if number not in grouped]
            shape = f"[{factors.size(rest)},{factors.size(grouped)}]"
            spelled = shape + factors.order([*rest, *grouped])
        else:
            listed = (",".join(map(str, group)) for group in groups.groups)
            spelled = f"{{{','.join(f'{{{group}}}' for group in listed)}}}"
    except (AttributeSyntaxError, OverflowError, KeyError):
        editor.note("replica groups stay: they cannot be read")
        return
    editor.replace(start, end, spelled)


class _Factors:
    """The axes of a mesh, cut where a part of one begins or ends."""

    def __init__(self, mesh: Mesh, used: Sequence[AxisRef]) -> None:
        self._mesh = mesh
        self.sizes: list[int] = []
        self._places: dict[tuple[str, int], int] = {}
        for name, size in mesh.axes:
            parts = [axis.part for axis in used if axis.name == name and axis.part]
            cuts = sorted({1, size, *(cut for low, many in parts for cut in (low, low * many))})
            if size == 1:
                cuts = [1, 1]
            for before, after in pairwise(cuts):
                self._places[name, before] = len(self.sizes)
                self.sizes.append(after // before)

    def of(self, axes: Sequence[AxisRef]) -> list[int]:
        """The numbers of the factors that make up these axes, the first varying slowest."""
        numbers = []
        for axis in axes:
            low, many = axis.part or (1, self._mesh.size(axis))
            number, size = self._places[axis.name, low], 1
            while size < many:
                numbers.append(number)
                size *= self.sizes[number]
                number += 1
        return numbers

    def size(self, numbers: Sequence[int]) -> int:
        """The number of devices along these factors."""
        return prod(self.sizes[number] for number in numbers)

    def order(self, numbers: Sequence[int]) -> str:
        """All devices, the factors in this order: `<=[2,4]T(1,0)`, or a list."""
        if self._mesh.order is not None:
            return ",".join(map(str, self._listed(numbers)))
        runs: list[list[int]] = []  # factors that stay side by side are one
        for number in (number for number in numbers if self.sizes[number] > 1):
            follows = runs and all(
                self.sizes[between] == 1 for between in range(runs[-1][-1] + 1, number)
            )
            if follows and runs[-1][-1] < number:
                runs[-1].append(number)
            else:
                runs.append([number])
        if len(runs) <= 1:
            return f"<=[{prod(self.sizes)}]"
        in_mesh = sorted(runs)
        dims = ",".join(str(self.size(run)) for run in in_mesh)
        permutation = ",".join(str(in_mesh.index(run)) for run in runs)
        return f"<=[{dims}]T({permutation})"

    def _listed(self, numbers: Sequence[int]) -> list[int]:
        devices = self._mesh.devices
        strides = [prod(self.sizes[number + 1 :]) for number in range(len(self.sizes))]
        places = [0]
        for number in numbers:
            steps = range(self.sizes[number])
            places = [place + step * strides[number] for place in places for step in steps]
        return [devices[place] for place in places]
