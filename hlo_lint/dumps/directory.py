"""A dump directory: its files by module, loose files, skipped files."""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Callable, Container, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from functools import lru_cache
from itertools import chain
from pathlib import Path
from typing import NamedTuple

from hlo_lint.dumps.compilation import Compilation
from hlo_lint.dumps.file_types import (
    EMITTER_TEXT,
    LOG_ENDINGS,
    PROTO_TEXT,
    FileType,
    file_type_of,
    is_instead,
)
from hlo_lint.dumps.names import DumpName, numbered_twice, parse_name
from hlo_lint.dumps.pass_dump import PassDump, new_dump
from hlo_lint.dumps.pass_lists import backend_of, recognise_folder, steps_of
from hlo_lint.hlo.ir import HloFile
from hlo_lint.hlo.parser.module import Memo
from hlo_lint.text.errors import DumpError
from hlo_lint.text.files import is_proto
from hlo_lint.text.phrases import counted, short_repr
from hlo_lint.text.source import decode
from hlo_lint.text.stored import is_archive, on_disk, plain_name, read_stored, unpacked

TEXT_ENDINGS = (".txt", ".hlo")
FIXED = "hlo-lint.fixed"
"""The name of the file in which `hlo-lint fix` lists the dumps of a folder that it edited."""
RECORDED = ".inputs.npz"
"""The ending of the inputs of a module that `hlo-lint exec --record-inputs` saved."""
RUN_RECORDS = (".debug_options", ".metadata.textproto", FIXED, RECORDED)
"""Endings of the records of a run that are read with its HLO."""
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
_UNSUPPORTED = {
    ".riegeli": "riegeli is not read: --xla_dump_hlo_as_text makes XLA write the text beside it",
    **dict.fromkeys(
        ("thunk_sequence.txt", "thunk_sequence_after_thunk_passes.txt"),
        "the thunks of an executable, and its command buffers, are not read",
    ),
}
"""The reason why a file is not read, by the ending of its name."""
MEMORY_DEVICES = 1
"""The major number of `/dev/zero` and `/dev/random`, which never end, on Linux."""
EXCLUDED = "it is excluded"
MAX_INNER_ARCHIVE = 64 << 20
"""The largest archive, in bytes, that is unpacked if only a folder above it was named."""
_SNIFFED_BYTES = 1 << 12
_MODULE_START = rb"^[ \t]*HloModule(?![\w.\-])"
_SETTINGS = ("compile_options.textproto", "topology.textproto")
_Key = tuple[str, int, str]
"""`DumpName.key`: timestamp, number and name of a module."""


class Skipped(NamedTuple):
    """A file or rule that was skipped, and the reason."""

    path: str
    reason: str
    rule: str = ""
    """The rule that does not apply to it; empty for a file."""
    given: bool = False
    """True if the caller named the path and no part of it was checked."""
    cut: bool = False
    """True if a limit of the settings left something unchecked."""
    minor: bool = False
    """True if it does not affect the conclusions: files without HLO, rules that do not apply. Text
    reports list it with `--verbose`."""

    def __repr__(self) -> str:
        return short_repr(self)


@dataclass(eq=False, repr=False)
class Dump:
    """The files under some paths: modules with their compilations, and loose files."""

    compilations: list[Compilation] = field(default_factory=list)
    """A compilation for each compilation of a module; a loose file is a compilation by itself."""
    skipped: list[Skipped] = field(default_factory=list)
    """Files that were not read, folder by folder."""
    logs: list[Path] = field(default_factory=list)
    """Logs in a folder of dumps or beside it, `DIR.log`."""

    def __repr__(self) -> str:
        files = sum(len(compilation.dumps) for compilation in self.compilations)
        compilations = counted(len(self.compilations), "compilation")
        return f"<Dump: {counted(files, 'file')} of {compilations}>"

    def __getitem__(self, module: str) -> Compilation:
        """The first compilation of a module, by its name: `jit_step`.

        Raises:
            KeyError: names the modules.
        """
        for compilation in self.compilations:
            name = compilation.dumps[0].name
            if name is not None and module in (name.module, compilation.title):
                return compilation
        raise KeyError(f"{module}: there are {', '.join(self.modules)}")

    def __iter__(self) -> Iterator[Compilation]:
        return iter(self.compilations)

    def skip_other_files(self) -> None:
        """Move files without HLO to `skipped`; other formats use the ending `.hlo`, too.

        Text that is partly HLO stays: rules report the rest of it.
        """
        kept = []
        self.skipped = [
            entry._replace(given=False) if os.path.isfile(entry.path) else entry
            for entry in self.skipped
        ]
        for compilation in self.compilations:
            others = [dump for dump in compilation.dumps if not _holds_hlo(dump)]
            self.skipped += [
                Skipped(str(dump.path), "it holds no HLO", minor=True) for dump in others
            ]
            left = [dump for dump in compilation.dumps if dump not in others]
            for dump in left:
                dump.release()
            if left:
                kept.append(compilation.with_dumps(left, compilation.artefacts))
        self.compilations = kept

    @property
    def modules(self) -> tuple[str, ...]:
        """Titles of the modules, in order: `module_0001.jit_step`."""
        return tuple(compilation.title for compilation in self.compilations)


