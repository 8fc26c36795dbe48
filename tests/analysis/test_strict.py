"""Strict mode refuses what XLA's parser refuses, and nonsense that it reads; never a real dump."""

from __future__ import annotations

import json
import random
import re
import sys
from functools import cache
from pathlib import Path
from typing import Any

import pytest

import hlo_lint
from hlo_lint.analysis.shape_inference import ShapeInference
from hlo_lint.analysis.strict import strict_problems
from hlo_lint.hlo.ir import HloFile
from hlo_lint.hlo.opcodes import OPCODES
from hlo_lint.hlo.parser.module import parse_file
from hlo_lint.text.source import ParseDiagnostic, decode
from tests.conftest import BROKEN, DUMPS, ROUNDTRIP, hlo_files
from tests.mutations import mutate
from tests.oracle.xla import Oracle, XlaModule, oracles
from tests.token_mutations import mutate_tokens

RELEASE = "jaxlib 0.11.2"
FILES = [*sorted(ROUNDTRIP.glob("*.hlo")), *sorted(BROKEN.glob("*.hlo"))]

READS_ALTHOUGH = "// Strict mode reads this, XLA's parser does not: "
REFUSES_ALTHOUGH = "// XLA's parser reads this, strict mode does not: "
"""A file in which strict mode and XLA differ says so, and why."""


@cache
def text_of(path: Path) -> str:
    return decode(path.read_bytes())


@cache
def record() -> dict[Path, Any]:
    """What jaxlib 0.11.2 said of each file."""
    return {
        folder / name: said[RELEASE]
        for folder in (ROUNDTRIP, BROKEN)
        for name, said in json.loads((folder / "WHAT_XLA_READS.json").read_text()).items()
    }


def refusal(text: str) -> hlo_lint.HloSyntaxError | None:
    """Why strict mode refuses a text, or None."""
    try:
        hlo_lint.parse_all(text, strict=True)
    except hlo_lint.HloSyntaxError as error:
        return error
    return None


def problems(text: str) -> list[ParseDiagnostic]:
    return list(strict_problems(parse_file(text)))


# ---- every hand-made file


def test_there_are_three_hundred_odd_texts_and_each_is_on_record() -> None:
    assert len(FILES) >= 300
    assert record().keys() == set(FILES)


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_strict_mode_reads_what_xla_reads_or_the_file_says_why_not(path: Path) -> None:
    text = text_of(path)
    xla_reads, we_read = record()[path] == "read", refusal(text) is None
    assert (READS_ALTHOUGH in text) == (we_read and not xla_reads)
    assert (REFUSES_ALTHOUGH in text) == (xla_reads and not we_read)


@pytest.mark.parametrize("path", sorted(BROKEN.glob("*.hlo")), ids=lambda path: path.stem)
def test_a_refusal_says_where_and_what(path: Path) -> None:
    error = refusal(text_of(path))
    assert error is not None
    lines = text_of(path).split("\n")
    assert 1 <= error.line <= len(lines)
    assert 1 <= error.column <= len(lines[error.line - 1]) + 1
    assert re.match(r"[^\n]{8,}$", error.message)


def test_problems_come_in_the_order_of_the_text() -> None:
    text = (
        "HloModule m, replica_count=0\n\nENTRY e {\n  p = f32[2]{1} parameter(0)\n"
        "  q = f32[2]{0} negate(p, p), dimensions={0}\n  q = f32[2]{0} negate(z)\n}\n"
    )
    found = problems(text)
    assert [problem.start.line for problem in found] == [1, 4, 5, 5, 6, 6]
    assert found == sorted(found, key=lambda problem: problem.span)


def test_the_default_keeps_everything_that_strict_mode_refuses() -> None:
    text = text_of(BROKEN / "opcode_unknown.hlo")
    assert not hlo_lint.parse(text).problems
    assert refusal(text) is not None


