"""The demands that hold at each step of a run, and how often a rule that asks for them is run."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import hlo_lint
from hlo_lint.analysis.stage import parse_stage
from hlo_lint.dumps.compilation import Compilation
from hlo_lint.dumps.directory import open_dump
from hlo_lint.engine.memo import RunMemo
from hlo_lint.engine.stages import Stages
from hlo_lint.engine.timeline import Occurrence, Timeline
from hlo_lint.engine.views import checks_of
from hlo_lint.hlo.ir import Computation, Module
from hlo_lint.rules.base import Findings, Rule, Stage
from hlo_lint.rules.findings import Finding, Severity
from hlo_lint.text.errors import RuleError, UsageError
from tests.commands import invoke
from tests.conftest import DUMPS, present, written
from tests.texts import entry

ATTENTION = DUMPS / "gpu-jax0.11.2" / "attention"
MLP = DUMPS / "cpu-jax0.10.2" / "mlp_train"
HELPERS = DUMPS / "gpu-jax0.10.2" / "cublaslt_fission"
PROTO = DUMPS / "cpu-jax0.11.2" / "as_proto"
TEXT = entry("  ROOT %p = f32[8]{0} parameter(0)")


SCHEDULED = TEXT.replace("m\n", "m, is_scheduled=true\n", 1)


def with_line(line: str) -> str:
    return TEXT.replace("parameter(0)", f"parameter(0)\n  {line}")


def first_with(case: Path, field: str, value: object, module: int = 0) -> str:
    """The first dump of a run, as a person would name it, whose stage says so."""
    for label, stage in stages_of(open_dump(case).compilations[module]):
        if getattr(stage, field) == value:
            return label
    return "none"


def stages_of(compilation: Compilation) -> Iterator[tuple[str, Stage]]:
    stages = Stages(compilation)
    for dump in compilation.dumps:
        label = dump.name.label if dump.name else dump.path.name
        yield label, stages.of(dump, dump.module)


@pytest.mark.parametrize(
    ("case", "field", "value", "first"),
    [
        (ATTENTION, "layouts", True, "after layout-assignment"),
        (ATTENTION, "scan", False, "after layout-assignment"),
        (ATTENTION, "normalized", False, "before_optimizations"),
        # the dumps after layout_normalization and host-offloader themselves: neither found work
        (ATTENTION, "normalized", True, "after pipeline-start"),
        (ATTENTION, "host_memory", True, "after pipeline-start"),
        (ATTENTION, "scheduled", True, "after pipeline-start"),
        (ATTENTION, "mixed_precision", True, "none"),
        (ATTENTION, "final", True, "sm_9.0a_gpu_after_optimizations"),
        (MLP, "layouts", True, "after layout-assignment"), (MLP, "normalized", True, "none"),
        (MLP, "host_memory", False, "none"), (PROTO, "layouts", True, "cpu_after_optimizations"),
    ],
)  # fmt: skip
def test_a_stage_begins_at_its_pass(case: Path, field: str, value: object, first: str) -> None:
    assert first_with(case, field, value) == first


@pytest.mark.parametrize(
    ("case", "backend", "release"),
    [
        (ATTENTION, "gpu", "gpu-jax0.11.2"), (HELPERS, "gpu", "gpu-jax0.10.2"),
        (MLP, "cpu", "cpu-jax0.10.2"),
        (PROTO, "cpu", None),  # both releases of XLA:CPU write files of these names
    ],
)  # fmt: skip
def test_every_dump_of_a_run_has_its_release(case: Path, backend: str, release: str | None) -> None:
    told = {
        (stage.backend, stage.release) for _, stage in stages_of(open_dump(case).compilations[0])
    }
    assert told == {(backend, release)}


def test_a_stage_never_goes_back_where_passes_do_not_undo_it() -> None:
    named = ("before_config_assignment", "after_spmd_partitioner")  # sorted beside the steps
    for case in sorted(DUMPS.glob("*/*")):
        for compilation in open_dump(case):
            stages = [stage for label, stage in stages_of(compilation) if label not in named]
            for field in ("layouts", "scheduled", "host_memory", "final"):
                values = [getattr(stage, field) for stage in stages]
                assert values == sorted(values), (case, field)


def test_what_the_autotuner_took_out_of_a_module_has_layouts_and_no_release() -> None:
    (helper,) = [compilation for compilation in open_dump(HELPERS) if compilation.is_helper][:1]
    ((_, first), *_) = stages_of(helper)
    assert first == Stage(layouts=True, assumed=True)


@pytest.mark.parametrize(
    ("name", "text", "stage"),
    [
        ("m.hlo", TEXT, Stage(assumed=True)),
        ("m.hlo", with_line("b = f32[8] bitcast(p)"), Stage(layouts=True, assumed=True)),
        ("m.hlo", with_line('s = f32[8] custom-call(p), custom_call_target="Sharding"'), Stage()),
        ("m.before_optimizations.txt", TEXT, Stage()),
        ("m.after_optimizations.txt", TEXT, Stage(layouts=True, final=True, assumed=True)),
        ("m.hlo", SCHEDULED, Stage(layouts=True, scheduled=True, assumed=True)),
    ],
)
def test_a_loose_file_has_a_stage(tmp_path: Path, name: str, text: str, stage: Stage) -> None:
    path = written(tmp_path / name, text)
    (compilation,) = open_dump(path)
    assert [each for _, each in stages_of(compilation)] == [stage]


def test_after_layout_assignment_the_layouts_of_an_unknown_backend_bind(tmp_path: Path) -> None:
    text = entry(
        "  p = f32[8,4]{1,0} parameter(0)\n  ROOT c = f32[8,4]{0,1} copy(p)",
        header=", entry_computation_layout={(f32[8,4]{1,0})->f32[8,4]{1,0}}",
    )
    name = "module_0001.m.0001.pipeline.after_{}.before_dce.txt"
    (tmp_path / name.format("cse")).write_text(text)
    assert not hlo_lint.lint(tmp_path).findings
    (tmp_path / name.format("cse")).rename(tmp_path / name.format("layout-assignment"))
    (finding,) = hlo_lint.lint(tmp_path).findings
    assert (finding.rule, finding.severity) == ("entry-layout-disagrees", Severity.ERROR)


# Rules that ask for it


class ScheduledReductions(Rule):
    """A computation in a schedule that adds two scalars; counts how often it was run."""

    def __init__(self) -> None:
        self.runs: list[Computation] = []

    def check(self, computation: Computation, stage: Stage) -> Findings:
        self.runs.append(computation)
        root = computation.root
        if root is not None and root.type_text == "f32[]" and stage.scheduled:
            yield Finding(root, "scheduled")


class UnscheduledModules(Rule):
    """A module that is not scheduled yet."""

    def __init__(self) -> None:
        self.runs: list[Module] = []

    def check(self, module: Module, stage: Stage) -> Findings:
        self.runs.append(module)
        root = module.entry.root if module.entry else None
        if not stage.scheduled and root is not None:
            yield Finding(root, f"in {module.name}")


def occurrences(rule: Rule) -> list[Occurrence]:
    """The findings of a rule in a run of XLA:CPU."""
    compilation = open_dump(MLP).compilations[0]
    (check,) = checks_of(rule)
    return list(Timeline(compilation, compilation.dumps, RunMemo()).find(check))


def test_a_computation_is_found_in_each_dump_whose_stage_makes_a_difference() -> None:
    found = occurrences(ScheduledReductions())
    dumps = open_dump(MLP).compilations[0].dumps
    scheduled = [dump for dump in dumps if dump.module.is_scheduled]
    assert len({occurrence.ref.position for occurrence in found}) == len(scheduled)


def test_a_rule_that_names_its_opcodes_is_run_where_they_are() -> None:
    class Dots(ScheduledReductions):
        """A dot, and no other computation."""

        opcodes = frozenset({"dot", "convolution"})

    rule = Dots()
    occurrences(rule)
    assert rule.runs
    assert all(each.with_opcode("dot") for each in rule.runs)


def test_a_module_is_checked_once_for_all_files_that_repeat_it_at_a_stage() -> None:
    rule = UnscheduledModules()
    occurrences(rule)
    texts = {module.text for module in rule.runs}
    dumps = open_dump(MLP).compilations[0].dumps
    assert len(texts) == len({dump.file.text for dump in dumps}) <= len(rule.runs) < len(dumps)


def test_a_rule_that_asks_for_a_stage_alone_is_refused() -> None:
    class Confused(Rule):
        """Nothing to look at."""

        def check(self, stage: Stage) -> Findings:
            yield from ()

    with pytest.raises(RuleError, match="must ask for"):
        checks_of(Confused())


# Stages that somebody states

MIXED = entry("""
  p = f32[8,3]{1,0} parameter(0)
  q = bf16[8,3]{1,0} parameter(1)
  a = f32[8,3]{1,0} add(p, q)
  ROOT r = f32[4,2,3]{0,1,2} reshape(a)
