"""A converted text says what it said before: two releases of XLA are the judges."""

from __future__ import annotations

import json
import os
import random
import re
import shutil
import subprocess
import sys
import tarfile
from collections.abc import Sequence
from functools import cache
from importlib.util import find_spec
from pathlib import Path

import pytest
from click.testing import CliRunner

import hlo_lint
from hlo_lint.apps.cli.main import cli
from hlo_lint.apps.converted_files import convert_file, convert_tree, in_format
from hlo_lint.hlo.attributes.devices import (
    IotaReplicaGroups,
    MeshReplicaGroups,
    ReplicaGroupList,
    read_replica_groups,
)
from hlo_lint.hlo.attributes.splitting import control_predecessors
from hlo_lint.hlo.dialects import DIALECTS, convert
from hlo_lint.hlo.dialects.tuples import elided_predecessors
from hlo_lint.hlo.ir import Computation
from hlo_lint.hlo.parser.module import parse_file
from hlo_lint.hlo.records import attributes_of
from hlo_lint.text.errors import DumpError, UsageError
from hlo_lint.text.source import decode
from tests.conftest import DUMPS, ROOT, ROUNDTRIP, hlo_files
from tests.oracle.fields import (
    COMPARISON_ORDER,
    COMPARISON_TYPE,
    IS_STABLE,
    METADATA,
    OF_NEWER_RELEASES,
    REPLICA_GROUPS,
    SCHEDULE_OF_ELEMENTS,
    SHARDING,
    Fields,
    differences,
    less_numbered,
    read_fields,
)
from tests.oracle.xla import Oracle, as_utf8, oracles

pytestmark = pytest.mark.slow

PRINTER = Path(__file__).parents[1] / "oracle" / "print_hlo.py"
SHARDINGS = Path(__file__).parents[1] / "oracle" / "read_shardings.py"
ARCHIVES = ROOT.parent / "shared" / "dumps"

OLDER = ("jax0.9", "jax0.8", "jax0.7", "jax0.6", "jax0.5", "jax0.4.38")
"""Dialects for parsers before 0.10."""
LOST = {
    "compact": {METADATA, SCHEDULE_OF_ELEMENTS},
    "jax0.11": {METADATA, SCHEDULE_OF_ELEMENTS},
    "jax0.10": {IS_STABLE},
    "jax0.10.0": {IS_STABLE},
    **{dialect: {IS_STABLE, *OF_NEWER_RELEASES} for dialect in OLDER},
    "short": {METADATA, "waits for"},
    "tiles": {SHARDING, *REPLICA_GROUPS},
    "async-sugar": {METADATA},
    "async-generic": {METADATA},
}
"""The fields that XLA keeps of an instruction and a dialect has no words for."""


def oracle(release: str) -> Oracle:
    for each in oracles():
        if each.version.startswith(release):
            return each
    pytest.skip(f"no jaxlib {release} at hand, neither here nor in HLO_LINT_ORACLES")


@cache
def texts() -> tuple[str, ...]:
    """Every fifth dump, and all odd texts but one: XLA numbers the module in its header anew each
    time it reads it."""
    paths = [path for case in sorted(DUMPS.glob("*/*")) for path in hlo_files(case)][::5]
    paths += [path for path in hlo_files(ROUNDTRIP) if path.stem != "module_within_the_header"]
    return tuple(dict.fromkeys(decode(path.read_bytes()) for path in paths))


@cache
def read_by_0_11(text: str) -> Fields:
    _read_together()
    return _known[text]


_known: dict[str, Fields] = {}


@cache
def _read_together() -> None:
    _known.update(zip(texts(), read_fields(oracle("0.11"), texts()), strict=True))


def converted(text: str, *dialects: str) -> str:
    return convert(parse_file(text), dialects).text


def without_table(found: Sequence[str]) -> list[str]:
    """Less what short text does not say of the module: its table of stack frames."""
    return [each for each in found if not each.startswith("module: ")]


# ---- releases before 0.10


LINE = """HloModule m

FileNames
1 "model.py"

FunctionNames
1 "step"

FileLocations
1 {file_name_id=1 function_name_id=1 line=7 end_line=7 column=4 end_column=9}

StackFrames
1 {file_location_id=1 parent_frame_id=1}

ENTRY e {
  p = f32[8]{0} parameter(0), sharding={mesh['x'=2], [{'x'}]}
  ROOT n = f32[8]{0} negate(p), metadata={op_name="neg" stack_frame_id=1 source_column=4}
}
"""


@pytest.mark.parametrize(
    ("dialect", "metadata"),
    [
        ("jax0.9", '{op_name="neg" stack_frame_id=1 source_column=4}'),
        ("jax0.8", '{op_name="neg" source_column=4 source_file="model.py" source_line=7}'),
        ("jax0.5", '{op_name="neg" source_file="model.py" source_line=7}'),
    ],
)
def test_the_line_of_an_instruction_is_where_an_older_release_looks_for_it(
    dialect: str, metadata: str
) -> None:
    new = convert(parse_file(LINE), [dialect])
    assert f"metadata={metadata}" in new.text
    assert "sharding={devices=[2]<=[2]}" in new.text
    assert ("StackFrames" in new.text) == (dialect == "jax0.9")
    assert not hlo_lint.parse(new.text).problems