@pytest.mark.parametrize(
    ("text", "line", "column", "says"),
    [
        ("  %n = f32[4]{0} add(%p)", 4, 18, "add takes 2 operands, not 1"),
        ("  %n = f32[4]{0} negate(%q)", 4, 25, "%q is not defined in %e"),
        ("  %n = f32[4,4]{1,1} negate(%p)", 4, 8, "a layout names each of the dimensions"),
        ("  %n = f32[4]{0} negate(%p), fast=1", 4, 35, "negate has no attribute fast"),
        ("  %n = f32[4]{0} call(%p), to_apply=%f", 4, 3, "the computation %f is not there"),
        ("  %n = f32[8]{0} negate(%p)", 4, 8, "XLA infers f32[4], and not f32[8]"),
        ("  %n = s8[] constant(200)", 4, 22, "200 does not fit into s8: -128 to 127"),
    ],
)
def test_a_person_can_act_on_what_is_said(text: str, line: int, column: int, says: str) -> None:
    module = f"HloModule m\nENTRY %e {{\n  %p = f32[4]{{0}} parameter(0)\n{text}\n}}\n"
    error = refusal(module)
    assert error is not None
    assert (error.line, error.column) == (line, column)
    assert error.message.startswith(says) or says in error.message


# ---- real dumps


@pytest.mark.slow
def test_no_dump_is_refused() -> None:
    paths = hlo_files(DUMPS)
    assert len(paths) > 300
    for path in paths:
        assert not problems(text_of(path)), path


def test_ten_times_the_text_takes_about_ten_times_as_long() -> None:
    steps = [_steps(lines) for lines in (300, 3_000)]
    assert steps[1] < 15 * steps[0]


def _steps(lines: int) -> int:
    body = "".join(
        f'  %n.{at} = f32[8]{{0}} add(%n.{at - 1}, %n.0), metadata={{op_name="a{at}"}}\n'
        for at in range(1, lines)
    )
    text = f"HloModule m\n\nENTRY %e {{\n  %n.0 = f32[8]{{0}} parameter(0)\n{body}}}\n"
    file = parse_file(text)
    assert not list(strict_problems(file))
    return _calls_of(file)


def _calls_of(file: HloFile) -> int:
    """How many calls strict mode takes: a count, not a time."""
    count = 0

    def tracer(frame: object, event: str, argument: object) -> None:
        nonlocal count
        count += 1

    sys.setprofile(tracer)
    try:
        list(strict_problems(file))
    finally:
        sys.setprofile(None)
    return count


@pytest.mark.parametrize("seed", range(10))
def test_of_damaged_bytes_strict_mode_raises_nothing_but_refusals(seed: int) -> None:
    texts = [path.read_bytes() for path in (*FILES, *hlo_files(DUMPS)[::20])]
    chance = random.Random(seed)
    for _ in range(50):
        refusal(decode(mutate(chance.choice(texts), texts, chance)))


@pytest.mark.parametrize(
    "line",
    [
        "  %n = f32[8]{0} add(%n)",
        "  %n = f32[8]{0} add(%p#" + "9" * 5_000 + ", %p)",
        "  what is this",
        "  %n = f32[8]{0} add(%p, %p), metadata={op_name=",
        "  %n = f32[8]{0} constant({1, 2",
    ],
)
def test_ten_times_the_mistakes_take_about_ten_times_as_long(line: str) -> None:
    steps = []
    for lines in (20, 200):
        head = "HloModule m\n\nENTRY %e {\n  %p = f32[8]{0} parameter(0)\n"
        steps.append(_calls_of(parse_file(head + f"{line}\n" * lines + "}\n")))
    assert steps[1] < 15 * steps[0]


# ---- XLA itself


@pytest.fixture
def xla() -> Oracle:
    for oracle in oracles():
        if f"jaxlib {oracle.version}" == RELEASE:
            return oracle
    pytest.skip(f"no {RELEASE} at hand, neither here nor in HLO_LINT_ORACLES")


PROBE = """\
HloModule probe

%c {{
  ROOT %q = f32[] parameter(0)
}}

ENTRY %e {{
  %p = f32[8]{{0}} parameter(0)
  %s = s32[] parameter(1)
  ROOT %n = {type} {opcode}({operands}), attribute_of_nobody=1
}}
"""
TYPES = {"tuple": "()"} | dict.fromkeys(
    ("async-start", "async-update"), "((f32[8]), f32[8], s32[])"
)
OPERANDS = {"parameter": "2", "constant": "{1,2,3,4,5,6,7,8}", "conditional": "%s"}


