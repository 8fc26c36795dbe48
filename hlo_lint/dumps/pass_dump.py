"""A dump of a module: a file of HLO, read on demand."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from hlo_lint.dumps.file_types import PROFILE, FileType, file_type_of
from hlo_lint.dumps.names import DumpName, parse_name
from hlo_lint.dumps.phases import LOOSE_BEFORE_LAYOUTS
from hlo_lint.hlo.ir import HloFile, Module
from hlo_lint.hlo.parser.module import Memo, parse_file
from hlo_lint.text.errors import DumpError
from hlo_lint.text.files import is_proto
from hlo_lint.text.phrases import in_a_line
from hlo_lint.text.source import DIRECTIVE, decode
from hlo_lint.text.stored import on_disk, plain_name, read_stored


@dataclass(eq=False, repr=False)
class PassDump:
    """A file of HLO; its text is read on demand."""

    path: Path
    name: DumpName | None
    """The parts of its name; None for a loose file, whose name is not from a compiler."""
    memo: Memo | None = field(default=None, repr=False)
    """The cache shared by the files of a folder."""
    _file: HloFile | None = field(default=None, repr=False)
    file_type: FileType = FileType.HLO
    """The type of the file; for a loose file, known once it is read."""
    edited: bool = False
    """True if a fix has changed the text: artefacts beside it then no longer match."""
    _can_be_read_again: bool = False
    """True if it was read from its path, rather than passed in."""
    _has_directives: bool | None = field(default=None, repr=False)
    """True if the text holds `DIRECTIVE`; None before it is read."""

    def __repr__(self) -> str:
        return in_a_line(f"<{type(self).__name__} {self.path}>")

    @property
    def file(self) -> HloFile:
        """Its content, read once.

        Raises:
            OSError: if the file cannot be read.
            DumpError: for a protocol buffer that cannot be turned into text.
        """
        if self._file is None:
            self._can_be_read_again = True
            name = plain_name(self.path.name)
            is_record = is_proto(name)
            # Only its text shows whether a text proto is an autotuner log. The bytes are released.
            may_be_other = self.name is None and not name.endswith((".pb", ".hlo", ".hlo.pbtxt"))
            text = decode(read_stored(self.path)) if may_be_other or not is_record else ""
            if may_be_other:
                self.file_type = file_type_of(name, text)
            if may_be_other and self.file_type is not FileType.HLO:
                self._file = HloFile.of_text(text, self.path)
            elif is_record:
                self._has_directives = False
                self._file = parse_file(self._printed(name), self.path, self.memo)
            else:
                self._file = parse_file(text, self.path, self.memo)
                self._has_directives = _has_directives(self._file, text)
        return self._file

    def _printed(self, name: str) -> str:
        """The text of a file that is a protocol buffer, by its name."""
        from hlo_lint.xla.proto import read_proto

        path = on_disk(self.path)
        if not name.endswith(PROFILE):
            return read_proto(path)
        from hlo_lint.dumps.artefacts.xplane import programs

        return read_proto(path, programs_in=programs)

    @property
    def is_read(self) -> bool:
        """True if its text is in memory."""
        return self._file is not None

    @property
    def module(self) -> Module:
        """Its first module."""
        return self.file.modules[0]

    @property
    def text_identity(self) -> tuple[int, ...]:
        """A key that is equal for dumps of equal text, while both are in memory.

        The key of an unreadable dump is unique.
        """
        try:
            return tuple([id(module.pieces) for module in self.file.modules])
        except (OSError, DumpError):
            return (id(self),)

    @property
    def is_named_before_layouts(self) -> bool:
        """True if the name of a loose file places it before layout-assignment."""
        return self.name is None and self.stem_ends_with(LOOSE_BEFORE_LAYOUTS)

    def stem_ends_with(self, endings: tuple[str, ...]) -> bool:
        """True if the file's name without its extension has any of these endings."""
        return plain_name(self.path.name).rpartition(".")[0].endswith(endings)

    @property
    def may_have_directives(self) -> bool:
        """False if the text is known to have no comments for hlo-lint."""
        return self._has_directives is not False and self.file_type in (FileType.HLO, FileType.PTX)

    @classmethod
    def of(cls, file: HloFile, path: Path, file_type: FileType = FileType.HLO) -> PassDump:
        """A dump with content that is already parsed."""
        return cls(path, None, _file=file, file_type=file_type)

    def reparsed(self, text: str) -> HloFile:
        """Another text parsed as a replacement for this file; both share common parts."""
        path = self.file.path
        if self.file_type is FileType.HLO:
            return parse_file(text, path, self.memo)
        return HloFile.of_text(text, path, self.module.name)

    def replace_text(self, text: str) -> None:
        """Replace the text; the file on disk is unchanged."""
        self.replace_file(self.reparsed(text), edited=True)

    def replace_file(self, file: HloFile, *, edited: bool) -> None:
        """Replace the content; `edited` is False when a fix is reverted."""
        self._file = file
        self._has_directives = None
        self.edited = edited

    def release(self) -> None:
        """Release the content, if it can be read again from its file."""
        if self._can_be_read_again and self.file_type is FileType.HLO:
            self._file = None


class NumberedDump(PassDump):
    """The dump of a pass, with its number in the order of the run."""

    name: DumpName

    @property
    def step(self) -> int:
        """The module's own count of dumps."""
        assert self.name.step is not None
        return self.name.step


def new_dump(
    path: Path,
    name: DumpName | None,
    memo: Memo | None = None,
    file: HloFile | None = None,
    file_type: FileType = FileType.HLO,
) -> PassDump:
    """The dump in a file; `file` is its content, if it is already parsed."""
    is_numbered = name is not None and name.step is not None
    return (NumberedDump if is_numbered else PassDump)(path, name, memo, file, file_type)


def _has_directives(file: HloFile, text: str) -> bool:
    """True if a text contains `DIRECTIVE`; cached for files of equal text."""
    memo = file.modules[0].analysis_cache
    cached = memo.get(DIRECTIVE)
    if cached is None:
        cached = memo[DIRECTIVE] = DIRECTIVE in text
    return bool(cached)


def is_fusion_body(path: Path | None, module: Module) -> bool:
    """True for the lone body of a fusion, which XLA:GPU's emitters write beside its dumps.

    It is a computation without a header and without its callees: XLA never parses it, and no pass
    normalizes it.
    """
    if path is None or module.header:
        return False
    return plain_name(path.name).endswith(".hlo") and parse_name(path.name) is not None
