"""A pass that keeps every property gives no finding; a lost property gives a finding."""

from __future__ import annotations

from itertools import chain, permutations
from random import Random

import hlo_lint
from hlo_lint.analysis.pass_pairs import PassPair
from hlo_lint.analysis.step_map.differences import changed_operations
from hlo_lint.analysis.step_map.value_classes import ValueClasses
from hlo_lint.engine.views import checks_of
from hlo_lint.rules.base import Stage
from hlo_lint.rules.registry import all_rules, find_rule
from tests.analysis.steps import LOSSES, PRESERVING, Program, alter, plant
from tests.conftest import DUMPS
from tests.texts import entry, summing

CHECKS = [
    (getattr(check.rule, check.method), check.parameters)
    for rule in all_rules()
    for check in checks_of(rule)
    if check.view == "PassPair" and rule.enabled_by_default
]
PATHS = [
    path
    for path in sorted(DUMPS.rglob("*.before_*.txt"))
    if path.stat().st_size < 60_000 and "  %" in path.read_text("utf-8", "replace")
]
_PROGRAM = """HloModule m, replica_count=2, num_partitions=2

add { x = f32[] parameter(0) y = f32[] parameter(1) ROOT z = f32[] add(x, y) }
plus { a = f32[] parameter(0) b = f32[] parameter(1) ROOT c = f32[] add(a, b) }
max { s = f32[] parameter(0) t = f32[] parameter(1) ROOT u = f32[] maximum(s, t) }

ENTRY e {
  p = f32[8] parameter(0)
"""


def pair_of(before: object, after: object) -> PassPair:
    """A step of algsimp, from the texts of its modules."""
    modules = hlo_lint.parse(str(before)), hlo_lint.parse(str(after))
    return PassPair(*modules, "algsimp", "simplification", None)


def said(before: Program | str, after: Program | str) -> list[str]:
    """The messages of all rules about a step."""
    subjects = {"PassPair": pair_of(before, after), "Stage": Stage()}
    return [
        finding.message
        for check, parameters in CHECKS
        for finding in check(**{name: subjects[type_] for type_, name in parameters.items()})
    ]


def drawn(chance: Random) -> Program:
    return Program.of(hlo_lint.parse(chance.choice(PATHS).read_text("utf-8")))


def test_a_change_of_names_order_and_places_loses_nothing() -> None:
    chance, seen = Random(43), dict.fromkeys(PRESERVING, 0)
    while sum(seen.values()) < 200:
        name = min(seen, key=lambda name: (seen[name], chance.random()))
        step = PRESERVING[name](drawn(chance), chance)
        seen[name] += 1
        assert step is None or said(*step) == [], name


def test_a_lost_property_is_found() -> None:
    chance, missed, count = Random(43), list[str](), 0
    while count < 200:
        kind, name = chance.choice([*LOSSES]), chance.choice([*PRESERVING])
        change = chance.choice((PRESERVING[name], lambda program, _: (program, program)))
        step = plant(drawn(chance), chance, change, kind)
        if step is not None:
            count += 1
            missed += [] if said(*step) else [f"{kind}, {name}"]
    assert len(missed) <= 0.05 * count, missed


def test_another_operation_is_found_whatever_the_names() -> None:
    chance, missed, count = Random(43), list[str](), 0
    while count < 100:
        name = chance.choice(("rename", "reorder", "clone", "outline", "fuse", "inline"))
        step = PRESERVING[name](drawn(chance), chance)
        after = None if step is None else alter(step[1], chance)
        if step is not None and after is not None:
            count += 1
            missed += [] if said(step[0], after) else [name]
    assert len(missed) <= 0.02 * count, missed


def test_an_empty_body_is_no_operation() -> None:
    fusion = "  p = f32[8] parameter(0)\n  ROOT c = f32[8] fusion(p), kind=kLoop, calls=b"
    texts = entry("  ROOT p = f32[8] parameter(0)"), f"{entry(fusion)}b {{\n}}\n"
    for before, after in permutations(texts, 2):
        assert not changed_operations(pair_of(before, after))


