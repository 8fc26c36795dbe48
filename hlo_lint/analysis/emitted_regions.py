"""Regions with special emitters, checked against the emitters' constraints."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from itertools import groupby
from math import prod

from hlo_lint.analysis.callees import EmittedRegion
from hlo_lint.analysis.calls import callees_of, instructions_of
from hlo_lint.analysis.walks import reached
from hlo_lint.hlo.ir import Computation, Instruction, Module, cached_analysis
from hlo_lint.hlo.kinds import types_of
from hlo_lint.hlo.opcodes import FIRST_INDEX
from hlo_lint.hlo.shape import ArrayShape, TupleShape

_READS = frozenset({"bitcast", "constant", "get-tuple-element", "parameter", "tuple"})
_UPDATE = "dynamic-update-slice"
_MOVES = frozenset({"dynamic-slice", _UPDATE})
_STARTED = "fusion-start"
_WARP = 32
"""The threads of a warp."""


def may_misuse(region: EmittedRegion, body: Computation) -> bool:
    """True if a computation by itself may violate the constraints of a region."""
    if region.has_equal_results or region.has_equal_reductions or region.roots:
        roots = region.roots or ("tuple",)
        if body.opcodes.isdisjoint(roots):
            return False
        return body.root is not None and body.root.opcode in roots
    if not body.opcodes.isdisjoint(region.refused):
        return True
    if not body.opcodes.isdisjoint(region.only_as_root):
        return True
    return bool(region.types) and not _element_types(body).isdisjoint(region.types)


@cached_analysis
def _element_types(computation: Computation) -> frozenset[str]:
    """The element types of its arrays; tuples give further texts."""
    return frozenset(map(_element_type, types_of(computation)))


def _element_type(type_text: str) -> str:
    return type_text.partition("[")[0]


def misused(
    region: EmittedRegion, module: Module, runners: Iterable[Instruction] | None = None
) -> Iterator[tuple[Instruction, str]]:
    """The instructions whose region violates its emitter's constraints, with the reason."""
    for runner in instructions_of(module, region.opcode) if runners is None else runners:
        words = region.spells
        if not words or any(word in runner.attributes_text for word in words):
            reason = _misuse(region, runner, module)
            if reason:
                yield runner, f"{region.name} {reason}: {region.why}"


def _misuse(region: EmittedRegion, runner: Instruction, module: Module) -> str:
    """The violated constraint of a region, or ""."""
    body = module.callee(runner)
    if body is None or body.root is None:
        return ""
    root = body.root
    held = _held(region, runner, module)
    if held is not None:
        return f"holds the {held.opcode} %{held.name}"
    if root.opcode in region.roots:
        return f"has the {root.opcode} %{root.name} as its root"
    for opcode in region.only_as_root:
        for inside in body.with_opcode(opcode):
            if inside.name != root.name:
                return f"goes on from the {opcode} %{inside.name}"
    if region.offsets_are_parameters and (offset := _offset_inside(body)) is not None:
        return f"computes the offset %{offset.name}"
    if region.slices_are_contiguous and (part := _scattered_part(body)) is not None:
        return f"has the {part.opcode} %{part.name}, whose part of the array is in several pieces"
    if region.has_equal_results and _differs_in_size(runner, module):
        return "has results of different sizes"
    if region.has_equal_reductions and _reduces_to_sizes(root) > 1:
        return "has reductions to different sizes"
    return ""


def _offset_inside(body: Computation) -> Instruction | None:
    """The first offset of a slice that is not a parameter, or None."""
    for opcode in _MOVES:
        for slice_ in body.with_opcode(opcode):
            for operand in slice_.operands[FIRST_INDEX[opcode] :]:
                if operand.instruction is not None and operand.instruction.opcode != "parameter":
                    return operand.instruction
    return None


def _scattered_part(body: Computation) -> Instruction | None:
    """The first slice or update that is not contiguous in the memory of its array, or None.

    Mirrors IsContiguousSlice of XLA's ir_emission_utils.cc.
    """
    for opcode in sorted(body.opcodes & {*_MOVES, "slice"}):
        for move in body.with_opcode(opcode):
            array = move.operand_shape(0)
            part = move.operand_shape(1) if opcode == _UPDATE else move.shape_or_none
            if not isinstance(array, ArrayShape) or not isinstance(part, ArrayShape):
                continue
            is_cut = False
            for axis in array.minor_to_major if array.has_valid_layout else ():
                if is_cut and part.dims[axis] != 1:
                    return move
                is_cut = is_cut or part.dims[axis] != array.dims[axis]
    return None


