"""`diff` and `bisect`: names are not a difference, everything else is."""

from __future__ import annotations

import json
import random
import re
import shutil
from collections import Counter
from functools import cache
from itertools import pairwise
from pathlib import Path

import pytest

from hlo_lint.analysis.diff.bisection import Bisection
from hlo_lint.analysis.diff.bisection import bisect as bisect_pipelines
from hlo_lint.analysis.diff.difference import Difference, compare, diff
from hlo_lint.analysis.diff.normalize import meaning, without_metadata
from hlo_lint.analysis.diff.structural_hash import Structures
from hlo_lint.dumps.directory import open_dump
from hlo_lint.dumps.selection import longest_run
from hlo_lint.hlo.attributes.splitting import split_attributes
from hlo_lint.hlo.ir import Module
from hlo_lint.hlo.parser.module import parse_file
from hlo_lint.hlo.records import name_of, references_of
from hlo_lint.report.diff import difference_as_dict, difference_lines
from tests.apps.test_cli import run, write
from tests.conftest import CRASH, DUMPS, FIXTURES, ROOT, ROUNDTRIP, completed, hlo_files, present
from tests.mutations import mutate
from tests.oracle.xla import Oracle, Refusal, oracles
from tests.texts import entry

PAIRS = FIXTURES / "bisect"
HEAD = "HloModule m, entry_computation_layout={(f32[8]{0}, f32[8]{0})->f32[8]{0}}\n\n"
SMALL = (
    HEAD
    + """\
ENTRY %e (p: f32[8], q: f32[8]) -> f32[8] {
  %p = f32[8]{0} parameter(0)
  %q = f32[8]{0} parameter(1)
  %exp = f32[8]{0} exponential(%p), metadata={op_name="exp" source_file="model.py" source_line=7}
  %neg = f32[8]{0} negate(%q)
  ROOT %sum = f32[8]{0} add(%exp, %neg)
}
"""
)
LOOP = """\
HloModule loop

%body (s: s32[]) -> s32[] {
  %s = s32[] parameter(0)
  %one = s32[] constant(1)
  ROOT %next = s32[] add(%s, %one)
}

%condition (s.1: s32[]) -> pred[] {
  %s.1 = s32[] parameter(0)
  %ten = s32[] constant(10)
  ROOT %less = pred[] compare(%s.1, %ten), direction=LT
}

ENTRY %main () -> s32[] {
  %zero = s32[] constant(0)
  ROOT %w = s32[] while(%zero), condition=%condition, body=%body
}
"""


def read(text: str | bytes) -> Module:
    return parse_file(text).modules[0]


def between(before: str, after: str) -> Difference:
    found = diff(read(before), read(after))
    other_way = diff(read(after), read(before))
    assert found.same == other_way.same
    return found


def said(found: Difference) -> list[str]:
    """Every difference in one line each."""
    lines = [f"header {change.what}" for change in found.header]
    for each in found.computations:
        if each.before is None or each.after is None:
            lines.append(f"{'added' if each.before is None else 'removed'} {each.name}")
            continue
        lines += [f"- {instruction.name}" for instruction in each.removed]
        lines += [f"+ {instruction.name}" for instruction in each.added]
        lines += [
            f"~ {changed.after.name} {change.what}: {change.before} -> {change.after}"
            for changed in each.changed
            for change in changed.changes
        ]
        lines += [f"> {after.name}" for _, after in each.moved]
        lines += [f"itself {change.what}" for change in each.itself]
    return lines


# ---- what is not a difference


def renamed(text: str) -> str:
    """All names replaced by others, in the order in which they are met."""
    names: dict[str, str] = {}

    def other(found: re.Match[str]) -> str:
        return names.setdefault(found[0], f"%other.{len(names)}")

    lines = (
        line
        if '%"' in line
        else re.sub(
            r'"(?:[^"\\]|\\.)*"|%[A-Za-z_][\w.\-]*',
            lambda found: found[0] if found[0][0] == '"' else other(found),
            line,
        )
        for line in text.split("\n")
    )
    return "\n".join(lines)


