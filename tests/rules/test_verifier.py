"""Every row of XLA's verifier: which rule has it, and that only this rule finds its example."""

from __future__ import annotations

import inspect
import re
from collections import Counter
from cProfile import Profile
from pathlib import Path

import pytest

import hlo_lint
from hlo_lint.analysis import verifier
from hlo_lint.engine.verifier import Verifier
from hlo_lint.hlo.opcodes import OPCODES
from hlo_lint.rules.base import Bad, Good, Rule, Stage
from hlo_lint.rules.registry import all_rules
from hlo_lint.rules.verifier import VerifierRule
from tests.conftest import DUMPS, written
from tests.oracle.xla import Refusal, oracles
from tests.texts import entry
from tests.verifier_checks import ELSEWHERE, LEFT_OUT

RULES = [rule for rule in all_rules() if isinstance(rule, VerifierRule)]
OPTIONAL = {
    "nested-thread": (
        Stage(thread_names=True),
        entry(
            "p = f32[] parameter(0)\nROOT r = f32[] call(p), to_apply=f",
            'f { ROOT a = f32[] parameter(0) }, execution_thread="other"\n\n',
        ),
    ),
    "reshape-option": (
        Stage(layouts=True, reshape_is_bitcast=True),
        entry("p = f32[3,4]{0,1} parameter(0)\nROOT r = f32[4,3]{1,0} reshape(p)"),
    ),
    "name-unchanged": (
        Stage(names_unchanged=True),
        entry('ROOT p = f32[] parameter(0), metadata={scheduling_name="q"}'),
    ),
}
"""The checks that only an option of the stage turns on: the stage, and a text that violates it."""
DECLARED = [(check, rule, bad) for rule in RULES for check, bad in rule.rows.items()]


@pytest.mark.parametrize(("row", "rule", "bad"), DECLARED, ids=[row for row, _, _ in DECLARED])
def test_only_one_rule_finds_a_row(row: str, rule: Rule, bad: Bad, tmp_path: Path) -> None:
    path = written(tmp_path / "example.txt", bad.source)
    found = hlo_lint.lint(path, ["verifier"]).findings
    assert {finding.rule for finding in found} == {rule.name()}
    assert [finding.line for finding in found] == bad.marked


def test_every_check_has_one_place_and_one_example() -> None:
    for rule in RULES:
        assert [each for each in rule.demands if each not in OPTIONAL] == list(rule.rows)
    names = [*(check for rule in RULES for check in rule.demands), *ELSEWHERE, *LEFT_OUT]
    assert len(set(names)) == len(names)


def test_checks_of_shapes_name_opcodes_there_are() -> None:
    tables = [table for rule in RULES for table in (rule.shapes_of, rule.counts_of)]
    named = {opcode for table in tables for text in table.values() for opcode in text.split()}
    assert named <= OPCODES.keys()


@pytest.mark.parametrize("check", OPTIONAL)
def test_a_check_binds_where_the_stage_has_its_option(check: str) -> None:
    stage, text = OPTIONAL[check]
    module = hlo_lint.parse(text)
    assert list(Verifier().violations(module, stage).by_check) == [check]
    assert Verifier().violations(module, Stage()).by_check == {}


def test_transfers_without_pairs_are_refused_by_the_releases_that_do() -> None:
    rule = next(rule for rule in RULES if "send-recv-pairs" in rule.demands)
    module = hlo_lint.parse(rule.rows["send-recv-pairs"].source)
    for backend, release, is_refused in (
        ("gpu", "gpu-jax0.10.2", True),
        ("gpu", "", False),
        ("cpu", "cpu-jax0.10.2", False),
    ):
        stage = Stage(backend, release, scheduled=True)
        assert ("send-recv-pairs" in Verifier().violations(module, stage).by_check) is is_refused


def test_checks_of_other_families_name_rules_there_are() -> None:
    assert {rule for _, _, rule in ELSEWHERE.values()} <= {rule.name() for rule in all_rules()}