def _reduces_to_sizes(root: Instruction) -> int:
    """The number of different sizes of a fusion's results that are reductions.

    An untiled reduction does not count if its result has as many elements as the operand of a tiled
    reduction: the threads of the tiled reduction compute it on their way.
    """
    reductions = {reduction.name: reduction for reduction in root.computation.with_opcode("reduce")}
    names = root.operand_names if root.opcode == "tuple" else ()
    sizes, on_the_way, walked = set(), set(), set()
    for name in reductions.keys() & set(names):
        result, operand = reductions[name].shape_or_none, reductions[name].operand_shape(0)
        if not isinstance(result, ArrayShape) or not isinstance(operand, ArrayShape):
            continue
        if _is_tiled(reductions[name], operand):
            sizes.add(result.elements)
            walked.add(operand.elements)
        else:
            on_the_way.add(result.elements)
    return len(sizes | on_the_way - walked)


def _is_tiled(reduction: Instruction, operand: ArrayShape) -> bool:
    """True if XLA:GPU spreads a reduction over the threads of a warp, as a row or as a column.

    Mirrors IsReductionFromOrToContiguousDimensions of XLA's reduction_utils.cc; other reductions
    are a loop in each thread.
    """
    reduced = reduction.dimensions_attribute("dimensions", operand.rank)
    if reduced is None or not operand.has_valid_layout:
        return False
    physical = [dim for dim in reversed(operand.minor_to_major) if operand.dims[dim] != 1]
    runs = [
        (is_reduced, prod(operand.dims[dim] for dim in dims))
        for is_reduced, dims in groupby(physical, reduced.__contains__)
    ]
    if not 0 < len(runs) <= 3:
        return False
    if runs[-1][0]:
        return runs[-1][1] >= _WARP or _WARP % runs[-1][1] == 0
    return len(runs) > 1 and runs[-2][1] >= _WARP


def _differs_in_size(fusion: Instruction, module: Module) -> bool:
    """True if the arrays that a fusion computes have different numbers of elements."""
    shape, body = fusion.shape_or_none, module.callee(fusion)
    if not isinstance(shape, TupleShape) or body is None or _UPDATE in body.opcodes:
        return False
    arrays = [array for array in shape.elements if isinstance(array, ArrayShape)]
    return len(arrays) == len(shape.elements) and len({prod(array.dims) for array in arrays}) > 1


def _held(region: EmittedRegion, runner: Instruction, module: Module) -> Instruction | None:
    """The first instruction that a region may not hold, or None."""
    for computation in _run_by(runner, module):
        if not _may_hold(region, computation):
            continue
        for inside in computation.instructions:
            opcode = inside.opcode.removesuffix("-start")
            if opcode in region.holds_no:
                return inside
            if opcode in region.tuples and isinstance(inside.shape_or_none, TupleShape):
                return inside
            if region.types and _element_type(inside.type_text) in region.types:
                return inside
            if inside.opcode == _STARTED and region.moves and _only_moves(inside, module):
                return inside
    return None


def _run_by(runner: Instruction, module: Module) -> Sequence[Computation]:
    """The computations that an instruction runs, and their callees."""
    names, known = runner.called_computations, _known_runs(module)
    if names not in known:
        called = filter(None, map(module.computation, names))
        known[names] = list(reached(called, partial(callees_of, module)))
    return known[names]


@cached_analysis
def _known_runs(module: Module) -> dict[tuple[str, ...], Sequence[Computation]]:
    """The computations that instructions of a module run, by the names of their callees."""
    return {}


def _may_hold(region: EmittedRegion, computation: Computation) -> bool:
    """True if a computation has an opcode or a type that the region may not hold."""
    opcodes = computation.opcodes
    if not opcodes.isdisjoint(region.refused) or not opcodes.isdisjoint(region.refused_tuples):
        return True
    if region.moves and _STARTED in opcodes:
        return True
    return bool(region.types) and not _element_types(computation).isdisjoint(region.types)


def _only_moves(fusion: Instruction, module: Module) -> bool:
    """True for a fusion of a dynamic-slice or a dynamic-update-slice, which is a copy of bytes."""
    body = module.callee(fusion)
    return body is not None and len(body.opcodes & _MOVES) == 1 and body.opcodes <= _READS | _MOVES
