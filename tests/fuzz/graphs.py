"""Fuzzing by graphs: `python -m tests.fuzz.graphs [--count N] [--seed N] [--jobs N] [PATH…]`.

Texts that the parser reads, with one change that no compiler makes: an operand too few, a number
below zero, a line twice. Each mutant is read, checked, fixed, compared and lowered. The inputs are
the examples of all rules, instructions made of each opcode, and the texts at the paths. A mutant is
drawn by the seed and its number alone, so that a run may be split: `--shard 2/4` takes each fourth
part, `--state FILE` remembers the parts that are done, also by other machines. `--every` takes
each change of each example, and each opcode with each type, in place of what is drawn. Mutants are
counted by opcode and mutation, in `--page` too; the smallest for each place that breaks is left in
`--found`, and the exit status is 1.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import re
import resource
import signal
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager, suppress
from functools import cache
from itertools import product
from pathlib import Path
from types import FrameType
from typing import Any, NamedTuple

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
MAX_MEMORY = 300 << 20
"""Bytes of address space that one mutant may take, beyond which an allocation fails."""
CHUNK = 250
"""Mutants that are one part of a run."""
TYPES = (
    "", "f32[]", "f32[8]{0}", "f32[2,3]{1,0}", "f32[2,3]{0,1}", "s32[]", "s33[]", "s4[3]{0}",
    "pred[]",
    "u64[2]{0}", "c64[2]{0}", "bf16[4,4]{1,0:T(8,128)}", "f32[<=8]{0}", "f32[0]{0}", "token[]",
    "opaque[]", "()", "(f32[8]{0}, s32[])", "((s32[]), u8[4]{0:S(5)})", "f32[-1]{0}",
    "f32[9223372036854775807]{0}", "f32[99999999999999999999]{0}", "f8e4m3fn[2]{0}",
)  # fmt: skip
ONE_OPERAND = tuple("bitcast convert copy negate not opt-barrier reshape transpose".split())
LINKS = (*ONE_OPERAND, *"add and dynamic-slice maximum multiply or subtract".split())
"""Opcodes of a chain."""
MAX_CHAIN = 1200
"""Instructions of a chain: more than Python has frames."""
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


def _numbers(instruction: Instruction) -> list[str]:
    """The text with each number of its attributes changed in each way."""
    text, attributes = instruction.text, instruction.attributes_text
    begin = text.rfind(attributes) if attributes else -1
    metadata = attributes.find("metadata=")
    end = len(attributes) if metadata < 0 else metadata
    if begin < 0:
        return []
    return [
        text[: begin + place.start()] + number + text[begin + place.end() :]
        for place in _integer.finditer(attributes, 0, end)
        for number in NUMBERS
    ]


def _number(instruction: Instruction, module: Module, chance: random.Random) -> str | None:
    changed = _numbers(instruction)
    return chance.choice(changed) if changed else None


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


def _chained(instruction: Instruction, module: Module, chance: random.Random) -> str | None:
    """An operand comes through many instructions, of which some read the one before twice."""
    names = _names(instruction)
    if not names:
        return None
    place = chance.randrange(len(names))
    operand = instruction.operand(place)
    if operand is None or operand.instruction is None or operand.shape_index:
        return None
    written, opcode = operand.instruction.type_text, chance.choice(LINKS)
    count = 1 if opcode in ONE_OPERAND else 2
    links, name = [], names[place]
    for number in range(MAX_CHAIN):
        after = f"%link.{instruction.number}.{number}"
        links.append(f"{after} = {written} {opcode}({', '.join([name] * count)})")
        name = after
    names[place] = name
    last = _with_operands(instruction, names)
    return None if last is None else "\n  ".join((*links, last))


MUTATIONS: dict[str, Mutation] = {
    "a chain": _chained,
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
    return _mutant(mutation, text, module, instruction, after)


def _mutant(
    mutation: str, text: str, module: Module, instruction: Instruction, after: str | None
) -> Mutant | None:
    if after is None or after == instruction.text:
        return None
    start, end = module.span(instruction)
    # A text of one line without an end would be a path.
    return Mutant(mutation, instruction.opcode, text[:start] + after + text[end:] + "\n")


def made(chance: random.Random) -> Mutant:
    """A module with one instruction of some opcode, whose operands and type are drawn."""
    opcode = chance.choice(list(OPCODES))
    count = chance.randrange(5)
    names = chance.sample(sorted(OPCODES[opcode].allowed), chance.randint(0, 2))
    values = ("{0}", "{}", "{1,0}", "0", "f", *NUMBERS)
    attributes = "".join([f", {name}={chance.choice(values)}" for name in names])
    operands = [chance.choice(TYPES) for _ in range(count)]
    return _made(f"made of {count} operands", opcode, operands, chance.choice(TYPES), attributes)


def _made(
    mutation: str, opcode: str, operands: Sequence[str], result: str, attributes: str = ""
) -> Mutant:
    lines = [f"p{at} = {type_text} parameter({at})" for at, type_text in enumerate(operands)]
    names = ", ".join([f"p{at}" for at in range(len(operands))])
    body = "\n  ".join((*lines, f"ROOT r = {result} {opcode}({names}){attributes}"))
    callee = "f {\n  ROOT x = s32[] parameter(0)\n}\n\n"
    return Mutant(mutation, opcode, f"HloModule m\n\n{callee}ENTRY e {{\n  {body}\n}}\n")


_OF_EACH_LINE = ("removed", "doubled", "operands rotated", "its own name")


@cache
def every() -> Sequence[Mutant]:
    """Each opcode with too few operands and too many of each type, with each number in each
    attribute; each line of each example changed in each way, and each number in it."""
    mutants: list[Mutant | None] = [
        _made(f"{count} of one type", opcode, [written] * count, "f32[8]{0}")
        for opcode, count, written in product(OPCODES, (0, 1, 9), TYPES)
        if count or not written
    ]
    for opcode, facts in OPCODES.items():
        for name, number in product(sorted(facts.allowed), NUMBERS):
            for written in (number, f"{{{number}}}"):
                attribute = f", {name}={written}"
                mutants.append(
                    _made("a number", opcode, ["f32[2,3]{1,0}"] * 2, "f32[2,3]{1,0}", attribute)
                )
    chance = random.Random(0)
    for text in sources():
        for module in hlo_lint.parse_all(text):
            for computation, mutation in product(module.computations, _OF_EACH_LINE):
                for at in computation.instructions:
                    after = MUTATIONS[mutation](at, module, chance)
                    mutants.append(_mutant(mutation, text, module, at, after))
            for at in module.instructions():
                mutants += [_mutant("a number", text, module, at, to) for to in _numbers(at)]
    return [mutant for mutant in mutants if mutant is not None]


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


def mutant_at(texts: Sequence[str], seed: int, number: int) -> Mutant:
    """The mutant of a number, which is drawn; one in eight is made of nothing."""
    chance = random.Random(f"{seed}/{number}")
    while True:
        mutant = made(chance) if number % 8 == 0 else mutant_of(chance.choice(texts), chance)
        if mutant is not None:
            return mutant


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
    """Raise TimeoutError in the block once it has taken too much CPU time, MemoryError for memory.

    What does not return to Python ends with the process, by SIGPROF.
    """

    def stop(number: int, frame: FrameType | None) -> None:
        raise TimeoutError(f"more than {MAX_SECONDS} s of CPU")

    before = signal.signal(signal.SIGVTALRM, stop)
    limits = resource.getrlimit(resource.RLIMIT_AS)
    pages = int(Path("/proc/self/statm").read_text().split()[0])
    resource.setrlimit(resource.RLIMIT_AS, (pages * resource.getpagesize() + MAX_MEMORY, limits[1]))
    signal.setitimer(signal.ITIMER_VIRTUAL, MAX_SECONDS)
    signal.setitimer(signal.ITIMER_PROF, 10 * MAX_SECONDS)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)
        signal.setitimer(signal.ITIMER_PROF, 0)
        resource.setrlimit(resource.RLIMIT_AS, limits)
        signal.signal(signal.SIGVTALRM, before)


class Run(NamedTuple):
    """The mutants of a run, which its processes draw by their numbers."""

    texts: Sequence[str]
    seed: int
    found: Path

    def part(self, first: int, end: int) -> dict[str, Any]:
        """The mutants of some numbers, as a line of the state."""
        counts: dict[str, Counter[str]] = {
            name: Counter() for name in ("mutations", "opcodes", "failures")
        }
        longest = 0.0
        for number in range(first, end):
            mutant = mutant_at(self.texts, self.seed, number) if self.texts else every()[number]
            begun = time.process_time()
            failure = failure_of(mutant.text)
            longest = max(longest, time.process_time() - begun)
            counts["mutations"][mutant.mutation] += 1
            counts["opcodes"][mutant.opcode] += 1
            if failure is not None:
                place = failure.partition("\n")[0]
                counts["failures"][place] += 1
                self._keep(f"{number}: {mutant.mutation} of {mutant.opcode}: {failure}\n", mutant)
        held = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
        return {"first": first, "end": end, "seconds": longest, "megabytes": held, **counts}

    def _keep(self, said: str, mutant: Mutant) -> None:
        print(said, flush=True)
        place = re.sub(r"\W+", "-", said.splitlines()[0].partition(": ")[2])[-120:]
        path = self.found / f"{place}.hlo"
        if not path.exists() or path.stat().st_size > len(mutant.text):
            self.found.mkdir(parents=True, exist_ok=True)
            path.write_text(mutant.text, "utf-8", "surrogateescape")
            path.with_suffix(".said").write_text(said, "utf-8", "surrogateescape")


def _parts(options: argparse.Namespace, count: int) -> tuple[dict[int, Any], list[int]]:
    """The parts of a run that are done, and the first numbers of those of a shard that are not."""
    lines = options.state.read_text().splitlines() if options.state.exists() else []
    done = {part["first"]: part for part in map(json.loads, lines)}
    shard, shards = map(int, options.shard.split("/"))
    firsts = range((shard - 1) * CHUNK, count, shards * CHUNK)
    return done, [first for first in firsts if first not in done]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("paths", nargs="*", type=Path, metavar="PATH")
    parser.add_argument("--count", type=int, default=20_000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--every", action="store_true")
    parser.add_argument("--jobs", type=int, default=os.cpu_count())
    parser.add_argument("--shard", default="1/1", metavar="K/N")
    parser.add_argument("--state", type=Path, default=Path(os.devnull))
    parser.add_argument("--found", type=Path, default=Path("build/graphs"))
    parser.add_argument("--page", type=Path, metavar="FILE.md")
    options = parser.parse_args()
    texts = [] if options.every else sources(options.paths)
    count = len(every()) if options.every else options.count
    failure_of(sources()[0])  # what is imported belongs to no mutant
    done, left = _parts(options, count)
    run = Run(texts, options.seed, options.found)
    with ProcessPoolExecutor(options.jobs) as pool, options.state.open("a") as state:
        ends = [min(first + CHUNK, count) for first in left]
        for part in pool.map(run.part, left, ends):
            done[part["first"]] = part
            state.write(json.dumps(part) + "\n")
            state.flush()
    counts = {
        name: sum((Counter(part[name]) for part in done.values()), Counter[str]())
        for name in ("mutations", "opcodes", "failures")
    }
    mutants = sum(part["end"] - part["first"] for part in done.values())
    last = (
        f"{mutants:,} mutants of {len(texts) or len(sources()):,} texts: "
        f"{max(part['seconds'] for part in done.values()):.1f} s of CPU at most for one, "
        f"{max(part['megabytes'] for part in done.values()):.0f} MB held at most by a process, "
        f"{sum(counts['failures'].values())} failures at {len(counts['failures'])} places"
    )
    tables = [
        f"| {name[:-1]} | mutants |\n|---|---|\n"
        + "".join(f"| {key} | {number:,} |\n" for key, number in counted.most_common())
        for name, counted in counts.items()
        if counted
    ]
    print(*tables, last, sep="\n")
    if options.page:
        options.page.write_text("\n".join((HEAD, f"{last}.\n", *tables)), "utf-8")
    sys.exit(bool(counts["failures"]))


HEAD = """# Mutated graphs

`python -m tests.fuzz.graphs` writes this page: texts that the parser reads, each with one change
that no compiler makes. Each is read, printed, checked by every rule, fixed, compared with itself
and lowered. A mutant fails if that raises, reports an internal error, takes more than 2 s of CPU or
300 MB, or if it is not printed as it was read.
"""

if __name__ == "__main__":
    main()
