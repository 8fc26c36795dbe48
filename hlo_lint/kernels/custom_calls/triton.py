"""Kernels of jax-triton calls: `jaxlib/gpu/triton.proto`, compressed.

    triton_kernel_call        backend_config="x\\234…"               legacy, a C string
    triton_kernel_call_ffi    backend_config={opaque = "x\\9C…"}     typed FFI, from jax 0.10.1 on

Both contain zlib(TritonAnyKernelCall). Buffers are numbered `[operands…, results…]`: the launcher
passes them to the kernel's pointers in that order and ignores the rest
(`jaxlib/gpu/triton_kernels.cc`).
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple, TypeAlias

from hlo_lint.hlo import wire
from hlo_lint.hlo.parser.mlir_dictionary import Dictionary, read_dictionary
from hlo_lint.hlo.wire import Field, Reader
from hlo_lint.kernels.calls import LEGACY
from hlo_lint.text.errors import PayloadError
from hlo_lint.text.source import decode, encode

FFI: Final = "triton_kernel_call_ffi"
TARGETS: Final = frozenset({LEGACY, FFI})

MAX_BYTES: Final = 64 << 20
"""The largest accepted decompressed payload; real payloads have 10 to 500 kB of PTX."""
MAX_EXPANSION: Final = 200
"""The largest accepted ratio of decompressed to compressed size, above `ANY_EXPANSION` bytes."""
ANY_EXPANSION: Final = 1 << 20


@dataclass(frozen=True, slots=True)
class Array:
    """A pointer parameter: takes the next buffer."""

    bytes_to_zero: int
    """The number of bytes that the launcher clears before each run."""
    ptr_divisibility: int
    """The required divisor of the address; 0 for any address."""


@dataclass(frozen=True, slots=True)
class Scalar:
    """A scalar parameter."""

    type: str
    """The type: `bool`, `i32`, `u32`, `i64`, `u64`, `f32` or `f64`."""
    value: bool | int | float


@dataclass(frozen=True, slots=True)
class TensorDescriptor:
    """A TMA descriptor of the next buffer: row-major, strides in elements."""

    elem_type: int
    """A `CUtensorMapDataType`: 6 is float16, 9 is bfloat16."""
    swizzle: int
    """A `CUtensorMapSwizzle`: 0 to 3 are none, 32, 64 and 128 bytes."""
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    block_shape: tuple[int, ...]
    oob_fill: int


@dataclass(frozen=True, slots=True)
class UnknownParameter:
    """A parameter of a later release, with its protobuf field numbers."""

    fields: tuple[int, ...]


Parameter: TypeAlias = Array | Scalar | TensorDescriptor | UnknownParameter


@dataclass(frozen=True, slots=True)
class Kernel:
    """A compiled kernel; fields that the release lacks are None."""

    kernel_name: str
    num_warps: int
    shared_mem_bytes: int
    compute_capability: int
    """90 is sm_90."""
    ptx: str = field(repr=False)
    """Empty in newer releases, which have machine code instead."""
    num_ctas: int | None = None
    global_scratch_size: int | None = None
    global_scratch_align: int | None = None


@dataclass(frozen=True, slots=True)
class KernelCall:
    """A kernel with its launch grid and parameters."""

    kernel: Kernel
    grid: tuple[int, int, int]
    parameters: tuple[Parameter, ...]

    @property
    def pointers(self) -> tuple[int, ...]:
        """The numbers of the parameters that take a buffer, in the order of the buffers."""
        return tuple(
            number
            for number, parameter in enumerate(self.parameters)
            if isinstance(parameter, Array | TensorDescriptor)
        )


@dataclass(frozen=True, slots=True)
class Config:
    """A candidate of the autotuner."""

    kernel_call: KernelCall
    description: str


class InputOutputAlias(NamedTuple):
    """A buffer that the autotuner saves before its trials and restores after them."""

    input_buffer: int
    """Its number in `[operands…, results…]`."""
    output_buffer: int
    """The number of the result with the same memory; it is saved only if the addresses match."""
    size_bytes: int


@dataclass(frozen=True, slots=True)
class AutotunedKernelCall:
    """Equivalent calls; the first execution runs them all and keeps the fastest."""

    name: str
    configs: tuple[Config, ...]
    input_output_aliases: tuple[InputOutputAlias, ...]


@dataclass(frozen=True)
class TritonCall:
    """The payload of a Triton call of either target."""

    target: str
    name: str
    metadata: bytes = field(repr=False)
    call: KernelCall | AutotunedKernelCall
    message: bytes = field(repr=False)
    """The serialized `TritonAnyKernelCall`."""
    content: bytes = field(repr=False)

    @property
    def kernel_calls(self) -> tuple[KernelCall, ...]:
        """The call, or the candidates of the autotuner."""
        match self.call:
            case KernelCall():
                return (self.call,)
            case AutotunedKernelCall(configs=configs):
                return tuple(config.kernel_call for config in configs)

    @property
    def pointer_count(self) -> int:
        """The number of buffers that the kernel takes: the maximum over all configurations."""
        return max((len(call.pointers) for call in self.kernel_calls), default=0)

    @property
    def descriptors(self) -> Iterator[tuple[int, int, TensorDescriptor]]:
        """The descriptors as (configuration number, parameter number, descriptor)."""
        for config, call in enumerate(self.kernel_calls):
            for number, parameter in enumerate(call.parameters):
                if isinstance(parameter, TensorDescriptor):
                    yield config, number, parameter


# ---- reading


def decode_triton(target: str, content: bytes) -> TritonCall:
    """Decode the call in a `backend_config`."""
    return _decoded(target, content, decompressed(_opaque(target, content)))


def _decoded(target: str, content: bytes, message: bytes) -> TritonCall:
    reader = Reader(message)
    fields = _by_number(reader.fields(), "TritonAnyKernelCall", 1, 2, 3, 4)
    call: KernelCall | AutotunedKernelCall
    match fields.get(1), fields.get(2):
        case Field() as plain, None:
            call = _kernel_call(reader, plain)
        case None, Field() as autotuned:
            call = _autotuned(reader, autotuned)
        case None, None:
            raise PayloadError("neither a kernel call nor an autotuned one", 0)
        case _:
            raise PayloadError("both a kernel call and an autotuned one", 0)
    name = wire.text_of(fields[4]) if 4 in fields else ""
    metadata = wire.bytes_of(fields[3]) if 3 in fields else b""
    return TritonCall(target, name, metadata, call, message, content)


def decompressed(data: bytes) -> bytes:
    """Decompress the bytes to at most `MAX_BYTES`."""
    most = min(MAX_BYTES, max(ANY_EXPANSION, len(data) * MAX_EXPANSION))
    stream = zlib.decompressobj()
    try:
        message = stream.decompress(data, most)
        # A further byte identifies a decompression bomb without expanding it.
        if not stream.eof and stream.decompress(stream.unconsumed_tail, 1):
            raise PayloadError(
                f"{len(data)} compressed bytes become more than {most}: "
                "a decompression bomb, or not a kernel"
            )
    except zlib.error as error:
        raise PayloadError(f"its zlib data is damaged: {error}") from None
    if not stream.eof:
        raise PayloadError(f"its zlib data is truncated after {len(data)} bytes", len(data))
    if stream.unused_data:
        end = len(data) - len(stream.unused_data)
        raise PayloadError("bytes after the end of its zlib data", end)
    return message


def _opaque(target: str, content: bytes) -> bytes:
    if target == LEGACY:
        return content
    value = _ffi_dictionary(content).values.get("opaque")
    if not isinstance(value, bytes):
        raise PayloadError("expected the string `opaque` in its dictionary", 0, "character")
    return value


def _ffi_dictionary(content: bytes) -> Dictionary:
    return read_dictionary(decode(content))


def _by_number(fields: Iterable[Field], message: str, *once: int) -> dict[int, Field]:
    by_number: dict[int, Field] = {}
    for entry in fields:
        if entry.number in once and entry.number in by_number:
            raise PayloadError(f"duplicate field {entry.number} of {message}", entry.start)
        by_number.setdefault(entry.number, entry)
    return by_number


def _autotuned(reader: Reader, within: Field) -> AutotunedKernelCall:
    name = ""
    configs: list[Config] = []
    aliases: list[InputOutputAlias] = []
    for entry in reader.fields(within):
        match entry.number:
            case 1:
                name = wire.text_of(entry)
            case 2:
                fields = _by_number(reader.fields(entry), "Config", 1, 2)
                if 1 not in fields:
                    raise PayloadError("a configuration without its kernel call", entry.start)
                description = wire.text_of(fields[2]) if 2 in fields else ""
                configs.append(Config(_kernel_call(reader, fields[1]), description))
            case 3:
                fields = _by_number(reader.fields(entry), "InputOutputAlias")
                buffers = _uint(fields, 1), _uint(fields, 2)
                aliases.append(InputOutputAlias(*buffers, _uint(fields, 3, bits=64)))
            case _:
                pass
    return AutotunedKernelCall(name, tuple(configs), tuple(aliases))


def _kernel_call(reader: Reader, within: Field) -> KernelCall:
    inside = reader.fields(within)
    fields = _by_number(inside, "TritonKernelCall", 1)
    if 1 not in fields:
        raise PayloadError("a kernel call without its kernel", within.start)
    grid = (_uint(fields, 2), _uint(fields, 3), _uint(fields, 4))
    parameters = tuple(_parameter(reader, entry) for entry in inside if entry.number == 5)
    return KernelCall(_kernel(reader, fields[1]), grid, parameters)


def _kernel(reader: Reader, within: Field) -> Kernel:
    fields = _by_number(reader.fields(within), "TritonKernel")
    texts = {number: wire.text_of(fields[number]) for number in (1, 4) if number in fields}
    return Kernel(
        kernel_name=texts.get(1, ""),
        num_warps=_uint(fields, 2),
        shared_mem_bytes=_uint(fields, 3),
        compute_capability=_uint(fields, 6),
        ptx=texts.get(4, ""),
        num_ctas=_uint(fields, 10) if 10 in fields else None,
        global_scratch_size=_uint(fields, 12) if 12 in fields else None,
        global_scratch_align=_uint(fields, 13) if 13 in fields else None,
    )


_ARRAY: Final = 1
_I64: Final = 5
_DESCRIPTOR: Final = 9


def _parameter(reader: Reader, within: Field) -> Parameter:
    inside = reader.fields(within)
    # The oneof `value` of TritonKernelCall.Parameter (jaxlib/gpu/triton.proto).
    values = [entry for entry in inside if _ARRAY <= entry.number <= _DESCRIPTOR]
    if len(values) > 1:
        raise PayloadError("a parameter of two kinds", within.start)
    if not values:
        return UnknownParameter(tuple(entry.number for entry in inside))
    (value,) = values
    match value.number:
        case 1:
            fields = _by_number(reader.fields(value), "Array")
            return Array(_uint(fields, 1, bits=64), _uint(fields, 2, bits=64))
        case 9:
            return _descriptor(reader, value)
    type_name, read = _SCALARS[value.number]
    return Scalar(type_name, read(value))


def _real(value: Field, wire_type: int) -> float:
    if value.wire_type != wire_type:
        raise PayloadError(f"field {value.number} has the wrong width", value.start)
    return wire.float_of(value)


_SCALARS: Final[Mapping[int, tuple[str, Callable[[Field], bool | int | float]]]] = {
    2: ("bool", lambda value: bool(wire.int_of(value))),
    3: ("i32", lambda value: wire.signed_of(value, 32)),
    4: ("u32", lambda value: wire.int_of(value) & 0xFFFFFFFF),
    5: ("i64", lambda value: wire.signed_of(value, 64)),
    6: ("u64", wire.int_of),
    7: ("f32", lambda value: _real(value, wire.FIXED32)),
    8: ("f64", lambda value: _real(value, wire.FIXED64)),
}
"""The type of a scalar and its reader, by field number."""
_NVIDIA: Final = 1
_STRIDES: Final = 4


def _descriptor(reader: Reader, within: Field) -> Parameter:
    backends = _by_number(reader.fields(within), "TensorDescriptor", _NVIDIA)
    if _NVIDIA not in backends:
        return UnknownParameter((_DESCRIPTOR, *backends))
    inside = reader.fields(backends[_NVIDIA])
    fields = _by_number(inside, "Nvidia")
    shape, strides, block_shape = (
        tuple(
            number for entry in inside if entry.number == wanted for number in reader.numbers(entry)
        )
        for wanted in (3, _STRIDES, 5)
    )
    return TensorDescriptor(
        elem_type=_uint(fields, 1),
        swizzle=_uint(fields, 2),
        shape=shape,
        strides=strides,
        block_shape=tuple(size & 0xFFFFFFFF for size in block_shape),
        oob_fill=_uint(fields, 6),
    )


def _uint(fields: Mapping[int, Field], number: int, *, bits: int = 32) -> int:
    """A `uint32` or `uint64` field; 0 if it is missing."""
    return wire.int_of(fields[number]) & ((1 << bits) - 1) if number in fields else 0


# ---- writing


def with_message(call: TritonCall, message: bytes) -> TritonCall:
    """The call with its message replaced."""
    compressed = zlib.compress(message)
    content = compressed
    if call.target != LEGACY:
        content = encode(_ffi_dictionary(call.content).with_value("opaque", compressed).text)
    return _decoded(call.target, content, message)


def with_aliases(call: TritonCall, aliases: Iterable[InputOutputAlias]) -> TritonCall:
    """The autotuned call with its list of saved buffers replaced; unknown fields are kept."""
    reader = Reader(call.message)
    autotuned = next(reader.numbered(2), None)
    if autotuned is None:
        raise PayloadError("only an autotuned call has a list of aliases")
    wanted = [_alias_field(alias) for alias in aliases]
    inside = reader.fields(autotuned)
    listed = [entry for entry in inside if entry.number == 3]
    edits: dict[int, list[Field]] = {entry.start: [] for entry in listed}
    if listed:
        # The new list replaces the first old entry, so unknown fields keep their places.
        edits[listed[0].start] = wanted
    else:
        edits[autotuned.start] = [wire.delimited(2, wire.serialize([*inside, *wanted]))]
    return with_message(call, wire.rewrite(reader, edits))


def _alias_field(alias: InputOutputAlias) -> Field:
    """The protobuf field of an alias; zeros are omitted, as in proto3."""
    numbers = [
        wire.varint_field(number, value) for number, value in enumerate(alias, start=1) if value
    ]
    return wire.delimited(3, wire.serialize(numbers))


def with_tensor_strides(
    call: TritonCall, strides: Mapping[tuple[int, int], Sequence[int]]
) -> TritonCall:
    """The call with new strides, in elements, in its tensor descriptors.

    jax-triton also passes the shape of a descriptor to the kernel as i32s, and its strides as i64s
    after them; if present, these scalars change too. Unknown fields are kept.

    Args:
        call: plain or autotuned.
        strides: by configuration number (0 for a plain call) and parameter number.

    Raises:
        PayloadError: there is no such descriptor, or its rank differs.
    """
    reader = Reader(call.message)
    calls = list(_call_fields(reader))
    edits: dict[int, list[Field]] = {}
    for (config, number), wanted in strides.items():
        parameters = call.kernel_calls[config].parameters if config < len(calls) else ()
        descriptor = parameters[number] if number < len(parameters) else None
        if not isinstance(descriptor, TensorDescriptor) or len(descriptor.strides) != len(wanted):
            raise PayloadError(
                f"parameter {number} of configuration {config} is not a tensor descriptor "
                f"with {len(wanted)} strides"
            )
        fields = list(reader.numbered(5, calls[config]))
        edits |= _stride_edits(reader, fields[number], wanted)
        rank = len(wanted)
        # After a descriptor jax-triton passes `rank` sizes, then `rank` strides.
        stride_scalars = range(number + 1 + rank, number + 1 + 2 * rank)
        for place, old, new in zip(stride_scalars, descriptor.strides, wanted, strict=True):
            if place < len(parameters) and parameters[place] == Scalar("i64", old):
                (scalar,) = reader.numbered(_I64, fields[place])
                edits[scalar.start] = [wire.varint_field(_I64, new)]
    return with_message(call, wire.rewrite(reader, edits))


def _call_fields(reader: Reader) -> Iterator[Field]:
    """The fields of `kernel_calls`: `kernel_call = 1`, or that of each configuration."""
    yield from reader.numbered(1)
    for autotuned in reader.numbered(2):
        for config in reader.numbered(2, autotuned):
            yield from reader.numbered(1, config)


def _stride_edits(reader: Reader, within: Field, wanted: Sequence[int]) -> dict[int, list[Field]]:
    (descriptor,) = reader.numbered(_DESCRIPTOR, within)
    (nvidia,) = reader.numbered(_NVIDIA, descriptor)
    listed = [entry.start for entry in reader.numbered(_STRIDES, nvidia)]
    edits: dict[int, list[Field]] = {start: [] for start in listed}
    if listed:
        edits[listed[0]] = [wire.packed_field(_STRIDES, wanted)]
    return edits