@pytest.mark.parametrize("dialect", OLDER)
def test_an_older_parser_reads_the_same_graph(dialect: str) -> None:
    older = oracle(f"{dialect.removeprefix('jax')}")
    before = [text for text in texts() if "error" not in read_by_0_11(text)]
    new = [convert(parse_file(text), [dialect]) for text in before]
    after = read_fields(older, [each.text for each in new])
    for text, conversion, found in zip(before, new, after, strict=True):
        if "error" in found:
            assert any(" stay" in note for note in conversion.notes), (text, found)
        elif text.startswith("HloModule jit_"):
            known = less_numbered(read_by_0_11(text))
            assert not list(differences(known, less_numbered(found), LOST[dialect])), text


# ---- one dialect at a time


def test_with_nothing_asked_every_byte_stays() -> None:
    for text in texts():
        assert converted(text) == text
        assert hlo_lint.emit(hlo_lint.parse(text), []) == text


@pytest.mark.parametrize("dialect", DIALECTS)
def test_converting_twice_changes_nothing_more(dialect: str) -> None:
    changed = 0
    for text in texts():
        once = converted(text, dialect)
        changed += once != text
        assert converted(once, dialect) == once
    assert changed


@pytest.mark.parametrize("dialect", DIALECTS)
def test_xla_reads_the_same_graph_in_every_dialect(dialect: str) -> None:
    before = [text for text in texts() if "error" not in read_by_0_11(text)]
    after = [convert(parse_file(text), [dialect]) for text in before]
    pairs = [(a, b) for a, b in zip(before, after, strict=True) if a != b.text]
    assert pairs
    read = read_fields(oracle("0.11"), [new.text for _, new in pairs])
    for (text, new), found in zip(pairs, read, strict=True):
        lost = LOST.get(dialect, set())
        if not any(note.startswith("the schedule") for note in new.notes):
            lost = lost - {SCHEDULE_OF_ELEMENTS}
        if dialect == "short" and re.search("sharding={.*metadata={", text):
            lost = {*lost, SHARDING}
        original = read_by_0_11(text)
        if dialect in OLDER:  # their text has no table of stack frames
            original, found = less_numbered(original), less_numbered(found)
        different = list(differences(original, found, lost))
        if dialect == "short":
            different = without_table(different)
        if dialect == "async-sugar":  # its wrapper has XLA's name, whatever it was called before
            different = [each for each in different if "async_wrapped" not in each]
        assert not different


@pytest.mark.parametrize("release", ["0.10", "0.11"])
def test_each_style_is_spelled_as_xla_spells_it(release: str) -> None:
    """XLA's printer writes each style; each becomes the others, byte for byte."""
    compact = "#" in "".join(texts()) and release == "0.10"
    given = [
        converted(text, "jax0.10") if compact else text
        for text in texts()
        if "error" not in read_by_0_11(text)
    ]
    given = [text for text in given if "has_dynamic_root" not in text][::2]
    read = read_fields(oracle(release), given)
    pairs = zip(given, read, strict=True)
    given = [as_utf8(text) for text, found in pairs if "error" not in found]
    child = subprocess.run(
        [oracle(release).python, "-P", str(PRINTER)],
        input=json.dumps(given).encode(),
        capture_output=True,
        check=True,
    )
    lines = child.stdout.decode().splitlines()
    assert len(lines) == len(given) > 50
    for line in lines:
        style = json.loads(line)
        assert converted(style["long"], "short") == style["short"]
        assert converted(style["short"], "long") == style["without metadata"]
        assert converted(style["long"], "no-percent") == style["no-percent"]
        assert converted(style["no-percent"], "percent") == style["long"]
        assert converted(style["long"], "typed-operands") == style["typed-operands"]
        assert converted(style["typed-operands"], "untyped-operands") == style["long"]


@pytest.mark.parametrize(
    ("there", "back"),
    [
        ("compact", "explicit"),
        ("explicit", "compact"),
        ("percent", "no-percent"),
        ("typed-operands", "untyped-operands"),
        ("async-sugar", "async-generic"),
        ("async-generic", "async-sugar"),
        ("jax0.10", "jax0.11"),
        ("jax0.11", "jax0.10"),
    ],
)
def test_there_and_back_is_the_same_graph(there: str, back: str) -> None:
    before = [text for text in texts() if "error" not in read_by_0_11(text)]
    pairs = [(text, converted(text, there)) for text in before]
    pairs = [(text, converted(new, back)) for text, new in pairs if new != text]
    assert pairs
    lost = {METADATA, *LOST.get(there, ()), *LOST.get(back, ())}
    for (text, _), found in zip(
        pairs, read_fields(oracle("0.11"), [text for _, text in pairs]), strict=True
    ):
        different = differences(read_by_0_11(text), found, lost)
        assert not [each for each in different if "async_wrapped" not in each]