def _holds_hlo(dump: PassDump) -> bool:
    try:
        if not dump.is_read and re.search(
            _MODULE_START, read_stored(dump.path, _SNIFFED_BYTES), re.M
        ):
            return True  # the check reads the rest
        modules = dump.file.modules
    except (OSError, DumpError):
        return True  # the check reports the error
    return dump.file_type is not FileType.HLO or any(
        module.header or any(computation.instructions for computation in module.computations)
        for module in modules
    )


def open_dump(
    paths: str | Path | Iterable[str | Path],
    excludes: Callable[[Path], bool] = lambda _: False,
    *,
    exclude_given: bool = False,
) -> Dump:
    """The dumps under some paths: directories, files, or both. Texts are read on demand.

    A file given by name is judged by its name, by the debug options and metadata beside it, and by
    the release that the names in its folder show. A path given twice counts once. Excluded files
    and folders are skipped, but not if they are given by name, unless `exclude_given`.

    Raises:
        DumpError: for a missing path.
        TypeError: for an object of another type.
    """
    dump = Dump()
    if not isinstance(paths, Iterable | Path):
        raise TypeError(f"open_dump takes a path or several, not {type(paths).__name__}")
    given = [paths] if isinstance(paths, str | Path) else list(paths)
    seen: set[tuple[int, int]] = set()
    picked: dict[Path, list[Path]] = {}
    folders: list[Path] = []
    for path_or_folder in given:
        path = _existing(path_or_folder)
        if exclude_given and excludes(path):
            dump.skipped.append(Skipped(str(path), EXCLUDED, minor=True))
        elif on_disk(path).is_dir() or is_archive(path.name):
            folders.append(path)
        else:
            picked.setdefault(path.parent, []).append(path)
    for path in folders:
        _add_directory(dump, path, seen, excludes)
    for folder, files in picked.items():
        _add_picked(dump, folder, [path for path in files if _is_new(on_disk(path).stat(), seen)])
    return dump


def held_dump(file: HloFile, path: Path) -> Dump:
    """A file whose text is in memory, as in an editor: saved or not.

    For an absolute path, the records beside it are read as for a file given by name.
    """
    file_type, parts = FileType.HLO, parse_name(path.name)
    if not any(module.header or module.computations for module in file.modules):
        file_type = FileType.HLO if path.suffix == ".hlo" else file_type_of(path.name, file.text)
    held = [new_dump(path, parts, file=file, file_type=file_type)]
    is_placed = path.is_absolute()
    return Dump([_chosen(held, path.parent) if is_placed else Compilation(held, [], lone=True)])


def _existing(given: str | Path) -> Path:
    if not str(given):
        raise DumpError("the path is empty; `.` is the current folder")
    text = str(given).removeprefix("file://")
    if "://" in text:
        from hlo_lint.text.remote import copied

        return copied(text)
    path = Path(text)
    try:
        status = path.stat()
    except FileNotFoundError as error:
        raise DumpError(f"{path}: no such file or directory") from error
    except (OSError, ValueError) as error:  # too long, a NUL character, not allowed …
        raise DumpError(f"{given!r}: {error}") from error
    if stat.S_ISCHR(status.st_mode) and os.major(status.st_rdev) == MEMORY_DEVICES:
        raise DumpError(f"{path}: it is a device, not a file")
    return path


