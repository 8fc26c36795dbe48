"""Pallas kernels of Mosaic GPU: the target `mosaic_gpu_v2`.

    {kernel_hash = "…", module = "ML\\EFR…", skip_device_barrier = false,
     use_custom_barrier = false, uses_xla_collective_metadata = false}

`module` is MLIR bytecode in the dialect `stable_mosaic_gpu`, with host code and kernel. JAX's own
MLIR bindings read it in a child process, since their C++ may abort on malformed files. The host
code makes each TMA descriptor by a call of `mosaic_gpu_init_tma_desc`
(`jaxlib/mosaic/gpu/runtime.cc`), from whose constant arguments the descriptors are read.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, Final

from hlo_lint.hlo.parser.mlir_dictionary import read_dictionary
from hlo_lint.kernels.custom_calls.gpu_triton import required
from hlo_lint.text.errors import PayloadError
from hlo_lint.text.phrases import listed
from hlo_lint.text.source import decode, shown
from hlo_lint.xla.child import Child, ChildDied, ChildError
from hlo_lint.xla.limits import ChildLimits

TARGETS: Final = frozenset({"mosaic_gpu_v2", "mosaic_gpu"})

INSTALL: Final = "install jax (pip install 'hlo-lint[xla]') to read MLIR bytecode"
PATIENCE_IN_SECONDS: Final = 120.0


@dataclass(frozen=True)
class MosaicCall:
    """The decoded `backend_config` of the target."""

    module: bytes = field(repr=False)


@dataclass(frozen=True, slots=True)
class MosaicDescriptor:
    """The arguments of a `mosaic_gpu_init_tma_desc` call, row-major; None for computed values."""

    elem_type: int | None
    """Mosaic's number of the type: `runtime.cc` maps it to a `CUtensorMapDataType`."""
    rank: int | None
    shape: tuple[int | None, ...]
    strides: tuple[int | None, ...]
    """The strides in elements, including the innermost."""
    swizzle_bytes: int | None
    """The swizzle in bytes; 16 means no swizzle."""
    block_shape: tuple[int | None, ...]


@dataclass(frozen=True)
class MlirModule:
    """A parsed MLIR module."""

    text: str = field(repr=False)
    """The text in MLIR's generic form."""
    descriptors: tuple[MosaicDescriptor, ...]


def decode_mosaic(content: bytes) -> MosaicCall:
    """Decode the call in a `backend_config`; its module stays bytecode."""
    return MosaicCall(required(read_dictionary(decode(content)), "module", bytes))


def read_module(data: bytes) -> MlirModule:
    """Parse MLIR bytecode, of Mosaic GPU or Triton.

    Args:
        data: bytecode, or MLIR text.

    Raises:
        PayloadError: MLIR rejects it, or jax is not installed.
    """
    from hlo_lint.kernels.custom_calls import mlir_child

    limits = ChildLimits.by_default(PATIENCE_IN_SECONDS)
    with Child(limits=limits, setup=mlir_child.load_mlir) as child:
        try:
            answer, _ = child.call(mlir_child.read_mlir, data)
        except ChildDied as death:
            raise PayloadError(f"{death}" if death.is_late else f"MLIR: {death}") from None
        except ChildError as error:
            if error.class_name == "ImportError":
                raise PayloadError(f"{INSTALL}: {error}") from None
            lines = [line.strip() for line in f"{error}".splitlines()]
            reason = shown(listed(filter(None, lines), 3, "; "))
            raise PayloadError(f"MLIR rejects it: {reason}") from None
    descriptors: Iterator[dict[str, Any]] = (
        {name: tuple(v) if isinstance(v, list) else v for name, v in fields.items()}
        for fields in answer["descriptors"]
    )
    return MlirModule(answer["text"], tuple(MosaicDescriptor(**named) for named in descriptors))
