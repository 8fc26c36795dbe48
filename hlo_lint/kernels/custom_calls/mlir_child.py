"""Reads MLIR bytecode with JAX's bindings, in the child process of `mosaic.read_module`."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from hlo_lint.xla.child import Answer

INIT_DESCRIPTOR = "mosaic_gpu_init_tma_desc"
_MAX_DIMENSIONS = 16


def read_mlir(data: bytes) -> Answer:
    """The text of a module of MLIR bytecode, and its descriptors."""
    context, ir = _context()
    with context:
        module = ir.Module.parse(data)
        text = module.operation.get_asm(print_generic_op_form=True)
        return {"text": text, "descriptors": list(_descriptors(module.operation))}, ()


def load_mlir() -> Answer:
    """Import JAX's MLIR bindings."""
    _context()
    return None, ()


def _context() -> tuple[Any, Any]:
    """An MLIR context with JAX's, Mosaic's and Triton's dialects that accepts unknown dialects."""
    ir = import_module("jaxlib.mlir.ir")
    context = import_module("jax._src.interpreters.mlir").make_ir_context()
    context.allow_unregistered_dialects = True
    for library, dialect in (("mosaic_gpu_dialect", ""), ("triton", "dialect")):
        with suppress(ImportError, AttributeError):
            module = getattr(import_module("jax._src.lib"), library, None) or import_module(
                f"jax._src.lib.{library}"
            )
            (getattr(module, dialect) if dialect else module).register_dialect(context)
    return context, ir


# ---- descriptors


def _walk(operation: Any) -> Iterator[Any]:
    for region in operation.regions:
        for block in region.blocks:
            for inner in block.operations:
                yield inner.operation
                yield from _walk(inner.operation)


def _operation_name(operation: Any) -> str:
    """The operation's name without the stable dialect's prefix, such as `arith.constant`."""
    return str(operation.name).removeprefix("stable_mosaic_gpu.")


def _attributes(operation: Any) -> dict[str, str]:
    """Attributes as text: generic operations have no accessors."""
    names = [name if isinstance(name, str) else name.name for name in operation.attributes]
    return {name: str(operation.attributes[name]) for name in names}


def _descriptors(module: Any) -> Iterator[dict[str, Any]]:
    stored: dict[tuple[Any, int], int | None] = {}  # by stack array and index
    for operation in _walk(module):
        name = _operation_name(operation)
        if name == "llvm.store":
            value, address = list(operation.operands)[:2]
            place = _place(address)
            if place is not None:
                stored[place] = _constant(value)
        elif name == "func.call" and _attributes(operation).get("callee") == f"@{INIT_DESCRIPTOR}":
            yield _descriptor(list(operation.operands), stored)


def _descriptor(operands: list[Any], stored: dict[tuple[Any, int], int | None]) -> dict[str, Any]:
    """A descriptor from the operands of a call: `(descriptor, base, elem_type, rank, sizes,
    strides, swizzle_bytes, window)`."""
    _, _, elem_type, rank, sizes, strides, swizzle, window = operands
    dimensions = _constant(rank)

    def array(address: Any) -> list[int | None]:
        count = min(dimensions or 0, _MAX_DIMENSIONS)
        return [stored.get((_identity(address), place)) for place in range(count)]

    return {
        "elem_type": _constant(elem_type),
        "rank": dimensions,
        "shape": array(sizes),
        "strides": array(strides),
        "swizzle_bytes": _constant(swizzle),
        "block_shape": array(window),
    }


def _identity(value: Any) -> Any:
    """A key that is equal for two views of the same value."""
    return (value.owner, getattr(value, "result_number", -1)) if _is_result(value) else str(value)


def _is_result(value: Any) -> bool:
    return hasattr(value.owner, "opview") or hasattr(value.owner, "operands")


def _place(address: Any) -> tuple[Any, int] | None:
    """The array and the index of an address computed by a `getelementptr`; else None."""
    if not _is_result(address) or _operation_name(address.owner) != "llvm.getelementptr":
        return None
    indices = _attributes(address.owner).get("rawConstantIndices", "")
    _, _, index = indices.removesuffix(">").partition(": ")
    return (_identity(address.owner.operands[0]), int(index)) if index.isdecimal() else None


def _constant(value: Any) -> int | None:
    """The value of a constant, seen through casts and memref types; None if it is not constant."""
    if not _is_result(value):
        return None
    owner = value.owner
    match _operation_name(owner):
        case "arith.constant" | "llvm.mlir.constant":
            number, _, _ = _attributes(owner)["value"].partition(" ")
            return int(number) if number.lstrip("-").isdecimal() else None
        case "arith.index_cast":
            return _constant(owner.operands[0])
        case "memref.extract_strided_metadata":
            equal = [number for number, result in enumerate(owner.results) if result == value]
            return _metadata(owner.operands[0].type, equal[0] if equal else -1)
    return None


def _metadata(memref: Any, result: int) -> int | None:
    """A static result of `extract_strided_metadata`: (buffer, offset, sizes…, strides…)."""
    ir = import_module("jaxlib.mlir.ir")
    memref = ir.MemRefType(memref)
    strides, _ = memref.get_strides_and_offset()
    values = [*memref.shape, *strides]
    dynamic = ir.ShapedType.get_dynamic_size()
    value = values[result - 2] if 2 <= result < len(values) + 2 else dynamic
    return None if value in (dynamic, ir.ShapedType.get_dynamic_stride_or_offset()) else value
