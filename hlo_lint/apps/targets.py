"""Dumps from the inputs of `lint` or `fix`: paths, texts, modules, jax's stages."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from hlo_lint.apps.settings.settings import Settings
from hlo_lint.dumps.compilation import Compilation
from hlo_lint.dumps.directory import Dump, open_dump
from hlo_lint.dumps.file_types import FileType, file_type_of
from hlo_lint.dumps.names import DumpName, parse_name
from hlo_lint.dumps.pass_dump import PassDump, new_dump
from hlo_lint.hlo.ir import HloFile, Module
from hlo_lint.hlo.parser.module import parse_file
from hlo_lint.text.source import decode
from hlo_lint.text.stored import expanded, kept

CheckTarget = Any
"""A path, a text, a Module, a Dump, or a `jax.stages.Compiled` or `Lowered`."""


def as_dump(target: CheckTarget, settings: Settings | None = None) -> Dump:
    """Turn an input of `lint` or `fix` into a dump.

    Raises:
        DumpError: a path does not exist.
        TypeError: the input has another type.
    """
    match target:
        case Dump():
            return target
        case Module():
            return _text_dump(target.file)
        case HloFile():
            return _text_dump(target)
        case bytes():
            return _text_dump(parse_file(target))
        case str() if "\n" in target or target.lstrip().startswith("HloModule"):
            return _text_dump(parse_file(target))
        case str() | Path() | list() | tuple():
            return open_paths(target, settings)
        case _ if hasattr(target, "as_text"):
            if hasattr(target, "compile"):
                text = target.as_text(dialect="hlo")
                return _text_dump(parse_file(text, Path("<lowered>.before_optimizations.txt")))
            final = Path("<compiled>.after_optimizations.txt")
            return final_dump(parse_file(target.as_text(), final))
        case _:
            raise TypeError(
                f"cannot lint {type(target).__name__}: expected a path, HLO text, a Module, a "
                "Dump, or a jax.stages.Lowered or Compiled"
            )


def open_paths(paths: str | Path | Sequence[str | Path], settings: Settings | None = None) -> Dump:
    """Open the dumps under paths, except files that the settings exclude.

    Raises:
        DumpError: a path does not exist.
    """
    settings = settings or Settings()
    return open_dump(paths, settings.excludes, exclude_given=settings.force_exclude)


def _text_dump(file: HloFile) -> Dump:
    path = Path("<text>") if file.path is None else file.path
    file_type = FileType.HLO
    if not any(module.header or module.computations for module in file.modules):
        file_type = file_type_of(path.name, file.text)
    return Dump([Compilation([PassDump.of(file, path, file_type)], [], lone=True)])


def final_dump(file: HloFile) -> Dump:
    """The dump of a compiler's final module that is not from a dump directory."""
    path = file.path or Path("<text>")
    name = DumpName("", 0, file.modules[0].name, None, "", "", "", "after_optimizations.txt")
    return Dump([Compilation([new_dump(path, name, file=file)], [], lone=True)])


def piped_dump(data: bytes, name: str | None = None) -> Dump:
    """The dump of standard input, read like a file of that name.

    An archive is unpacked into a temporary folder, which is removed when this process ends.
    """
    data, ending = expanded(data, name or "<stdin>")
    if ending:
        return open_dump(kept(data, "stdin" + ending))
    if name is None:
        return _text_dump(parse_file(data, Path("<stdin>")))
    path = Path(name)
    text = decode(data)
    file_type = FileType.HLO if path.suffix == ".hlo" else file_type_of(path.name, text)
    file = parse_file(text, path) if file_type is FileType.HLO else HloFile.of_text(text, path)
    dump = new_dump(path, parse_name(path.name), file=file, file_type=file_type)
    return Dump([Compilation([dump], [], lone=True)])
