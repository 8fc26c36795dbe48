"""XLA's parser infers a type that is left out: ours must be the same, and so must refusals.

Instructions of real dumps are taken out of their modules: operands become parameters, the type
goes, and what is called comes along. Then they are damaged, from a seed.
"""

from __future__ import annotations

import random
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from hlo_lint.analysis.shape_inference import Inferred, infer
from hlo_lint.ir import OPCODE, OPERANDS, REFERENCES, TAIL, Instruction, Module
from hlo_lint.shape import ArrayShape, Shape, parse_shape
from hlo_lint.syntax.parse import parse_file
from tests.oracle.xla import DIED, Answer, Oracle
from tests.oracle.xla import Refusal as XlaRefusal

JUDGE = "0.11.2"


@dataclass(frozen=True)
class Case:
    """An instruction on its own: everything that bears on its shape, but not its type."""

    opcode: str
    operands: tuple[str, ...]
    """Types as text; they become parameters."""
    literal: str
    """What stands between the brackets of an opcode that reads no instruction."""
    tail: str
    called: tuple[str, ...]
    """The texts of called computations, callees first."""

    @property
    def text(self) -> str:
        """A module whose entry has the instruction as its root."""
        lines = [f"  %o{n} = {text} parameter({n})" for n, text in enumerate(self.operands)]
        reads = ", ".join(f"%o{n}" for n in range(len(self.operands))) or self.literal
        lines.append(f"  ROOT %r = {self.opcode}({reads}){self.tail}")
        called = "".join(f"{text}\n\n" for text in self.called)
        return "HloModule m\n\n" + called + "ENTRY %e {\n" + "\n".join(lines) + "\n}\n"


_HEAVY = re.compile(
    r", (?:metadata|frontend_attributes|backend_config|sharding|control-predecessors)="
    r'(?:\{(?:[^{}"]|"(?:[^"\\]|\\.)*"|\{(?:[^{}"]|"(?:[^"\\]|\\.)*"|\{[^{}]*\})*\})*\}|"[^"]*")'
)


def case_of(instruction: Instruction, module: Module) -> Case | None:
    """An instruction of a module on its own; None where a type is not known."""
    shapes = [operand.shape for operand in instruction.operands]
    if None in shapes:
        return None
    called: dict[str, str] = {}
    if not _collect(instruction, module, called):
        return None
    row = instruction.row
    return Case(
        row[OPCODE],
        tuple(map(str, shapes)),
        "" if row[REFERENCES] else row[OPERANDS],
        _HEAVY.sub("", row[TAIL]),
        tuple(called.values()),
    )


def _collect(instruction: Instruction, module: Module, called: dict[str, str]) -> bool:
    for name in instruction.called:
        if name in called:
            continue
        computation = module.computation(name)
        if computation is None or len(computation.text) > 20_000:
            return False
        if not all(_collect(each, module, called) for each in computation.instructions):
            return False
        called[name] = _HEAVY.sub("", computation.text.removeprefix("ENTRY "))
    return True


# ---- damage


def _an_operand(case: Case, chance: random.Random, change: Callable[[str], str]) -> Case:
    if not case.operands:
        return case
    at = chance.randrange(len(case.operands))
    operands = list(case.operands)
    operands[at] = change(operands[at])
    return replace(case, operands=tuple(operands))


def _an_array(case: Case, chance: random.Random, change: Callable[[list[int]], None]) -> Case:
    def changed(text: str) -> str:
        shape = parse_shape(text)
        if not isinstance(shape, ArrayShape):
            return text
        dims = list(shape.dims)
        change(dims)
        return str(ArrayShape(shape.dtype, tuple(dims)))

    return _an_operand(case, chance, changed)


def _size(case: Case, chance: random.Random) -> Case:
    def change(dims: list[int]) -> None:
        if dims:
            at = chance.randrange(len(dims))
            dims[at] = max(0, chance.choice([dims[at] + 1, dims[at] - 1, 2 * dims[at], 1, 0, 3]))

    return _an_array(case, chance, change)


def _rank(case: Case, chance: random.Random) -> Case:
    def change(dims: list[int]) -> None:
        if dims and chance.random() < 0.5:
            del dims[chance.randrange(len(dims))]
        else:
            dims.insert(chance.randint(0, len(dims)), chance.choice([1, 2]))

    return _an_array(case, chance, change)


def _order(case: Case, chance: random.Random) -> Case:
    return _an_array(case, chance, lambda dims: chance.shuffle(dims))


