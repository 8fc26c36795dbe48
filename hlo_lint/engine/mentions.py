"""The instructions of a dump that a message of XLA names."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import islice
from typing import NamedTuple

from hlo_lint.analysis.walks import chain
from hlo_lint.dumps.pipeline import Pipeline
from hlo_lint.engine.diagnose import origin_of
from hlo_lint.hlo.ir import Instruction
from hlo_lint.text.patterns import late

MOST = 5
"""Number of instructions that are looked up."""

_names = late(
    r'%([\w.-]*[\w-])|loc\("([^"\s]+)"|[\'"`]([\w.-]*[\w-])[\'"`]|'
    r"(?:HLO|instruction|fusion|custom.call|kernel)[:=]? ([\w.-]*[\w-])\b"
).findall


class Mention(NamedTuple):
    """An instruction that a message names, where it stands last in a dump."""

    instruction: Instruction
    path: str
    line: int
    source: str
    """The line of Python, `model.py:12 in step`; empty if the dump does not have it."""
    callers: tuple[str, ...]
    """The instruction that calls its computation, the caller of that, and on, with `%`."""


def names_in(log: str) -> list[str]:
    """The words in a log that may be names of instructions.

    >>> names_in('loc("slice.13.1"): op of %fusion.2 in "add.3"')
    ['slice.13.1', 'fusion.2', 'add.3']
    """
    return list(dict.fromkeys(name for names in _names(log) for name in names if name))


def mentions_in(log: str, pipelines: Sequence[Pipeline]) -> Iterator[Mention]:
    """The instructions that a log names, each in the last dump that has it; at most `MOST`."""
    left = names_in(log)
    seen = 0
    for pipeline in pipelines:
        last = [pipeline.final] if pipeline.final is not None else []
        for dump in (*last, *reversed(pipeline.dumps)):
            here = {name for name in left if f"{name} = " in dump.file.text}
            if not here:
                continue
            for module in dump.file.modules:
                everything = list(module.instructions())
                for instruction in everything:
                    if instruction.name not in here or seen == MOST:
                        continue
                    here.discard(instruction.name)
                    left.remove(instruction.name)
                    seen += 1
                    origin = origin_of(instruction, module)
                    yield Mention(
                        instruction,
                        str(dump.path),
                        dump.file.lines.position(module.span(instruction).start).line,
                        "" if origin is None else str(origin),
                        tuple(f"%{caller.name}" for caller in _callers(instruction, everything)),
                    )
            if not left or seen == MOST:
                return


def _callers(instruction: Instruction, everything: Sequence[Instruction]) -> Iterator[Instruction]:
    def caller_of(called: Instruction) -> Instruction | None:
        body = called.computation.name
        return next((user for user in everything if body in user.called_computations), None)

    return islice(chain(instruction, caller_of), 1, None)
