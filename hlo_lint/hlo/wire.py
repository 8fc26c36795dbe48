"""Protobuf's wire format: messages as fields, without their definitions.

A message is a sequence of fields. A field begins with its key, a varint: its number times 8, plus
the wire type, which determines the length of its value. A varint has 7 bits per byte, the lowest
first; the eighth bit marks that more follow. A field refers to the bytes it was read from, so
unchanged fields are written back byte for byte. A field of another form than
asked raises PayloadError, with its offset.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final, Literal, NamedTuple, TypeAlias

from hlo_lint.text.errors import PayloadError

VARINT: Final = 0
FIXED64: Final = 1
DELIMITED: Final = 2
FIXED32: Final = 5
WireType: TypeAlias = Literal[0, 1, 2, 5]
"""3 and 4, the groups of proto2, do not occur in XLA."""

MAX_FIELDS: Final = 1 << 20
"""The largest number of fields of a message, nested fields included: a kernel call has some
hundred."""
MAX_FIELDS_OF_FILE: Final = 1 << 24
"""The largest number of fields of a file: each event of a profile, and each instruction of an
HloProto, has four or more."""
_MAX_NUMBER: Final = (1 << 29) - 1
_64_BITS: Final = (1 << 64) - 1


class Field(NamedTuple):
    """A field of a message, as a range of the bytes it was read from."""

    number: int
    wire_type: WireType
    varint: int
    """The value of a varint, without a sign; else 0."""
    source: bytes
    begin: int
    """First byte of its key."""
    start: int
    """First byte of its value."""
    end: int

    @property
    def raw(self) -> bytes:
        """The whole field: key, length, value."""
        return self.source[self.begin : self.end]

    @property
    def content(self) -> bytes:
        """The bytes of the value."""
        return self.source[self.start : self.end]


class Reader:
    """Reads an outermost message and its nested messages, at most `max_fields` fields in all."""

    def __init__(self, data: bytes, max_fields: int = MAX_FIELDS) -> None:
        self.data = data
        self.max_fields = max_fields
        self._left = max_fields

    def fields(self, within: Field | None = None) -> tuple[Field, ...]:
        """The fields of the outermost message, or of the message in a field.

        Raises:
            PayloadError: the bytes are not fields, or too many; with the offset.
        """
        return tuple(self.iterate(within))

    def iterate(self, within: Field | None = None) -> Iterator[Field]:
        """The fields on demand, so that a caller can stop before the first broken field."""
        offset, end = 0, len(self.data)
        if within is not None:
            check_delimited(within)
            offset, end = within.start, within.end
        while offset < end:
            field = self._field(offset, end)
            yield field
            offset = field.end

    def numbered(self, number: int, within: Field | None = None) -> Iterator[Field]:
        """The fields with a number, on demand."""
        return (field for field in self.iterate(within) if field.number == number)

    def _field(self, begin: int, end: int) -> Field:
        self._count(begin)
        key, start = self._varint(begin, end)
        number, wire_type = key >> 3, key & 7
        if not 0 < number <= _MAX_NUMBER:
            raise PayloadError(f"{number} is not a field number", begin)
        kind: WireType
        match wire_type:
            case 0:
                value, after = self._varint(start, end)
                return Field(number, VARINT, value, self.data, begin, start, after)
            case 1:
                kind, length = FIXED64, 8
            case 5:
                kind, length = FIXED32, 4
            case 2:
                kind = DELIMITED
                length, start = self._varint(start, end)
            case _:
                raise PayloadError(f"field {number} has wire type {wire_type}", begin)
        if length > end - start:
            over = start + length - end
            raise PayloadError(f"field {number} ends {over} bytes after its message", begin)
        return Field(number, kind, 0, self.data, begin, start, start + length)

    def _varint(self, offset: int, end: int) -> tuple[int, int]:
        begin, value = offset, 0
        for shift in range(0, 70, 7):
            if offset >= end:
                raise PayloadError("the message ends in the middle of a varint", begin)
            byte = self.data[offset]
            offset += 1
            value |= (byte & 0x7F) << shift
            if byte < 0x80:
                return value & _64_BITS, offset
        raise PayloadError("a varint of more than 64 bits", begin)

    def numbers(self, field: Field) -> tuple[int, ...]:
        """The values of a repeated field: a single number, or all numbers packed."""
        if field.wire_type == VARINT:
            return (field.varint,)
        check_delimited(field)
        offset = field.start
        values: list[int] = []
        while offset < field.end:
            self._count(offset)
            value, offset = self._varint(offset, field.end)
            values.append(value)
        return tuple(values)

    def _count(self, offset: int) -> None:
        self._left -= 1
        if self._left < 0:
            raise PayloadError(f"more than {self.max_fields} fields", offset)


# Values


def int_of(field: Field) -> int:
    """A varint without a sign."""
    if field.wire_type != VARINT:
        raise PayloadError(f"field {field.number} is not a number", field.start)
    return field.varint


def signed_of(field: Field, bits: int) -> int:
    """An `int32` or `int64`: written as 64 bits, of which the lower `bits` count."""
    value = int_of(field) & ((1 << bits) - 1)
    return value - (1 << bits) if value >> (bits - 1) else value


def check_delimited(field: Field) -> None:
    """Check that a field is a message, a string or bytes."""
    if field.wire_type != DELIMITED:
        raise PayloadError(f"field {field.number} does not hold bytes", field.start)


def bytes_of(field: Field) -> bytes:
    """A message, a string or bytes."""
    check_delimited(field)
    return field.content


def text_of(field: Field) -> str:
    """A string."""
    try:
        return bytes_of(field).decode()
    except UnicodeDecodeError as error:
        offset = field.start + error.start
        raise PayloadError(f"field {field.number} is not UTF-8", offset) from None


def float_of(field: Field) -> float:
    """A `float` or `double`."""
    if field.wire_type not in (FIXED32, FIXED64):
        raise PayloadError(f"field {field.number} is not a floating-point number", field.start)
    kind = "<f" if field.wire_type == FIXED32 else "<d"
    value: float = struct.unpack(kind, field.content)[0]
    return value


# Writing


def varint(value: int) -> bytes:
    r"""A number on the wire; a negative number as two's complement of 64 bits.

    >>> varint(150)
    b'\x96\x01'
    """
    value &= _64_BITS
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def varint_field(field_number: int, value: int) -> Field:
    """A field that holds a number.

    >>> varint_field(1, 150).raw.hex()
    '089601'
    """
    return next(Reader(varint(field_number << 3 | VARINT) + varint(value)).iterate())


def delimited(field_number: int, value: bytes) -> Field:
    """A field that holds bytes: a message, a string, packed numbers."""
    head = varint(field_number << 3 | DELIMITED) + varint(len(value))
    raw = head + value
    return Field(field_number, DELIMITED, 0, raw, 0, len(head), len(raw))


def packed_field(field_number: int, values: Iterable[int]) -> Field:
    """A repeated field of numbers."""
    return delimited(field_number, b"".join(map(varint, values)))


def serialize(fields: Iterable[Field]) -> bytes:
    """A message of these fields."""
    return b"".join(field.raw for field in fields)


def rewrite(
    reader: Reader, edits: Mapping[int, Sequence[Field]], within: Field | None = None
) -> bytes:
    """The message with some fields, at any depth, replaced by any number of fields.

    Args:
        reader: the reader of the outermost message.
        edits: the new fields by `Field.start`, which is unique.
        within: the field with the message to rewrite; the outermost message if None.
    """
    parts = []
    for field in reader.fields(within):
        if field.start in edits:
            parts.append(serialize(edits[field.start]))
        elif field.wire_type == DELIMITED and any(field.start < at < field.end for at in edits):
            parts.append(delimited(field.number, rewrite(reader, edits, field)).raw)
        else:
            parts.append(field.raw)
    return b"".join(parts)