def _dynamic(case: Case, chance: random.Random) -> Case:
    def changed(text: str) -> str:
        shape = parse_shape(text)
        if not isinstance(shape, ArrayShape) or not shape.dims:
            return text
        flags = [False] * shape.rank
        flags[chance.randrange(shape.rank)] = True
        return str(replace(shape, dynamic=tuple(flags), layout=None))

    return _an_operand(case, chance, changed)


_TYPES = "pred s4 s8 u8 s32 u32 s64 f8e4m3fn bf16 f16 f32 f64 c64".split()


def _element_type(case: Case, chance: random.Random) -> Case:
    return _an_operand(
        case, chance, lambda text: re.sub(r"[a-z]\w*(?=\[)", chance.choice(_TYPES), text, count=1)
    )


def _structure(case: Case, chance: random.Random) -> Case:
    return _an_operand(case, chance, lambda text: chance.choice([f"({text})", "token[]", "f32[]"]))


def _swapped(case: Case, chance: random.Random) -> Case:
    operands = list(case.operands)
    chance.shuffle(operands)
    return replace(case, operands=tuple(operands))


def _number(case: Case, chance: random.Random) -> Case:
    kept = list(case.operands)
    if kept and chance.random() < 0.5:
        del kept[chance.randrange(len(kept))]
    elif kept:
        kept.append(chance.choice(kept))
    return replace(case, operands=tuple(kept))


_INTEGERS = re.compile(r"(?<![\w.%])-?\d+(?![\w.])|(?<=[x_])\d+(?=[x_,}\s])|(?<==)\d+(?=x)")
_LIST = re.compile(r"(?<==)\{[\d,]+\}")


def _integer(case: Case, chance: random.Random) -> Case:
    places = list(_INTEGERS.finditer(case.tail))
    if not places:
        return case
    place = chance.choice(places)
    old = int(place[0])
    new = chance.choice([old + 1, old - 1, 0, 1, -1, old + 5, 2 * old])
    return replace(case, tail=case.tail[: place.start()] + str(new) + case.tail[place.end() :])


def _list(case: Case, chance: random.Random) -> Case:
    places = list(_LIST.finditer(case.tail))
    if not places:
        return case
    place = chance.choice(places)
    numbers = place[0][1:-1].split(",")
    match chance.randrange(3):
        case 0:
            chance.shuffle(numbers)
        case 1:
            del numbers[chance.randrange(len(numbers))]
        case _:
            numbers.append(chance.choice(["0", "1", "2", "3", numbers[0]]))
    new = "{" + ",".join(numbers) + "}"
    return replace(case, tail=case.tail[: place.start()] + new + case.tail[place.end() :])


def _callee(case: Case, chance: random.Random) -> Case:
    if not case.called:
        return case
    old, new = chance.sample(["f32[", "bf16[", "s32[", "pred[", "f64["], 2)
    at = chance.randrange(len(case.called))
    called = list(case.called)
    called[at] = called[at].replace(f" {old}", f" {new}")
    return replace(case, called=tuple(called))


DAMAGE = (
    *(_size, _size, _size, _rank, _order, _dynamic, _element_type, _element_type),
    *(_structure, _swapped, _number, _integer, _integer, _integer, _list, _list, _callee),
)


def damaged(case: Case, chance: random.Random) -> Case:
    """A case with something changed that bears on its shape."""
    for _ in range(20):
        found = chance.choice(DAMAGE)(case, chance)
        if found != case:
            return found
    return case


# ---- comparison


def ours(case: Case) -> Inferred:
    """What we infer for a case."""
    (module,) = parse_file(case.text).modules
    assert module.entry is not None
    root = module.entry.root
    assert root is not None
    return infer(root, module)


def _answers(texts: Sequence[str], oracle: Oracle) -> list[Answer]:
    """What XLA says; of a text for which it asks more memory than there is, that it died."""
    try:
        return oracle.read(texts)
    except RuntimeError:
        if len(texts) == 1:
            return [DIED]
        half = len(texts) // 2
        return _answers(texts[:half], oracle) + _answers(texts[half:], oracle)


def of_xla(cases: Sequence[Case], oracle: Oracle) -> list[Shape | str]:
    """What XLA infers for each case: a shape, or its complaint."""
    found: list[Shape | str] = []
    for answer in _answers([case.text for case in cases], oracle):
        if isinstance(answer, XlaRefusal):
            found.append(answer.message)
            continue
        entry = next(each for each in answer.computations if each.name == answer.entry)
        (root,) = (each for each in entry.instructions if each.name == entry.root)
        found.append(parse_shape(root.shape))
    return found