def test_any_chain_of_dialects_leaves_the_graph() -> None:
    chance = random.Random(4)
    names = [name for name in DIALECTS if name not in ("short", "tiles", *OLDER)]
    readable = [text for text in texts() if "error" not in read_by_0_11(text)]
    cases = [
        (chance.choice(readable), chance.choices(names, k=chance.randrange(2, 6)))
        for _ in range(150)
    ]
    after = read_fields(oracle("0.11"), [converted(text, *chain) for text, chain in cases])
    for (text, chain), found in zip(cases, after, strict=True):
        lost = {METADATA, IS_STABLE, SCHEDULE_OF_ELEMENTS}
        different = differences(read_by_0_11(text), found, lost)
        assert not [each for each in different if "async_wrapped" not in each], chain


def test_several_modules_of_a_file_are_converted_alike() -> None:
    text = decode((ROUNDTRIP / "modules_between_separators.hlo").read_bytes())
    assert "%" not in converted(text, "no-percent")
    assert converted(text, "no-percent", "percent") == text


def test_lines_end_as_the_others_do() -> None:
    text = decode((ROUNDTRIP / "compact_get_tuple_element.hlo").read_bytes())
    for each, dialect in ((text, "explicit"), (ASYNC, "async-generic")):
        with_returns = each.replace("\n", "\r\n")
        assert converted(with_returns, dialect) == converted(each, dialect).replace("\n", "\r\n")


def test_a_keyword_stays_a_name() -> None:
    text = program(
        "%a = s32[2]{0} parameter(0)",
        "%true = s32[2]{0} negate(%a)",
        "ROOT %c = pred[2]{0} compare(%true, %a), direction=EQ",
        shape="s32[2]",
    )
    new = convert(parse_file(text), ["no-percent"])
    assert "ROOT c = pred[2]{0} compare(%true, a)" in new.text
    assert new.notes == {"%true stays: without % it is a keyword": 2}
    before, after = read_fields(oracle("0.11"), [text, new.text])
    assert not list(differences(before, after))


# ---- jax 0.10


def test_jaxlib_0_10_reads_what_jax_0_11_printed_as_0_11_reads_it() -> None:
    paths = [path for case in sorted(DUMPS.glob("*-jax0.11*/*")) for path in hlo_files(case)]
    before = [decode(path.read_bytes()) for path in paths]
    before = [text for text in dict.fromkeys(before) if re.search(r"%[\w.\-]+#|order=", text)]
    assert before
    after = [convert(parse_file(text), ["jax0.10"]) for text in before]
    read = read_fields(oracle("0.11"), before)
    for theirs, found, new in zip(
        read, read_fields(oracle("0.10"), [each.text for each in after]), after, strict=True
    ):
        assert not new.notes
        assert not list(differences(theirs, found, {COMPARISON_ORDER}))


def program(*lines: str, shape: str = "f32[2]") -> str:
    body = "".join(f"  {line}\n" for line in lines)
    return f"HloModule m\n\nENTRY %main (a: {shape}) -> pred[2] {{\n{body}}}\n"


@pytest.mark.parametrize(
    ("shape", "says", "becomes"),
    [
        ("f32[2]", ", order=TOTAL", ", type=TOTALORDER"),
        ("f32[2]", ", order=PARTIAL", ""),
        ("s32[2]", ", order=TOTAL", ""),
        ("c64[2]", ", order=TOTAL", ", type=TOTALORDER"),
        ("pred[2]", ", order=TOTAL", ""),
    ],
)
def test_an_order_becomes_a_type(shape: str, says: str, becomes: str) -> None:
    lines = [
        f"%a = {shape}{{0}} parameter(0)",
        "ROOT %c = pred[2]{0} compare(%a, %a), direction=EQ",
    ]
    text = program(lines[0], lines[1] + says, shape=shape)
    new = converted(text, "jax0.10")
    assert new == program(lines[0], lines[1] + becomes, shape=shape)
    (before,) = read_fields(oracle("0.11"), [text])
    (after,) = read_fields(oracle("0.10"), [new])
    assert not list(differences(before, after, {COMPARISON_ORDER}))


def test_a_partial_order_of_integers_becomes_the_type_that_0_11_takes_for_one() -> None:
    text = program(
        "%a = s32[2]{0} parameter(0)",
        "ROOT %c = pred[2]{0} compare(%a, %a), direction=EQ, order=PARTIAL",
        shape="s32[2]",
    )
    new = converted(text, "jax0.10")
    assert new == text.replace("order=PARTIAL", "type=FLOAT")
    before, after = read_fields(oracle("0.11"), [text, new])
    assert not list(differences(before, after, {COMPARISON_TYPE}))