""")
MIXED_RULE = "mixed-float-operands"
MOVES_RULE = "reshape-moves-data"


def rules_found(text: str, **given: Any) -> list[str]:
    return [found.rule for found in hlo_lint.lint(text, [MIXED_RULE, MOVES_RULE], **given).findings]


@pytest.mark.parametrize(
    ("stage", "rules"),
    [
        ("", [MOVES_RULE]), ("pre-layout", []), ("gpu pre-layout", [MIXED_RULE]),
        ("tpu post-layout", [MOVES_RULE]),
        ("gpu post-layout allow_mixed_precision=true", [MOVES_RULE]),
    ],
)  # fmt: skip
def test_a_stage_is_stated_by_the_caller_or_in_the_text(stage: str, rules: list[str]) -> None:
    if stage:
        assert rules_found(MIXED, stage=stage) == rules
        assert rules_found(MIXED, stage=parse_stage(stage)) == rules
    text = MIXED.replace("ENTRY", f"// hlo-lint: stage {stage}\nENTRY") if stage else MIXED
    assert rules_found(text, stage="final" if stage else None) == rules


@pytest.mark.parametrize(
    ("option", "body", "rule"),
    [
        ("layout_sensitive=true", "n = f32[4,2]{0,1} negate(p)", "layout-changed"),
        ("allow_mixed_precision=false", "n = f32[4,2] add(p, q)", MIXED_RULE),
        (
            "verify_broadcast_dimensions_order=true",
            "n = f32[2,4] broadcast(p), dimensions={1,0}",
            "unordered-broadcast",
        ),
        (
            "layout_sensitive=true verify_reshape_is_bitcast=true",
            "n = f32[2,4]{0,1} reshape(p)",
            "bad-bitcast",
        ),
        ("verify_no_host_memory_space=true", "n = f32[4,2]{1,0:S(5)} copy(p)", "host-memory-leak"),
        (
            "layout_sensitive=true allow_bitcast_to_have_different_size=false",
            "n = f32[9] bitcast(p)",
            "bad-bitcast",
        ),
        (
            "verify_sharding_device_numbers=true",
            "n = f32[4,2] negate(p), sharding={maximal device=5}",
            "bad-sharding",
        ),
        (
            "check_replica_groups=true",
            "n = f32[4,2] all-to-all(p), dimensions={0}, replica_groups={{0,0}}",
            "bad-replica-groups",
        ),
        (
            "verify_no_collective_deadlocks=true",
            "t = token[] after-all()\n"
            "  s = (f32[4,2], u32[], token[]) send(p, t), channel_id=1,\n"
            '      frontend_attributes={_xla_send_recv_source_target_pairs="{{0,1}}"}\n'
            "  n = token[] send-done(s), channel_id=1",
            "send-recv-deadlock",
        ),
    ],
)
def test_an_option_of_the_verifier_decides(option: str, body: str, rule: str) -> None:
    """Each option of `HloVerifierOpts` that a check depends on, and its opposite."""
    lines = "  p = f32[4,2] parameter(0)\n  q = bf16[4,2] parameter(1)\n  "
    text = entry(
        f"{lines}{body}\n  ROOT r = f32[4,2] copy(p)",
        header=", num_partitions=2, is_scheduled=true",
    )
    head, _, last = option.rpartition(" ")
    name, _, value = last.partition("=")
    opposite = f"{head} {name}={'false' if value == 'true' else 'true'}"
    assert rule in {found.rule for found in hlo_lint.lint(text, stage=option).findings}
    assert rule not in {found.rule for found in hlo_lint.lint(text, stage=opposite).findings}


def test_a_stage_that_names_the_next_pass_makes_its_demands_errors() -> None:
    stage = "gpu post-layout before=layout_normalization"
    (found,) = hlo_lint.lint(MIXED, [MOVES_RULE], stage=stage).findings
    assert found.severity is Severity.ERROR
    assert "copy" in present(found.fix).title


@pytest.mark.parametrize(
    ("place", "as_words"),
    [
        ("cublas-gemm-rewriter", "gpu post-layout normalized=false host_memory=false"),
        ("layout-assignment", "post-layout"),
        ("before=layout-assignment", "before=layout-assignment"),
        ("cpu copy-insertion", "cpu post-layout"),
        ("gpu before=copy-insertion", "gpu normalized before=copy-insertion"),
        ("spmd-partitioner", ""),
    ],
)
def test_a_stage_is_a_pass_or_a_pipeline_of_a_release(place: str, as_words: str) -> None:
    assert str(parse_stage(place)) == str(parse_stage(as_words))


def test_a_stage_is_spelled_as_it_is_read() -> None:
    text = "gpu normalized scheduled replica_count=4 supported_unbounded_dynamic_op=add+dot"
    assert parse_stage(str(parse_stage(text))) == parse_stage(text)
    assert str(Stage()) == ""


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("gpu post-layuot", "post-layout"),
        ("gpu cublas-gem-rewriter", "did you mean cublas-gemm-rewriter"),
        ("before=copyinsertion", "did you mean copy-insertion"),
        ("replica_count=many", "replica_count takes a whole number, not 'many'"),
        ("final=yes", "final takes true or false"),
        ("mixed_precison=true", "mixed_precision"),
    ],
)
def test_a_stage_that_cannot_be_read_is_refused(text: str, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        hlo_lint.lint(MIXED, stage=text)
    (found,) = hlo_lint.lint(f"// hlo-lint: stage {text}\n{MIXED}", ["unused-allowance"]).findings
    assert message in found.message


def test_settings_state_the_stages_of_paths(tmp_path: Path) -> None:
    (tmp_path / "hlo_lint.toml").write_text(
        'select = ["mixed-float-operands"]\nstage = "tpu"\n'
        '[per-path-stages]\n"strict/*" = "gpu post-layout"\n'
    )
    for folder in ("strict", "lenient"):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "m.hlo").write_text(MIXED)
    settings = hlo_lint.load_settings([tmp_path])
    for jobs in (1, 2):
        report = hlo_lint.lint(tmp_path, settings=settings.overridden(jobs=jobs))
        assert [Path(found.path).parent.name for found in report.findings] == ["strict"]
    assert not hlo_lint.lint(tmp_path, settings=settings, stage="tpu").findings
    command = ["check", str(tmp_path), "--stage", "gpu post-layout", "--output-format", "concise"]
    assert invoke(*command).stdout.count("[mixed-float-operands]") == 2


@pytest.mark.parametrize(("next_pass", "count"), [("sub-byte-size-setter", 0), ("algsimp", 1)])
def test_element_sizes_bind_once_they_are_set(next_pass: str, count: int, tmp_path: Path) -> None:
    name = f"module_0001.m.0002.layout_assignment.after_layout-assignment.before_{next_pass}.txt"
    (tmp_path / name).write_text(with_line("c = pred[8]{0:E(4)} compare(p, p), direction=LT"))
    assert len(hlo_lint.lint(tmp_path, ["invalid-layout"]).findings) == count
