"""XLA's own parser reads the same graph that we read, refuses what we refuse, and reads our fixes.

Every text of the fixtures goes through XLA once for each release at hand, in one child process. A
release reads the dumps of its own time and older ones; of a newer release's texts it reads what it
can.
"""

from __future__ import annotations

import json
import random
import re
from functools import cache
from pathlib import Path

import pytest

import hlo_lint
from hlo_lint.hlo.shape import parse_shape
from hlo_lint.text.source import decode
from tests.conftest import DUMPS, ROUNDTRIP, hlo_files, present
from tests.hlo.conftest import RELEASES
from tests.oracle.compare import assert_same_graph, disagreements
from tests.oracle.meaning import numbers
from tests.oracle.xla import DIED, Answer, Refusal, XlaModule, oracle_of

pytestmark = pytest.mark.slow

CASES = sorted(path for path in DUMPS.glob("*/*") if hlo_files(path))
CRASHES = [case for case in CASES if case.name.endswith("_crash")]
ODDITIES = hlo_files(ROUNDTRIP)
FORMS = ("copy", "transpose")

NEWER = {
    "async_done_after_copies.hlo": "jaxlib 0.10 expects a single async op as its operand",
    "async_done_without_a_start.hlo": "the same",
    "async_operands_bound_late.hlo": "the same",
    "async_sugar_with_operands_bound_late.hlo": "the same: jaxlib 0.10 dies of it",
    "collective_reduce_of_a_newer_release.hlo": "an opcode that is new in jax 0.11",
    "compact_get_tuple_element.hlo": "`%p#1` is new in jax 0.11",
    "compact_get_tuple_element_as_control_predecessor.hlo": "the same",
    "compact_get_tuple_element_of_a_nested_tuple.hlo": "the same",
    "compare_order_of_a_newer_release.hlo": "an attribute that is new in jax 0.11",
    "root_get_tuple_element_is_printed.hlo": "`%p#1` is new in jax 0.11",
    "sharding_single_device.hlo": "jax 0.12 prints it",
    "topk_is_stable_of_a_newer_release.hlo": "an attribute that is new in jax 0.11",
}
"""Texts that 0.10 refuses, and 0.12 reads."""
XLA_REFUSES_AND_WE_READ = NEWER | {
    "attribute_of_a_newer_xla.hlo": "attributes are read when somebody asks, known or not",
    "byte_order_mark.hlo": "an editor's mark is not part of the program",
    "control_predecessor_elided.hlo": "jax 0.11 prints names here that it leaves undefined",
    "hash_run_line.hlo": "`# RUN:` lines are comments of the tests that hold the text",
    "metadata_of_an_older_release.hlo": "fields of metadata come and go",
    "missing_module_header.hlo": "what a person cuts out of a dump; XLA expects one instruction",
    "modules_between_separators.hlo": "XLA reads one module, and this file holds several",
    "modules_with_their_own_checks.hlo": "XLA reads one module, and this file holds several",
    "modules_without_separator.hlo": "XLA reads one module, and this file holds several",
    "opcode_of_a_newer_xla.hlo": "opcodes are kept, known or not",
    "operand_used_before_definition.hlo": "names are looked up when somebody asks",
    "type_of_a_newer_xla.hlo": "types are kept, known or not",
}

XLA_READS_OTHERWISE = {
    "async_generic_on_the_main_thread.hlo": "XLA forgets which computation an async-done names",
    "names_that_end_in_numbers_with_zeros.hlo": "XLA gives `a.01` another name",
    "single_instruction_fusion.hlo": "XLA names the computation around the instruction last",
}
"""Texts that both read, and that mean something else afterwards."""

REFUSED_ALIKE = {
    "dump_cut_short.hlo", "empty_file.hlo", "missing_computation_header.hlo",
    "only_blank_lines.hlo", "only_comments.hlo",
}  # fmt: skip
_not_read_by_both = (
    REFUSED_ALIKE | XLA_READS_OTHERWISE.keys() | (XLA_REFUSES_AND_WE_READ.keys() - NEWER.keys())
)
READ_ALIKE = [path for path in ODDITIES if path.name not in _not_read_by_both]