@pytest.mark.parametrize(
    ("line", "becomes", "note"),
    [
        (
            "%t = (f32[1]{0}, s32[1]{0}) topk(%a), k=1, largest=true, is_stable=true",
            "%t = (f32[1]{0}, s32[1]{0}) topk(%a), k=1, largest=true",
            "is_stable of topk: jaxlib 0.10 does not know it",
        ),
        (
            "%t = f32[2]{0} collective-reduce(%a), replica_groups={}, to_apply=%add",
            None,
            "collective-reduce stays: jaxlib 0.10.2 has no such opcode and refuses the text",
        ),
        (
            "%t = f6e3m2fn[2]{0} convert(%a)",
            None,
            "6-bit floats stay: jaxlib 0.10 has no such type and refuses the text",
        ),
        (
            "%t = f32[2]{0} negate(%a), control-predecessors={%gone, %a}",
            "%t = f32[2]{0} negate(%a), control-predecessors={%a}",
            "control predecessor %gone: the text does not define it",
        ),
        (
            '%t = f32[2]{0} negate(%a), control-predecessors={%gone}, metadata={op_name="x"}',
            '%t = f32[2]{0} negate(%a), metadata={op_name="x"}',
            "control predecessor %gone: the text does not define it",
        ),
    ],
)
def test_what_0_10_has_no_words_for_is_named(line: str, becomes: str | None, note: str) -> None:
    text = program("%a = f32[2]{0} parameter(0)", line)
    new = convert(parse_file(text), ["jax0.10"])
    assert new.notes == {note: 1}
    assert new.text == program("%a = f32[2]{0} parameter(0)", becomes or line)


def test_operands_that_an_update_binds_stay_sugar_and_are_named_for_0_10() -> None:
    text = program(
        "%a = f32[2]{0} parameter(0)",
        "%s = ((), f32[2]{0}, u32[]) negate-start()",
        "%u = ((f32[2]{0}), f32[2]{0}, u32[]) negate-update(%s, %a)",
        "%d = f32[2]{0} negate-done(%u)",
    )
    generic = convert(parse_file(text), ["async-generic"])
    assert generic.text == text
    assert generic.notes == {"%s stays: an update binds its operands": 1}
    note = "%u stays: jaxlib 0.10 expects a single async op as its operand"
    assert convert(parse_file(text), ["jax0.10"]).notes == {note: 1}


def test_attributes_of_a_release_to_come_are_left_out() -> None:
    text = decode((ROUNDTRIP / "attribute_of_a_newer_xla.hlo").read_bytes())
    new = convert(parse_file(text.replace("opcode-of-tomorrow", "add")), ["jax0.10"])
    assert new.notes == {
        "header_of_tomorrow of the module: jaxlib 0.10 does not know it": 1,
        "grouping of add: jaxlib 0.10 does not know it": 1,
        "plan of add: jaxlib 0.10 does not know it": 1,
    }
    (found,) = read_fields(oracle("0.10"), [new.text])
    assert "error" not in found


def test_0_10_0_reads_no_payload_in_metadata() -> None:
    line = 'ROOT %a = f32[2]{0} parameter(0), metadata={op_name="a" metadata_payload="x"}'
    new = convert(parse_file(program(line)), ["jax0.10.0"])
    assert new.text == program('ROOT %a = f32[2]{0} parameter(0), metadata={op_name="a"}')
    assert new.notes == {"metadata_payload: jaxlib 0.10.0 does not know it": 1}
    assert converted(program(line), "jax0.10") == program(line)


def test_a_new_name_is_nobody_elses() -> None:
    text = program(
        "%a = (f32[2]{0}, f32[2]{0}) parameter(0)",
        "%a_0 = f32[2]{0} negate(%a#1)",
        "ROOT %c = pred[2]{0} compare(%a#0, %a_0), direction=EQ",
        shape="(f32[2], f32[2])",
    )
    new = converted(text, "explicit")
    assert "  %a_0.1 = f32[2]{0} get-tuple-element(%a), index=0\n  ROOT %c" in new
    assert "compare(%a_0.1, %a_0)" in new


# ---- control predecessors that jax 0.11's printer leaves undefined

HALF = "%n = f32[2]{0} negate(%p#0)"
SECOND = "control-predecessors={%n, %get-tuple-element.7, %get-tuple-element.9}"
LOOP = "(f32[2]{0}, f32[2]{0}, s32[])"


def loop(*lines: str) -> Computation:
    body = "".join(f"  {line}\n" for line in (f"%p = {LOOP} parameter(0)", *lines))
    text = f"HloModule m\n\nENTRY %body (p: {LOOP}) -> {LOOP} {{\n{body}}}\n"
    (computation,) = hlo_lint.parse(text).computations
    return computation


def test_the_elements_that_a_second_half_waits_for_are_those_of_the_first_halfs_tuple() -> None:
    first = f"%t = {LOOP} tuple(%n, %p#1, %p#2)"
    clone = f"%n.clone = f32[2]{{0}} negate(%t#0), {SECOND}"
    found = elided_predecessors(
        loop(HALF, first, clone, f"ROOT %r = {LOOP} tuple(%n.clone, %t#1, %t#2)")
    )
    assert found == {"get-tuple-element.7": "p#1", "get-tuple-element.9": "p#2"}


