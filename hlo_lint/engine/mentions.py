"""The instructions of a dump that a message of XLA names."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from itertools import islice
from typing import NamedTuple

from hlo_lint.analysis.calls import with_opcodes
from hlo_lint.analysis.walks import chain
from hlo_lint.dumps.compilation import Compilation
from hlo_lint.dumps.pass_dump import PassDump
from hlo_lint.engine.diagnose import origin_of
from hlo_lint.hlo.ir import Computation, Instruction, Module
from hlo_lint.hlo.opcodes import COLLECTIVES
from hlo_lint.text.patterns import late

MOST = 5
"""Number of instructions that are looked up."""

_names = late(
    # A sharding has the axes of its mesh in quotes: {mesh['x'=2], [{'x'}]}.
    r'%([\w.-]*[\w-])|loc\("([^"\s]+)"|(?<![{,\[])[\'"`]([\w.-]*[\w-])[\'"`](?![}=])|'
    r"(?:HLO|instruction|fusion|custom.call|kernel)[:=]? ([\w.-]*[\w-])\b"
).findall

_words = late(r"[\w.$-]*\w").findall


class Mention(NamedTuple):
    """An instruction that a message names, where it stands last in a dump."""

    instruction: Instruction
    path: str
    line: int
    source: str
    """The line of Python, `model.py:12 in step`; empty if the dump does not have it."""
    callers: tuple[str, ...]
    """The instruction that calls its computation, the caller of that, and on, with `%`."""
    collectives: tuple[Instruction, ...] = ()
    """The collectives of the same line in the final module, if it is named before partitioning."""


def names_in(log: str) -> list[str]:
    """The words in a log that may be names of instructions.

    >>> names_in('loc("slice.13.1"): op of %fusion.2 in "add.3"')
    ['slice.13.1', 'fusion.2', 'add.3']
    """
    return list(dict.fromkeys(name for names in _names(log) for name in names if name))


def mentions_in(
    log: str, compilations: Sequence[Compilation], calls: str = ""
) -> Iterator[Mention]:
    """The instructions that a log names, each in the last dump that has it; at most `MOST`.

    A kernel has the name of its instruction with `_` for each dot. If the log names nothing of the
    dumps: calls in final modules whose target it names, else those that match the pattern `calls`.
    """
    named = list(islice(_named(names_in(log), compilations), MOST))
    yield from named
    if named:
        return
    words = set(_words(log))
    finals = [compilation.final or compilation.dumps[-1] for compilation in compilations]
    kernels = [
        (dump, module, instruction)
        for dump in finals
        for module in dump.file.modules
        for instruction in module.instructions()
        if instruction.opcode in ("custom-call", "fusion")
    ]
    # A message may name the target of a call.
    chosen = [kernel for kernel in kernels if kernel[2].custom_call_target in words]
    if calls and not chosen:
        matches = re.compile(calls).search
        chosen = [kernel for kernel in kernels if matches(kernel[2].attributes_text)]
    for kernel in chosen[:MOST]:
        yield _mention(*kernel)


def _named(names: Sequence[str], compilations: Sequence[Compilation]) -> Iterator[Mention]:
    left = {_as_kernel(name): name for name in names}
    seen = set[str]()
    for compilation in compilations:
        last = [compilation.final] if compilation.final is not None else []
        for dump in (*last, *reversed(compilation.dumps)):
            for module, computation, held in _unseen(dump, seen) if left else ():
                name = left.get(_as_kernel(held))
                if name is None or (held != name and "." in name):
                    continue
                del left[_as_kernel(name)]
                instruction = computation[held]
                mention = _mention(dump, module, instruction)
                if dump is not compilation.final and "sharding=" in instruction.text:
                    added = islice(_collectives_of(mention.source, compilation), MOST)
                    mention = mention._replace(collectives=tuple(added))
                yield mention


def _unseen(dump: PassDump, seen: set[str]) -> Iterator[tuple[Module, Computation, str]]:
    """The names of a dump that no earlier one had, with their places."""
    for module in dump.file.modules:
        for computation in module.computations:
            for name in computation.index:
                if name not in seen:
                    seen.add(name)
                    yield module, computation, name


def _collectives_of(source: str, compilation: Compilation) -> Iterator[Instruction]:
    """The collectives of a final module that come from a line of Python."""
    final = compilation.final if source else None
    for module in () if final is None else final.file.modules:
        for computation in module.computations:
            for collective in with_opcodes(computation, COLLECTIVES):
                if str(origin_of(collective, module) or "") == source:
                    yield collective


def _as_kernel(name: str) -> str:
    return name.replace(".", "_").replace("-", "_")


def _mention(dump: PassDump, module: Module, instruction: Instruction) -> Mention:
    everything = list(module.instructions())

    def caller_of(called: Instruction) -> Instruction | None:
        body = called.computation.name
        return next((user for user in everything if body in user.called_computations), None)

    callers = islice(chain(instruction, caller_of), 1, None)
    return Mention(
        instruction,
        str(dump.path),
        dump.file.lines.position(module.span(instruction).start).line,
        str(origin_of(instruction, module) or ""),
        tuple(f"%{caller.name}" for caller in callers),
    )
