"""Fuzzing by graphs: `python -m tests.fuzz.graphs [--count N] [--seed N] [PATH…]`.

Texts that the parser reads, with one change that no compiler makes: an operand too few, a number
below zero, a line twice. Each mutant is read, checked, fixed, compared and lowered, in this
process. The inputs are the examples of all rules, instructions made of each opcode, and the texts
at the paths. Mutants are counted by opcode and mutation; the smallest for each place that breaks is
left in `--found`, and the exit status is 1.
"""

from __future__ import annotations

import argparse
import random
import re
import resource
import signal
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from types import FrameType
from typing import NamedTuple

import hlo_lint
from hlo_lint.analysis.diff.difference import diff
from hlo_lint.engine.values.lowering.graph import Nodes, NotLowered
from hlo_lint.engine.values.lowering.lower import Lowering
from hlo_lint.hlo.ir import Instruction, Module
from hlo_lint.hlo.opcodes import OPCODES
from hlo_lint.rules.findings import INTERNAL_ERROR
from hlo_lint.rules.registry import all_rules
from hlo_lint.text.errors import HloSyntaxError
from tests.fuzz.targets import every_rule

MAX_SECONDS = 2.0
"""CPU time of one mutant."""
MAX_TEXT = 6000
"""Characters of a text that is mutated."""
MAX_MEMORY = 3 << 30
"""Bytes of address space of the process, beyond which an allocation fails."""
TYPES = (
    "", "f32[]", "f32[8]{0}", "f32[2,3]{1,0}", "f32[2,3]{0,1}", "s32[]", "s33[]", "s4[3]{0}",
    "pred[]",
    "u64[2]{0}", "c64[2]{0}", "bf16[4,4]{1,0:T(8,128)}", "f32[<=8]{0}", "f32[0]{0}", "token[]",
    "opaque[]", "()", "(f32[8]{0}, s32[])", "((s32[]), u8[4]{0:S(5)})", "f32[-1]{0}",
    "f32[9223372036854775807]{0}", "f32[99999999999999999999]{0}", "f8e4m3fn[2]{0}",
)  # fmt: skip
NUMBERS = ("-1", str(-(2**63)), str(2**63), str(2**64), "n", "")
_integer = re.compile(r"(?<![\w.\"])-?\d+(?![\w.\"])")
_callee = re.compile(r"\b(?:calls|to_apply|body|condition|comparator|select|scatter)=%?([\w.\-]+)")


class Mutant(NamedTuple):
    """A text with one change."""

    mutation: str
    opcode: str
    text: str


Mutation = Callable[[Instruction, Module, random.Random], str | None]
"""The text of an instruction after a change; None where it has nothing to change."""


def _with_operands(instruction: Instruction, operands: Sequence[str]) -> str | None:
    head, opcode, rest = instruction.text.partition(f"{instruction.opcode}(")
    old = instruction.operands_text
    if not opcode or not rest.startswith(old):
        return None
    return f"{head}{opcode}{', '.join(operands)}{rest[len(old) :]}"


def _with_type(instruction: Instruction, written: str) -> str | None:
    head, equals, rest = instruction.text.partition("=")
    if not equals or not rest.lstrip().startswith(instruction.type_text):
        return None
    return f"{head}= {written} {rest.lstrip()[len(instruction.type_text) :].lstrip()}"


def _names(instruction: Instruction) -> list[str]:
    return [f"%{name}" for name in instruction.operand_names]


def _rotated(instruction: Instruction, module: Module, chance: random.Random) -> str | None:
    names = _names(instruction)
    return _with_operands(instruction, names[1:] + names[:1]) if len(names) > 1 else None


def _too_many(instruction: Instruction, module: Module, chance: random.Random) -> str | None:
    names = _names(instruction)
    return _with_operands(instruction, (names or ["%nothing"]) * chance.choice((2, 3, 9)))


def _other(instruction: Instruction, module: Module, chance: random.Random) -> str | None:
    """One operand is another instruction of the computation, which may stand below."""
    names = _names(instruction)
    if not names:
        return None
    names[chance.randrange(len(names))] = f"%{chance.choice(instruction.computation.rows)[1]}"
    return _with_operands(instruction, names)


def _own_name(instruction: Instruction, module: Module, chance: random.Random) -> str | None:
    names = _names(instruction) or [""]
    names[chance.randrange(len(names))] = f"%{instruction.name}"
    return _with_operands(instruction, names)


