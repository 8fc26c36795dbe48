"""HLO in protobuf's text format, read with the `protobuf` package.

Python's jaxlib does not read the text format, and ships no `_pb2` modules. But protoc leaves each
`.proto` in the shared object that it is compiled into, as a serialized FileDescriptorProto, so a
release contains the definitions of its messages. Only the child process of `xla` imports this.
"""

from __future__ import annotations

import mmap
import re
from collections.abc import Iterator
from contextlib import ExitStack
from importlib.util import find_spec
from pathlib import Path
from typing import Final

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory, text_format
from google.protobuf.message import Message

from hlo_lint.hlo.wire import Reader, varint
from hlo_lint.text.errors import PayloadError

_HLO: Final = "xla/service/hlo.proto"
_MAX_DESCRIPTOR_BYTES: Final = 1 << 20
_SYNTAX: Final = 12
"""The last field of a FileDescriptorProto that protoc writes."""
_wrapping = re.compile(rb"(?:\s|#[^\n]*)*(hlo|hlo_module)\s*:?\s*[{<]").match
_has_arguments = re.compile(rb"^partitions\s*:?\s*[{<]", re.M).search
_is_library = re.compile(r".+\.(?:so|dylib|dll|pyd)").fullmatch


def module_from_text(data: bytes) -> bytes:
    """The serialized HloModuleProto of a text, which may wrap it in another message.

    Raises:
        ValueError: if the text is not such a message, with the line and column.
        PayloadError: if this jaxlib does not declare its messages.
    """
    wrapping = _wrapping(data)
    names = {b"hlo": "xla.HloSnapshot", b"hlo_module": "xla.HloProto"}
    name = names[wrapping[1]] if wrapping else "xla.HloModuleProto"
    message = new_message("xla.HloUnoptimizedSnapshot" if _has_arguments(data) else name)
    try:
        text_format.Parse(data, message, allow_unknown_extension=True)
    except text_format.ParseError as error:
        raise ValueError(f"{error}") from error
    except RecursionError as error:
        raise ValueError("messages are nested too deeply") from error
    for field in ("hlo", "hlo_module"):
        message = getattr(message, field, message)
    serialized: bytes = message.SerializeToString(deterministic=True)
    return serialized


def new_message(name: str) -> Message:
    """An empty message of a type, as this jaxlib declares it.

    Raises:
        PayloadError: this jaxlib does not declare it.
    """
    pool = descriptor_pool.DescriptorPool()
    with ExitStack() as stack:
        _add_file(pool, [stack.enter_context(library) for library in _libraries()], _HLO, set())
    message: Message = message_factory.GetMessageClass(pool.FindMessageTypeByName(name))()
    return message


def _add_file(
    pool: descriptor_pool.DescriptorPool, libraries: list[mmap.mmap], proto: str, added: set[str]
) -> None:
    added.add(proto)
    file = descriptor_pb2.FileDescriptorProto.FromString(_descriptor(libraries, proto))
    for imported in file.dependency:
        if imported not in added:
            _add_file(pool, libraries, imported, added)
    pool.Add(file)


def _libraries() -> Iterator[mmap.mmap]:
    """The shared objects of jaxlib, the largest first: it contains XLA."""
    spec = find_spec("jaxlib")
    folder = Path(spec.origin).parent if spec and spec.origin else Path()
    paths = [path for path in folder.iterdir() if _is_library(path.name)]
    for path in sorted(paths, key=lambda path: path.stat().st_size, reverse=True):
        with path.open("rb") as file:
            yield mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)


def _descriptor(libraries: list[mmap.mmap], proto: str) -> bytes:
    """The FileDescriptorProto of a `.proto`.

    Its length is not stored. It begins with its name and its package, its fields ascend, and the
    last is its syntax.
    """
    start = b"\n" + varint(len(proto)) + proto.encode() + b"\x12"
    for library in libraries:
        offset = library.find(start)
        if offset < 0:
            continue
        data, end, last = library[offset : offset + _MAX_DESCRIPTOR_BYTES], 0, 0
        for field in Reader(data).iterate():
            if field.number < last:
                break
            last, end = field.number, field.end
            if last == _SYNTAX:
                break
        return data[:end]
    raise PayloadError(
        f"this jaxlib does not contain {proto}, so it cannot read the text format; "
        "jaxlib 0.10.2 and 0.11.2 can"
    )