def _status(path: Path) -> os.stat_result:
    """The status of a regular file; OSError for any other."""
    status = on_disk(path).stat()
    if not stat.S_ISREG(status.st_mode):
        raise OSError("it is not a regular file")
    return status


def _is_new(status: os.stat_result, seen: set[tuple[int, int]]) -> bool:
    """True if a file was not seen before, under any name."""
    # Links, and a path that is given twice, are the same file.
    identity = status.st_dev, status.st_ino
    new = identity not in seen
    seen.add(identity)
    return new


def _add_directory(
    dump: Dump,
    root: Path,
    seen: set[tuple[int, int]],
    excludes: Callable[[Path], bool],
    *,
    given: bool = True,
) -> None:
    """Add the files below a folder, or in an archive; `given` if the caller named it."""
    before = len(dump.compilations)
    unread: list[str] = []
    reason, excluded = "there is no HLO in it", False

    def not_listed(error: OSError) -> None:
        nonlocal reason
        if str(error.filename) == str(root):
            reason = f"it cannot be listed: {error.strerror}"
        else:
            path, why = str(error.filename), f"cannot be listed: {error.strerror}"
            dump.skipped.append(Skipped(path, why))

    is_folder = on_disk(root).is_dir()
    for directory, folders, names in _walked(root, not_listed):
        kept_folders = [name for name in sorted(folders) if not excludes(directory / name)]
        files = {name: directory / name for name in sorted(names)}
        kept = {name: path for name, path in files.items() if not excludes(path)}
        excluded |= len(kept_folders) < len(folders) or len(kept) < len(names)
        folders[:] = kept_folders
        if is_folder:
            for name in filter(is_archive, list(kept)):
                _add_inner_archive(dump, kept.pop(name), seen, excludes)
        unread += _add_folder(dump, directory, kept, seen)
    empty = len(dump.compilations) == before
    compilations = [
        compilation
        for compilation in dump.compilations[before:]
        if compilation.names and not compilation.is_helper
    ]
    if not all(
        compilation.steps and not compilation.stops_before_emission for compilation in compilations
    ):
        from hlo_lint.dumps.gaps import gaps

        dump.skipped += gaps(root, compilations)
    if unread:
        endings = {name.rpartition(".")[2] if "." in name else "no ending" for name in unread}
        reason = f"no HLO text in {len(unread)} of its files ({', '.join(sorted(endings))})"
        dump.skipped.append(Skipped(str(root), reason, given=empty and given, minor=True))
    elif empty:
        reason = "all HLO in it is excluded" if excluded else reason
        dump.skipped.append(Skipped(str(root), reason, given=given and not excluded))


def _add_inner_archive(
    dump: Dump, path: Path, seen: set[tuple[int, int]], excludes: Callable[[Path], bool]
) -> None:
    """Add an archive in a folder that the caller named; it may not hold dumps."""
    try:
        if (size := on_disk(path).stat().st_size) > MAX_INNER_ARCHIVE:
            raise DumpError(f"an archive of {size} bytes; give its path to have it read")
        _add_directory(dump, path, seen, excludes, given=False)
    except (OSError, DumpError) as error:
        dump.skipped.append(Skipped(str(path), str(error).removeprefix(f"{path}: ")))


def _walked(
    root: Path, not_listed: Callable[[OSError], None]
) -> Iterator[tuple[Path, list[str], list[str]]]:
    """The folders under a path, with their folders, a list to prune in place, and files."""
    local = on_disk(root)
    top = local if local.is_dir() else unpacked(root)
    for folder, folders, names in os.walk(top, onerror=not_listed):
        inner = Path(folder).relative_to(top)
        yield root / inner if inner.parts else root, folders, names