def _number(instruction: Instruction, module: Module, chance: random.Random) -> str | None:
    text, attributes = instruction.text, instruction.attributes_text
    begin = text.rfind(attributes) if attributes else -1
    metadata = attributes.find("metadata=")
    end = len(attributes) if metadata < 0 else metadata
    numbers = list(_integer.finditer(attributes, 0, end))
    if begin < 0 or not numbers:
        return None
    number = chance.choice(numbers)
    return text[: begin + number.start()] + chance.choice(NUMBERS) + text[begin + number.end() :]


def _no_attribute(instruction: Instruction, module: Module, chance: random.Random) -> str | None:
    """One attribute is not there, or has nothing in its braces."""
    attributes = instruction.attributes
    if not attributes:
        return None
    name = chance.choice(list(attributes))
    written = f", {name}={attributes[name]}"
    return instruction.text.replace(written, chance.choice(("", f", {name}={{}}")), 1)


def _callee_changed(instruction: Instruction, module: Module, chance: random.Random) -> str | None:
    called = list(_callee.finditer(instruction.text))
    if not called:
        return None
    start, end = chance.choice(called).span(1)
    name = chance.choice([*module.computations, instruction.computation]).name
    return instruction.text[:start] + name + instruction.text[end:]


def _literal(instruction: Instruction, module: Module, chance: random.Random) -> str | None:
    if instruction.opcode not in ("constant", "parameter"):
        return None
    return _with_operands(instruction, [chance.choice((*NUMBERS, "{}", "{1,{2}}", "nan", "true"))])


MUTATIONS: dict[str, Mutation] = {
    "no operands": lambda at, _, __: _with_operands(at, []) if at.operand_names else None,
    "one operand": lambda at, _, __: _with_operands(at, _names(at)[:1] or ["%nothing"]),
    "too many operands": _too_many,
    "operands rotated": _rotated,
    "another operand": _other,
    "its own name": _own_name,
    "another type": lambda at, _, chance: _with_type(at, chance.choice(TYPES)),
    "another opcode": lambda at, _, chance: at.text.replace(
        f"{at.opcode}(", f"{chance.choice(list(OPCODES))}(", 1
    ),
    "a number": _number,
    "no attribute": _no_attribute,
    "another callee": _callee_changed,
    "another literal": _literal,
    "removed": lambda at, _, __: "",
    "doubled": lambda at, _, __: f"{at.text}\n  {at.text}",
}


def mutant_of(text: str, chance: random.Random) -> Mutant | None:
    """A text with one change; None where the change that was drawn has nothing to change."""
    module = chance.choice(hlo_lint.parse_all(text))
    computations = [computation for computation in module.computations if computation.rows]
    if not computations:
        return None
    computation = chance.choice(computations)
    instruction = computation.at(chance.randrange(len(computation.rows)))
    if instruction.opcode == "parameter" and chance.random() < 0.8:
        return None  # there are as many of them as of all others
    mutation = chance.choice(list(MUTATIONS))
    after = MUTATIONS[mutation](instruction, module, chance)
    if after is None or after == instruction.text:
        return None
    start, end = module.span(instruction)
    return Mutant(mutation, instruction.opcode, text[:start] + after + text[end:])


def made(chance: random.Random) -> Mutant:
    """A module with one instruction of some opcode, whose operands and type are drawn."""
    opcode = chance.choice(list(OPCODES))
    count = chance.randrange(5)
    lines = [f"p{at} = {chance.choice(TYPES)} parameter({at})" for at in range(4)]
    operands = ", ".join(f"p{chance.randrange(4)}" for _ in range(count))
    root = f"ROOT r = {chance.choice(TYPES)} {opcode}({operands})"
    for name in chance.sample(sorted(OPCODES[opcode].allowed), chance.randint(0, 2)):
        root += f", {name}={chance.choice(('{0}', '{}', '{1,0}', '0', 'f', *NUMBERS))}"
    body = "\n  ".join((*lines, root))
    callee = "f {\n  ROOT x = s32[] parameter(0)\n}\n\n"
    return Mutant(
        f"made of {count} operands", opcode, f"HloModule m\n\n{callee}ENTRY e {{\n  {body}\n}}\n"
    )