def reordered(text: str, chance: random.Random) -> str:
    """The lines of each computation in another order that defines before it uses, and the
    attributes of each line in another order."""
    module = read(text)
    for computation in module.computations:
        lines, ready = [], []
        waiting = {
            name_of(row): {r.partition("#")[0] for r in references_of(row)}
            & computation.index.keys()
            for row in computation.rows
        }
        for instruction in computation.instructions:
            for name in re.findall(r"%([\w.\-]+)", instruction.attributes.get(CONTROL, "")):
                waiting[instruction.name] |= {name} & computation.index.keys()
        while waiting:
            ready = [name for name, needs in waiting.items() if not needs & waiting.keys()]
            name = chance.choice(ready)
            del waiting[name]
            found = present(computation.instruction(name))
            tail = found.attributes_text
            parts = [
                f", {key}={tail[start:end]}" for key, (start, end) in split_attributes(tail).items()
            ]
            chance.shuffle(parts)
            lines.append("  " + found.text.removesuffix(tail) + "".join(parts))
        old = "\n".join("  " + each.text for each in computation.instructions)
        text = text.replace(old, "\n".join(lines))
    return text


CONTROL = "control-predecessors"


@cache
def samples() -> list[Path]:
    cases = [case for case in sorted(DUMPS.glob("*/*")) if case.name != "short_text"]
    paths = [path for case in cases for path in hlo_files(case)]
    return random.Random(5).sample(paths, 40)


@pytest.mark.parametrize("path", samples(), ids=lambda path: path.name[:80])
def test_names_the_order_of_lines_and_of_attributes_are_no_difference(path: Path) -> None:
    text = path.read_text("utf-8")
    other = renamed(text)
    if "is_scheduled=true" not in text:
        other = reordered(other, random.Random(1))
    assert other != text
    assert said(between(text, other)) == []


NEW_SPELLING = """HloModule m

%swap (p: (f32[2], s32[])) -> (s32[], f32[2]) {
  %p = (f32[2]{0}, s32[]) parameter(0)
  ROOT %t = (s32[], f32[2]{0}) tuple(%p#1, %p#0)
}

ENTRY %e (a: (f32[2], s32[])) -> f32[2] {
  %a = (f32[2]{0}, s32[]) parameter(0)
  %c = (s32[], f32[2]{0}) call(%a), to_apply=%swap
  ROOT %n = f32[2]{0} negate(%c#1)
}
"""
OLD_SPELLING = """HloModule m

swap {
  p = (f32[2]{0}, s32[]) parameter(0)
  second = s32[] get-tuple-element((f32[2]{0}, s32[]) p), index=1
  first = f32[2]{0} get-tuple-element((f32[2]{0}, s32[]) p), index=0
  ROOT t = (s32[], f32[2]{0}) tuple(s32[] second, f32[2]{0} first)
}

ENTRY e {
  a = (f32[2]{0}, s32[]) parameter(0)
  c = (s32[], f32[2]{0}) call((f32[2]{0}, s32[]) a), to_apply=swap
  element = f32[2]{0} get-tuple-element((s32[], f32[2]{0}) c), index=1
  ROOT n = f32[2]{0} negate(f32[2]{0} element)
}
"""


def test_the_way_a_release_prints_is_no_difference() -> None:
    assert said(between(NEW_SPELLING, OLD_SPELLING)) == []
    assert said(between(OLD_SPELLING, NEW_SPELLING)) == []
    other = OLD_SPELLING.replace("(c), index=1", "(c), index=0").replace("negate", "abs")
    assert said(between(NEW_SPELLING, other)) != []


@pytest.mark.slow
@pytest.mark.parametrize("oracle", oracles(), ids=lambda each: f"jaxlib {each.version}")
def test_what_xla_reads_and_prints_again_is_no_difference(oracle: Oracle) -> None:
    paths = [path for path in samples() if "compact" not in path.name]
    odd = tuple("while sort constant_m constant_p convolution replica window reduce".split())
    paths += [path for path in hlo_files(ROUNDTRIP) if path.name.startswith(odd)]
    texts = [path.read_bytes().decode("utf-8", "surrogateescape") for path in paths]
    taken = [
        text
        for text, answer in zip(texts, oracle.read(texts), strict=True)
        if not isinstance(answer, Refusal) and "constant({...})" not in text
    ]
    assert len(taken) > 30
    done = completed(
        [oracle.python, "-P", str(ROOT / "tests" / "oracle" / "print_hlo.py")],
        input=json.dumps(taken),
        check=True,
    )
    for text, line in zip(taken, done.stdout.splitlines(), strict=True):
        for style in ("long", "no-percent", "typed-operands"):
            assert said(between(text, json.loads(line)[style])) == [], (style, text[:80])