def test_without_that_tuple_they_are_those_of_the_second_halfs() -> None:
    clone = f"%n.clone = f32[2]{{0}} negate(%n), {SECOND}"
    found = elided_predecessors(loop(HALF, clone, f"ROOT %r = {LOOP} tuple(%n.clone, %p#1, %p#2)"))
    assert set(found.values()) == {"p#1", "p#2"}


@pytest.mark.parametrize(
    "root",
    [
        pytest.param(f"ROOT %r = {LOOP} tuple(%n.clone, %n, %p#2)", id="one_element_for_two_names"),
        pytest.param("ROOT %r = (f32[2]{0}, f32[2]{0}) tuple(%p#1, %p#2)", id="another_length"),
        pytest.param(f"ROOT %r = {LOOP} tuple(%n.clone, %q#1, %q#2)", id="defined_nowhere"),
    ],
)
def test_what_does_not_fit_is_not_guessed(root: str) -> None:
    clone = f"%n.clone = f32[2]{{0}} negate(%n), {SECOND}"
    assert elided_predecessors(loop(HALF, clone, root)) == {}


# ---- named meshes

MESHES = """
{mesh['x'=2], [{}, {'x'}]}
{mesh['x'=2,'y'=4], [{'x','y'}, {}]}
{mesh['x'=2,'y'=4], [{'y','x'}, {}]}
{mesh['x'=2,'y'=4], [{'y'}, {'x'}]}
{mesh['x'=2,'y'=4], [{'y'}, {}]}
{mesh['x'=2,'y'=4], replicated}
{mesh['x'=2,'y'=4], manual}
{mesh[], [{}, {}]}
{mesh['x'=1], [{'x'}, {}]}
{maximal_mesh[device_id=3]}
{mesh['x'=2,'y'=4], [{'y':(1)2}, {}]}
{mesh['x'=2,'y'=4], [{'y':(2)2,'x'}, {'y':(1)2}]}
{mesh['x'=2,'y'=4], [{'x'}, {}], replicated={'y'}}
{mesh['x'=2,'y'=4], [{'x'}, {}], unreduced={'y'}}
{mesh['x'=2,'y'=4], [{}, {}], manual={'y'}}
{mesh['x'=2,'y'=4], [{}, {}], manual={'x','y'}}
{mesh['x'=2,'y'=4,'z'=2], [{'x'}, {}], manual={'z'}}
{mesh['x'=2,'y'=4,'z'=2,'w'=2], [{'x'}, {}], replicated={'w'}, unreduced={'z'}, manual={'y'}}
{mesh['x'=2,'y'=4], device_ids=([4,2]T(1,0)), [{'x'}, {}]}
{mesh['x'=2,'y'=4], device_ids=(7,6,5,4,3,2,1,0), [{'x'}, {}]}
{{mesh['x'=2], [{'x'}]}, {replicated}, {mesh['x'=2], replicated}}
""".split("\n")[1:-1]


def test_tiles_are_those_that_xla_makes_of_a_mesh() -> None:
    seen = {
        found
        for text in texts()
        for module in hlo_lint.parse_all(text)
        for instruction in module.instructions()
        if "mesh[" in (found := instruction.attributes.get("sharding", ""))
        and not {"metadata", "?", "max", "min"} & set(re.findall(r"[a-z]+|\?", found))
    }
    before = [*MESHES, *sorted(seen)]
    after = []
    for sharding in before:
        new = converted(program(f"%a = f32[8,8]{{1,0}} parameter(0), sharding={sharding}"), "tiles")
        (instruction,) = hlo_lint.parse(new).instructions()
        after.append(instruction.attributes["sharding"])
        assert "mesh[" not in after[-1]
    child = subprocess.run(
        [oracle("0.11").python, "-P", str(SHARDINGS)],
        input=json.dumps(before + after).encode(),
        capture_output=True,
        check=True,
    )
    read = child.stdout.decode().splitlines()
    assert read[: len(before)] == read[len(before) :]


@pytest.mark.parametrize(
    ("groups", "becomes"),
    [
        ("mesh['x'=2] {'x'}", "[1,2]<=[2]"),
        ("mesh['x'=2,'y'=4] {'y'}", "[2,4]<=[8]"),
        ("mesh['x'=2,'y'=4] {'x'}", "[4,2]<=[2,4]T(1,0)"),
        ("mesh['x'=2,'y'=4] {'y','x'}", "[1,8]<=[2,4]T(1,0)"),
        ("mesh['x'=2,'y'=4] {'y':(1)2}", "[4,2]<=[2,2,2]T(0,2,1)"),
        ("mesh['x'=2,'y'=2], device_ids=(3,2,1,0) {'x'}", "{{3,1},{2,0}}"),
    ],
)
def test_groups_of_a_mesh_are_cut_from_all_devices(groups: str, becomes: str) -> None:
    line = "%r = f32[2]{0} all-reduce(%a), replica_groups=GROUPS, to_apply=%add"
    text = program("%a = f32[2]{0} parameter(0)", line)
    assert converted(text.replace("GROUPS", groups), "tiles") == text.replace("GROUPS", becomes)
    assert groups_of(groups) == groups_of(becomes)


