"""Mutations of given modules: other constants, types and sizes, operands swapped, opcodes changed.

Most are refused by XLA's parser, which is asked; what it reads is judged as any other module.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from random import Random
from typing import Final

from hlo_lint.apps.hunt.draft import INTEGERS, SETS, ModuleDraft, kind_of
from hlo_lint.apps.hunt.fair import unfair
from hlo_lint.apps.hunt.generate import Generated
from hlo_lint.dumps.directory import open_dump

MOST_CHANGES: Final = 4
TRIES: Final = 12
MAX_CHARACTERS: Final = 20_000
"""Larger modules take too long to judge again and again."""


def _dtype(match: re.Match[str]) -> str:
    """The type of the instruction."""
    return match.string[: match.start()].rpartition(" = ")[2].partition("[")[0]


def _other_constant(match: re.Match[str], random: Random) -> str:
    return ModuleDraft(random).number(_dtype(match))


def _other_opcode(match: re.Match[str], random: Random) -> str:
    return random.choice(SETS["binary"][kind_of(_dtype(match))] or [str(match[0])])


def _swapped(match: re.Match[str], _: Random) -> str:
    first, second = str(match[0]).split(", ")
    return f"{second}, {first}"


def _other_operand(match: re.Match[str], random: Random) -> str:
    """Another value of its type that is there before it."""
    shapes: dict[str, str] = dict(
        re.findall(r"(%[\w.\-]+) = (\w+\[[\d,]*\])", match.string[: match.start()])
    )
    alike = [name for name, shape in shapes.items() if shape == shapes.get(match[0])]
    return random.choice(alike or [str(match[0])])


def _other_type(match: re.Match[str], random: Random) -> str:
    return random.choice(("f32", "f64", "bf16", "f16") if match[0][0] in "bf" else INTEGERS)


_NAME: Final = r"%[\w.\-]+"
CHANGES: Final[Mapping[str, tuple[str, Callable[[re.Match[str], Random], str]]]] = {
    "constant": (r"(?<=\[\] constant\()[^{}()]+", _other_constant),
    "opcode": (rf"(?<= )[\w\-]+(?=\({_NAME}, {_NAME}\)(?:\n|, meta))", _other_opcode),
    "swap": (rf"(?<=\(){_NAME}, {_NAME}(?=\))", _swapped),
    "operand": (rf"(?<=[( ]){_NAME}(?=[,)])", _other_operand),
    "retype": (r"\b(?:[su]\d+|b?f\d\w*)(?=\[)", _other_type),
    "resize": (
        r"(?<=[\[,])\d+(?=[,\d]*\])|(?<=sizes=\{)\d+|(?<=sizes=\{\d,)\d+",
        lambda _, random: random.choice("012358"),
    ),
}
"""The places of each change, and what is put there."""
EVERYWHERE: Final = ("retype", "resize")
"""Changes of all places that are spelled alike."""


def _changed(text: str, name: str, random: Random) -> str:
    pattern, change = CHANGES[name]
    matches = [*re.finditer(pattern, text)]
    if not matches:
        return text
    match = random.choice(matches)
    new = change(match, random)
    if name in EVERYWHERE:
        return re.sub(pattern, lambda one: new if one[0] == match[0] else one[0], text)
    return text[: match.start()] + new + text[match.end() :]


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
    return Generated(seed, text, tuple(traits)) if traits else None


def fair_texts(paths: Sequence[Path]) -> Iterator[str]:
    """The modules below some paths that a front end may have written, and that are not large."""
    for dump in (dump for pipeline in open_dump(paths) for dump in pipeline.dumps):
        module, *others = dump.file.modules
        is_small = module.entry and not others and len(dump.file.text) <= MAX_CHARACTERS
        if is_small and not module.problems and not unfair(module):
            yield dump.file.text
