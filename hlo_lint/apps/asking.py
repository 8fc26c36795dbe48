"""`check --ask-xla`: the instructions of a module that XLA's own compiler refuses."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import Any, Final

from hlo_lint.apps.isolation import ReleaseCompiler, emitted_dump
from hlo_lint.dumps.compilation import Compilation
from hlo_lint.dumps.directory import Dump, Skipped
from hlo_lint.dumps.pass_dump import PassDump
from hlo_lint.dumps.selection import dump_at, modules_of
from hlo_lint.engine.diagnose import diagnose
from hlo_lint.engine.findings import Diagnostic
from hlo_lint.engine.isolation.compilers import WITHOUT_PASSES
from hlo_lint.engine.isolation.cut import cuts_of
from hlo_lint.engine.isolation.judge import is_unregistered
from hlo_lint.engine.mentions import names_in
from hlo_lint.engine.timeline import LocatedFinding
from hlo_lint.hlo.ir import Instruction, Module
from hlo_lint.rules.base import first_line
from hlo_lint.rules.findings import Finding
from hlo_lint.rules.pipeline.compiler_refuses import CompilerRefuses
from hlo_lint.text.errors import DumpError
from hlo_lint.xla.compiler import Ending

MAX_REASON: Final = 400
"""The most characters of XLA's words in a finding."""
_words = re.compile(r"[a-z][\w-]+").findall
_stack = re.compile(r"<unknown>:0: (?:error: )?")


def refusals(
    dump: Dump,
    *,
    step: str | None = None,
    note: Callable[[str], None] = lambda _: None,
    **compiler: Any,
) -> tuple[list[Diagnostic], list[Skipped]]:
    """The refusals of each compilation of a dump, and what was not asked.

    Args:
        dump: the compilations.
        step: the step, as in `dump_at`, by default the last before emission.
        note: called with the module or kernel that is compiled.
        compiler: arguments of `ReleaseCompiler`.

    Raises:
        UsageError: the step does not exist, or the compiler of a chip is missing.
        CaptureError: the environment of a release cannot be made.
    """
    diagnostics: list[Diagnostic] = []
    skipped: list[Skipped] = []
    for compilation in dump:
        if compilation.is_helper:
            continue
        note(compilation.title)
        asked = dump_at(compilation, step) if step is not None else emitted_dump(compilation)
        try:
            modules = modules_of(asked)
        except DumpError as error:
            skipped.append(Skipped(f"{asked.path}", f"{error}", CompilerRefuses.name()))
            continue
        with ReleaseCompiler(compilation, announce=note, **compiler) as release:
            if not release.speaks_for_dump:
                reason = f"XLA was not asked: {release.title}"
                skipped.append(Skipped(f"{asked.path}", reason, CompilerRefuses.name()))
                continue
            for module in modules:
                for at, ending in _refused(release, compilation, asked, module):
                    diagnostics.append(_diagnostic(asked, module, at, ending, release.title))
    return diagnostics, skipped


def _refused(
    release: ReleaseCompiler, compilation: Compilation, asked: PassDump, module: Module
) -> Iterator[tuple[Instruction | None, Ending]]:
    """The instructions that XLA refuses; None where it refuses the module, but no instruction."""
    is_final = "is_scheduled=true" in module.header
    flags = f"--{WITHOUT_PASSES}=true" if is_final else _passes_before(compilation, asked)
    whole = release.modules.whole(module.text, flags)
    if whole.status == "ok":
        return
    refused: dict[str, Ending] = {}
    some = False
    for cut in cuts_of(module, constants=is_final):
        if some and cut.instruction.opcode == "constant":
            continue
        if cut.key not in refused:
            refused[cut.key] = (
                release.modules.compile(cut) if is_final else release.modules.whole(cut.text, flags)
            )
        if _is_refusal(refused[cut.key]):
            some = True
            yield cut.instruction, refused[cut.key]
    if not some and _is_refusal(whole):
        yield _named(whole, module), whole


def _is_refusal(ending: Ending) -> bool:
    return ending.status in ("error", "died") and not is_unregistered(ending.message)


def _named(ending: Ending, module: Module) -> Instruction | None:
    """The instruction that a message names, else the first of the opcode that it names."""
    names, words = names_in(ending.message), _words(ending.message)
    rows = [*module.instructions()]
    by_name = [row for row in rows if row.name in names]
    return next(iter(by_name or [row for row in rows if row.opcode in words[-1:]]), None)


def _passes_before(compilation: Compilation, asked: PassDump) -> str:
    """The flag that leaves out the passes that have run before a step and do not run again."""
    step = asked.name.step if asked.name is not None else None
    if step is None:
        return ""
    ran = [dump.name for dump in compilation.steps]
    before = {name.after for name in ran if name.step is not None and name.step <= step}
    if (release := compilation.release) is not None:
        for place in compilation.places(release, asked)[:1]:
            before |= {name for _, name in release.passes[:place]}  # some left no dump
    options = compilation.options.values if compilation.options is not None else {}
    if "xla_enable_hlo_passes_only" in options:
        return ""  # XLA takes one of the two flags
    before |= {*options.get("xla_disable_hlo_passes", ())}
    later = {name.after for name in ran if name.step is not None and name.step > step}
    names = sorted(before - later - {"pipeline-start"})
    return f"--xla_disable_hlo_passes={','.join(names)}" if names else ""


def _diagnostic(
    dump: PassDump, module: Module, at: Instruction | None, ending: Ending, compiler: str
) -> Diagnostic:
    words = _stack.sub("", ending.message).strip()
    verb = "dies of" if ending.status == "died" else "refuses"
    what = f"this {at.opcode}" if at is not None else "this module"
    finding = Finding(
        at if at is not None else first_line(dump),
        f"XLA {verb} {what}: {words.partition(chr(10))[0][:MAX_REASON].rstrip('.')}",
        notes=(f"{compiler} says so",),
        key="refused",
    )
    return diagnose(LocatedFinding(CompilerRefuses(), finding, dump, module), None)
