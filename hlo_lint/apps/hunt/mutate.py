"""Mutations of given modules: other constants, types and sizes, operands swapped, opcodes changed.

Most are refused by XLA's parser, which is asked; what it reads is judged as any other module.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from random import Random
from typing import Final

from hlo_lint.apps.hunt.draft import INTEGERS, ModuleDraft
from hlo_lint.apps.hunt.elementwise import binary_opcodes
from hlo_lint.apps.hunt.fair import unfair
from hlo_lint.apps.hunt.generate import Generated
from hlo_lint.hlo.dtypes import FLOATS, is_integer
from hlo_lint.hlo.parser.module import parse_file

MOST_CHANGES: Final = 4
TRIES: Final = 12
MAX_CHARACTERS: Final = 20_000
"""Larger modules take too long to judge again and again."""

_constant = re.compile(r"= (\w+)\[\][^ ]* constant\(([^{}()]+)\)")
_binary = re.compile(
    r"= (\w+)(\[[\d,]*\][^ ]*) ([\w\-]+)\((%[\w.\-]+), (%[\w.\-]+)\)(?=$|, meta)", re.M
)
_line = re.compile(r"^  (%[\w.\-]+) = ([a-z]\w*\[[\d,]*\])\S* (?!parameter|constant|while)", re.M)
_dims = re.compile(r"(?<=\w\[)[\d,]+(?=\])")
_types = re.compile(r"\b([a-z]\w*)(?=\[)")


def _spliced(text: str, match: re.Match[str], group: int, new: str) -> str:
    return text[: match.start(group)] + new + text[match.end(group) :]


def _other_constant(text: str, random: Random) -> str | None:
    matches = list(_constant.finditer(text))
    if not matches:
        return None
    match = random.choice(matches)
    return _spliced(text, match, 2, ModuleDraft(random).number(match[1]))


def _other_opcode(text: str, random: Random) -> str | None:
    matches = [
        match
        for match in _binary.finditer(text)
        if match[1] in FLOATS | {*INTEGERS, "pred"} and match[3] in binary_opcodes(match[1])
    ]
    if not matches:
        return None
    match = random.choice(matches)
    return _spliced(text, match, 3, random.choice(binary_opcodes(match[1])))


def _swapped(text: str, random: Random) -> str | None:
    matches = list(_binary.finditer(text))
    if not matches:
        return None
    match = random.choice(matches)
    return text[: match.start(4)] + f"{match[5]}, {match[4]}" + text[match.end(5) :]


def _other_operand(text: str, random: Random) -> str | None:
    """An operand becomes another value of its type that is there before it."""
    lines = list(_line.finditer(text))
    if len(lines) < 2:
        return None
    at = random.randrange(1, len(lines))
    shapes = {match[1]: match[2] for match in lines[:at]}
    end = text.find("\n", lines[at].end())
    used = list(re.finditer(r"%[\w.\-]+", text[lines[at].end() : end]))
    used = [match for match in used if match[0] in shapes]
    if not used:
        return None
    match = random.choice(used)
    alike = [name for name, shape in shapes.items() if shape == shapes[match[0]]]
    begin = lines[at].end()
    return text[: begin + match.start()] + random.choice(alike) + text[begin + match.end() :]


def _retyped(text: str, random: Random) -> str | None:
    there = sorted({name for name in _types.findall(text) if name in FLOATS or is_integer(name)})
    if not there:
        return None
    old = random.choice(there)
    pool: Sequence[str] = ("f32", "f64", "bf16", "f16") if old in FLOATS else INTEGERS
    return re.sub(rf"\b{old}(?=\[)", random.choice(pool), text)


def _resized(text: str, random: Random) -> str | None:
    there = sorted({size for dims in _dims.findall(text) for size in dims.split(",")})
    if not there:
        return None
    old, new = random.choice(there), str(random.choice((0, 1, 2, 3, 5, 8)))
    text = _dims.sub(
        lambda match: ",".join(new if size == old else size for size in match[0].split(",")), text
    )
    return re.sub(rf"(sizes={{[^}}]*?)\b{old}\b", rf"\g<1>{new}", text)


CHANGES: Final[Mapping[str, Callable[[str, Random], str | None]]] = {
    "constant": _other_constant,
    "opcode": _other_opcode,
    "swap": _swapped,
    "operand": _other_operand,
    "retype": _retyped,
    "resize": _resized,
}


def mutated(texts: Sequence[str], seed: int, accepts: Callable[[str], bool]) -> Generated | None:
    """A mutation of one of the texts that XLA's parser accepts; None where none is found."""
    random = Random(seed)
    text = random.choice(texts)
    traits = []
    for _ in range(random.randint(1, MOST_CHANGES)):
        for _ in range(TRIES):
            name = random.choice(list(CHANGES))
            changed = CHANGES[name](text, random)
            if changed is not None and changed != text and accepts(changed):
                text = changed
                traits.append(name)
                break
    return Generated(seed, text, tuple(traits)) if traits else None


def fair_texts(paths: Sequence[Path]) -> list[str]:
    """The modules below some paths that a front end may have written, and that are not large."""
    return [text for path in paths for text in _texts(path)]


def _texts(path: Path) -> Iterator[str]:
    files = sorted(path.rglob("*")) if path.is_dir() else [path]
    for file in files:
        if file.suffix not in (".txt", ".hlo") or not file.is_file():
            continue
        text = file.read_text("utf-8", "replace")
        if "HloModule" in text and len(text) <= MAX_CHARACTERS:
            modules = parse_file(text).modules
            if len(modules) == 1 and not modules[0].problems and not unfair(modules[0]):
                yield text