@pytest.mark.skipif(not oracles(), reason="no jaxlib at hand")
def test_xla_reads_every_good_example() -> None:
    texts = [e.source for rule in RULES for e in rule.examples if isinstance(e, Good)]
    answers = oracles()[-1].read(texts)
    assert [
        text for text, said in zip(texts, answers, strict=True) if isinstance(said, Refusal)
    ] == []


@pytest.mark.parametrize("folder", sorted(DUMPS.glob("*/*")), ids=lambda path: path.name)
def test_what_xla_wrote_it_would_verify(folder: Path) -> None:
    is_clean = hlo_lint.lint(folder, ["verifier"], resolved=True).findings == ()
    assert is_clean is not folder.name.endswith("_refused")


def test_a_defect_of_the_header_stands_in_its_own_module() -> None:
    whole = entry("  ROOT p = f32[8]{0} parameter(0)")
    wrong = whole.replace("HloModule m", "HloModule b, buffer_donor={ (3, {}) }")
    (found,) = hlo_lint.lint(f"{whole}\n{wrong}", ["verifier"]).findings
    assert (found.rule, found.module, found.line) == ("bad-aliasing", "b", 7)


def test_a_violation_is_of_a_check_that_its_rule_declares() -> None:
    """A check that no rule asks for would be lost."""
    declared = {check for check, _, _ in DECLARED}
    for rule in RULES:
        source = Path(inspect.getfile(type(rule))).read_text("utf-8")
        checks = re.findall(r'Violation\(\s*"([\w-]+)"', source)
        assert set(checks) <= set(rule.demands), rule.name()
        assert set(rule.shapes_of) | set(rule.counts_of) <= set(rule.demands), rule.name()
    for path in Path(verifier.__file__).parent.glob("*.py"):
        assert set(re.findall(r'Violation\("([\w-]+)"', path.read_text("utf-8"))) <= declared


def test_the_aliasing_of_a_start_may_name_an_operand_that_an_update_binds() -> None:
    text = """
HloModule m

work { a = f32[8]{0} parameter(0) ROOT c = (f32[8]{0}) custom-call(a), custom_call_target="f" }

ENTRY e {
  p = f32[8]{0} parameter(0)
  s = ((), (f32[8]{0}), s32[]) async-start(), calls=work,
      output_to_operand_aliasing={{1,0}: (%s, {})}
  u = ((f32[8]{0}), (f32[8]{0}), s32[]) async-update(s, p)
  ROOT d = (f32[8]{0}) async-done(u)
}
"""
    assert not hlo_lint.lint(text % 0).findings
    assert [found.rule for found in hlo_lint.lint(text % 1).findings] == ["bad-output-aliasing"]


_START = """
work {
  a = f32[2,3]{1,0} parameter(0)
  ROOT c = f32[2,3]{0,1} custom-call(a), custom_call_target="f"
}

  p = f32[2,3] parameter(0)
  s = ((f32[2,3]), f32[2,3]%s, s32[]) async-start(p), calls=work
  ROOT d = f32[2,3]%s async-done(s)
"""
_CALLED = """
  p = f32[2,3] parameter(0)
  s = ((f32[2,3]), f32[2,3], s32[]) custom-call-start(p), custom_call_target="f"
  ROOT d = f32[2,3]%s custom-call-done(s)
"""
_UPDATED = """
  p = f32[4] parameter(0)
  u = f32[%s] parameter(1)
  z = s32[] constant(0)
  ROOT d = f32[4]%s dynamic-update-slice(p, u, z)
"""
_BODY = """
work { a = f32[2] parameter(0) ROOT n = f32[2] negate(a) }

  p = f32[2] parameter(0)
  s = ((f32[2]), f32[2], s32[]) fusion-start(p), kind=kLoop, calls=work
  d = f32[2] fusion-done(s)
  ROOT r = f32[2] %s
"""
_SHARDED = "  ROOT p = f32[8]{0} parameter(0), sharding=%s"
_HOST = """
  p = f32[8]{0} parameter(0)
  t = token[] after-all()
  s = (f32[8]{0}, u32[], token[]) send(p, t), channel_id=1, is_host_transfer=true
  r = (f32[8]{0}, u32[], token[]) recv(t), channel_id=%s, is_host_transfer=true
  d = token[] send-done(s), channel_id=1, is_host_transfer=true
  ROOT q = (f32[8]{0}, token[]) recv-done(r), channel_id=%s, is_host_transfer=true
"""
_TILED = """
  p = (s32[]{:T(128)}) parameter(0)
  ROOT g = s32[]%s get-tuple-element(p), index=0
"""
_UNTYPED = """
  p = f32[] parameter(0)
  b = broadcast(p), dimensions={}
  q = f32[%s] parameter(1)
  ROOT r = add(q, b)
"""
"""The lines of an entry, some of them below another computation; `%s` is what is refused."""