def groups_of(text: str) -> tuple[tuple[int, ...], ...]:
    read = read_replica_groups(text)
    assert isinstance(read, ReplicaGroupList | IotaReplicaGroups | MeshReplicaGroups)
    return read.groups


def test_what_tiles_cannot_say_of_a_mesh_is_noted() -> None:
    sharding = "{mesh['x'=2], [{'x', ?}, {}], metadata={op_name=\"a\"}}"
    text = program(f"%a = f32[8,8]{{1,0}} parameter(0), sharding={sharding}")
    new = convert(parse_file(text), ["tiles"])
    assert "sharding={devices=[2,1]<=[2]}" in new.text
    assert new.notes == {
        "metadata of a sharding: tiles have none": 1,
        "open dimensions of a sharding: tiles have none": 1,
    }


# ---- asynchronous operations

ASYNC = """\
HloModule m

%f (p.1: f32[2]) -> f32[2] {
  %p.1 = f32[2]{0} parameter(0)
  ROOT %r = f32[2]{0} negate(%p.1)
}, execution_thread="side"

ENTRY %main (a: f32[2]) -> (f32[2], f32[1], f32[2]) {
  %a = f32[2]{0} parameter(0)
  %begin = ((f32[2]{0}), f32[2]{0}, u32[]) fusion-start(%a), async_execution_thread="side", \
kind=kLoop, calls=%f, control-predecessors={%a}, backend_config={"x":1}
  %going = ((f32[2]{0}), f32[2]{0}, u32[]) fusion-update(%begin)
  %done = f32[2]{0} fusion-done(%going)
  %cut = ((f32[2]{0}), f32[1]{0}, u32[]) slice-start(%a), slice={[0:1]}
  %piece = f32[1]{0} slice-done(%cut)
  %call = ((f32[2]{0}, f32[2]{0}), f32[2]{0}, u32[]) custom-call-start(%a, /*second*/%done), \
custom_call_target="foo", output_to_operand_aliasing={{}: (0, {})}
  %called = f32[2]{0} custom-call-done(%call)
  ROOT %z = (f32[2]{0}, f32[1]{0}, f32[2]{0}) tuple(%done, %piece, %called)
}
"""


@pytest.mark.parametrize("release", ["0.10", "0.11"])
def test_what_runs_asynchronously_is_what_xla_makes_of_the_sugar(release: str) -> None:
    new = converted(ASYNC, "async-generic")
    assert "-start(" not in new.replace("async-start(", "")
    sugar, generic = read_fields(oracle(release), [ASYNC, new])
    assert not list(differences(sugar, generic, {METADATA}))
    assert converted(new, "async-sugar") == ASYNC


def test_opcodes_of_their_own_stay() -> None:
    text = program(
        "%a = f32[2]{0} parameter(0)",
        "%s = (f32[2]{0:S(5)}, f32[2]{0}, u32[]) copy-start(%a)",
        "%d = f32[2]{0:S(5)} copy-done(%s)",
        "%g = f32[2]{0} all-reduce-start(%a), replica_groups={}, to_apply=%add",
    )
    assert converted(text, "async-generic") == text


@pytest.mark.parametrize(
    "run",
    [
        pytest.param(
            "ROOT %r = f32[2]{0} all-reduce(%q), to_apply=%add", id="an_opcode_of_its_own"
        ),
        pytest.param("%n = f32[2]{0} negate(%q)\n  ROOT %r = f32[2]{0} abs(%n)", id="two"),
        pytest.param('ROOT %r = f32[2]{0} abs(%q), backend_config={"y":2}', id="other_config"),
    ],
)
def test_what_sugar_cannot_say_stays(run: str) -> None:
    text = f"""HloModule m

%w (q: f32[2]) -> f32[2] {{
  %q = f32[2]{{0}} parameter(0)
  {run}
}}

ENTRY %main (a: f32[2]) -> f32[2] {{
  %a = f32[2]{{0}} parameter(0)
  %s = ((f32[2]{{0}}), f32[2]{{0}}, u32[]) async-start(%a), calls=%w
  ROOT %d = f32[2]{{0}} async-done(%s)
}}
"""
    assert converted(text, "async-sugar") == text


# ---- files


def test_a_directory_is_mirrored_and_what_is_no_hlo_is_copied(tmp_path: Path) -> None:
    case = next(case for case in sorted(DUMPS.glob("gpu-jax0.11.2/*")) if hlo_files(case))
    written = list(convert_tree([case], tmp_path / "out", ["no-percent"]))
    assert len(written) == sum(path.is_file() for path in case.rglob("*"))
    assert {each.source for each in written if each.notes is not None} == set(hlo_files(case))
    for each in written:
        before, after = each.source.read_bytes(), each.target.read_bytes()
        assert (before == after) == (each.notes is None)


