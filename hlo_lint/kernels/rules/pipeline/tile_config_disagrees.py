"""Triton fusions and dots whose tiles do not match their arrays."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from hlo_lint.analysis.calls import instructions_of
from hlo_lint.hlo.ir import Instruction, Module
from hlo_lint.hlo.shape import ArrayShape, TupleShape
from hlo_lint.rules.base import Bad, Finding, Findings, Good, RefusedByXla, Rule, Severity
from hlo_lint.text.source import whole_number

_FUSION: Final = "fusion_backend_config"
_BLOCKS: Final = "block_level_fusion_config"
_PROGRAM: Final = """
f {{
  n = f32[8,16]{{1,0}} negate(f32[8,16]{{1,0}} a)
  ROOT b = f32[128]{{0}} bitcast(n)
}}

ENTRY e {{
  p = f32[8,16]{{1,0}} parameter(0)
  ROOT r = f32[128]{{0}} fusion(p), kind=kCustom, calls=f, backend_config=\
{{"fusion_backend_config":{{"kind":"__triton","block_level_fusion_config":\
{{"num_warps":"{warps}","output_tiles":[{tiles}]}}}}}}{mark}
}}
"""
_DOT: Final = """
f {{
  a = f32[16,32]{{1,0}} parameter(0)
  b = f32[32,16]{{1,0}} parameter(1)
  ROOT d = f32[16,16]{{1,0}} dot(a, b), lhs_contracting_dims={{1}}, \
rhs_contracting_dims={{0}}, backend_config={{"sizes":[{sizes}]}}{mark}
}}

ENTRY e {{
  a = f32[16,32]{{1,0}} parameter(0)
  b = f32[32,16]{{1,0}} parameter(1)
  ROOT r = f32[16,16]{{1,0}} fusion(a, b), kind=kCustom, calls=f, backend_config=\
{{"fusion_backend_config":{{"kind":"__triton_nested_gemm_fusion"}}}}
}}
"""


class TileConfigDisagrees(Rule):
    """A Triton fusion or dot whose tiles do not match its arrays.

    ## Why
    `block_level_fusion_config` has a tile for each result of a fusion, with a size for each
    dimension, and a dot in it has a size for each contracting dimension. A pass that moves a
    reshape or a bitcast into or out of the fusion, or adds a result, must update the tiles: the
    emitter looks up sizes by dimension number, and fails or crashes if one is missing. A size must
    be a power of two or that of the dimension, and the numbers of warps and of blocks in a cluster
    must be powers of two: the compiler of jaxlib 0.11.2 crashes on others.
    """

    opcodes = frozenset({"dot", "fusion"})
    messages = (
        "was expected to have … tile sizes but had",
        "Tiling does not satisfy constraints.",
        "(num_warps, num_ctas, num_stages) must be positive",
    )
    evidence = (RefusedByXla("was expected to have 1 tile sizes but had 2"),)
    examples = (
        Bad.module(_PROGRAM.format(tiles='{"sizes":["8","16"]}', warps=4, mark="  // error")),
        Bad.module(_PROGRAM.format(tiles='{"sizes":["96"]}', warps=4, mark="  // error")),
        Bad.module(_PROGRAM.format(tiles='{"sizes":["64"]}', warps=3, mark="  // error")),
        Bad.module(_DOT.format(sizes='"16","16"', mark="  // error")),
        Good.module(_PROGRAM.format(tiles='{"sizes":["128"]}', warps=4, mark="")),
        Good.module(_DOT.format(sizes='"16"', mark="")),
    )

    def check(self, module: Module) -> Findings:
        """Fusions and dots with wrong tiles, in any computation."""
        for fusion in instructions_of(module, "fusion"):
            if _BLOCKS in fusion.attributes_text:
                yield from _of_results(fusion)
        for dot in instructions_of(module, "dot"):
            if '"sizes"' in dot.attributes_text:
                yield from _of_contraction(dot)


def _of_results(fusion: Instruction) -> Iterator[Finding]:
    kernel = fusion.backend_config().get(_FUSION)
    blocks = kernel.get(_BLOCKS) if isinstance(kernel, Mapping) else None
    tiles = blocks.get("output_tiles", ()) if isinstance(blocks, Mapping) else None
    shape = fusion.shape_or_none
    if not isinstance(tiles, Sequence) or not isinstance(blocks, Mapping) or shape is None:
        return
    for field in ("num_warps", "num_ctas"):
        count = whole_number(f"{blocks.get(field, 1)}")
        if count is not None and not _is_power_of_two(count):
            message = f"{field} is {count}, expected a power of two"
            yield Finding(fusion, message, severity=Severity.WARNING, key=field)
    results = shape.elements if isinstance(shape, TupleShape) else (shape,)
    if len(tiles) != len(results):
        return  # with several results, those read by other results need no tile
    for number, (tile, result) in enumerate(zip(tiles, results, strict=True)):
        sizes = _count(tile)
        if isinstance(result, ArrayShape) and sizes not in (None, len(result.dims)):
            which = f" {number}" if len(results) > 1 else ""
            message = (
                f"result{which} has {len(result.dims)} dimensions, but its tile has {sizes} sizes"
            )
            yield Finding(fusion, message)
        elif isinstance(result, ArrayShape) and isinstance(tile, Mapping):
            for size, dim in zip(map(str, tile.get("sizes", ())), result.dims, strict=False):
                count = whole_number(size)
                if count not in (None, dim) and not _is_power_of_two(count or 0):
                    message = f"the tile size {count} in a dimension of {dim} is not a power of two"
                    yield Finding(fusion, message, severity=Severity.WARNING, key="size")


def _is_power_of_two(count: int) -> bool:
    return count > 0 and not count & (count - 1)


def _of_contraction(dot: Instruction) -> Iterator[Finding]:
    sizes = _count(dot.backend_config())
    contracted = dot.attribute_or_none("lhs_contracting_dims")
    if isinstance(contracted, Sequence) and sizes not in (None, len(contracted)):
        message = f"the dot has {len(contracted)} contracting dimensions, but {sizes} tile sizes"
        yield Finding(dot, message)


def _count(tile: object) -> int | None:
    """The number of sizes of a tile; None if it states no sizes."""
    sizes = tile.get("sizes") if isinstance(tile, Mapping) else None
    return len(sizes) if isinstance(sizes, Sequence) and not isinstance(sizes, str) else None
