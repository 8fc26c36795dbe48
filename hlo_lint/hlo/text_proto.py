r"""Protobuf's text format: what it says, and the bytes it stands for.

    computations {
      name: "region_0.1"
      instructions { id: 3 opcode: "parameter" shape { element_type: F32 } metadata <> }
    }

Python's jaxlib reads no text. But protoc leaves each `.proto` in the shared object that it is
compiled into, as a serialized FileDescriptorProto, so a release says itself what its messages are.
"""

from __future__ import annotations

import mmap
import re
import struct
from collections.abc import Iterator
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path
from typing import Final, NamedTuple, NoReturn, TypeAlias

from hlo_lint.hlo.proto import WireError, delimited, fields, key, varint

MAX_DEPTH: Final = 100
"""Protobuf's own limit for messages in messages."""


class TextError(ValueError):
    """Text that is no message, or not one of the release at hand: the line, and what was wrong."""


def module_from_text(data: bytes) -> bytes:
    """The serialized HloModuleProto of a text that is one, or an HloProto, or an HloSnapshot.

    Raises:
        TextError: it is none of them.
        WireError: this jaxlib does not say what its messages are.
    """
    entries = parse_text(data)
    for wrapping in ("hlo", "hlo_module"):
        for entry in entries:
            if entry.name == wrapping and isinstance(entry.value, list):
                entries = entry.value
                break
    schema = embedded_schema("xla/service/hlo.proto")
    return _Writer(data, schema).message(entries, ".xla.HloModuleProto")


# The text


class Entry(NamedTuple):
    """A field as it is written; a list of values is as many entries."""

    name: str
    at: int
    """Where the value stands, in bytes of the text."""
    value: Value


Value: TypeAlias = "bytes | str | list[Entry]"
"""The contents of a string, a number or a name as it is spelled, or a message."""

_blank = re.compile(rb"(?:\s|#[^\n]*+)*+")
_name = re.compile(rb"[A-Za-z_]\w*|\[[\w./%\-]+\]")
_scalar = re.compile(rb"-?\s*(?:[A-Za-z_]\w*|(?:\d|\.\d)(?:[eE][+-]|[\w.])*+)")
_string = re.compile(
    rb'"([^"\\\n]*+(?:\\[^\n][^"\\\n]*+)*+)"' rb"|'([^'\\\n]*+(?:\\[^\n][^'\\\n]*+)*+)'"
)
_escape = re.compile(
    rb"\\(?:([0-7]{1,3})|[xX]([0-9A-Fa-f]{1,2})|u([0-9A-Fa-f]{4})|U([0-9A-Fa-f]{8})|(.))", re.S
)
_SIMPLE: Final = dict(zip(b"abfnrtv\\'\"?", b"\a\b\f\n\r\t\v\\'\"?", strict=True))
_CLOSING: Final = {b"{": b"}", b"<": b">"}


def parse_text(data: bytes) -> list[Entry]:
    r"""What a text says, in its own order; what its names mean is not looked at.

    >>> [(entry.name, entry.value) for entry in parse_text(b"a: 'x' \"\\x79\" b [1, -2]  # c")]
    [('a', b'xy'), ('b', '1'), ('b', '-2')]

    Raises:
        TextError: where the text stops making sense.
    """
    return _Reader(data).entries(b"", 0)


def _fail(data: bytes, at: int, message: str) -> NoReturn:
    line = data.count(b"\n", 0, at) + 1
    raise TextError(f"line {line}: {message}")