@pytest.mark.parametrize(
    ("name", "one", "other"),
    [
        ("replica_groups", "{{0,1},{2,3}}", "[2,2]<=[4]"),
        ("replica_groups", "{{0,2},{1,3}}", "mesh['x'=2,'y'=2] {'x'}"),
        ("sharding", "{devices=[2,2]0,1,2,3}", "{devices=[2,2]<=[4]}"),
        ("sharding", '{replicated metadata={op_name="a"}}', "{replicated}"),
        ("backend_config", '{"a":1,"b":[2]}', '{"b": [2], "a": 1}'),
        ("frontend_attributes", '{a="1",b="2"}', '{b="2",a="1"}'),
        ("channel_id", "1", "77"),
        ("operand_layout_constraints", "{f32[8,4]}", "{f32[8,4]{1,0}}"),
    ],
)
def test_attributes_are_compared_by_what_they_say(name: str, one: str, other: str) -> None:
    assert meaning(name, one) == meaning(name, other)


@pytest.mark.parametrize(
    "text",
    ["mesh['x'=0] {'x'}", "mesh['x'=2] {'y'}", "[1,99999999]<=[99999999]", "[2,2]<=[5]", "{{"],
)
def test_groups_that_no_machine_has_are_compared_as_they_are_spelled(text: str) -> None:
    assert meaning("replica_groups", text) == meaning("replica_groups", text)
    assert meaning("replica_groups", text) != meaning("replica_groups", "{{0,1}}")


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("is_stable", "false"),
        ("dimensions", "{}"),
        ("operand_precision", "{default,default}"),
        ("frontend_attributes", '{fingerprint_before_lhs="4713"}'),
    ],
)
def test_a_default_that_is_spelled_out_says_nothing(name: str, text: str) -> None:
    assert meaning(name, text) is None


def test_metadata_is_no_difference_wherever_it_stands() -> None:
    assert said(between(SMALL, SMALL.replace("source_line=7", "source_line=8"))) == []
    tail = ', metadata={op_name="}, b={"}, sharding={replicated metadata={op_name="x"}}, index=0'
    assert without_metadata(tail) == ', sharding={replicated metadata={op_name="x"}}, index=0'
    nested = ', sharding={{replicated}, metadata={op_name="x"}}'
    assert without_metadata(nested) == nested


# ---- what is a difference


@pytest.mark.parametrize(
    ("old", "new", "lines"),
    [
        ("negate(%q)", "abs(%q)", ["- neg", "+ neg"]),
        (
            "add(%exp, %neg)",
            "add(%neg, %exp)",
            ["~ sum operand 0: %exp -> %neg", "~ sum operand 1: %neg -> %exp"],
        ),
        ("negate(%q)", "negate(%p)", ["~ neg operand 0: %q -> %p"]),
        ("%neg = f32[8]{0}", "%neg = f32[8]{0:T(8)}", ["~ neg shape: f32[8]{0} -> f32[8]{0:T(8)}"]),
        ("%neg)", '%neg), backend_config={"a":1}', ['~ sum backend_config: None -> {"a":1}']),
        ("{(f32[8]{0}, f32[8]{0})", "{(f32[8]{0}, f32[9]{0})", ["header entry_computation_layout"]),
        ("  ROOT", "  %dead = f32[8]{0} sine(%q)\n  ROOT", ["+ dead"]),
        (
            "e(%q)",
            "e(%q), control-predecessors={%exp}",
            ["~ neg control-predecessors: None -> %exp"],
        ),
    ],
)
def test_one_change_is_one_difference(old: str, new: str, lines: list[str]) -> None:
    assert old in SMALL
    assert said(between(SMALL, SMALL.replace(old, new))) == lines


