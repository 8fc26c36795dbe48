"""Protocol buffers that hold HLO: which of their bytes are the module, and how XLA spells it.

XLA's own code turns a module into text and text into a module, out of this process: what a file
says reaches C++ that may abort on it. Only the child process (`xla_child`) imports jaxlib.

    HloProto       { hlo_module = 1; buffer_assignment = 3; }     --xla_dump_hlo_as_proto
    HloSnapshot    { hlo = 1; arguments = 2; result = 3; … }      --xla_dump_hlo_snapshots
    HloModuleProto { name = 1; entry_computation_name = 2; computations = 3; … }
"""

from __future__ import annotations

import gzip
import json
import os
import re
import signal
import subprocess
import sys
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from hlo_lint.text.errors import DumpError
from hlo_lint.text.source import decode, encode, shown

MAX_BYTES: Final = 1 << 31
"""Protobuf itself reads no message of 2 GiB or more."""
MAX_EXPANSION: Final = 200
"""How many times its own size a compressed file may become, once that is beyond `ANY_EXPANSION`."""
ANY_EXPANSION: Final = 64 << 20

INSTALL: Final = "install jaxlib (pip install 'hlo-lint[xla]') to {} protocol buffers"
SNAPSHOT: Final = "hlo_snapshot.pb"
TEXT_SUFFIXES: Final = (".pbtxt", ".textproto", ".txtpb")


def is_proto(name: str) -> bool:
    """True for a file name that stands for HLO as a protocol buffer."""
    return name.removesuffix(".gz").endswith((".pb", ".pbtxt"))


NO_JAXLIB: Final = 3
"""How `xla_child` ends where jaxlib cannot be imported; standard output says why."""
REFUSED: Final = 4
"""How `xla_child` ends where the input holds no module; standard output says why."""

_CHILD: Final = (
    "import sys, json; sys.path[:] = json.loads(sys.argv.pop(1)); "
    "from hlo_lint.hlo.xla_child import main; main()"
)


def read_proto(
    path: Path, *, timeout: float = 300.0, search_path: Sequence[str] | None = None
) -> str:
    """The HLO text of a protocol buffer, binary or text, compressed or not.

    It is what XLA's own dump prints, with large constants in full.

    Args:
        path: a `.pb`, `.hlo.pb`, `.pbtxt` or `.hlo.pbtxt`, or one of them with `.gz`.
        timeout: seconds that XLA's code may take.
        search_path: where the child process imports from; as in this process where it is None.

    Raises:
        DumpError: it cannot be read, holds no module, or there is no jaxlib to read it with.
    """
    data = _content(path)
    is_text = path.name.removesuffix(".gz").endswith(TEXT_SUFFIXES)
    if not is_text:
        try:
            data = module_bytes(data)
        except WireError as error:
            raise DumpError(
                f"{path}: no HloProto or HloModuleProto: {error}; dump it again, or give the text"
            ) from error
    ask = _Question("text" if is_text else "wire", path, "read", "give the text, or another jaxlib")
    return decode(ask.answer(data, timeout, search_path))


def write_proto(
    path: Path,
    text: str,
    *,
    timeout: float = 300.0,
    search_path: Sequence[str] | None = None,
) -> bytes:
    """The bytes of an HloProto with the module that a text spells, for a file of that name.

    `.pbtxt`, `.textproto` and `.txtpb` are in the text format, `.hlo_snapshot.pb` is an
    HloSnapshot without arguments, and `.gz` is compressed.

    Args:
        path: where the bytes will stand; nothing is written there.
        text: HLO that the jaxlib at hand reads.
        timeout: seconds that XLA's code may take.
        search_path: where the child process imports from; as in this process where it is None.

    Raises:
        DumpError: XLA does not read the text, or there is no jaxlib to read it with.
    """
    name = path.name.removesuffix(".gz")
    if name.endswith(TEXT_SUFFIXES):
        kind = "to text"
    else:
        kind = "to snapshot" if name.endswith(SNAPSHOT) else "to wire"
    ask = _Question(kind, path, "write", "convert it to what this jaxlib reads, or take another")
    data = ask.answer(encode(text), timeout, search_path)
    # No time and no name: the same module is the same file.
    return gzip.compress(data, mtime=0) if path.name.endswith(".gz") else data


class WireError(ValueError):
    """Bytes that are no message, or not the one that was asked for."""


def fields(data: memoryview) -> Iterator[tuple[int, int | memoryview]]:
    """The number and the value of each field; fixed-width ones stay bytes.

    >>> list(fields(memoryview(bytes([0x08, 0x96, 0x01]))))
    [(1, 150)]

    Raises:
        WireError: when the iteration reaches bytes that are no field.
    """
    at = 0
    while at < len(data):
        tag, at = _varint(data, at)
        number, wire_type = tag >> 3, tag & 7
        if not number or wire_type not in _WIDTH:
            raise WireError(f"byte {at - 1} begins no field")
        width = _WIDTH[wire_type]
        if wire_type == _VARINT:
            value, at = _varint(data, at)
            yield number, value
            continue
        if wire_type == _DELIMITED:
            width, at = _varint(data, at)
        if at + width > len(data):
            raise WireError(f"field {number} ends {at + width - len(data)} bytes after the data")
        yield number, data[at : at + width]
        at += width


_VARINT: Final = 0
_DELIMITED: Final = 2
_WIDTH: Final = {_VARINT: 0, 1: 8, _DELIMITED: 0, 5: 4}
"""By wire type; 3 and 4, the groups of proto2, occur nowhere in XLA."""


