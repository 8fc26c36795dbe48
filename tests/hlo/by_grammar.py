"""Values of attributes as the grammars read them: an oracle for the readers."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, cast

from lark import UnexpectedInput

from hlo_lint.hlo import shape as hlo_shape
from hlo_lint.hlo.attributes import devices as device_lists
from hlo_lint.hlo.attributes import sharding as shardings
from hlo_lint.hlo.attributes.cursor import AttributeSyntaxError, unescape
from hlo_lint.hlo.attributes.metadata import _TYPES, OpMetadata
from hlo_lint.hlo.attributes.origin import Origin, OriginalArray, OriginTree
from hlo_lint.hlo.attributes.plain import Alias, Donor, Padding, Slice, Tolerance
from hlo_lint.hlo.attributes.shapes import ProgramShape
from hlo_lint.hlo.attributes.windows import ConvolutionDimensionNumbers, WindowDimension
from hlo_lint.hlo.comments import COMMENT
from hlo_lint.hlo.grammar import grammar_parser, int64, offset_of, terminals, trees

if TYPE_CHECKING:
    from lark import Token, Tree

LOWER = frozenset(("operand_precision", "distribution", "algorithm"))
UPPER = frozenset(("schedule", "api_version"))


def read_by_grammar(name: str, text: str) -> Any:
    """The value that `read_attribute` reads; what one of its numbers allows is not asked.

    Raises:
        AttributeSyntaxError: where the grammar takes no such text.
    """
    if name in GRAMMARS:
        grammar, build = GRAMMARS[name]
        return build(parse(grammar, text), text)
    value = plain(trees(parse("attribute", text, f"{name}="))[0])
    if name in LOWER | UPPER:
        turn = str.lower if name in LOWER else str.upper
        return turn(value) if isinstance(value, str) else tuple(map(turn, value))
    return value


def parse(grammar: str, text: str, before: str = "") -> Tree[Token]:
    """The tree of a text; `before` stands in front of it and does not count."""
    try:
        return grammar_parser(grammar).parse(before + text)
    except UnexpectedInput as error:
        offset = max(0, offset_of(error, before + text) - len(before))
        raise AttributeSyntaxError(f"not in {grammar}.lark", text, offset) from None


def numbers(tree: Tree[Token]) -> tuple[int, ...]:
    return tuple(map(int, terminals(tree)))


def leaf(token: Token) -> str:
    return unescape(token[1:-1]) if token.type == "QUOTED" else str(token)


# ---- attribute.lark


def plain(tree: Tree[Token]) -> Any:
    leaves = terminals(tree)[1:]  # the first is the attribute's name
    match str(tree.data):
        case "integers":
            return tuple(map(int, leaves))
        case "number":
            return float(leaves[0])
        case "lists":
            return tuple(map(numbers, trees(tree)))
        case "flags":
            return tuple(token == "true" for token in leaves)
        case "slices":
            return tuple(Slice(*numbers(part)) for part in trees(tree))
        case "paddings":
            return tuple(Padding(*map(int, part.split("_"))) for part in leaves[0].split("x"))
        case "aliasing":
            return tuple(map(alias, trees(tree)))
        case "donors":
            return tuple(
                Donor(int(terminals(donor)[0]), numbers(trees(donor)[0])) for donor in trees(tree)
            )
        case "accuracy":
            values = dict(figures(tree))
            if not values:
                return leaves[-1].lower()
            atol, rtol, ulps = (values.get(name, "0") for name in ("atol", "rtol", "ulps"))
            return Tolerance(float(atol), float(rtol), int(ulps))
        case "statistics":
            return tuple((name, float(value)) for name, value in figures(tree))
        case "metadata":
            return metadata(trees(tree))
        case "frontend_attributes":
            return {str(name): leaf(value) for name, value in map(terminals, trees(tree))}
        case "names":
            return tuple(token.removeprefix("%") for token in terminals(trees(tree)[0]))
        case _:
            return scalar(leaves[0]) if leaves else values_of(trees(tree)[0])


def scalar(token: Token) -> bool | int | str:
    match token.type:
        case "INT":
            return int(token)
        case "BOOL":
            return str(token) == "true"
        case "NAME":
            return token.removeprefix("%")
        case _:
            return leaf(token)


def values_of(tree: Tree[Token]) -> Any:
    match str(tree.data):
        case "integer_list":
            return numbers(tree)
        case "integer_lists":
            return tuple(map(numbers, trees(tree)))
        case _:
            return tuple(token.removeprefix("%") for token in terminals(tree))


def alias(tree: Tree[Token]) -> Alias:
    output, index = map(numbers, trees(tree))
    operand, *kind = terminals(tree)
    return Alias(output, int(operand), index, *map(str, kind))


def figures(tree: Tree[Token]) -> list[tuple[str, str]]:
    return [(str(name), str(value)) for name, value in map(terminals, trees(tree))]


def metadata(fields: Sequence[Tree[Token]]) -> OpMetadata:
    pairs = ((str(name), value) for name, value in map(terminals, fields))
    known: dict[str, Any] = {}
    for name, value in pairs:
        if _TYPES.get(name) is tuple:
            inside = value[1:-1]
            known[name] = tuple(map(int, inside.split(","))) if inside.strip() else ()
        elif name in _TYPES:
            known[name] = scalar(value)
    return OpMetadata(**known)


# ---- sharding.lark, replica_groups.lark


def sharding(tree: Tree[Token]) -> shardings.Sharding:
    match str(tree.data):
        case "tuple":
            return shardings.TupleSharding(
                tuple(
                    cast("shardings.TiledSharding | shardings.NamedSharding", sharding(one))
                    for one in trees(tree)
                )
            )
        case "maximal_mesh":
            mesh = device_lists.Mesh((), (int(terminals(tree)[0]),))
            return shardings.NamedSharding(mesh, metadata=metadata_of(tree))
        case "named":
            return named(tree)
        case _:
            return tiled(tree)


def domain(tree: Tree[Token]) -> shardings.Domain:
    entry, leave = map(sharding, trees(tree))
    return shardings.Domain(leaf(terminals(tree)[0]), entry, leave)


def metadata_of(tree: Tree[Token]) -> tuple[OpMetadata, ...]:
    parts = (part for part in trees(tree) if str(part.data) == "metadata")
    return tuple(metadata(trees(fields)) for part in parts for fields in trees(part))


def named(tree: Tree[Token]) -> shardings.NamedSharding:
    mesh = mesh_of(tree)
    parts: dict[str, tuple[device_lists.AxisRef, ...]] = {}
    dimensions: tuple[shardings.DimensionSharding, ...] = ()
    reduction = "sum"
    for part in trees(tree)[1:]:
        kind, leaves = str(part.data), [str(token) for token in terminals(part)]
        if kind == "whole":
            kind, *leaves = leaves
            every = tuple(device_lists.AxisRef(axis.name) for axis in mesh.axes)
            parts[kind] = () if kind == "replicated" else every
        elif kind == "dimensions":
            dimensions = tuple(
                shardings.DimensionSharding(axes(dimension), "?" not in terminals(dimension))
                for dimension in trees(part)
            )
        elif kind in ("replicated", "unreduced", "manual"):
            parts[kind] = axes(trees(part)[0])
        reduction = next((word for word in leaves if word in ("sum", "max", "min")), reduction)
    replicated, unreduced, manual = (
        parts.get(kind, ()) for kind in ("replicated", "unreduced", "manual")
    )
    return shardings.NamedSharding(
        mesh, dimensions, replicated, unreduced, manual, reduction, metadata_of(tree)
    )


def tiled(tree: Tree[Token]) -> shardings.TiledSharding:
    kind, tiles, devices, subgroups, group = "tiled", (), (), (), None  # type: Any, Any, Any, Any, Any
    for part in trees(tree):
        match str(part.data):
            case "kind":
                kind = str(terminals(part)[0])
            case "device":
                devices = numbers(part)
            case "devices":
                sizes, *order = trees(part)
                tiles, devices = numbers(sizes), order_of(order)
            case "last_tile_dim_replicate":
                subgroups = ("replicated",)
            case "last_tile_dims":
                subgroups = tuple(str(terminals(subgroup)[0]) for subgroup in trees(part))
            case "group":
                relation, number = terminals(part)
                group = shardings.ShardGroup(str(relation), int(number))
    return shardings.TiledSharding(kind, tiles, devices, subgroups, group, metadata_of(tree))


def order_of(parts: Sequence[Tree[Token]]) -> device_lists.DeviceOrder:
    first, *permutation = parts
    if str(first.data) == "ids":
        return numbers(first)
    return device_lists.Iota(numbers(first), numbers(permutation[0]) if permutation else (0,))


def mesh_of(tree: Tree[Token]) -> device_lists.Mesh:
    mesh, *rest = trees(tree)
    pairs = map(terminals, trees(mesh))
    found = tuple(device_lists.MeshAxis(leaf(name), int(size)) for name, size in pairs)
    has_order = bool(rest) and str(rest[0].data) == "device_ids"
    return device_lists.Mesh(found, order_of(trees(rest[0])) if has_order else None)


def axes(tree: Tree[Token]) -> tuple[device_lists.AxisRef, ...]:
    found = []
    for axis in trees(tree):
        name, *part = terminals(axis)
        found.append(
            device_lists.AxisRef(leaf(name), (int(part[0]), int(part[1])) if part else None)
        )
    return tuple(found)


def groups(tree: Tree[Token]) -> device_lists.ReplicaGroups:
    match str(tree.data):
        case "lists":
            return device_lists.ReplicaGroupList(tuple(map(numbers, trees(tree))))
        case "iota":
            shape, *order = trees(tree)
            count, size = numbers(shape)
            return device_lists.IotaReplicaGroups(
                count, size, cast("device_lists.Iota", order_of(order))
            )
        case _:
            return device_lists.MeshReplicaGroups(mesh_of(tree), axes(trees(tree)[-1]))


# ---- windows


def window(tree: Tree[Token]) -> tuple[WindowDimension, ...]:
    parts = {
        str(part.data): dict(enumerate(str(terminals(part)[0]).split("x"))) for part in trees(tree)
    }

    def column(name: str, place: int, default: str) -> list[int]:
        return [int(number) for number in parts.get(name, {place: default})[place].split("_")]

    rows: list[list[Any]] = [
        [
            *column("size", place, "1"),
            *column("stride", place, "1"),
            *column("pad", place, "0_0"),
            *column("lhs_dilate", place, "1"),
            *column("rhs_dilate", place, "1"),
            column("rhs_reversal", place, "0") != [0],
        ]
        for place in next(iter(parts.values()), ())
    ]
    return tuple(WindowDimension(*row) for row in rows)


def dim_labels(tree: Tree[Token]) -> ConvolutionDimensionNumbers:
    places: list[Any] = []
    for part, letters in zip(trees(tree), ("bf", "io", "bf"), strict=True):
        labels = str(terminals(part)[0])
        places += [labels.index(letter) for letter in letters]
        places.append(tuple(labels.index(digit) for digit in "0123456789" if digit in labels))
    return ConvolutionDimensionNumbers(*places)


# ---- shapes, origins


def program_shape(tree: Tree[Token], text: str) -> ProgramShape:
    *parameters, result = shapes(tree, text)
    return ProgramShape(tuple(parameters), result)


def shapes(tree: Tree[Token], text: str) -> tuple[Any, ...]:
    return tuple(
        hlo_shape.parse_shape(text[s.meta.start_pos : s.meta.end_pos]) for s in trees(tree)
    )


def origin(tree: Tree[Token]) -> Origin:
    (inside,) = trees(tree)
    if str(inside.data) == "synthetic":
        return Origin((), "", True)
    return Origin(origin_tree(inside), next(map(leaf, terminals(tree)), None))


def origin_tree(tree: Tree[Token]) -> OriginTree:
    return tuple(map(origin_tree, trees(tree))) if str(tree.data) == "tuple" else array(tree)


def array(tree: Tree[Token]) -> OriginalArray | None:
    if not terminals(tree):
        return None
    return OriginalArray(leaf(terminals(tree)[0]), *map(numbers, trees(tree)))


def _of_tree(build: Callable[[Tree[Token]], Any]) -> Callable[[Tree[Token], str], Any]:
    return lambda tree, _: build(tree)


def _of_child(rule: str, build: Callable[..., Any]) -> Callable[[Tree[Token], str], Any]:
    """Of a grammar for several attributes, the part that is called `rule`; any if empty."""

    def child(tree: Tree[Token], text: str) -> Any:
        (inside,) = trees(tree)
        if rule and str(inside.data) not in rule.split():
            raise AttributeSyntaxError(f"not a {rule}", text, 0)
        return build(inside)

    return child


def _shapes_of(rule: str, build: Callable[[Tree[Token], str], Any]) -> Callable[..., Any]:
    return lambda tree, text: _of_child(rule, lambda inside: build(inside, text))(tree, text)


GRAMMARS: dict[str, tuple[str, Callable[[Tree[Token], str], Any]]] = {
    "dim_labels": ("dim_labels", _of_tree(dim_labels)),
    "domain": ("sharding", _of_child("domain", domain)),
    "entry_computation_layout": ("program_shape", _shapes_of("program_shape", program_shape)),
    "operand_layout_constraints": ("program_shape", _shapes_of("shape_list", shapes)),
    "origin": ("origin", _of_tree(origin)),
    "original_value": ("origin", _of_tree(origin)),
    "replica_groups": ("replica_groups", _of_child("", groups)),
    "sharding": ("sharding", _of_child("tuple named maximal_mesh tiled", sharding)),
    "window": ("window", _of_tree(window)),
}


def shape_by_grammar(text: str) -> hlo_shape.Shape:
    """The shape that `read_shape` reads.

    Raises:
        ShapeSyntaxError: where the grammar takes no such text.
    """
    try:
        tree = grammar_parser("shape").parse(text)
    except UnexpectedInput as error:
        raise hlo_shape.ShapeSyntaxError("not a shape", text, offset_of(error, text)) from None
    return _Shapes(text).shape(trees(tree)[0])


class _Shapes:
    """Turns a tree of `shape.lark` into values; each method is named after its rule."""

    def __init__(self, text: str) -> None:
        self.text = text

    def shape(self, tree: Tree[Token]) -> hlo_shape.Shape:
        match str(tree.data):
            case "tuple":
                return hlo_shape.TupleShape(tuple(self.shape(child) for child in trees(tree)))
            case "buffer":
                return hlo_shape.BufferShape(self.array(trees(tree)[0]))
            case "opaque":
                return hlo_shape.OpaqueShape(terminals(tree)[0].value)
            case _:
                return self.array(tree)

    def array(self, tree: Tree[Token]) -> hlo_shape.ArrayShape:
        sizes: list[int] = []
        dynamic: list[bool] = []
        layout = None
        for child in trees(tree):
            match str(child.data):
                case "unbounded":
                    sizes.append(hlo_shape.UNBOUNDED)
                    dynamic.append(True)
                case "layout":
                    layout = self.layout(child)
                case kind:
                    sizes.append(self.number(terminals(child)[0]))
                    dynamic.append(kind == "bound")
        flags = tuple(dynamic) if any(dynamic) else ()
        if layout is not None and len(layout.minor_to_major) != len(sizes):
            raise hlo_shape.ShapeSyntaxError("ranks differ", self.text, tree.meta.start_pos)
        return hlo_shape.ArrayShape(terminals(tree)[0].value, tuple(sizes), layout, flags)

    def layout(self, tree: Tree[Token]) -> hlo_shape.Layout:
        order, *parts = trees(tree)
        tiles: tuple[hlo_shape.Tile, ...] = ()
        element_size = memory_space = 0
        rest: list[str] = []
        for part in parts:
            match str(part.data):
                case "tiles":
                    tiles = tuple(self.tile(tile) for tile in trees(part))
                case "element_size":
                    element_size = self.number(terminals(part)[0])
                case "memory_space":
                    memory_space = self.number(terminals(part)[0])
                case _:
                    spelled = self.text[part.meta.start_pos : part.meta.end_pos]
                    rest.append(re.sub(rf"\s+|{COMMENT}", "", spelled))
        numbers = tuple(self.number(token) for token in terminals(order))
        return hlo_shape.Layout(numbers, tiles, element_size, memory_space, tuple(rest))

    def tile(self, tree: Tree[Token]) -> hlo_shape.Tile:
        sizes = [terminals(size)[0] for size in trees(tree)]
        return tuple(None if size.type == "COMBINE" else self.number(size) for size in sizes)

    def number(self, token: Token) -> int:
        try:
            return int64(token)
        except OverflowError:
            message = "a number does not fit"
            raise hlo_shape.ShapeSyntaxError(message, self.text, token.start_pos or 0) from None