def test_an_instruction_between_two_others_moves_nothing_else() -> None:
    other = SMALL.replace(
        "  ROOT %sum = f32[8]{0} add(%exp, %neg)",
        "  %copy = f32[8]{0} copy(%exp)\n  ROOT %sum = f32[8]{0} add(%copy, %neg)",
    )
    expected = ["+ copy", "~ sum operand 0: %exp -> %copy"]
    assert said(between(SMALL, other)) == expected
    assert said(between(SMALL, renamed(other)))[0].startswith("+ other")
    assert len(said(between(SMALL, renamed(other)))) == 2


def test_a_value_that_is_computed_once_more_is_a_difference() -> None:
    other = SMALL.replace("  ROOT", "  %again = f32[8]{0} negate(%q)\n  ROOT")
    assert said(between(SMALL, other)) == ["+ again"]


def test_a_difference_in_a_called_computation_is_said_there_and_not_at_its_caller() -> None:
    other = renamed(LOOP.replace("constant(10)", "constant(11)"))
    (computation,) = between(LOOP, other).computations
    assert present(computation.before).name == "condition"
    assert said(between(LOOP, other)) == ["~ other.6 value: 10 -> 11"]


def test_computations_are_told_apart_by_content_then_by_name() -> None:
    spare = "%spare (a: f32[]) -> f32[] {\n  ROOT %a = f32[] parameter(0)\n}\n\n"
    assert said(between(LOOP, LOOP.replace("ENTRY", spare + "ENTRY"))) == ["added spare"]
    with_spare = LOOP.replace("ENTRY", spare + "ENTRY")
    changed = with_spare.replace("ROOT %a = f32[] parameter(0)", "ROOT %a = f16[] parameter(0)")
    assert said(between(with_spare, changed)) == ["~ a shape: f32[] -> f16[]"]


def test_the_order_counts_where_it_is_a_schedule() -> None:
    lines = SMALL.splitlines(keepends=True)
    lines[5], lines[6] = lines[6], lines[5]
    other = "".join(lines)
    assert "negate" in lines[5]
    assert said(between(SMALL, other)) == []
    head = "HloModule m, is_scheduled=true"
    scheduled = (text.replace("HloModule m", head) for text in (SMALL, other))
    assert said(between(*scheduled)) in (["> exp"], ["> neg"])


def test_a_root_that_is_another_instruction_is_a_difference() -> None:
    other = SMALL.replace("  ROOT %sum", "  %sum").replace("  %neg", "  ROOT %neg")
    assert said(between(SMALL, other)) == ["itself root"]


def test_every_pass_that_changed_a_graph_is_seen() -> None:
    """Against XLA's own word: where a pass of the crash left the same graph, the opcodes agree."""
    compilation = longest_run(CRASH, None)
    different = 0
    for before, after in pairwise(compilation.steps):
        same = diff(before.module, after.module).same
        counts = [Counter(i.opcode for i in dump.module.instructions()) for dump in (before, after)]
        different += not same
        assert not (same and counts[0] != counts[1]), after.path.name
    assert different == 12


@pytest.mark.parametrize("text", ["", "HloModule m\n", "ENTRY e {\n}\n", "a\nb\n", SMALL[:200]])
def test_text_that_is_hardly_hlo_is_compared_all_the_same(text: str) -> None:
    assert between(text, text).same
    assert not between(text, SMALL).same


def test_two_modules_have_one_number_where_nothing_differs_and_only_there() -> None:
    alike = different = 0
    cases = "gpu-jax0.11.2/attention", "cpu-jax0.10.2/mlp_train"
    for case in (CRASH, *(DUMPS / name for name in cases)):
        modules = [parse_file(path.read_bytes(), path).modules[0] for path in hlo_files(case)]
        structures = Structures()
        for before, after in pairwise(modules):
            one, other = structures.of(before), structures.of(after)
            found = compare(one, other)
            assert found.same == (one.number == other.number) == compare(other, one).same
            alike += found.same and before.text != after.text
            different += not found.same
    assert alike > 3
    assert different > 30


