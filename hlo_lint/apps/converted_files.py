"""Files in another dialect or another format: which hold HLO, and where what they become goes."""

from __future__ import annotations

import gzip
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from hlo_lint.hlo.dialects import Converted, conversions, convert
from hlo_lint.hlo.ir import HloFile
from hlo_lint.hlo.parser.module import Memo, parse_file
from hlo_lint.text.errors import DumpError, os_errors_as
from hlo_lint.text.files import copy_file, is_proto, mirrored, write
from hlo_lint.text.source import encode
from hlo_lint.xla.child import Answer
from hlo_lint.xla.pjrt import module_of_text
from hlo_lint.xla.proto import TEXT_SUFFIXES, asked

SNAPSHOT = "hlo_snapshot.pb"
_PROTOS = (".pb", ".pbtxt", ".textproto", ".txtpb")


@dataclass(frozen=True, slots=True)
class Written:
    """One file of a conversion."""

    source: Path
    target: Path
    notes: Mapping[str, int] | None
    """Messages on what its new text lost; None if it is not HLO text and was copied."""


def convert_text(data: bytes, dialects: Sequence[str], path: Path | None = None) -> Converted:
    """A text in one dialect after the other.

    Raises:
        DumpError: if it is not HLO.
        UsageError: for a dialect that nothing knows.
    """
    conversions(dialects)
    return _converted(parse_file(data, path), dialects)


def convert_file(path: Path, dialects: Sequence[str]) -> Converted:
    """Convert a file, text or protocol buffer, to one dialect after the other.

    Raises:
        DumpError: if it cannot be read, or is not HLO.
        UsageError: for a dialect that nothing knows.
    """
    conversions(dialects)
    if _is_proto(path):
        from hlo_lint.xla.proto import read_proto

        return _converted(parse_file(read_proto(path), path), dialects)
    return convert_text(_content(path), dialects, path)


def in_format(text: str, path: Path) -> bytes:
    """The bytes of a text in the format that the name of a file says.

    Raises:
        DumpError: for a protocol buffer, where XLA does not read the text or is not there.
    """
    if not _is_proto(path):
        return encode(text)
    return write_proto(path, text)


def convert_tree(inputs: Sequence[Path], out: Path, dialects: Sequence[str]) -> Iterator[Written]:
    """Mirrors files and directories in a folder: HLO texts converted, other files as they are.

    Raises:
        DumpError: where something cannot be read or written, or two files would be one.
        UsageError: for a dialect that nothing knows.
    """
    conversions(dialects)
    targets = mirrored(inputs, out)
    if len(set(targets.values())) < len(targets):
        raise DumpError(f"{out}: two of the inputs would be the same file there")
    memo = Memo()
    for path, target in targets.items():
        if target.exists() and target.samefile(path):
            raise DumpError(f"{target}: this is the input itself; give another folder")
        if holds_hlo_text(path):
            converted = _converted(parse_file(_content(path), path, memo), dialects)
            write(target, encode(converted.text))
            yield Written(path, target, converted.notes)
        else:
            copy_file(path, target)
            yield Written(path, target, None)


def holds_hlo_text(path: Path) -> bool:
    """True if a file of a directory is HLO text, by its name or its first word.

    Raises:
        DumpError: where it cannot be read.
    """
    if path.name.endswith(".hlo"):
        return True
    with os_errors_as(f"{path}: cannot be read"), path.open("rb") as file:
        return file.read(64).lstrip().startswith(b"HloModule")


def summed_notes(written: Sequence[Written]) -> Mapping[str, int]:
    """The notes of many files, added up."""
    notes: Counter[str] = Counter()
    for file in written:
        notes.update(file.notes or {})
    return notes


def _is_proto(path: Path) -> bool:
    return is_proto(path.name) or path.name.removesuffix(".gz").endswith(_PROTOS)


def _converted(file: HloFile, dialects: Sequence[str]) -> Converted:
    if not any(module.header or module.computations for module in file.modules):
        raise DumpError(f"{file.path or '<stdin>'}: not HLO: there is nothing to convert")
    return convert(file, dialects)


def _content(path: Path) -> bytes:
    with os_errors_as(f"{path}: cannot be read"):
        return path.read_bytes()


# ---- protocol buffers


def write_proto(
    path: Path,
    text: str,
    *,
    timeout: float = 300.0,
    search_path: Sequence[str] | None = None,
) -> bytes:
    """Serialize a module given as text, in the format that the file's name asks for.

    `.pbtxt`, `.textproto` and `.txtpb` are in the text format, `.hlo_snapshot.pb` is an
    HloSnapshot without arguments, and `.gz` is compressed.

    Args:
        path: the file they are for; nothing is written.
        text: HLO that the jaxlib at hand reads.
        timeout: seconds that XLA's code may take.
        search_path: `sys.path` of the child process; that of this process if None.

    Raises:
        DumpError: XLA does not accept the text, or jaxlib is not installed.
    """
    name = path.name.removesuffix(".gz")
    if name.endswith(TEXT_SUFFIXES):
        function = text_proto
    else:
        function = snapshot if name.endswith(SNAPSHOT) else proto
    advice = "convert it to what this jaxlib reads, or take another"
    data = asked(path, function, encode(text), "write", advice, timeout, search_path)
    # No time and no name: the same module is the same file.
    return gzip.compress(data, mtime=0) if path.name.endswith(".gz") else data


# in the child


def proto(text: bytes) -> Answer:
    """A serialized HloProto with the module of a text."""
    from hlo_lint.hlo.wire import delimited

    return None, [delimited(1, module_of_text(text)).raw]


def snapshot(text: bytes) -> Answer:
    """A serialized HloSnapshot with the module of a text."""
    from hlo_lint.hlo.wire import delimited

    _, (data,) = proto(text)
    return None, [delimited(1, data).raw]


def text_proto(text: bytes) -> Answer:
    """The text format of the HloProto with the module of a text."""
    from hlo_lint.hlo.text_proto import proto_to_text

    _, (data,) = proto(text)
    return None, [proto_to_text(data)]