ONE = """\
HloModule one

ENTRY %main (a: f32[2]) -> f32[2] {
  %a = f32[2]{0} parameter(0)
  ROOT %b = f32[2]{0} negate(%a)
}
"""


@cache
def text_of(path: Path) -> str:
    return decode(path.read_bytes())


# ---- what XLA says of every text, asked once for each release


@cache
def answers(release: str) -> dict[str, Answer]:
    texts = [text_of(path) for path in ODDITIES]
    texts += [text_of(path) for case in CASES for path in hlo_files(case)]
    texts += [text for case in CRASHES for form in FORMS for text in fixed(case, form).values()]
    unique = list(dict.fromkeys(texts))
    return dict(zip(unique, asked(release, unique), strict=True))


def asked(release: str, texts: list[str]) -> list[Answer]:
    return present(oracle_of(release)).read(texts)


def answer(release: str, text: str) -> XlaModule:
    """The module that XLA read.

    Raises:
        AssertionError: where it refused.
    """
    found = answers(release)[text]
    assert isinstance(found, XlaModule), found
    return found


@cache
def fixed(case: Path, form: str) -> dict[str, str]:
    """The texts that a fix of the whole dump changes, by file name."""
    result = hlo_lint.fix(case, form=form)
    return {Path(str(file.path)).name: file.after for file in result.files}


def reads_dumps_of(release: str, case: Path) -> bool:
    """True if the release is not older than the one that wrote the dump."""
    wrote = case.parent.name.partition("-jax")[2]
    return [int(part) for part in release.split(".")] >= [int(n) for n in wrote.split(".")[:2]]


# ---- the same graph


@pytest.mark.parametrize("case", CASES, ids=lambda case: f"{case.parent.name}-{case.name}")
def test_xla_reads_the_graph_of_every_dump_that_we_read(release: str, case: Path) -> None:
    read = 0
    for path in hlo_files(case):
        found = answers(release)[text_of(path)]
        if isinstance(found, Refusal) and not reads_dumps_of(release, case):
            continue
        assert isinstance(found, XlaModule), (path.name, found)
        assert_same_graph(text_of(path), found)
        read += 1
    assert read or not reads_dumps_of(release, case)


@pytest.mark.parametrize("path", READ_ALIKE, ids=lambda path: path.stem)
def test_xla_reads_the_graph_of_every_odd_text_that_we_read(release: str, path: Path) -> None:
    if path.name in NEWER and release == "0.10":
        assert isinstance(answers(release)[text_of(path)], Refusal)
        return
    assert_same_graph(text_of(path), answer(release, text_of(path)))


@pytest.mark.parametrize("name", sorted(XLA_READS_OTHERWISE))
def test_what_xla_reads_otherwise_is_not_more_than_it_was(name: str) -> None:
    text = text_of(ROUNDTRIP / name)
    found = [answers(release)[text] for release in RELEASES if oracle_of(release)]
    if not found:
        pytest.skip("no jaxlib at hand")
    assert any(isinstance(each, XlaModule) and disagreements(text, each) for each in found)


def test_every_shape_that_xla_prints_has_the_numbers_that_we_read(release: str) -> None:
    shapes = {
        spelled: theirs
        for found in answers(release).values()
        if isinstance(found, XlaModule)
        for spelled, theirs in found.shapes.items()
    }
    assert {spelled: numbers(parse_shape(spelled)) for spelled in shapes} == shapes


def test_we_print_every_shape_as_xla_prints_it(release: str) -> None:
    spellings = {
        spelled
        for found in answers(release).values()
        if isinstance(found, XlaModule)
        for spelled in found.shapes
    }
    ours = {spelled: str(parse_shape(spelled)) for spelled in spellings}
    assert ours == {spelled: re.sub(r"/\*.*?\*/", "", spelled) for spelled in spellings}


# ---- the same refusals


