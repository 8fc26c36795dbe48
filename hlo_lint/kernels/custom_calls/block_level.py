"""Fusions that XLA tiles itself and compiles through Triton: `block_level_fusion_config`.

    {…,"fusion_backend_config":{"kind":"__triton","block_level_fusion_config":{"num_warps":"4",
     "output_tiles":[{"sizes":["64","64"]}],"is_tma_allowed":false,…}},…}

From `BlockLevelFusionConfig` in `xla/service/gpu/backend_configs.proto`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from hlo_lint.hlo.attributes.configuration import Json
from hlo_lint.kernels.custom_calls.carrier import JsonReader, read_json


@dataclass(frozen=True)
class BlockLevelFusion:
    """The tiling of a fusion."""

    kind: str
    """The kind of fusion: `__triton`, `__triton_nested_gemm_fusion`, `__triton_collective` …"""
    config: Mapping[str, Json] = field(repr=False)
    content: bytes = field(repr=False)


def decode_block_level(content: bytes) -> BlockLevelFusion | None:
    """The configuration in a fusion's `backend_config`; None if it has none."""
    config = read_json(content)
    fusion = JsonReader(config, "backend_config").object("fusion_backend_config")
    if fusion is None or fusion.object("block_level_fusion_config") is None:
        return None
    return BlockLevelFusion(fusion.text("kind"), config, content)
