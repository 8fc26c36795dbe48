"""A dump directory: its files by module, and what none of them is."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

from hlo_lint.dumps.names import DumpName, parse_name
from hlo_lint.dumps.pipeline import PassDump, Pipeline, is_proto
from hlo_lint.errors import DumpError
from hlo_lint.syntax.parse import Memo

TEXT_ENDINGS = (".txt", ".hlo")
_KNOWN_ARTEFACTS = (
    "-buffer-assignment.txt",
    "-buffer-assignment-values.txt",
    "-live-range.txt",
    "-memory-usage-report.txt",
    "thunk_sequence.txt",
    "thunk_sequence_after_thunk_passes.txt",
    "thunk_metadata.txt",
    "priority_fusion_dump.txt",
    ".ttir.txt",
)


@dataclass(frozen=True, slots=True)
class Skipped:
    """Something that was not looked at, and why."""

    path: str
    reason: str


@dataclass
class Dump:
    """What lies under one or several paths: modules with their pipelines, and loose files."""

    pipelines: list[Pipeline] = field(default_factory=list)
    """One for each compilation of a module; a file that no compiler named is one of its own."""
    skipped: list[Skipped] = field(default_factory=list)
    """What is there and was not read, folder by folder."""

    def __getitem__(self, module: str) -> Pipeline:
        """The first pipeline of a module, by its name: `jit_step`.

        Raises:
            KeyError: naming the modules there are.
        """
        for pipeline in self.pipelines:
            name = pipeline.dumps[0].name
            if name is not None and module in (name.module, pipeline.title):
                return pipeline
        raise KeyError(f"{module}: there are {', '.join(self.modules)}")

    def __iter__(self) -> Iterator[Pipeline]:
        return iter(self.pipelines)

    @property
    def modules(self) -> tuple[str, ...]:
        """Titles of the modules, in order: `module_0001.jit_step`."""
        return tuple(pipeline.title for pipeline in self.pipelines)


def open_dump(paths: str | Path | Iterable[str | Path]) -> Dump:
    """The dumps under a path, or under several: directories, files, or both. Nothing is read yet.

    A file given by name is judged by its name and by the debug options and metadata beside it.

    Raises:
        DumpError: for a path that is not there.
    """
    dump = Dump()
    given = [paths] if isinstance(paths, str | Path) else list(paths)
    picked: dict[Path, list[Path]] = {}
    for path in map(Path, given):
        if path.is_dir():
            _add_directory(dump, path)
        elif path.exists():
            picked.setdefault(path.parent, []).append(path)
        else:
            raise DumpError(f"{path}: no such file or directory")
    for folder, files in picked.items():
        _add_picked(dump, folder, files)
    return dump


def _add_directory(dump: Dump, root: Path) -> None:
    for folder, folders, names in os.walk(root):
        folders.sort()
        _add_folder(dump, Path(folder), sorted(names))


def _add_folder(dump: Dump, folder: Path, names: list[str]) -> None:
    memo = Memo()
    texts: dict[tuple[str, int, str], list[PassDump]] = {}
    artefacts: dict[tuple[str, int, str], list[Path]] = {}
    loose: list[PassDump] = []
    unread: list[str] = []
    for name in names:
        path, parts = folder / name, parse_name(name)
        if _holds_hlo(path, names):
            found = PassDump(path, parts, memo)
            (loose if parts is None else texts.setdefault(parts.key, [])).append(found)
            continue
        if parts is not None:
            artefacts.setdefault(parts.key, []).append(path)
        if not name.endswith((".debug_options", ".metadata.textproto")):
            unread.append(name)
    for key, dumps in texts.items():
        # Metadata names no module, and some artefacts bear no timestamp though the texts do.
        beside = {
            path
            for timestamp in (key[0], "")
            for module in (key[2], "")
            for path in artefacts.get((timestamp, key[1], module), ())
        }
        dump.pipelines.append(Pipeline(dumps, list(beside)))
    dump.pipelines += [Pipeline([found], []) for found in loose]
    if unread:
        kinds = sorted({name.rpartition(".")[2] if "." in name else "no ending" for name in unread})
        dump.skipped.append(
            Skipped(str(folder), f"no HLO text in {len(unread)} of its files ({', '.join(kinds)})")
        )


def _add_picked(dump: Dump, folder: Path, files: list[Path]) -> None:
    memo = Memo()
    texts: dict[tuple[str, int, str], list[PassDump]] = {}
    for path in files:
        parts = parse_name(path.name)
        found = PassDump(path, parts, memo)
        if parts is None:
            dump.pipelines.append(Pipeline([found], [], lone=True))
        else:
            texts.setdefault(parts.key, []).append(found)
    for dumps in texts.values():
        beside = list(_records(folder, dumps[0].name))
        dump.pipelines.append(Pipeline(dumps, beside, lone=True))


def _records(folder: Path, name: DumpName | None) -> Iterator[Path]:
    """The debug options and the metadata that lie beside a dump."""
    assert name is not None
    prefix = f"{name.timestamp}." if name.timestamp else ""
    for width in (4, 1):
        module = f"{prefix}module_{name.module_id:0{width}d}"
        for path in (
            folder / f"{module}.{name.module}.debug_options",
            folder / f"{module}.metadata.textproto",
        ):
            if path.is_file():
                yield path


def _holds_hlo(path: Path, names: list[str]) -> bool:
    name = path.name
    if name.endswith(TEXT_ENDINGS) and not name.endswith(_KNOWN_ARTEFACTS):
        if name.endswith(".hlo"):
            return True
        try:
            with path.open("rb") as file:
                return file.read(64).lstrip().startswith(b"HloModule")
        except OSError:
            return False
    if is_proto(name):  # the text says the same, and says where
        stem = name.removesuffix(".gz").removesuffix(".pb").removesuffix(".hlo")
        return f"{stem}.txt" not in names
    return False
