"""Mutations of given modules: other constants, types and sizes, operands swapped, opcodes changed.

Most are refused by XLA's parser, which is asked; what it reads is judged as any other module.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from random import Random
from typing import Final

from hlo_lint.apps.hunt.draft import INTEGERS, ModuleDraft, opcode_set
from hlo_lint.apps.hunt.fair import unfair
from hlo_lint.apps.hunt.generate import Generated
from hlo_lint.hlo.dtypes import FLOATS, is_integer
from hlo_lint.hlo.parser.module import parse_file

MOST_CHANGES: Final = 4
TRIES: Final = 12
MAX_CHARACTERS: Final = 20_000
"""Larger modules take too long to judge again and again."""


def _opcode(match: re.Match[str], random: Random) -> str:
    kinds = opcode_set("binary", match[1]) or [match[3]]
    return f"= {match[1]}{match[2]} {random.choice(kinds)}"


def _operand(match: re.Match[str], random: Random) -> str:
    """Another value of its type that is there before it."""
    shapes: dict[str, str] = dict(
        re.findall(r"(%[\w.\-]+) = (\w+\[[\d,]*\])", match.string[: match.start()])
    )
    alike = [name for name, shape in shapes.items() if shape == shapes.get(match[0])]
    return random.choice(alike or [match[0]])


_PLACES: Final[Mapping[str, tuple[str, Callable[[re.Match[str], Random], str]]]] = {
    "constant": (
        r"= (\w+)\[\](\S*) constant\([^{}()]+\)",
        lambda match, random: (
            f"= {match[1]}[]{match[2]} constant({ModuleDraft(random).number(match[1])})"
        ),
    ),
    "opcode": (r"= (\w+)(\[\S*) ([\w\-]+)(?=\(%[\w.\-]+, %[\w.\-]+\)(?:\n|, meta))", _opcode),
    "swap": (r"(?<=\()(%[\w.\-]+), (%[\w.\-]+)(?=\))", lambda match, _: f"{match[2]}, {match[1]}"),
    "operand": (r"(?<=[( ])%[\w.\-]+(?=[,)])", _operand),
}
"""Changes of one place."""


def _retyped(text: str, random: Random) -> str:
    names = {*re.findall(r"\b([a-z]\w*)(?=\[)", text)}
    old = random.choice(
        sorted(name for name in names if name in FLOATS or is_integer(name)) or [""]
    )
    new = random.choice(("f32", "f64", "bf16", "f16") if old in FLOATS else INTEGERS)
    return re.sub(rf"\b{old}(?=\[)", new, text) if old else text


def _resized(text: str, random: Random) -> str:
    sizes = {size for dims in re.findall(r"\w\[([\d,]+)\]", text) for size in dims.split(",")}
    old, new = random.choice(sorted(sizes) or ["-"]), str(random.choice((0, 1, 2, 3, 5, 8)))
    text = re.sub(rf"(?<=[\[,]){old}(?=[,\d]*\])", new, text)
    return re.sub(rf"(sizes={{[^}}]*?)\b{old}\b", rf"\g<1>{new}", text)


def _changed(text: str, name: str, random: Random) -> str:
    if name == "retype":
        return _retyped(text, random)
    if name == "resize":
        return _resized(text, random)
    pattern, change = _PLACES[name]
    matches = list(re.finditer(pattern, text))
    if not matches:
        return text
    match = random.choice(matches)
    return text[: match.start()] + change(match, random) + text[match.end() :]


CHANGES: Final = (*_PLACES, "retype", "resize")


def mutated(texts: Sequence[str], seed: int, accepts: Callable[[str], bool]) -> Generated | None:
    """A mutation of one of the texts that XLA's parser accepts; None where none is found."""
    random = Random(seed)
    text = random.choice(texts)
    traits = []
    for _ in range(random.randint(1, MOST_CHANGES)):
        for _ in range(TRIES):
            name = random.choice(CHANGES)
            changed = _changed(text, name, random)
            if changed != text and accepts(changed):
                text = changed
                traits.append(name)
                break
    return Generated(seed, text, tuple(traits)) if traits else None


def fair_texts(paths: Sequence[Path]) -> Iterator[str]:
    """The modules below some paths that a front end may have written, and that are not large."""
    files = [file for path in paths for file in (sorted(path.rglob("*")) or [path])]
    for file in files:
        if file.suffix not in (".txt", ".hlo") or not file.is_file():
            continue
        text = file.read_text("utf-8", "replace")
        if "HloModule" in text and len(text) <= MAX_CHARACTERS:
            modules = parse_file(text).modules
            if len(modules) == 1 and not modules[0].problems and not unfair(modules[0]):
                yield text