def _varint(data: memoryview, at: int) -> tuple[int, int]:
    value = 0
    for shift in range(0, 70, 7):
        if at >= len(data):
            raise WireError("it ends in the middle of a number")
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, at
    raise WireError(f"byte {at - 1} continues a number of more than 64 bits")


def varint(value: int) -> bytes:
    """A number on the wire; of a negative one the two's complement in 64 bits.

    >>> varint(150)
    b'\\x96\\x01'
    """
    out = bytearray()
    value &= (1 << 64) - 1
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def key(number: int, wire_type: int = _DELIMITED) -> bytes:
    """What stands before the value of a field."""
    return varint(number << 3 | wire_type)


def delimited(number: int, content: bytes) -> bytes:
    """A field whose value has a length: a message, a string, packed numbers."""
    return key(number) + varint(len(content)) + content


def module_bytes(data: bytes) -> bytes:
    """The HloModuleProto of what a file holds: itself, or field 1 of what wraps it.

    All of the wrappings are checked to their last byte: the reader of jaxlib 0.10.0 takes a file
    that is cut off for a smaller module.

    Raises:
        WireError: no module is in it.
    """
    inside, missing = memoryview(data), "it holds no module"
    for _ in range(3):  # a snapshot wraps it twice
        if _is_module(inside):
            return bytes(inside)
        try:
            values = [value for number, value in fields(inside) if number == 1]
        except WireError as error:
            if inside.nbytes == len(data):
                raise
            raise WireError(f"{missing}; field 1 of it holds none: {error}") from error
        if len(values) != 1 or isinstance(values[0], int):
            break
        inside = values[0]
    raise WireError(missing if data else "it is empty")


def _is_module(data: memoryview) -> bool:
    """Whether it has names that are text, and a computation that has a name and instructions.

    An HloProto may look so from afar; but its field 1 is a message, which begins with the key of
    the module's name: a line feed.
    """
    try:
        found = list(fields(data))
        return any(
            number == 3
            and not isinstance(value, int)
            and {1, 2} <= {inner for inner, _ in fields(value)}
            for number, value in found
        ) and all(
            not isinstance(value, int) and bytes(value).decode().isprintable()
            for number, value in found
            if number in (1, 2)
        )
    except ValueError:  # WireError and UnicodeDecodeError are both
        return False


def _content(path: Path) -> bytes:
    """What the file holds, decompressed where it begins as gzip does, which no message can."""
    try:
        with path.open("rb") as file:
            size = os.fstat(file.fileno()).st_size
            if size >= MAX_BYTES:
                raise DumpError(f"{path}: {size} bytes; protobuf reads less than {MAX_BYTES}")
            if file.peek(2)[:2] != b"\x1f\x8b":
                return file.read()
            most = min(MAX_BYTES, max(ANY_EXPANSION, size * MAX_EXPANSION))
            with gzip.open(file) as expanded:
                data = expanded.read(most + 1)
    except OSError as error:  # gzip.BadGzipFile is one
        raise DumpError(f"{path}: cannot be read: {error.strerror or error}") from error
    except (EOFError, zlib.error) as error:
        raise DumpError(f"{path}: its gzip data is damaged or cut off: {error}") from error
    if len(data) > most:
        raise DumpError(
            f"{path}: {size} compressed bytes become more than {most}; "
            "if it is no decompression bomb, decompress it first"
        )
    return data


@dataclass(frozen=True, slots=True)
class _Question:
    """What the child process is asked."""

    kind: str
    path: Path
    doing: str
    """`read` or `write`."""
    advice: str

    def answer(self, data: bytes, timeout: float, search_path: Sequence[str] | None) -> bytes:
        """What the child makes of the bytes.

        Raises:
            DumpError: it refused, died, or took too long.
        """
        where = json.dumps(list(sys.path if search_path is None else search_path))
        # -P: the child imports nothing from the current directory, which may hold dumps.
        command = [sys.executable, "-P", "-c", _CHILD, where, self.kind]
        # XLA aborts on a flag that it does not know, and flags are about compiling.
        environment = {name: value for name, value in os.environ.items() if name != "XLA_FLAGS"}
        try:
            child = subprocess.run(
                command,
                input=data,
                capture_output=True,
                timeout=timeout,
                env=environment,
                check=False,
            )
        except subprocess.TimeoutExpired as error:
            raise DumpError(
                f"{self.path}: XLA's code was still reading it after {timeout:g} seconds; "
                f"{self.advice}"
            ) from error
        except OSError as error:
            raise DumpError(f"{self.path}: {sys.executable} cannot be started: {error}") from error
        if child.returncode == 0:
            return child.stdout
        said = shown(decode(child.stdout).strip())
        if child.returncode == NO_JAXLIB:
            raise DumpError(f"{self.path}: {INSTALL.format(self.doing)}: {said}")
        if child.returncode == REFUSED:
            raise DumpError(f"{self.path}: no HLO module: {said}; {self.advice}")
        raise DumpError(
            f"{self.path}: XLA's code {_ending(child.returncode)} while it read this file; "
            f"{self.advice}{_last_words(child.stderr)}"
        )


def _ending(status: int) -> str:
    if status >= 0:
        return f"ended with status {status}"
    try:
        return f"was ended by {signal.Signals(-status).name}"
    except ValueError:
        return f"was ended by signal {-status}"


_fatal = re.compile(r"F\d{4} \S+ +\d+ (\S+\] .*)", re.A).fullmatch


def _last_words(stderr: bytes) -> str:
    """What absl logged as fatal, less its time and process (`F0000 …`), else the last line."""
    lines = [line.strip() for line in decode(stderr).splitlines() if line.strip()]
    fatal = [found[1] for found in map(_fatal, lines) if found]
    return "".join(f": {shown(line)[:300]}" for line in (fatal or lines)[-1:])