def test_branches_that_change_places_are_another_value() -> None:
    def conditional(given: str, names: str) -> str:
        branches = [f"{name} {{\n  ROOT {name}.x = pred[] parameter(0)\n}}\n" for name in names]
        calls = f"true_computation={names[0]}, false_computation={names[1]}"
        return entry(
            f"  c = pred[] parameter(0)\n  d = pred[] parameter(1)\n"
            f"  ROOT r = pred[] conditional(c, {given}), {calls}",
            "".join(branches),
        )

    pair = pair_of(conditional("c, d", "tf"), conditional("d, c", "uv"))
    classes = ValueClasses(pair)
    (old,), (new,) = classes.before.values.values(), classes.after.values.values()
    assert old["c"] == new["c"]
    assert old["r"] != new["r"]


def test_a_dimension_that_an_array_has_not_has_no_full_size() -> None:
    text = summing("""
  p = f32[8] parameter(0)
  n = s32[] parameter(1)
  d = f32[<=8] set-dimension-size(p, n), dimensions={7}
  zero = f32[] constant(0)
  ROOT r = f32[] reduce(d, zero), dimensions={0}, to_apply=add
""")
    pair = pair_of(text, text.replace("reduce(d", "reduce(p"))
    checks = checks_of(find_rule("meaning-changed"))
    (finding,) = chain(*(check.run(pair, Stage()) for check in checks))
    assert "it reads past %d, a set-dimension-size" in finding.message


def step(line: str, was: str, now: str) -> list[str]:
    """The messages about a step that changes a part of a line."""
    return said(*(f"{_PROGRAM}  ROOT r = f32[8] {line.replace('#', p)}\n}}\n" for p in (was, now)))


def test_a_called_computation_is_compared_by_what_it_computes() -> None:
    line = 'custom-call(p), custom_call_target="scan", called_computations={#}'
    assert step(line, "add", "max") == ["algsimp changed the applied operation from add to maximum"]
    assert step(line, "add", "plus") == []


def test_what_attention_computes_is_kept_and_how_is_not() -> None:
    line = 'custom-call(p), custom_call_target="__cudnn$fmhaSoftmax", backend_config={"c":{#}}'
    assert step(line, '"mask_type":"CAUSAL"', '"mask_type":"NO_MASK"') == [
        "algsimp lost mask_type's value"
    ]
    assert step(line, '"algo_id":"0"', '"algo_id":"3"') == []


def test_groups_of_replicas_and_of_devices_are_not_compared_by_number() -> None:
    line = "all-reduce(p), channel_id=1, to_apply=add, replica_groups={#"
    assert step(line, "{0},{1}}", "{0,1},{2,3}}, use_global_device_ids=true") == []
    assert len(step(line, "{0},{1}}", "{0,1}}")) == 1


def test_a_step_that_chains_its_replacements_has_few_parts() -> None:
    before, after, reads, sum_before = [], [], [], "p"
    for number in range(700):
        attributes = (
            f'replica_groups={{{{0,1}}}}, to_apply=add, frontend_attributes={{a="{number}"}}'
        )
        before.append(f"r{number} = f32[8] all-reduce(p), {attributes}")
        after.append(f"b{number} = f32[8] add(p, {sum_before})")
        after.append(f"x{number} = f32[8] all-reduce(b{number}), {attributes}")
        before.append(f"u{number} = f32[8] sine(r{number})")
        after.append(f"u{number} = f32[8] sine(x{number})")
        reads.append(f"u{number}")
        sum_before = f"x{number}"
    root = f"ROOT t = ({', '.join(['f32[8]'] * 700)}) tuple({', '.join(reads)})\n}}\n"
    texts = ("\n".join([_PROGRAM, *body, root]) for body in (before, after))
    links = pair_of(*texts).map.links(lambda _: True)
    parts = sum(len(link.parts) for link in links)
    assert 700 < parts < 2**18 < 700 * 701