def sources(paths: Sequence[Path] = ()) -> list[str]:
    """The examples of all rules, and the texts at paths."""
    texts = [example.source for rule in all_rules() for example in rule.examples]
    texts += [
        file.read_text("utf-8", "surrogateescape")
        for path in paths
        for file in sorted(path.rglob("*"))
        if file.is_file() and file.suffix in (".hlo", ".txt") and file.stat().st_size <= MAX_TEXT
    ]
    return [text for text in texts if "{" in text and len(text) <= MAX_TEXT]


def mutants(texts: Sequence[str], count: int, chance: random.Random) -> Iterator[Mutant]:
    """So many mutants, one in eight of them made of nothing."""
    left = count
    while left:
        mutant = made(chance) if left % 8 == 0 else mutant_of(chance.choice(texts), chance)
        if mutant is not None:
            left -= 1
            yield mutant


def failure_of(text: str) -> str | None:
    """The promise that a text breaks, after the name of the place; None if it breaks none."""
    begun = time.process_time()
    try:
        with _limited():
            if hlo_lint.emit(hlo_lint.parse(text)) != text:
                return "emit\nparsing changes the text"
            report = hlo_lint.lint(text, settings=every_rule())
            settings = every_rule().overridden(unsafe_fixes=True)
            remaining = hlo_lint.fix(text, settings=settings).remaining
            for module in hlo_lint.parse_all(text):
                with suppress(HloSyntaxError):
                    diff(module, module)
                with suppress(NotLowered):
                    Lowering(module, Nodes()).program()
    except Exception as error:
        frame = error.__traceback__
        while frame is not None and frame.tb_next is not None:
            frame = frame.tb_next
        place = "" if frame is None else f"{frame.tb_frame.f_code.co_filename}:{frame.tb_lineno}"
        return f"{type(error).__name__} {place}\n{error}"
    for finding in (*report.findings, *remaining.findings):
        if finding.rule == INTERNAL_ERROR:
            return "\n".join((finding.notes[1], finding.message, *finding.notes))
    seconds = time.process_time() - begun
    return f"slow\n{seconds:.1f} s of CPU" if seconds > MAX_SECONDS else None


@contextmanager
def _limited() -> Iterator[None]:
    """Raise TimeoutError in the block once it has taken too much CPU time."""

    def stop(number: int, frame: FrameType | None) -> None:
        raise TimeoutError(f"more than {MAX_SECONDS} s of CPU")

    before = signal.signal(signal.SIGVTALRM, stop)
    signal.setitimer(signal.ITIMER_VIRTUAL, MAX_SECONDS)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)
        signal.signal(signal.SIGVTALRM, before)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("paths", nargs="*", type=Path, metavar="PATH")
    parser.add_argument("--count", type=int, default=20_000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--found", type=Path, default=Path("build/graphs"))
    options = parser.parse_args()
    resource.setrlimit(resource.RLIMIT_AS, (MAX_MEMORY, resource.RLIM_INFINITY))
    chance = random.Random(options.seed)
    texts = sources(options.paths)
    opcodes: Counter[str] = Counter()
    mutations: Counter[str] = Counter()
    failures: Counter[str] = Counter()
    smallest: dict[str, str] = {}
    for mutant in mutants(texts, options.count, chance):
        opcodes[mutant.opcode] += 1
        mutations[mutant.mutation] += 1
        failure = failure_of(mutant.text)
        if failure is None:
            continue
        place = failure.partition("\n")[0]
        failures[place] += 1
        if place not in smallest or len(mutant.text) < len(smallest[place]):
            smallest[place] = mutant.text
            options.found.mkdir(parents=True, exist_ok=True)
            path = options.found / f"{list(smallest).index(place):03d}.hlo"
            path.write_text(mutant.text, "utf-8", "surrogateescape")
            path.with_suffix(".said").write_text(failure, "utf-8", "surrogateescape")
        if failures[place] == 1:
            print(
                f"{sum(mutations.values())}: {mutant.mutation} of {mutant.opcode}: {failure}\n",
                flush=True,
            )
    for counts in (opcodes, mutations, failures):
        print(*(f"{count:7} {name}" for name, count in counts.most_common()), "", sep="\n")
    memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    print(f"{options.count} mutants of {len(texts)} texts, {memory:.0f} MB, {len(failures)} places")
    sys.exit(bool(failures))


if __name__ == "__main__":
    main()
