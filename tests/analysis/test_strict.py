"""Strict mode refuses what XLA's parser refuses, and nothing else."""

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
from hlo_lint.analysis.strict import strict_problems
from hlo_lint.hlo.ir import HloFile
from hlo_lint.hlo.opcodes import OPCODES
from hlo_lint.hlo.parser.module import parse_file
from hlo_lint.text.source import ParseDiagnostic, decode
from tests.conftest import BROKEN, DUMPS, ROUNDTRIP, UNSOUND, hlo_files
from tests.mutations import mutate
from tests.oracle.xla import Oracle, XlaModule, oracles
from tests.token_mutations import mutate_tokens

RELEASE = "jaxlib 0.11.2"
FOLDERS = (ROUNDTRIP, BROKEN, UNSOUND)
FILES = [path for folder in FOLDERS for path in sorted(folder.glob("*.hlo"))]

READS_ALTHOUGH = "// Strict mode reads this, XLA's parser does not: "
REFUSES_ALTHOUGH = "// XLA's parser reads this, strict mode does not: "
"""A file in which strict mode and XLA differ says so, and why."""


@cache
def text_of(path: Path) -> str:
    return decode(path.read_bytes())


@cache
def record() -> dict[Path, Any]:
    """The answer of jaxlib 0.11.2 on each file."""
    return {
        folder / name: said[RELEASE]
        for folder in FOLDERS
        for name, said in json.loads((folder / "WHAT_XLA_READS.json").read_text()).items()
    }


def refusal(text: str) -> hlo_lint.HloSyntaxError | None:
    """The reason strict mode refuses a text for, or None."""
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
        "HloModule m, replica_count=x\n\nENTRY e {\n  p = (f32[2]{1}) parameter(0)\n"
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
        ("  %n = (f32[4]{1}) tuple(%p)", 4, 8, "a layout names each of the dimensions"),
        ("  %n = f32[4]{0} negate(%p), fast=1", 4, 35, "unexpected attribute fast: negate has"),
        ("  %n = f32[4]{0} call(%p), to_apply=%f", 4, 3, "computation %f does not exist"),
        ("  %n = f32[8]{0} reshape(%p)", 4, 8, "expected the same number of elements"),
        ("  %n = s8[] constant(200)", 4, 22, "200 does not fit into s8: -128 to 127"),
    ],
)
def test_a_person_can_act_on_what_is_said(text: str, line: int, column: int, says: str) -> None:
    module = f"HloModule m\nENTRY %e {{\n  %p = f32[4]{{0}} parameter(0)\n{text}\n}}\n"
    error = refusal(module)
    assert error is not None
    assert (error.line, error.column) == (line, column)
    assert error.message.startswith(says) or says in error.message


