"""Selection of a dump, or of a module's dumps, by the names that users give."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from pathlib import Path
from typing import TypeVar

from hlo_lint.dumps.compilation import Compilation
from hlo_lint.dumps.directory import Dump, open_dump
from hlo_lint.dumps.file_types import FileType
from hlo_lint.dumps.names import DumpName
from hlo_lint.dumps.pass_dump import PassDump
from hlo_lint.hlo.ir import Module
from hlo_lint.text.errors import DumpError, UsageError, nearest, os_errors_as
from hlo_lint.text.patterns import late

_Module = TypeVar("_Module")

_without_build = late(r"\.cl_\d+$").sub

FIRST = "before_optimizations"
"""The dump of the compiler's input."""


def one_file(path: Path) -> PassDump:
    """The HLO in a file.

    Raises:
        DumpError: for a path that is missing, is a directory, or holds no HLO.
    """
    dump = open_dump(path)
    if path.is_dir():
        raise DumpError(f"{path} is a directory, not a file")
    if not dump.compilations:
        raise DumpError(f"{path} holds no HLO")
    return dump.compilations[0].dumps[0]


def modules_of(dump: PassDump) -> tuple[Module, ...]:
    """The modules of a dump.

    Raises:
        DumpError: if it cannot be read, or is not HLO.
    """
    with os_errors_as(f"{dump.path}"):
        modules = dump.file.modules
    if dump.file_type is not FileType.HLO or not any(m.header or m.computations for m in modules):
        raise DumpError(f"{dump.path} holds no HLO")
    return modules


def main_compilations(dump: Dump) -> list[Compilation]:
    """The modules that a compiler dumped, without loose files and the autotuner's trial modules."""
    return [
        compilation
        for compilation in dump
        if compilation.dumps[0].name is not None and not compilation.is_helper
    ]


def only_module(dump: Dump, name: str | None, paths: Sequence[object]) -> Dump:
    """A dump with only the compilations of a module; the dump itself without a name.

    `jit_f` names all compilations of the module, `module_0001.jit_f` a single compilation.

    Args:
        dump: the dump at `paths`.
        name: a name as in `names_of`.
        paths: named in the error.

    Raises:
        UsageError: no compilation has this name; suggests the nearest.
    """
    if name is None:
        return dump
    return Dump(with_name(dump.compilations, names_of, name, paths), dump.skipped)


def with_name(
    modules: Sequence[_Module],
    names: Callable[[_Module], Collection[str]],
    name: str,
    paths: Sequence[object],
) -> list[_Module]:
    """The modules with a name.

    Raises:
        UsageError: no module has it; suggests the nearest name.
    """
    chosen = [module for module in modules if name in names(module)]
    if not chosen:
        there = {own for module in modules for own in names(module)}
        where = ", ".join(map(str, paths))
        raise UsageError(f"no module in {where} is named {name}: {nearest(name, there)}")
    return chosen


def module_at(path: Path, name: str | None = None) -> Module:
    """The module of a name in a file, by default the first.

    In a dump directory it is the compiler's input of the named module.

    Raises:
        DumpError: the path is missing or holds no HLO, or is a directory and no module is named.
        UsageError: no module has this name.
    """
    if name is not None and path.is_dir():
        return modules_of(longest_run(path, name).dumps[0])[0]
    dump = one_file(path)
    modules = modules_of(dump)
    if name is None or (dump.name is not None and name in compiled_names(dump.name)):
        return modules[0]
    return with_name(modules, lambda module: (module.name,), name, [path])[0]


def longest_run(folder: Path, module: str | None) -> Compilation:
    """The compilation with the most dumps in a directory, optionally of a named module.

    Raises:
        DumpError: the directory has no dumps of a compiler.
        UsageError: no compilation has this name.
    """
    compilations = main_compilations(only_module(open_dump(folder), module, [folder]))
    if not compilations:
        raise DumpError(f"{folder}: no compiler's dumps are in it")
    return max(compilations, key=lambda compilation: len(compilation.dumps))


def in_order(compilation: Compilation) -> list[PassDump]:
    """The dumps whose place in the run is known.

    If there are numbered dumps, named dumps from the middle of the run are left out: their place is
    unknown, and numbered dumps have the same content. `m.fusion.hlo`, which XLA:GPU writes for an
    emitted fusion, is not the module.
    """
    if not compilation.steps:
        whole = [dump for dump in compilation.dumps if dump.path.suffix != ".hlo"]
        return whole or compilation.dumps
    names = ((dump, dump.name) for dump in compilation.dumps)
    return [
        dump
        for dump, name in names
        if not name or name.step is not None or name.is_final or name.rest.startswith(FIRST)
    ]


def outer_pass(dumps: Sequence[PassDump], start: int) -> str:
    """The pass that runs the pipeline which starts at a dump; empty if none starts, or unknown.

    That pass changed the module since the dump before: its own dump is the first after those of the
    inner pipeline.
    """
    first = dumps[start].name
    if first is None or first.after != "pipeline-start":
        return ""
    following = (dump.name for dump in dumps[start + 1 :])
    outer = next((name for name in following if name and name.pipeline != first.pipeline), None)
    opened = {dump.name.pipeline for dump in dumps[:start] if dump.name}
    if outer is None or outer.pipeline not in opened or outer.after == "pipeline-start":
        return ""
    return outer.after


def names_of(compilation: Compilation) -> tuple[str, ...]:
    """The names of a module: `module_0001.jit_f`, `jit_f`.

    XLA:TPU adds its own build, `jit_f.cl_933746096`: the last name is without it. A loose file has
    its path, and the names of the modules in its text.
    """
    first = compilation.dumps[0]
    name = first.name
    if name is None:
        return (compilation.title, *_names_in(first))
    return compiled_names(name)


def compiled_names(name: DumpName) -> tuple[str, ...]:
    """The names of the module of a dump file, as in `names_of`."""
    of_any_build = _without_build("", name.module)
    title = f"module_{name.module_id:04d}.{name.module}"
    return tuple(dict.fromkeys((title, name.module, of_any_build)))


def _names_in(dump: PassDump) -> list[str]:
    """The names of the modules in a text; empty if it is unreadable."""
    is_read = dump.is_read
    try:
        return [module.name for module in dump.file.modules]
    except (OSError, DumpError):
        return []
    finally:
        if not is_read:
            dump.release()


def by_module(dump: Dump) -> dict[str, list[Compilation]]:
    """The compilations in a dump, by the name of the module in any build."""
    runs: dict[str, list[Compilation]] = {}
    for compilation in main_compilations(dump):
        runs.setdefault(names_of(compilation)[-1], []).append(compilation)
    return runs


def dump_at(compilation: Compilation, which: str) -> PassDump:
    """The dump with a step's number, the first after a pass, or with a file's name.

    Raises:
        UsageError: it is missing; lists the dumps.
    """
    for dump in compilation.dumps:
        name = dump.name
        if name is None:
            continue
        if which in (dump.path.name, name.rest.partition(".txt")[0]) or which == name.after:
            return dump
        if which.isdecimal() and name.step == int(which):
            return dump
    steps = [dump.name for dump in compilation.steps]
    last = f"steps 0 to {steps[-1].step}" if steps else "no steps"
    passes = list(dict.fromkeys(name.after for name in steps))
    hint = nearest(which, passes, otherwise=", ".join(passes))
    raise UsageError(f"{compilation.title} has no dump {which}; it has {last}: {hint}")