class _Reader:
    def __init__(self, data: bytes) -> None:
        self.data = data
        self.at = 0

    def entries(self, closing: bytes, depth: int) -> list[Entry]:
        """The fields up to a closing brace, or to the end."""
        if depth > MAX_DEPTH:
            _fail(self.data, self.at, f"messages nest deeper than {MAX_DEPTH}")
        found: list[Entry] = []
        while True:
            next_mark = self.mark()
            if next_mark == closing:
                self.at += len(closing)
                return found
            name = _name.match(self.data, self.at)
            if name is None:
                self.fail("a field's name" + (f" or {closing.decode()}" if closing else ""))
            self.at = name.end()
            self.values(name[0].decode(), found, depth)
            if self.mark() in (b";", b","):
                self.at += 1

    def values(self, name: str, found: list[Entry], depth: int) -> None:
        """What follows a name: a value, or values in brackets."""
        if self.mark() == b":":
            self.at += 1
        if self.mark() != b"[":
            found.append(self.entry(name, depth))
            return
        self.at += 1
        separator = b","
        while self.mark() != b"]":
            if separator != b",":
                self.fail("`,` or `]`")
            found.append(self.entry(name, depth))
            separator = self.mark()
            if separator == b",":
                self.at += 1
        self.at += 1

    def entry(self, name: str, depth: int) -> Entry:
        mark = self.mark()
        start = self.at
        if mark in _CLOSING:
            self.at += 1
            return Entry(name, start, self.entries(_CLOSING[mark], depth + 1))
        if mark in (b'"', b"'"):
            return Entry(name, start, self.string())
        scalar = _scalar.match(self.data, start)
        if scalar is None:
            self.fail(f"a value of {name}")
        self.at = scalar.end()
        return Entry(name, start, b"".join(scalar[0].split()).decode())

    def string(self) -> bytes:
        """A string, or as many as stand beside each other."""
        parts: list[bytes] = []
        while self.mark() in (b'"', b"'"):
            found = _string.match(self.data, self.at)
            if found is None:
                self.fail("the end of a string")
            parts.append(found[1] or found[2] or b"")
            self.at = found.end()
        try:
            return b"".join(
                _escape.sub(_unescaped, part) if b"\\" in part else part for part in parts
            )
        except ValueError as error:
            _fail(self.data, self.at, f"{error}")

    def mark(self) -> bytes:
        """The next character that is neither blank nor comment, which stays there."""
        blank = _blank.match(self.data, self.at)
        self.at = blank.end() if blank else self.at
        return self.data[self.at : self.at + 1]

    def fail(self, wanted: str) -> NoReturn:
        stands = self.data[self.at : self.at + 20].split(b"\n")[0]
        seen = f"`{stands.decode('utf-8', 'backslashreplace')}`" if stands else "the end"
        _fail(self.data, self.at, f"expected {wanted}, found {seen}")


def _unescaped(found: re.Match[bytes]) -> bytes:
    octal, hexadecimal, short, long, simple = found.groups()
    if octal:
        return bytes([int(octal, 8)])
    if hexadecimal:
        return bytes([int(hexadecimal, 16)])
    if short or long:
        return chr(int(short or long, 16)).encode()
    if simple[0] not in _SIMPLE:
        raise ValueError(f"no escape is spelled \\{simple.decode('ascii', 'backslashreplace')}")
    return bytes([_SIMPLE[simple[0]]])


# What the messages are


@dataclass(frozen=True, slots=True)
class FieldType:
    """One field of a message: what stands before its bytes, and what they are."""

    number: int
    kind: int
    """FieldDescriptorProto.Type."""
    type_name: str
    """`.xla.ShapeProto` where the field is a message or an enum, else empty."""


@dataclass(frozen=True, slots=True)
class Schema:
    """The messages and enums of some `.proto` files, by full name (`.xla.ShapeProto`)."""

    messages: dict[str, dict[str, FieldType]] = field(default_factory=dict)
    enums: dict[str, dict[str, int]] = field(default_factory=dict)


def embedded_schema(root: str) -> Schema:
    """What jaxlib's shared objects say about a `.proto` and all that it imports.

    Raises:
        WireError: they say nothing about it.
    """
    schema = Schema()
    wanted, seen = [root], {root}
    with _Libraries() as libraries:
        while wanted:
            for imported in _add_file(libraries.descriptor(wanted.pop()), schema):
                if imported not in seen:
                    seen.add(imported)
                    wanted.append(imported)
    return schema


class _Libraries:
    """The shared objects of jaxlib, the largest first: it is the one that has XLA in it."""

    def __enter__(self) -> _Libraries:
        spec = find_spec("jaxlib")
        folder = Path(spec.origin).parent if spec and spec.origin else Path()
        found = [path for path in folder.iterdir() if _is_library(path.name)]
        found.sort(key=lambda path: path.stat().st_size, reverse=True)
        self.maps: list[mmap.mmap] = []
        for path in found:
            with path.open("rb") as file:
                self.maps.append(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ))
        return self

    def __exit__(self, *_: object) -> None:
        for library in self.maps:
            library.close()

    def descriptor(self, proto: str) -> list[tuple[int, int | memoryview]]:
        """The fields of the FileDescriptorProto of that name.

        It has no length. It begins with its name and its package, its fields ascend, and the
        last is its syntax.
        """
        start = key(1) + varint(len(proto)) + proto.encode() + key(2)
        for library in self.maps:
            at = library.find(start)
            if at < 0:
                continue
            found: list[tuple[int, int | memoryview]] = []
            for number, value in fields(memoryview(library[at : at + _MAX_DESCRIPTOR_BYTES])):
                if found and number < found[-1][0]:
                    break
                found.append((number, value))
                if number == _SYNTAX:
                    break
            return found
        raise WireError(
            f"it says nothing of {proto}, so the text format cannot be read with it; "
            "jaxlib 0.10.2 and 0.11.2 can"
        )