def test_the_attributes_of_every_opcode_are_those_that_xla_lists(xla: Oracle) -> None:
    texts = [
        PROBE.format(
            type=TYPES.get(opcode, "f32[8]{0}"),
            opcode=opcode,
            operands=OPERANDS.get(opcode, ", ".join(["%p"] * demands.operands[0])),
        )
        for opcode, demands in OPCODES.items()
    ]
    listed = {}
    for opcode, found in zip(OPCODES, xla.read(texts), strict=True):
        assert not isinstance(found, XlaModule)
        names = found.message.partition("Allowed attributes: ")[2]
        listed[opcode] = frozenset(names.split(", "))
    ours = {opcode: demands.allowed for opcode, demands in OPCODES.items()}
    # Of a conditional XLA lists what the type of its first operand allows.
    ours["conditional"] -= {"true_computation", "false_computation"}
    assert listed == ours


MUTATIONS = 2_000

XLA_REFUSES_AND_WE_READ = re.compile(
    "attribute .* already exists|cannot parse as an instruction name"
)
"""What is left of the differences: a comma or a bracket too many inside an operand's type."""

NONSENSE = re.compile(
    r"a layout names each|the sizes of a tile|no size in 64 bits|do not fit into|in parentheses"
    r"|layout of no dimensions|can be split|one level type|indices and pointers"
    r"|the signature (?:says|has)|the signature's parameters|entry_computation_layout"
    r"|has two aliases"
    r"|there is no (?:parameter|frame|operand|#|\{)|parameters, and .* operands|on the thread"
    r"|element .* of the tuple is|element \d+ is .*, its operand|the tuple has|no tuple"
    r"|an operand is missing|expected the name of an operand|takes (?:at least )?\d"
    r"|starts nothing|: no (?:send|recv|copy|all|collective)|infeed reads|has the type"
    r"|does not fit into|expected `,` or `}`|expected a (?:value|number)|expected an integer"
    r"|has no infinity|has values in|expected true or false|elements of the tuple"
    r"|ranges for|no range that goes up|counts from 0|expected one word for each"
    r"|parts for|tiles along|the axis .* is there twice|a device is there twice"
    r"|expected a number above 0|names each dimension once|has no layout"
    r"|is no row of the table|the tables? (?:are|\w+ is missing)"
    r"|metadata: |origin: |frontend_attributes: |backend_config: |sharding: |closes nothing"
    r"|expected `\(` behind the opcode|a computation needs a name|expected `, name=value`"
    r"|stands above it|expected a shape|a module needs a name|the result has no|is not defined in"
    r"|needs a channel_id|buffer_donor: |input_output_alias: |brackets never close|is no escape"
    r"|ROOT needs an instruction|expected a computation|needs the attribute|is never closed"
)
"""What XLA reads and strict mode refuses; see the table in `hlo_lint.analysis.strict`."""


@pytest.mark.slow
def test_of_two_thousand_damaged_texts_strict_mode_refuses_what_xla_refuses(xla: Oracle) -> None:
    texts = [text_of(path) for path in FILES if record()[path] == "read"]
    texts = [text for text in texts if text.isascii() and refusal(text) is None]
    small = [path for path in hlo_files(DUMPS) if path.stat().st_size < 4_000]
    chance = random.Random(5)
    texts += [text_of(path) for path in chance.sample(small, 40)]
    damaged: list[str] = []
    while len(damaged) < MUTATIONS:
        text = chance.choice(texts)
        changed = mutate_tokens(text, chance.sample(texts, 2), chance)
        # XLA reads memory that is not its own for an element that is not there.
        if changed != text and not any("no element" in p.message for p in problems(changed)):
            damaged.append(changed)
    only_xla, both, only_we, unexplained = 0, 0, 0, []
    for text, found in zip(damaged, xla.read(damaged), strict=True):
        ours = problems(text)
        if isinstance(found, XlaModule):
            if ours:
                only_we += 1
                if not NONSENSE.search(ours[0].message) and not _is_of_shapes(text, ours[0]):
                    unexplained.append((ours[0].message, text))
        elif ours:
            both += 1
        else:
            only_xla += 1
            if not XLA_REFUSES_AND_WE_READ.search(found.message):
                unexplained.append((found.message, text))
    assert not unexplained
    assert only_xla <= (both + only_xla) // 100
    assert only_we < both


def _is_of_shapes(text: str, problem: ParseDiagnostic) -> bool:
    """Whether it says that a type does not follow from what is read."""
    for module in parse_file(text).modules:
        inference = ShapeInference(module.computations)
        for computation in module.computations:
            for calls in (False, True):
                for _, said in inference.errors(computation, calls=calls):
                    if said == problem.message:
                        return True
    return False