@pytest.mark.parametrize(
    ("text", "refused", "accepted"),
    [
        (_START, ("", ""), ("{0,1}", "{0,1}")),
        (_CALLED, "{0,1}", "{1,0}"),
        (_UPDATED, ("<=4", ""), ("2", "")),
        (_UPDATED, ("<=4", ""), ("<=2", "")),
        (_BODY, "fusion(d), kind=kLoop, calls=work", "copy(d)"),
        (_SHARDED, "{devices=[1,1,2,4]<=[8] last_tile_dims={manual,replicated}}", "{replicated}"),
        (_SHARDED, "{devices=[4]<=[4]}", "{devices=[1,1,8]<=[8] last_tile_dim_replicate}"),
        (_HOST, (1, 1), (2, 2)),
        (_TILED, "", "{:T(128)}"),
        (_UNTYPED, "8", ""),
    ],
)
def test_a_layout_sensitive_stage_refuses_what_xla_0_11_refuses(
    text: str, refused: object, accepted: object
) -> None:
    for part, count in ((refused, 1), (accepted, 0)):
        before, gap, lines = (text % part).rpartition("\n\n")
        header = ", num_partitions=8, use_spmd_partitioning=true"
        module = hlo_lint.parse(entry(lines, before + gap, header))
        assert len(Verifier().violations(module, Stage(layouts=True)).by_check) == count


@pytest.mark.parametrize("element", ["pred", "f32", "s32"])
def test_an_element_size_is_for_types_below_a_byte(element: str) -> None:
    text = entry(f"  ROOT p = {element}[2]{{0:E(4)}} parameter(0)")
    assert [found.rule for found in hlo_lint.lint(text).findings] == ["invalid-layout"]


@pytest.mark.parametrize("element", ["f32", "s32", "pred", "bf16"])
def test_a_complex_number_may_be_converted_to_a_real_one(element: str) -> None:
    text = entry(f"  p = c64[8]{{0}} parameter(0)\n  ROOT r = {element}[8]{{0}} convert(p)")
    assert not hlo_lint.lint(text, stage=Stage(layouts=True)).findings


def _calls(layers: int) -> Counter[str]:
    """The calls of each function of analyses on a module of so many equal layers."""
    lines = (
        f"""
  t.{n} = (f32[8]{{0}}, f32[8]{{0}}) tuple(x.{n - 1}, x.{n - 1}), metadata={{op_name="t{n}"}}
  x.{n} = f32[8]{{0}} add(t.{n}#0, t.{n}#1), metadata={{op_name="x{n}"}}"""
        for n in range(1, layers)
    )
    module = hlo_lint.parse(entry("".join(("  x.0 = f32[8]{0} parameter(0)", *lines))))
    profile = Profile()
    assert not profile.runcall(Verifier().violations, module, Stage()).by_check
    profile.create_stats()
    calls: Counter[str] = Counter()
    for (path, _, name), (count, *_) in profile.stats.items():
        if "/hlo_lint/analysis/" in path or "kinds" in path:
            calls[name] += count
    return calls


def test_rows_that_differ_in_names_and_metadata_are_judged_once() -> None:
    """More layers call nothing more often, but for the elements of tuples that they read."""
    few, many = _calls(20), _calls(200)
    assert many - few == {"__missing__": 2 * 180}