def _add_folder(
    dump: Dump, folder: Path, files: Mapping[str, Path], seen: set[tuple[int, int]]
) -> list[str]:
    """Add the direct files of a folder; return the names of non-HLO files."""
    memo = Memo()
    by_module: dict[_Key | None, list[PassDump]] = {}
    """The texts of each module; loose files are under None."""
    artefacts: dict[_Key, list[Path]] = {}
    unread: list[str] = []
    instead: dict[_Key | None, Path] = {}
    """Files that are only read if no text of the module is there."""
    for name, path in files.items():
        parts = parse_name(name)
        try:
            is_read = _is_read(path, parts, files)
            is_new = is_read and _is_new(_status(path), seen)
        except OSError as error:
            dump.skipped.append(Skipped(str(path), f"cannot be read: {error.strerror or error}"))
            continue
        except DumpError as error:
            dump.skipped.append(Skipped(str(path), str(error).removeprefix(f"{path}: ")))
            continue
        if is_read:
            if is_new:
                by_module.setdefault(parts and parts.key, []).append(new_dump(path, parts, memo))
            continue
        if parts is not None:
            artefacts.setdefault(parts.key, []).append(path)
        if is_instead(name):
            instead.setdefault(parts and parts.key, path)
        elif reason := _unsupported(name):
            stem = name.removesuffix(".riegeli")
            is_minor = stem == name or f"{stem}.txt" in files
            dump.skipped.append(Skipped(str(path), reason, minor=is_minor))
        elif not name.endswith(RUN_RECORDS):
            unread.append(name)
    for own, path in instead.items():
        if own not in by_module if own else not by_module:
            by_module[own] = [new_dump(path, parse_name(path.name), memo)]
    _drop_unshared_memo(by_module.values())
    texts = {key: dumps for key, dumps in by_module.items() if key}
    _join_renumbered(texts, artefacts)
    compilations: list[Compilation] = []
    for key, dumps in texts.items():
        if numbered_twice(file.name for file in dumps if file.name):
            from hlo_lint.dumps.gaps import left_over

            dump.skipped += left_over(dumps)
        # Metadata files do not name a module, and some artefacts lack the texts' timestamp.
        others = {
            path
            for timestamp in (key[0], "")
            for module in (key[2], "")
            for path in artefacts.get((timestamp, key[1], module), ())
        }
        compilations.append(Compilation(dumps, list(others)))
    fixed = fixed_in(folder) if FIXED in files else ()
    for step in chain.from_iterable(compilation.dumps for compilation in compilations if fixed):
        step.edited = step.path.name in fixed
    logs = [path for name, path in files.items() if name.endswith(LOG_ENDINGS)]
    beside = Path(f"{os.path.abspath(folder)}.log")
    if beside.is_file():
        logs.append(beside)
    dump.logs += logs
    for compilation in compilations if logs else ():
        if compilation.crashed:
            compilation.artefacts += logs
    if len(compilations) > 1:
        releases = recognise_folder(
            (compilation.names, compilation.steps_taken) for compilation in compilations
        )
        for compilation in compilations:
            compilation.folder_release = releases.get(compilation.backend or "")
    compilations += [Compilation([file], []) for file in by_module.get(None, ())]
    dump.compilations += compilations
    return unread


def fixed_in(folder: Path) -> set[str]:
    """The names of the dumps of a folder that `hlo-lint fix` edited."""
    try:
        return set(decode(read_stored(folder / FIXED)).splitlines())
    except (OSError, DumpError):
        return set()


def _join_renumbered(texts: dict[_Key, list[PassDump]], artefacts: dict[_Key, list[Path]]) -> None:
    """Join the modules that XLA:TPU renumbers during their compilation.

    Its xprecision-rewriter replaces the module: `module_0000` ends inside a pipeline, and
    `module_0006` of the same name continues that pipeline, with steps that restart from 0.
    """
    unfinished: dict[tuple[str, str], _Key] = {}
    for key in sorted(texts):
        names = [dump.name for dump in texts[key] if dump.name]
        if backend_of(names) != "tpu":
            continue
        # The steps of the renumbered module restart from 0. The evidence that both numbers are the
        # same run is the pipeline, at the end of the first and at the beginning of the second.
        steps = sorted((name.step, name.pipeline) for name in names if name.step is not None)
        first = unfinished.pop((key[0], key[2]), None)
        begins = any(name.rest.startswith("before_optimizations") for name in names)
        if first is not None and not begins:
            before = [dump.name for dump in texts[first] if dump.name]
            last = max(((n.step, n.pipeline) for n in before if n.step is not None), default=None)
            if (last and last[1]) == (steps[0][1] if steps else None):
                offset = last[0] + 1 if last else 0
                for dump in texts.pop(key):
                    dump.name = dump.name and dump.name.continued(first[1], offset)
                    texts[first].append(dump)
                artefacts.setdefault(first, []).extend(artefacts.get(key, ()))
                key = first
        if not any(dump.name and dump.name.is_final for dump in texts[key]):
            unfinished[key[0], key[2]] = key


