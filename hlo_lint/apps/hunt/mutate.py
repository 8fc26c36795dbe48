"""Mutations of given modules: other constants, types and sizes, operands swapped, opcodes changed.

Most are refused by XLA's parser, which is asked; what it reads is judged as any other module.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from random import Random
from typing import Final

from hlo_lint.apps.hunt.draft import SETS
from hlo_lint.apps.hunt.fair import unfair
from hlo_lint.apps.hunt.generate import FLOATS, INTEGERS, Generated
from hlo_lint.dumps.directory import open_dump

MOST_CHANGES: Final = 4
TRIES: Final = 20
MAX_CHARACTERS: Final = 20_000
"""Larger modules take too long to judge again and again."""
_NAME: Final = r"%[\w.\-]+"
_LITERALS: Final = (
    "0 1 -1 2 3 7 8 -8 127 -128 255 65535 2147483647 -2147483648 true false -0 0.5 inf nan".split()
)
CHANGES: Final[Mapping[str, tuple[str, Sequence[str]]]] = {
    "constant": (r"(?<=constant\()[^{}()]+", _LITERALS),
    "opcode": (rf"(?<= )[\w\-]+(?=\({_NAME}, {_NAME}\))", [*SETS["binary"]["s"], "divide"]),
    "swap": (rf"(?<=\()({_NAME}), ({_NAME})(?=\))", [r"\2, \1"]),
    "operand": (rf"(?<=[( ]){_NAME}(?=[,)])", ()),
    "retype": (r"\b(?:[su]\d+|b?f\d\w*)(?=\[)", (*INTEGERS, *FLOATS)),
    "resize": (r"(?<=[\[,])\d+(?=[,\d]*\])|(?<=sizes=\{)\d+|(?<=sizes=\{\d,)\d+", "012358"),
}
"""The places of each change, and what may be put there: without any, what another place has."""
EVERYWHERE: Final = ("retype", "resize")
"""Changes of all places that are spelled alike."""


def mutated(texts: Sequence[str], seed: int, accepts: Callable[[str], bool]) -> Generated | None:
    """A mutation of one of the texts that XLA's parser accepts; None where none is found."""
    random = Random(seed)
    text, traits = random.choice(texts), []
    for _ in range(random.randint(1, MOST_CHANGES)):
        for _ in range(TRIES):
            name = random.choice([*CHANGES])
            changed = _changed(text, name, random)
            if changed != text and accepts(changed):
                text = changed
                traits.append(name)
                break
    return Generated(seed, text, tuple(traits)) if text not in texts else None


def _changed(text: str, name: str, random: Random) -> str:
    pattern, given = CHANGES[name]
    if not (matches := [*re.finditer(pattern, text)]):
        return text
    match = random.choice(matches)
    new = match.expand(random.choice(given or [one[0] for one in matches]))
    if name in EVERYWHERE:
        return re.sub(pattern, lambda one: new if one[0] == match[0] else one[0], text)
    return text[: match.start()] + new + text[match.end() :]


def fair_texts(paths: Sequence[Path]) -> Iterator[str]:
    """The modules below some paths that a front end may have written, and that are not large."""
    for dump in (dump for pipeline in open_dump(paths) for dump in pipeline.dumps):
        module, *others = dump.file.modules
        is_small = module.entry and not others and len(dump.file.text) <= MAX_CHARACTERS
        if is_small and not module.problems and not unfair(module):
            yield dump.file.text