def test_a_violation_of_equal_computations_is_reported_in_each() -> None:
    body = "{{ {0}.p = f32[8] parameter(0) ROOT r = f32[9] negate({0}.p) }}\n\n"
    bodies = "".join(f"{name} {body.format(name)}" for name in "abc")
    module = hlo_lint.parse(entry("  p = f32[8] parameter(0)", bodies))
    verifier = Verifier()
    for _ in range(2):  # the second time, the results are known
        (wrong,) = verifier.violations(module, Stage()).by_check.values()
        assert [violation.at for violation in wrong] == [
            module.computations[number]["r"] for number in range(3)
        ]


@pytest.mark.parametrize(("layout", "checks"), [("{2,1,0}", set()), ("", {"gather-shape"})])
def test_windows_of_updates_may_be_turned_under_a_layout(layout: str, checks: set[str]) -> None:
    lines = f"""
  p = f32[8,4] parameter(0)
  i = s32[2,2] parameter(1)
  u = f32[2,4,3]{layout} parameter(2)
  ROOT s = f32[8,4] scatter(p, i, u), update_window_dims={{2,1}}, inserted_window_dims={{}},
    scatter_dims_to_operand_dims={{0,1}}, index_vector_dim=1, to_apply=set
"""
    module = hlo_lint.parse(
        entry(lines, "set { a = f32[] parameter(0) ROOT b = f32[] parameter(1) }\n\n")
    )
    assert Verifier().violations(module, Stage()).by_check.keys() == checks


@pytest.mark.parametrize("counts", [(4, 8, 4), (8, 4, 8)])
def test_collectives_are_judged_by_the_counts_of_their_module(counts: tuple[int, ...]) -> None:
    verifier = Verifier()
    for count in counts:
        text = entry("""
  p = f32[8] parameter(0)
  ROOT g = f32[32] all-gather(p), dimensions={0}, replica_groups=[1,4]<=[4]
""")
        module = hlo_lint.parse(text.replace("m\n", f"m, replica_count={count}\n", 1))
        assert ("replica-count" in verifier.violations(module, Stage()).by_check) == (count != 4)


def test_a_fusion_of_equal_signature_is_judged_by_its_own_body() -> None:
    text = """HloModule m

whole { a = f32[8] parameter(0) ROOT n = f32[8] negate(a) }

half { a = f32[8] parameter(0) s = f32[8] sine(a) ROOT n = f32[8] negate(a) }

ENTRY e {
  p = f32[8] parameter(0)
  f = f32[8] fusion(p), kind=kLoop, calls=whole
  ROOT g = f32[8] fusion(f), kind=kLoop, calls=half
}
"""
    violations = Verifier().violations(hlo_lint.parse(text), Stage())
    (dead,) = violations.by_check["fusion-dead-instruction"]
    assert dead.message == "%s is dead: no instruction in fusion %half uses it"


def test_attributes_after_metadata_are_read_wherever_they_stand() -> None:
    text = """HloModule m

condition { p = f32[8] parameter(0) ROOT c = pred[] constant(0) }

body { p = f32[8] parameter(0) ROOT n = f32[8] negate(p) }

ENTRY e {
  p = f32[8] parameter(0)
  ROOT w = f32[8] while(p), metadata={op_name="while"},
    condition=condition, body=body
}
"""
    assert not Verifier().violations(hlo_lint.parse(text), Stage()).by_check
    broken = hlo_lint.parse(text.replace("condition=condition", "condition=body"))
    assert len(Verifier().violations(broken, Stage()).by_check) == 1


def test_what_depends_on_layouts_is_a_warning_where_nothing_says_that_they_were_assigned() -> None:
    text = entry("  p = f32[8]{0} parameter(0)\n  ROOT b = f32[9]{0} bitcast(p)")
    (loose,) = hlo_lint.lint(text).findings
    (stated,) = hlo_lint.lint(text, stage="gpu post-layout").findings
    severities = loose.severity.value, stated.severity.value
    assert (loose.message, *severities) == (stated.message, "warning", "error")
