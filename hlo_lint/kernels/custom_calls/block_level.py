"""Fusions that XLA tiles itself and compiles through Triton: `block_level_fusion_config`.

    {…,"fusion_backend_config":{"kind":"__triton","block_level_fusion_config":{"num_warps":"4",
     "output_tiles":[{"sizes":["64","64"]}],"is_tma_allowed":false,…}},…}

From `BlockLevelFusionConfig` in `xla/service/gpu/backend_configs.proto`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from hlo_lint.kernels.custom_calls.carrier import Json, JsonReader, read_json, reader_of


@dataclass(frozen=True)
class BlockLevelFusion:
    """The tiling of a fusion."""

    kind: str
    """`__triton`, `__triton_nested_gemm_fusion`, `__triton_collective` …"""
    output_tiles: tuple[tuple[int, ...], ...]
    """For each result of the fusion, how much of it one block makes."""
    num_warps: int
    num_ctas: int
    num_stages: int
    is_tma_allowed: bool
    """True if operands may be fetched through TMA descriptors."""
    is_warp_specialization_allowed: bool
    waves_per_eu: int
    num_tiles_per_pid: int
    group_size: int
    config: Mapping[str, Json] = field(repr=False)
    """The whole `backend_config`."""
    content: bytes = field(repr=False)


def decode_block_level(content: bytes) -> BlockLevelFusion | None:
    """The configuration that a fusion's `backend_config` carries; None where it has none.

    Raises:
        PayloadError: it is broken.
    """
    config = read_json(content)
    fusion = JsonReader(config, "backend_config").object("fusion_backend_config")
    block = fusion.object("block_level_fusion_config") if fusion else None
    if fusion is None or block is None:
        return None
    return BlockLevelFusion(
        kind=fusion.text("kind"),
        output_tiles=tuple(
            reader_of(tile, "output_tiles").integers("sizes")
            for tile in block.items("output_tiles")
        ),
        num_warps=block.integer("num_warps"),
        num_ctas=block.integer("num_ctas"),
        num_stages=block.integer("num_stages"),
        is_tma_allowed=block.boolean("is_tma_allowed"),
        is_warp_specialization_allowed=block.boolean("is_warp_specialization_allowed"),
        waves_per_eu=block.integer("waves_per_eu"),
        num_tiles_per_pid=block.integer("num_tiles_per_pid"),
        group_size=block.integer("group_size"),
        config=config,
        content=content,
    )
