"""Files in another dialect or another format: which hold HLO, and where what they become goes."""

from __future__ import annotations

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
    from hlo_lint.xla.proto import write_proto

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
