"""One dump, or one module's dumps, as a person names them."""

from __future__ import annotations

from pathlib import Path

from hlo_lint.dumps.directory import Dump, open_dump
from hlo_lint.dumps.file_types import FileType
from hlo_lint.dumps.names import DumpName
from hlo_lint.dumps.pass_dump import PassDump
from hlo_lint.dumps.pipeline import Pipeline
from hlo_lint.hlo.ir import Module
from hlo_lint.text.errors import DumpError, UsageError, nearest, os_errors_as
from hlo_lint.text.patterns import late

_without_build = late(r"\.cl_\d+$").sub

FIRST = "before_optimizations"
"""The dump of the compiler's input."""


def one_file(path: Path) -> PassDump:
    """The HLO in one file.

    Raises:
        DumpError: for a path that is not there, is a directory, or holds no HLO.
    """
    dump = open_dump(path)
    if path.is_dir():
        raise DumpError(f"{path} is a directory, not a file")
    if not dump.pipelines:
        raise DumpError(f"{path} holds no HLO")
    return dump.pipelines[0].dumps[0]


def modules_of(dump: PassDump) -> tuple[Module, ...]:
    """The modules of a dump.

    Raises:
        DumpError: where it cannot be read, or is not HLO.
    """
    with os_errors_as(f"{dump.path}"):
        modules = dump.file.modules
    if dump.file_type is not FileType.HLO or not any(m.header or m.computations for m in modules):
        raise DumpError(f"{dump.path} holds no HLO")
    return modules


def main_pipelines(dump: Dump) -> list[Pipeline]:
    """The modules that were compiled, without those that the autotuner made to try a backend."""
    return [
        pipeline
        for pipeline in dump
        if pipeline.dumps[0].name is not None and not pipeline.is_helper
    ]


def module_named(folder: Path, name: str | None) -> Pipeline:
    """The dumps of one module of a directory; of the one with most dumps where no name is given.

    Raises:
        DumpError: for a path that is not a directory of dumps.
        UsageError: for a module that is not there; says which are.
    """
    pipelines = main_pipelines(open_dump(folder))
    if not pipelines:
        raise DumpError(f"{folder}: no compiler's dumps are in it")
    if name is None:
        return max(pipelines, key=lambda pipeline: len(pipeline.dumps))
    for pipeline in pipelines:
        if name in names_of(pipeline):
            return pipeline
    titles = {title for pipeline in pipelines for title in names_of(pipeline)}
    raise UsageError(f"{folder} has no module named {name}: {nearest(name, titles)}")


def in_order(pipeline: Pipeline) -> list[PassDump]:
    """The dumps whose place in the run is known.

    Where there are numbered dumps these are all but the named ones from the midst of the run:
    their names do not say where they belong, and what they hold the numbered ones hold as well.
    What XLA:GPU writes of a fusion that it emits, `m.fusion.hlo`, is not the module.
    """
    if not pipeline.steps:
        whole = [dump for dump in pipeline.dumps if dump.path.suffix != ".hlo"]
        return whole or pipeline.dumps
    return [dump for dump in pipeline.dumps if dump.name is None or _is_in_order(dump.name)]


def _is_in_order(name: DumpName) -> bool:
    return name.step is not None or name.is_final or name.rest.startswith(FIRST)


def names_of(pipeline: Pipeline) -> tuple[str, ...]:
    """The names of a module: `module_0001.jit_f`, `jit_f`.

    XLA:TPU adds its own build, `jit_f.cl_933746096`: the last name is without it.
    """
    name = pipeline.dumps[0].name
    if name is None:
        return (pipeline.title,)
    of_any_build = _without_build("", name.module)
    return tuple(dict.fromkeys((pipeline.title, name.module, of_any_build)))


def by_module(dump: Dump) -> dict[str, list[Pipeline]]:
    """The runs of the compiler in a dump, by the name of the module in any build."""
    runs: dict[str, list[Pipeline]] = {}
    for pipeline in main_pipelines(dump):
        runs.setdefault(names_of(pipeline)[-1], []).append(pipeline)
    return runs


def dump_at(pipeline: Pipeline, which: str) -> PassDump:
    """The dump with a step's number, after a pass (the first of them), or with a file's name.

    Raises:
        UsageError: there is none; lists those that there are.
    """
    for dump in pipeline.dumps:
        name = dump.name
        if name is None:
            continue
        if which in (dump.path.name, name.rest.partition(".txt")[0]) or which == name.after:
            return dump
        if which.isdecimal() and name.step == int(which):
            return dump
    steps = [dump.name for dump in pipeline.steps]
    last = f"steps 0 to {steps[-1].step}" if steps else "no steps"
    passes = list(dict.fromkeys(name.after for name in steps))
    hint = nearest(which, passes, otherwise=", ".join(passes))
    raise UsageError(f"{pipeline.title} has no dump {which}; it has {last}: {hint}")