def test_the_command_says_what_it_did(tmp_path: Path) -> None:
    case = next(case for case in sorted(DUMPS.glob("gpu-jax0.11.2/*")) if hlo_files(case))
    out = tmp_path / "out"
    done = CliRunner().invoke(cli, ["convert", str(case), "--to", "short", "-o", str(out)])
    assert done.exit_code == 0
    first, *notes = done.stderr.splitlines()
    assert first.startswith(f"converted {len(hlo_files(case))} files to {out}; copied ")
    assert re.fullmatch(r"note: metadata: short text has none \(\d+ times\)", notes[0])
    again = CliRunner().invoke(
        cli, ["convert", str(out), "--to", "short", "-o", str(tmp_path / "2")]
    )
    assert len(again.stderr.splitlines()) == 1


def test_standard_input_goes_to_standard_output() -> None:
    text = (ROUNDTRIP / "compact_get_tuple_element.hlo").read_bytes()
    done = CliRunner().invoke(cli, ["convert", "-", "--to", "explicit"], input=text)
    assert (done.exit_code, done.stderr) == (0, "")
    assert b"%p_0 = f32[4]{0} get-tuple-element(%p), index=0" in done.stdout_bytes
    asked_nothing = CliRunner().invoke(cli, ["convert", "-"], input=text)
    assert asked_nothing.stdout_bytes == text


def test_one_file_goes_into_a_folder_that_is_there(tmp_path: Path) -> None:
    path = ROUNDTRIP / "compact_get_tuple_element.hlo"
    done = CliRunner().invoke(cli, ["convert", str(path), "-o", str(tmp_path)])
    assert (done.exit_code, done.output) == (0, "")
    assert (tmp_path / path.name).read_bytes() == path.read_bytes()
    piped = CliRunner().invoke(cli, ["convert", "-", "-o", str(tmp_path)], input=path.read_bytes())
    assert piped.exit_code == 2
    assert "cannot be written: Is a directory" in piped.stderr


