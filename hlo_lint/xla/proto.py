"""Protocol buffers with HLO, printed by XLA as text.

XLA's own code converts between modules and text, in a child process: C++ may abort on a broken
file.

    HloProto       { hlo_module = 1; buffer_assignment = 3; }     --xla_dump_hlo_as_proto
    HloSnapshot    { hlo = 1; arguments = 2; result = 3; … }      --xla_dump_hlo_snapshots
    HloUnoptimizedSnapshot { hlo_module = 1; }       --xla_dump_hlo_unoptimized_snapshots
    HloModuleProto { name = 1; entry_computation_name = 2; computations = 3; … }
"""

from __future__ import annotations

import atexit
from collections.abc import Callable, Sequence
from functools import cache, partial
from pathlib import Path
from typing import TYPE_CHECKING, Final

from hlo_lint.text.errors import DumpError, PayloadError, os_errors_as
from hlo_lint.text.files import SNAPSHOT, SNAPSHOT_TEXT
from hlo_lint.text.source import decode, encode, shown
from hlo_lint.text.stored import expanded, plain_name, read_stored
from hlo_lint.xla.bindings import long_text, release, xla_message
from hlo_lint.xla.child import Child, ChildDied, ChildError, Pool
from hlo_lint.xla.limits import ChildLimits

if TYPE_CHECKING:  # loaded with the first protocol buffer
    from hlo_lint.hlo.wire import Field, Reader
    from hlo_lint.xla.child import Answer

MAX_BYTES: Final = 1 << 31
"""Protobuf's own limit: messages are smaller than 2 GiB."""
MAX_SECONDS: Final = 300.0
"""The time limit per file, unless the environment sets another."""
INSTALL: Final = "pip install 'hlo-lint[xla]' to read protocol buffers"
_ADVICE: Final = "give the text, or another jaxlib"
TEXT_SUFFIXES: Final = (".pbtxt", ".textproto", ".txtpb", SNAPSHOT_TEXT)


def read_proto(
    path: Path, *, programs_in: Callable[[bytes], Sequence[bytes]] = lambda data: (data,)
) -> str:
    """The HLO text of a protocol buffer, binary or text, compressed or not.

    It is the text of XLA's own dump, with large constants in full.

    Args:
        path: a `.pb`, `.hlo.pb`, `.pbtxt` or `.hlo.pbtxt`, or any of these with `.gz`.
        programs_in: finds the messages with a module in a binary file with several.

    Raises:
        DumpError: it cannot be read, holds no module, or jaxlib is not installed.
    """
    try:
        data = stored_message(path)
        if plain_name(path.name).endswith(TEXT_SUFFIXES):
            return _asked(path, printed_text_proto, [data])
        modules = [module_bytes(program) for program in programs_in(data)]
    except PayloadError as error:
        raise DumpError(
            f"{path}: not an HloProto or HloModuleProto: {error}; dump it again, or give the text"
        ) from error
    return _asked(path, printed, modules)


def module_bytes(data: bytes) -> bytes:
    """The HloModuleProto in a file: the message itself, or field 1 of a wrapping message.

    Every wrapping message is checked to its last byte: jaxlib 0.10.0 reads a truncated file as a
    smaller module.

    Raises:
        PayloadError: it holds no module.
    """
    from hlo_lint.hlo.wire import DELIMITED, Reader

    reader, module = Reader(data, MAX_BYTES), None
    for _ in range(3):  # a snapshot wraps it twice
        if _is_module(reader, module):
            return data if module is None else module.content
        try:
            first = list(reader.numbered(1, module))
        except PayloadError as error:
            if module is None:
                raise
            raise PayloadError(f"it holds no module, nor does its field 1: {error}") from error
        if len(first) != 1 or first[0].wire_type != DELIMITED:
            break
        module = first[0]
    raise PayloadError("it holds no module" if data else "it is empty")


def _is_module(reader: Reader, message: Field | None) -> bool:
    """True if its names are text, and a computation has a name and instructions.

    An HloProto may look like that; but its field 1 is a message, which begins with the key of the
    module's name: a line feed, which is not printable.
    """
    from hlo_lint.hlo.wire import text_of

    try:
        fields = reader.fields(message)
        return any(
            field.number == 3 and {1, 2} <= {inner.number for inner in reader.iterate(field)}
            for field in fields
        ) and all(text_of(field).isprintable() for field in fields if field.number in (1, 2))
    except PayloadError:
        return False


def stored_message(path: Path) -> bytes:
    """The bytes of a file, expanded whatever its name, less the length before a message."""
    from hlo_lint.hlo.wire import Reader

    with os_errors_as(f"{path}: cannot be read"):
        if (size := path.stat().st_size) >= MAX_BYTES:
            raise DumpError(f"{path}: {size} bytes; protobuf reads less than {MAX_BYTES}")
        # No message begins like compressed data.
        data, _ = expanded(read_stored(path), str(path))
    if plain_name(path.name).endswith(SNAPSHOT) and not data.startswith(b"\n"):
        # With --xla_dump_hlo_as_proto the message follows its length, and the arguments follow it.
        data = next(Reader(b"\n" + data).iterate()).content
    return data


def _asked(path: Path, function: Callable[..., Answer], blocks: Sequence[bytes]) -> str:
    """The text that a function in the child returns for some blocks.

    Raises:
        DumpError: it refuses them, crashes, or takes too long.
    """
    with _readers(ChildLimits.by_default(MAX_SECONDS)).one() as child:
        try:
            _, (result,) = child.call(function, *blocks)
        except ChildDied as death:
            if death.is_late:
                raise DumpError(f"{path}: {death}, or {_ADVICE}") from None
            words = f": {death.last_words}" if death.last_words else ""
            ending = f"XLA {death.reason} while it read this file"
            raise DumpError(f"{path}: {ending}; {_ADVICE}{words}") from None
        except ChildError as error:
            reason = shown(xla_message(f"{error}"))
            if error.class_name == "ImportError":
                raise DumpError(f"{path}: {INSTALL}: {reason}") from None
            refusal = f"jaxlib {child.state}: {reason}"
            raise DumpError(f"{path}: not an HLO module: {refusal}; {_ADVICE}") from None
    return decode(result)


@cache
def _readers(limits: ChildLimits) -> Pool[Child]:
    """The child processes that read all files of this process."""
    readers = Pool(partial(Child, limits=limits, setup=release, forks="after death"))
    atexit.register(readers.close)
    return readers


# ---- in the child


def printed(*modules: bytes) -> Answer:
    """The text of serialized HloModuleProtos."""
    return None, [encode("\n".join(map(long_text, modules)))]


def printed_text_proto(data: bytes) -> Answer:
    """The text of a module in the text format."""
    from hlo_lint.hlo.text_proto import module_from_text

    return printed(module_from_text(data))