_MAX_DESCRIPTOR_BYTES: Final = 1 << 20
_SYNTAX: Final = 12
_is_library = re.compile(r".+\.(?:so|dylib|dll|pyd)").fullmatch


def _add_file(descriptor: list[tuple[int, int | memoryview]], schema: Schema) -> Iterator[str]:
    """Enter the types of one FileDescriptorProto; what comes out are the files it imports."""
    parts = _parts(descriptor)
    scope = "." + _text(parts.get(2))
    for message in parts.get(4, ()):
        _add_message(message, scope, schema)
    for enum in parts.get(5, ()):
        _add_enum(enum, scope, schema)
    for imported in parts.get(3, ()):
        yield _text([imported])


def _add_message(descriptor: memoryview, scope: str, schema: Schema) -> None:
    parts = _parts(fields(descriptor))
    name = f"{scope}.{_text(parts.get(1))}"
    own = schema.messages[name] = {}
    for described in parts.get(2, ()):
        numbers = dict(fields(described))
        number, kind = numbers[3], numbers[5]
        if isinstance(number, int) and isinstance(kind, int):
            inner = _parts(fields(described))
            own[_text(inner.get(1))] = FieldType(number, kind, _text(inner.get(6)))
    for nested in parts.get(3, ()):
        _add_message(nested, name, schema)
    for enum in parts.get(4, ()):
        _add_enum(enum, name, schema)


def _add_enum(descriptor: memoryview, scope: str, schema: Schema) -> None:
    parts = _parts(fields(descriptor))
    own = schema.enums[f"{scope}.{_text(parts.get(1))}"] = {}
    for described in parts.get(2, ()):
        number = dict(fields(described)).get(2, 0)
        if isinstance(number, int):
            own[_text(_parts(fields(described)).get(1))] = number


def _parts(
    found: Iterator[tuple[int, int | memoryview]] | list[tuple[int, int | memoryview]],
) -> dict[int, list[memoryview]]:
    """The values with a length, by the number of their field."""
    parts: dict[int, list[memoryview]] = {}
    for number, value in found:
        if not isinstance(value, int):
            parts.setdefault(number, []).append(value)
    return parts


def _text(values: list[memoryview] | None) -> str:
    return bytes(values[-1]).decode() if values else ""


# The bytes

_DOUBLE, _FLOAT, _BOOL, _STRING, _MESSAGE, _BYTES, _ENUM = 1, 2, 8, 9, 11, 12, 14
_VARINTS: Final = {3: (64, True), 4: (64, False), 5: (32, True), 13: (32, False)}
"""int64, uint64, int32, uint32: how many bits, and whether there is a sign."""
_ZIGZAGS: Final = {17: 32, 18: 64}
_FIXED: Final = {6: "<Q", 7: "<I", 15: "<i", 16: "<q"}
_TRUTH: Final = {"true": 1, "True": 1, "t": 1, "1": 1, "false": 0, "False": 0, "f": 0, "0": 0}


@dataclass(frozen=True, slots=True)
class _Writer:
    data: bytes
    """The text, for the line of an error."""
    schema: Schema

    def message(self, entries: list[Entry], type_name: str) -> bytes:
        types = self.schema.messages.get(type_name)
        out = bytearray()
        for entry in entries:
            if entry.name.startswith("["):
                continue  # what an Any holds, written out: no part of HLO's text
            known = types.get(entry.name) if types is not None else None
            if known is None:
                _fail(self.data, entry.at, f"{type_name[1:]} has no field `{entry.name}`")
            out += self.value(entry, known)
        return bytes(out)

    def value(self, entry: Entry, known: FieldType) -> bytes:
        """The field with its key; repeated numbers are not packed, every reader takes both."""
        value = entry.value
        if known.kind == _MESSAGE and isinstance(value, list):
            content = self.message(value, known.type_name)
            return delimited(known.number, content)
        if known.kind in (_STRING, _BYTES) and isinstance(value, bytes):
            return delimited(known.number, value)
        if isinstance(value, str):
            try:
                if known.kind == _ENUM and value in (names := self.schema.enums[known.type_name]):
                    return key(known.number, 0) + varint(names[value])
                return _number(value, known)
            except (ValueError, KeyError, struct.error):
                pass
        seen = f"`{value}`" if isinstance(value, str) else "this"
        _fail(self.data, entry.at, f"{seen} is no value of `{entry.name}`")