def test_damaged_text_is_compared_all_the_same() -> None:
    chance = random.Random(4)
    texts = [path.read_bytes() for path in hlo_files(ROUNDTRIP)]
    for _ in range(300):
        text = chance.choice(texts)
        damaged = read(mutate(text, texts, chance))
        assert diff(damaged, damaged).same
        found = diff(read(text), damaged)
        assert [line for _, line in difference_lines(found)][-1]
        assert json.dumps(difference_as_dict(found))


def test_circles_and_names_that_nobody_defines_are_no_trouble() -> None:
    circle = entry("  a = f32[] add(b, c)\n  ROOT b = f32[] negate(a)")
    assert between(circle, circle).same
    assert not between(circle, circle.replace("negate", "abs")).same
    calls = circle.replace("negate(a)", "call(a), to_apply=e")
    assert between(calls, calls).same


@pytest.mark.slow
def test_the_cost_grows_as_the_text_does() -> None:
    """By counting: a chain that differs at its beginning is aligned in one sweep."""
    lines = (f"  %a.{n} = f32[8]{{0}} negate(%a.{n - 1})" for n in range(1, 20_000))
    text = entry("\n".join(("  %a.0 = f32[8]{0} parameter(0)", *lines)))
    other = text.replace("%a.1 = f32[8]{0} negate(%a.0)", "%a.1 = f32[8]{0} abs(%a.0)")
    assert said(between(text, other)) == ["- a.1", "+ a.1"]


# ---- the command


@pytest.mark.usefixtures("here")
def test_diff_prints_what_differs_with_its_python_line_and_as_json() -> None:
    write("a.hlo", SMALL)
    write("b.hlo", SMALL.replace("exponential(%p)", "sine(%p)"))
    ran = run("diff", "a.hlo", "b.hlo")
    assert ran.status == 1
    assert ran.out.splitlines() == [
        "entry %e",
        "  - %exp = f32[8]{0} exponential(%p)  [model.py:7]",
        "  + %exp = f32[8]{0} sine(%p)  [model.py:7]",
        "1 removed, 1 added in 1 computation",
    ]
    same = run("diff", "a.hlo", "a.hlo")
    assert (same.status, same.out) == (0, "no structural difference\n")
    write("b.hlo", SMALL.replace("negate(%q)", "negate(%p)"))
    (module,) = run("diff", "--output-format", "json", "a.hlo", "b.hlo").json["modules"]
    assert module["counts"] == {"removed": 0, "added": 0, "changed": 1, "moved": 0}
    (changed,) = module["computations"][0]["changed"]
    assert changed["changes"] == [{"what": "operand 0", "before": "%q", "after": "%p"}]


def test_diff_takes_two_dumps_of_a_directory() -> None:
    ran = run("diff", "--in", str(CRASH), "29", "autotuner")
    assert ran.status == 1
    assert ran.out.splitlines()[-1] == "5 removed, 6 added, 1 changed in 2 computations"
    assert run("diff", "--in", str(CRASH), "before_optimizations", "0").status == 0


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["nowhere.hlo", "nowhere.hlo"], "no such file"),
        ([".", "."], "is a directory, not a file"),
        (["--in", ".", "1", "2"], "no compiler's dumps are in it"),
        (["--in", str(CRASH), "77", "1"], "has no dump 77; it has steps 0 to 30"),
        (["--in", str(CRASH), "--module", "nobody", "1", "2"], "is named nobody"),
        (["empty.hlo", "empty.hlo"], "holds no HLO"),
    ],
)
@pytest.mark.usefixtures("here")
def test_diff_says_what_it_cannot_compare(arguments: list[str], words: str) -> None:
    write("empty.hlo", "")
    ran = run("diff", *arguments)
    assert ran.status == 2
    assert words in ran.errors


# ---- bisect

DISABLED = {
    "cpu_without_cse": ("HLO_passes_through_layout_assignment", "cse"),
    "gpu_without_hoist_fused_bitcasts": ("hlo_normalization", "hoist-fused-bitcasts"),
    "gpu_without_priority_fusion": ("fusion", "priority-fusion"),
}