def test_we_report_what_xla_refuses_with_these_exceptions(release: str) -> None:
    refused = {
        path.name for path in ODDITIES if isinstance(answers(release)[text_of(path)], Refusal)
    }
    reported = {
        path.name
        for path in ODDITIES
        if any(module.problems for module in hlo_lint.parse_all(text_of(path)))
    }
    new = NEWER.keys() if release == "0.12" else set()
    assert refused & reported == REFUSED_ALIKE
    assert refused - reported == XLA_REFUSES_AND_WE_READ.keys() - new
    assert not reported - refused


def test_the_record_of_what_xla_reads_is_what_it_reads(release: str) -> None:
    record = json.loads((ROUNDTRIP / "WHAT_XLA_READS.json").read_text())
    oracle = present(oracle_of(release))
    column = f"jaxlib {oracle.version}"
    if not any(column in row for row in record.values()):
        pytest.skip(f"{column} has no column there")
    for path in ODDITIES:
        found = answers(release)[text_of(path)]
        said = found.message if isinstance(found, Refusal) else "read"
        recorded = record[path.name][column]
        first = recorded if isinstance(recorded, str) else recorded[0]
        assert said == first.partition(": Check failed")[0]


def damaged(path: Path) -> list[str]:
    """Texts with one character lost, added or replaced; what is chosen depends on the name only."""
    chance = random.Random(path.name)
    text = text_of(path)
    found = []
    for _ in range(8):
        at = chance.randrange(len(text) + 1)
        mark = chance.choice('(){}[]%=,"#:/ *-xA0')
        lost = chance.choice((0, 1))
        found.append(text[:at] + chance.choice(("", mark)) + text[at + lost :])
    return found


def test_a_damaged_text_is_reported_or_read_as_xla_reads_it(release: str) -> None:
    paths = [path for path in READ_ALIKE if path.name != "statistics.hlo"]  # XLA drops its first
    paths += [hlo_files(case)[-1] for case in CASES]
    texts = [text for path in paths for text in damaged(path)]
    read = [
        (text, found)
        for text, found in zip(texts, asked(release, texts), strict=True)
        if isinstance(found, XlaModule) and not hlo_lint.parse(text).problems
    ]
    assert len(read) > 50
    for text, found in read:
        assert_same_graph(text, found)


@pytest.mark.parametrize(
    "text",
    [
        pytest.param(ONE.replace("(0)\n", "(0), metadata={}"), id="two_instructions_on_a_line"),
        pytest.param(ONE.replace("negate(%a)", "negate(,%a)"), id="operand_left_out"),
    ],
)
def test_what_xla_makes_good_is_reported_or_read_alike(release: str, text: str) -> None:
    (found,) = asked(release, [text])
    assert isinstance(found, XlaModule)
    if not hlo_lint.parse(text).problems:
        assert_same_graph(text, found)


def test_a_text_that_ends_the_parser_costs_the_others_nothing(release: str) -> None:
    deadly = ONE.replace("f32[2]{0} parameter", "(" * 300_000)
    first, second, third = asked(release, [ONE, deadly, ONE])
    assert second == DIED
    assert isinstance(first, XlaModule)
    assert first == third


# ---- what we fix


def interface(xla: XlaModule) -> list[str]:
    """The shapes of the entry's parameters by number, and of its result."""
    (entry,) = (each for each in xla.computations if each.name == xla.entry)
    parameters = [each for each in entry.instructions if each.opcode == "parameter"]
    parameters.sort(key=lambda each: each.parameter)
    root = next(each for each in entry.instructions if each.name == entry.root)
    return [each.shape for each in (*parameters, root)]


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("case", CRASHES, ids=lambda case: f"{case.parent.name}-{case.name}")
def test_xla_reads_a_fixed_text_as_the_program_it_was(release: str, case: Path, form: str) -> None:
    texts = fixed(case, form)
    assert texts
    for name, text in texts.items():
        found = answer(release, text)
        assert_same_graph(text, found)
        assert interface(found) == interface(answer(release, text_of(case / name)))
        assert text != text_of(case / name)