def _number(text: str, known: FieldType) -> bytes:
    """A scalar with its key.

    Raises:
        ValueError, KeyError, struct.error: the text is none of that kind.
    """
    number, kind = known.number, known.kind
    if kind == _DOUBLE:
        return key(number, 1) + struct.pack("<d", _float(text))
    if kind == _FLOAT:
        return key(number, 5) + _float32(_float(text))
    if kind == _BOOL:
        return key(number, 0) + varint(_TRUTH[text])
    if kind in _FIXED:
        packed = struct.pack(_FIXED[kind], _integer(text))
        return key(number, 1 if len(packed) == 8 else 5) + packed
    if kind in _ZIGZAGS:
        signed = _within(_integer(text), _ZIGZAGS[kind], True)
        return key(number, 0) + varint(signed * 2 if signed >= 0 else -signed * 2 - 1)
    bits, has_sign = (32, True) if kind == _ENUM else _VARINTS[kind]
    return key(number, 0) + varint(_within(_integer(text), bits, has_sign))


def _integer(text: str) -> int:
    digits = text.removeprefix("-")
    is_octal = len(digits) > 1 and digits.isdecimal() and digits[0] == "0"
    return int(text, 8 if is_octal else 0)


def _within(value: int, bits: int, has_sign: bool) -> int:
    low, high = (-(1 << bits - 1), 1 << bits - 1) if has_sign else (0, 1 << bits)
    if not low <= value < high:
        raise ValueError(f"{value} is no number of {bits} bits")
    return value


def _float(text: str) -> float:
    try:
        return float(text)
    except ValueError:  # C++ takes 1.5f
        return float(text.lower().removesuffix("f"))


def _float32(value: float) -> bytes:
    try:
        return struct.pack("<f", value)
    except OverflowError:  # a double beyond floats: infinite, as XLA's reader takes it
        return struct.pack("<f", float("inf") if value > 0 else float("-inf"))


# The bytes as text


def proto_to_text(data: bytes) -> bytes:
    """The text format of a serialized HloProto, one field a line.

    Raises:
        WireError: this jaxlib does not say what its messages are, or the bytes are none of them.
    """
    schema = embedded_schema("xla/service/hlo.proto")
    return "".join(_Printer(schema).lines(memoryview(data), ".xla.HloProto", "")).encode()


@dataclass(frozen=True, slots=True)
class _Printer:
    schema: Schema

    def lines(self, message: memoryview, type_name: str, indent: str) -> Iterator[str]:
        """The fields of a message; what a release does not know it has no name for."""
        known = {
            known.number: (name, known)
            for name, known in self.schema.messages.get(type_name, {}).items()
        }
        for number, value in fields(message):
            if number not in known:
                raise WireError(f"{type_name[1:]} has no field {number}")
            name, field_type = known[number]
            if field_type.kind == _MESSAGE and not isinstance(value, int):
                yield f"{indent}{name} {{\n"
                yield from self.lines(value, field_type.type_name, indent + "  ")
                yield f"{indent}}}\n"
                continue
            for spelled in self.scalars(value, field_type):
                yield f"{indent}{name}: {spelled}\n"

    def scalars(self, value: int | memoryview, known: FieldType) -> Iterator[str]:
        """A string, a number, or the numbers that are packed into one field."""
        kind = known.kind
        if isinstance(value, int):
            yield self.number(value, known)
        elif kind in (_STRING, _BYTES):
            yield f'"{_escaped(bytes(value))}"'
        elif kind in _PACKED:
            for (number,) in struct.iter_unpack(_PACKED[kind], value):
                yield _spelled(number)
        else:
            for number in _packed_varints(value):
                yield self.number(number, known)

    def number(self, value: int, known: FieldType) -> str:
        """A varint as its type reads it."""
        if known.kind == _BOOL:
            return "true" if value else "false"
        if known.kind in _ZIGZAGS:
            return str(value >> 1 ^ -(value & 1))
        _, has_sign = _VARINTS.get(known.kind, (32, True))
        signed = value - (value >> 63 << 64) if has_sign else value
        if known.kind == _ENUM:
            names = self.schema.enums.get(known.type_name, {})
            return next((name for name, number in names.items() if number == signed), str(signed))
        return str(signed)


_PACKED: Final = {_DOUBLE: "<d", _FLOAT: "<f", **_FIXED}
_SPELLED: Final = {
    byte: chr(byte) if 32 <= byte < 127 else f"\\{byte:03o}" for byte in range(256)
} | {ord("\n"): "\\n", ord("\r"): "\\r", ord("\t"): "\\t", ord('"'): '\\"', ord("\\"): "\\\\"}


def _escaped(data: bytes) -> str:
    return "".join(map(_SPELLED.__getitem__, data))


def _spelled(number: int | float) -> str:
    """Infinities and NaN by the names that protobuf gives them."""
    return repr(number) if number == number and abs(number) != _INFINITE else str(number)


_INFINITE: Final = float("inf")


def _packed_varints(packed: memoryview) -> Iterator[int]:
    value = shift = 0
    for byte in packed:
        value |= (byte & 0x7F) << shift
        shift += 7
        if byte < 0x80:
            yield value
            value = shift = 0