def bisected(before: Path, after: Path) -> Bisection:
    return bisect_pipelines(longest_run(before, None), longest_run(after, None))


@pytest.mark.parametrize("pair", sorted(path.name for path in PAIRS.iterdir()))
@pytest.mark.parametrize("options", ["there", "missing"])
@pytest.mark.parametrize("turned", [False, True], ids=["", "turned"])
def test_bisect_names_the_pass_that_one_run_left_out(
    pair: str, options: str, turned: bool, tmp_path: Path
) -> None:
    sides = []
    for side in ("all", "without"):
        sides.append(Path(shutil.copytree(PAIRS / pair / side, tmp_path / side)))
        if options == "missing":
            for path in sides[-1].glob("*.debug_options"):
                path.unlink()
    found = bisected(*(sides[::-1] if turned else sides))
    first = present(found.first)
    assert (first.pipeline, first.name) == DISABLED[pair]
    assert [first.before is None, first.after is None] == [turned, not turned]
    assert found.steps > 2
    assert not present(found.difference).same
    assert found.ends_differ
    if options == "there":
        assert f"{'A' if turned else 'B'} disables {DISABLED[pair][1]}" in found.notes


@pytest.mark.parametrize("side", ["all", "without"])
def test_a_run_does_not_differ_from_itself_under_other_names(side: str, tmp_path: Path) -> None:
    for pair in sorted(PAIRS.iterdir()):
        copy = Path(shutil.copytree(pair / side, tmp_path / pair.name))
        for path in copy.glob("*.txt"):
            path.write_text(renamed(path.read_text("utf-8")), "utf-8")
        found = bisected(pair / side, copy)
        assert found.same
        assert found.steps > 5
        assert found.ends_differ is False


@pytest.mark.slow
def test_bisect_prints_the_pass_and_where() -> None:
    pair = PAIRS / "gpu_without_priority_fusion"
    sides = str(pair / "all"), str(pair / "without")
    ran = run("bisect", *sides)
    assert ran.status == 1
    lines = ran.out.splitlines()
    assert lines[0] == "module_0001.jit_tanh_sum: priority-fusion of fusion"
    assert "  note: B disables priority-fusion" in lines
    assert "computation %fused_computation: removed, 4 instructions" in lines
    (module,) = run("bisect", "--output-format", "json", *sides).json["modules"]
    assert (module["first"]["pass"], module["first"]["after"]) == ("priority-fusion", None)
    same = run("bisect", sides[0], sides[0])
    assert (same.status, "the same after each of" in same.out) == (0, True)


def test_bisect_of_two_programs_names_their_first_dump_as_no_pass() -> None:
    older, newer = (DUMPS / f"gpu-jax0.{n}" / "cublaslt_fission" for n in ("10.2", "11.2"))
    ran = run("bisect", str(older), str(newer))
    assert ran.out.splitlines()[:2] == [
        "module_0001.jit_batched_dot: before_optimizations",
        "  the first dump after which they differ",
    ]
    assert "it ran in both" not in ran.out
    assert bisected(older, newer).steps == 0


def test_bisect_says_where_a_pass_had_come_to_when_it_left_its_dump(tmp_path: Path) -> None:
    """The first dump after the difference may be from the midst of copy-insertion."""
    whole = PAIRS / "cpu_without_cse" / "all"
    copy = Path(shutil.copytree(whole, tmp_path / "copy"))
    for path in copy.glob("*copy-insertion*"):
        path.unlink()
    first = present(bisected(whole, copy).first)
    assert first.name == "copy-insertion"
    assert first.title == "copy-insertion, after adding_copies_to_resolve_interference"


def test_a_directory_without_a_common_module_is_wrong_use() -> None:
    ran = run("bisect", str(PAIRS / "gpu_without_priority_fusion" / "all"), str(CRASH))
    assert ran.status == 2
    assert "no module is in both: jit_tanh_sum in" in ran.errors


def test_no_fixture_of_a_pair_is_large() -> None:
    files = [path for path in PAIRS.rglob("*") if path.is_file()]
    assert sum(path.stat().st_size for path in files) < 1_000_000
    assert len(list(open_dump(PAIRS))) == 6
