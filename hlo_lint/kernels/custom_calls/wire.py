"""Protobuf's wire format, to read a message and to write it again with what nobody knows in it.

A field keeps the bytes it was read from: what is not changed is written as it was, in its place.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Literal, TypeAlias

from hlo_lint.text.errors import PayloadError

VARINT: Final = 0
FIXED64: Final = 1
DELIMITED: Final = 2
FIXED32: Final = 5
WireType: TypeAlias = Literal[0, 1, 2, 5]
"""3 and 4, the groups of proto2, occur nowhere in XLA."""

MAX_FIELDS: Final = 1 << 20
"""In a message with all that are in it: a kernel call has some hundred."""
_MAX_NUMBER: Final = (1 << 29) - 1
_64_BITS: Final = (1 << 64) - 1


@dataclass(frozen=True, slots=True)
class Field:
    """One field of a message."""

    number: int
    wire_type: WireType
    value: int | bytes
    """The number of a varint, without a sign; of all others the bytes."""
    raw: bytes
    """The whole field as it is written: key, length, value."""
    start: int = 0
    """Where the value begins, in bytes of the outermost message."""


class Reader:
    """Reads the messages of one outermost message, no more than `most_fields` fields of them."""

    def __init__(self, data: bytes, most_fields: int = MAX_FIELDS) -> None:
        self.data = data
        self.most_fields = most_fields
        self._left = most_fields

    def fields(self, within: Field | None = None) -> tuple[Field, ...]:
        """The fields of the outermost message, or of the one that a field holds.

        Raises:
            PayloadError: the bytes are no fields, or too many; says at which byte.
        """
        at, end = 0, len(self.data)
        if within is not None:
            at = within.start
            end = at + len(bytes_of(within))
        found: list[Field] = []
        while at < end:
            field, at = self._field(at, end)
            found.append(field)
        return tuple(found)

    def _field(self, at: int, end: int) -> tuple[Field, int]:
        self._count(at)
        begin = at
        key, at = self._varint(at, end)
        number, wire_type = key >> 3, key & 7
        if not 0 < number <= _MAX_NUMBER:
            raise PayloadError("no field has this number", begin)
        kind: WireType
        match wire_type:
            case 0:
                start = at
                value, at = self._varint(at, end)
                return Field(number, VARINT, value, self.data[begin:at], start), at
            case 1:
                kind, length = FIXED64, 8
            case 5:
                kind, length = FIXED32, 4
            case 2:
                kind = DELIMITED
                length, at = self._varint(at, end)
            case _:
                raise PayloadError(f"field {number} has wire type {wire_type}", begin)
        if length > end - at:
            over = at + length - end
            raise PayloadError(f"field {number} ends {over} bytes after its message", begin)
        field = Field(number, kind, self.data[at : at + length], self.data[begin : at + length], at)
        return field, at + length

    def _varint(self, at: int, end: int) -> tuple[int, int]:
        begin, value = at, 0
        for shift in range(0, 70, 7):
            if at >= end:
                raise PayloadError("it ends in the middle of a number", begin)
            byte = self.data[at]
            at += 1
            value |= (byte & 0x7F) << shift
            if byte < 0x80:
                return value & _64_BITS, at
        raise PayloadError("a number of more than 64 bits", begin)

    def numbers(self, field: Field) -> tuple[int, ...]:
        """What a repeated field says: one number, or all of them packed.

        Raises:
            PayloadError: it holds no numbers.
        """
        if field.wire_type == VARINT:
            return (int_of(field),)
        at, end = field.start, field.start + len(bytes_of(field))
        found: list[int] = []
        while at < end:
            self._count(at)
            value, at = self._varint(at, end)
            found.append(value)
        return tuple(found)

    def _count(self, at: int) -> None:
        self._left -= 1
        if self._left < 0:
            raise PayloadError(f"more than {self.most_fields} fields", at)


# ---- what a field says


def int_of(field: Field) -> int:
    """A varint without a sign.

    Raises:
        PayloadError: the field is none.
    """
    if isinstance(field.value, bytes):
        raise PayloadError(f"field {field.number} is no number", field.start)
    return field.value


def signed_of(field: Field, bits: int) -> int:
    """An `int32` or `int64`: written as 64 bits, of which the lower ones count."""
    value = int_of(field) & ((1 << bits) - 1)
    return value - (1 << bits) if value >> (bits - 1) else value


def bytes_of(field: Field) -> bytes:
    """A message, a string or bytes.

    Raises:
        PayloadError: the field is a number.
    """
    if field.wire_type != DELIMITED or isinstance(field.value, int):
        raise PayloadError(f"field {field.number} holds no bytes", field.start)
    return field.value


def text_of(field: Field) -> str:
    """A string.

    Raises:
        PayloadError: it is not UTF-8, and proto3 takes nothing else.
    """
    try:
        return bytes_of(field).decode()
    except UnicodeDecodeError as error:
        raise PayloadError(
            f"field {field.number} is not UTF-8", field.start + error.start
        ) from None


def float_of(field: Field) -> float:
    """A `float` or `double`.

    Raises:
        PayloadError: the field has no fixed width.
    """
    if isinstance(field.value, int) or field.wire_type == DELIMITED:
        raise PayloadError(f"field {field.number} is no floating-point number", field.start)
    value: float = struct.unpack("<f" if field.wire_type == FIXED32 else "<d", field.value)[0]
    return value


# ---- writing


def number(field_number: int, value: int) -> Field:
    """A field that holds a number.

    >>> number(1, 150).raw.hex()
    '089601'
    """
    raw = _varint(field_number << 3 | VARINT) + _varint(value)
    return Field(field_number, VARINT, value & _64_BITS, raw)


def delimited(field_number: int, value: bytes) -> Field:
    """A field that holds bytes: a message, a string, packed numbers."""
    raw = _varint(field_number << 3 | DELIMITED) + _varint(len(value)) + value
    return Field(field_number, DELIMITED, value, raw)


def packed(field_number: int, values: Iterable[int]) -> Field:
    """A repeated field of numbers."""
    return delimited(field_number, b"".join(map(_varint, values)))


def written(fields: Iterable[Field]) -> bytes:
    """A message of these fields."""
    return b"".join(field.raw for field in fields)


def rewritten(
    reader: Reader, edits: Mapping[int, Sequence[Field]], within: Field | None = None
) -> bytes:
    """The message with some of its fields, however deep, replaced by none, one or several.

    Args:
        reader: has the outermost message.
        edits: by `Field.start`, which no two fields share.
        within: the message inside to begin with.
    """
    return b"".join(_rewritten(reader, edits, field) for field in reader.fields(within))


def _rewritten(reader: Reader, edits: Mapping[int, Sequence[Field]], field: Field) -> bytes:
    if field.start in edits:
        return written(edits[field.start])
    if field.wire_type == DELIMITED:
        end = field.start + len(bytes_of(field))
        if any(field.start < start < end for start in edits):
            return delimited(field.number, rewritten(reader, edits, field)).raw
    return field.raw


def _varint(value: int) -> bytes:
    value &= _64_BITS
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)