def test_each_of_thousands_of_starts_gets_a_name_of_its_own() -> None:
    start = "%s = ((f32[2]{0}), f32[2]{0}) fusion-start(%a), kind=kLoop, calls=%f"
    starts = [start.replace("%s", f"%s{number}") for number in range(10_000)]
    module = hlo_lint.parse(
        converted(program("%a = f32[2]{0} parameter(0)", *starts), "async-generic")
    )
    names = [computation.name for computation in module.computations]
    assert len(set(names)) == len(names) == 10_001


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["README.md"], "README.md: not HLO: there is nothing to convert"),
        (["nowhere.hlo"], "nowhere.hlo: cannot be read: No such file or directory"),
        (["fixtures/dumps"], "several files need an output folder: -o OUT"),
        (["-", "README.md"], "`-` reads standard input and goes with no other path"),
        (["README.md", "--to", "jax9"], "no dialect is named jax9: did you mean"),
        (["fixtures/roundtrip", "-o", "fixtures/roundtrip"], "this is the input itself"),
    ],
)
def test_wrong_use_is_one_line(
    arguments: list[str], says: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(ROOT)
    done = CliRunner().invoke(cli, ["convert", *arguments])
    assert done.exit_code == 2
    assert says in done.stderr
    assert len(done.stderr.splitlines()) == 1


def test_every_dialect_is_listed() -> None:
    done = CliRunner().invoke(cli, ["dialects"])
    assert [line.split()[0] for line in done.stdout.splitlines()] == list(DIALECTS)


def test_an_unknown_dialect_is_named() -> None:
    with pytest.raises(UsageError, match="no dialect is named klingon"):
        hlo_lint.emit(hlo_lint.parse(ASYNC), "klingon")


PROTOS = [".hlo.pb", ".pb.gz", ".pbtxt", ".textproto.gz", ".hlo_snapshot.pb"]


@pytest.mark.parametrize("ending", PROTOS)
def test_a_text_goes_into_a_protocol_buffer_and_comes_back(tmp_path: Path, ending: str) -> None:
    oracle("0.1")  # only with jaxlib
    path = hlo_files(DUMPS / "cpu-jax0.10.2")[-1]
    proto = tmp_path / f"module{ending}"
    proto.write_bytes(in_format(convert_file(path, ()).text, proto))
    back = convert_file(proto, ()).text
    before, after = read_fields(oracle("0.1"), [path.read_text(), back])
    # XLA numbers stack frames anew.
    assert not without_table(list(differences(before, after, {METADATA})))
    assert op_names(back) == op_names(path.read_text())


def op_names(text: str) -> list[str]:
    return sorted(re.findall(r'op_name="[^"]*"', text))


def test_what_xla_does_not_read_is_no_protocol_buffer(tmp_path: Path) -> None:
    oracle("0.1")
    undefined = "HloModule m\n\nENTRY %e {\n  ROOT %a = f32[] negate(%b)\n}\n"
    with pytest.raises(DumpError, match=r"x\.hlo\.pb: not an HLO module: jaxlib .*: 4:26: "):
        in_format(undefined, tmp_path / "x.hlo.pb")
    deadly = "HloModule m\n\nENTRY %e {\n  ROOT %a = " + "(" * 300_000
    with pytest.raises(DumpError, match="XLA was ended by SIG"):
        in_format(deadly, tmp_path / "x.hlo.pb")


# ---- the page


@pytest.mark.skipif(find_spec("jaxlib") is None, reason="no jaxlib to write with")
def test_the_page_shows_what_the_program_prints(tmp_path: Path) -> None:
    shutil.copytree(DUMPS / "gpu-jax0.11.2" / "attention", tmp_path / "dump")
    page = (ROOT / "docs" / "convert.md").read_text("utf-8")
    sessions = re.findall(r"```console\n(.*?)```", page, re.S)
    assert len(sessions) == 5
    for session in sessions:
        for command, shown in re.findall(r"^\$ hlo-lint (.*)\n((?:(?!\$ ).*\n)*)", session, re.M):
            for name in re.findall(r"\S+\.hlo\b", command):
                if (ROUNDTRIP / name).exists():
                    shutil.copy(ROUNDTRIP / name, tmp_path)
            ran = subprocess.run(
                [sys.executable, "-m", "hlo_lint", *command.split()],
                capture_output=True,
                text=True,
                env=os.environ | {"PYTHONPATH": str(ROOT)},
                cwd=tmp_path,
                check=True,
            )
            assert ran.stdout + ran.stderr == shown


# ---- the archives


@pytest.fixture(scope="module")
def archived(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """Every HLO text of the dumps that an H200 wrote."""
    folder = tmp_path_factory.mktemp("archived")
    with tarfile.open(ARCHIVES / "h200_dumps.tar.xz") as tar:
        tar.extractall(folder, filter="data")
    return hlo_files(folder)


needs_archives = pytest.mark.skipif(
    not ARCHIVES.is_dir(), reason="the archives of dumps are not here"
)


@needs_archives
def test_jaxlib_0_10_reads_a_sample_of_the_archives(archived: list[Path]) -> None:
    chance = random.Random(11)
    before = [decode(path.read_bytes()) for path in chance.sample(archived, 80)]
    after = [converted(text, "jax0.10") for text in before]
    read = read_fields(oracle("0.10"), after)
    assert not [found["error"] for found in read if "error" in found]
    originals = read_fields(oracle("0.11"), before)
    for theirs, found in zip(originals, read, strict=True):
        if "error" not in theirs:
            assert not list(differences(theirs, found, {COMPARISON_ORDER, IS_STABLE}))


@needs_archives
def test_the_names_that_jax_0_11_left_undefined_are_found_again(archived: list[Path]) -> None:
    chance = random.Random(96)
    waiting = [path for path in archived if "double_buffer" in path.read_text()]
    undefined = [path for path in waiting if undefined_names(decode(path.read_bytes()))]
    assert len(undefined) == 96
    for path in chance.sample(undefined, 12):
        text = decode(path.read_bytes())
        new = convert(parse_file(text), ["jax0.10"])
        assert not new.notes
        assert not undefined_names(new.text)
        assert predecessor_counts(new.text) == predecessor_counts(text)


@needs_archives
def test_the_buffer_assignment_knows_the_same_elements_by_those_names(archived: list[Path]) -> None:
    """It prints every instruction with all its operands, the elided ones too."""
    known = 0
    for path in archived:
        if not path.name.endswith("_gpu_after_optimizations.txt"):
            continue
        for computation in hlo_lint.parse(path.read_text()).computations:
            elided = elided_predecessors(computation)
            if elided:
                known += 1
                witness = path.with_name(f"{path.stem}-buffer-assignment-values.txt").read_text()
                assert elided.items() <= elements_by_name(witness, computation).items()
    assert known == 3


def elements_by_name(values: str, computation: Computation) -> dict[str, str]:
    """The name in a buffer assignment of each element that an instruction reads."""
    names: dict[str, str] = {}
    for name, operands in re.findall(r"%([\w.\-]+) = (?:\(.*?\)|\S+) [\w\-]+\((%.*?)\)", values):
        row = computation.rows[computation.index[name]] if name in computation.index else None
        spelled = [operand.strip(" %") for operand in operands.split(",")]
        if row is not None and len(row[6]) == len(spelled):
            names |= {a: b for a, b in zip(spelled, row[6], strict=True) if "#" in b}
    return names


def undefined_names(text: str) -> set[str]:
    return {
        name
        for computation in hlo_lint.parse(text).computations
        for row in computation.rows
        for name in control_predecessors(attributes_of(row))
        if name not in computation.index
    }


def predecessor_counts(text: str) -> dict[str, int]:
    return {
        f"{computation.name}/{row[1]}": len(control_predecessors(attributes_of(row)))
        for computation in hlo_lint.parse(text).computations
        for row in computation.rows
        if control_predecessors(attributes_of(row))
    }