READ = """
f32[4]{0} add(p, negate, p)
f32[4]{0} add(p, f32[4] negate, p)
f32[4]{0} add(p, p, negate(p, p))
f32[4]{0} add(p, p, f32[5] reshape(p))
f32[4]{0} add(p, p, f32[4] parameter(0),)
f32[4]{0} negate(f32[/*four*/4]{0} p)
f32/*x*/[4]{/*y*/0} negate(p)
((f32[4]), f32[4], u32[]) negate-start(p)
token[] outfeed(p, token[] after-all()), outfeed_shape=f32[4]
f32[4]{0} collective-permute(p, p, p), source_target_pairs={{0,1}}
f32[4]{0} iota(), iota_dimension=18446744073709551615
f32[4]{0} pad(p, f32[] constant(0)), padding=9223372036854775807_0
b(f32[4]) constant({1,2,3,4})
(f32[], s32[]) constant(())
f32[4]{0} negate(p), sharding={replicated replicated}
f32[4]{0} negate(p), sharding={manual devices=[8]<=[8]}
f32[4]{0} negate(p), sharding={devices=[2]0 devices=[1]1}
f32[4]{0} negate(p), sharding={}
f32[4]{0} negate(p), backend_config={"a":[1}
f32[4]{0} negate(p), origin={({"a"}}
f32[4]{0} domain(p), domain={exit={}, kind="sharding", entry={replicated}}
""".strip().splitlines()
REFUSED = """
f32[4]{0} add(p, negate)
f32[4]{0} add(p, %negate, p)
f32[4]{0} add(p, nothing, p)
f32[4]{0} add(p, p, iota())
f32[4]{0} add(p, p, (p))
f32[4]{0} negate(%%p)
((f32[4]), f32[4], u32[]) send-start(p)
token[] outfeed(p, token[] after-all()), outfeed_shape=f33[4]
f32[4]{0} collective-permute(p, p, p), source_target_pairs={{0,1}}, slice_sizes={{1}}
f32[4]{0} iota(), iota_dimension=18446744073709551616
f32[4]{0} pad(p, f32[] constant(0)), padding=9223372036854775808_0
f32[4]{0} constant(18446744073709551616)
c64[4] constant((1, 2))
(f32[4]{0:*(u32)}) tuple(p)
opt-barrier(p)
pred[] compare(token[] after-all(), p), direction=EQ
f32[2]{0} dynamic-slice(p, token[] after-all()), dynamic_slice_sizes={2}
f32[4]{0} negate(p), sharding={replicated device=0}
f32[4]{0} negate(p), sharding={devices=[2]<=[2]T(0)}
f32[4]{0} negate(p), sharding={devices=[2,2]<=[2,2]T(0,2)}
f32[4]{0} negate(p), sharding={devices=[2]<=[2] last_tile_dims={manual,manual}}
f32[4]{0} negate(p), backend_config={"a":1} {2}
f32[4]{0} negate(p), backend_config={"a}
f32[4]{0} ragged-all-to-all(p), dimensions={1,0}
f32[4]{0} map(p), to_apply={{replicated}}
f32[4]{0} negate(p),\fmetadata={op_name="a"}
""".strip().splitlines()


def test_strict_mode_reads_odd_lines_as_xla_does(xla: Oracle) -> None:
    frame = "HloModule m\nENTRY e {{\n  p = f32[4]{{0}} parameter(0)\n  n = {}\n}}\n"
    lines = [line.replace("\\f", "\f") for line in (*READ, *REFUSED)]
    texts = [frame.format(line) for line in lines]
    reads = [isinstance(answer, XlaModule) for answer in xla.read(texts)]
    assert reads == [True] * len(READ) + [False] * len(REFUSED)
    assert [line for line, text in zip(lines, texts, strict=True) if refusal(text) is None] == READ


# ---- real dumps


@pytest.mark.slow
def test_no_dump_is_refused() -> None:
    paths = hlo_files(DUMPS)
    assert len(paths) > 300
    for path in paths:
        assert not problems(text_of(path)), path


@pytest.mark.slow
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
    """The number of calls that strict mode takes: a count, not a time."""
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


@pytest.mark.slow
def test_strict_mode_refuses_of_damaged_texts_what_xla_refuses(xla: Oracle) -> None:
    texts = [text_of(path) for path in FILES if record()[path] == "read"]
    texts = [text for text in texts if text.isascii() and refusal(text) is None]
    small = [path for path in hlo_files(DUMPS) if path.stat().st_size < 4_000]
    chance = random.Random(5)
    texts += [text_of(path) for path in chance.sample(small, 40)]
    damaged: list[str] = []
    while len(damaged) < MUTATIONS:
        text = chance.choice(texts)
        changed = mutate_tokens(text, chance.sample(texts, 2), chance)
        if changed != text:
            damaged.append(changed)
    answers = xla.read(damaged)
    differing = [
        text
        for text, answer in zip(damaged, answers, strict=True)
        if isinstance(answer, XlaModule) is bool(problems(text))
    ]
    # What is left are single brackets and commas, each in another place.
    assert len(differing) <= MUTATIONS // 200, differing