def _drop_unshared_memo(by_module: Iterable[list[PassDump]]) -> None:
    """Let the only file of a folder be read without the cache of lines that files share."""
    dumps = list(chain.from_iterable(by_module))
    if len(dumps) == 1:
        dumps[0].memo = None


def _unsupported(name: str) -> str:
    return next((why for ending, why in _UNSUPPORTED.items() if name.endswith(ending)), "")


def _add_picked(dump: Dump, folder: Path, files: list[Path]) -> None:
    memo = Memo()
    by_module: dict[_Key | None, list[PassDump]] = {}
    for path in files:
        parts = parse_name(path.name)
        if parts is None or is_proto(path.name) or _is_text(path):
            by_module.setdefault(parts and parts.key, []).append(new_dump(path, parts, memo))
        elif not path.name.endswith(RUN_RECORDS):
            reason = _unsupported(path.name) or "it holds no HLO text"
            dump.skipped.append(Skipped(str(path), reason, given=True))
    _drop_unshared_memo(by_module.values())
    loose = by_module.pop(None, [])
    dump.compilations += [Compilation([file], [], lone=True) for file in loose]
    dump.compilations += [_chosen(dumps, folder) for dumps in by_module.values()]


def _chosen(dumps: list[PassDump], folder: Path) -> Compilation:
    """The compilation of files given by name; the names of all files of their folder tell its
    release."""
    compilation = Compilation(dumps, list(_records(folder, dumps[0].name)), lone=True)
    with suppress(OSError):
        beside = _names_in(folder, folder.stat().st_mtime_ns) if compilation.names else ()
        runs = ((names, steps_of(names, compilation.is_disabled)) for names in beside)
        compilation.folder_release = recognise_folder(runs).get(compilation.backend or "")
    return compilation


@lru_cache(maxsize=8)
def _names_in(folder: Path, modified: int) -> list[list[DumpName]]:
    """The names of the dumps in a folder, by module; `modified` is the time of its last change."""
    modules: dict[_Key, list[DumpName]] = {}
    for name in map(parse_name, os.listdir(folder)):
        if name is not None:
            modules.setdefault(name.key, []).append(name)
    return list(modules.values())


def _records(folder: Path, name: DumpName | None) -> Iterator[Path]:
    """The debug options and the metadata beside a dump."""
    if name is None:
        return
    for prefix in {f"{name.timestamp}." if name.timestamp else "", ""}:
        for ending in (f".{name.module}.debug_options", ".metadata.textproto"):
            path = folder / f"{prefix}module_{name.module_id:04d}{ending}"
            if path.is_file():
                yield path


def _is_text(path: Path) -> bool:
    name = plain_name(path.name)
    return name.endswith(TEXT_ENDINGS) and not name.endswith(_KNOWN_ARTEFACTS)


def _is_read(path: Path, parts: DumpName | None, beside: Container[str]) -> bool:
    """True if a file of a directory is HLO or a log, by its first words.

    The name is enough for XLA's dumps after passes.

    Raises:
        OSError: it is unreadable, or not a regular file.
        DumpError: it is compressed, and its data is damaged.
    """
    name = plain_name(path.name)
    if _is_text(path):
        if name.endswith(".hlo") or (parts is not None and parts.step is not None):
            return True
        _status(path)  # reading a pipe would block
        head = read_stored(path, 64).lstrip()
        return head.startswith(b"HloModule") or name.endswith(EMITTER_TEXT)
    if name.endswith(PROTO_TEXT) and name not in _SETTINGS and parts is None:
        return file_type_of(name, decode(read_stored(path, 4096))) is FileType.AUTOTUNE_LOG
    if name.endswith((".hlo.pb", ".hlo.pbtxt", ".hlo_proto.pb")):
        stem = name.partition(".hlo.pb")[0]
        return f"{stem}.txt" not in beside  # the text has the same content, with positions
    return False
