from __future__ import annotations

import json
import os
import re
import shutil
from pathlib import Path

import pytest
from click.testing import CliRunner

from hlo_lint.apps.cli.main import cli
from hlo_lint.apps.jax.capture.targets import target_of
from hlo_lint.hlo.parser.module import parse_file
from hlo_lint.text.errors import DumpError
from hlo_lint.xla.compiler import XlaCompiler
from hlo_lint.xla.cpu import devices_of
from hlo_lint.xla.limits import NoTimeLeft
from hlo_lint.xla.parser import XlaParser
from hlo_lint_hunt.campaign import JUDGED, Campaign, known_issue, write_cause
from hlo_lint_hunt.fair import unfair
from hlo_lint_hunt.generate import CHANGES, fair_texts, generate, mutated
from hlo_lint_hunt.judge import FOUND, SAME, BugFinding, Judge, JudgeVerdict, hunt_inputs
from hlo_lint_hunt.random_module import STEPS
from hlo_lint_hunt.show import inputs
from tests.conftest import FIXTURES, ROOT, completed, present
from tests.texts import entry

FOUND_MODULES = FIXTURES / "found"


def _entry(*lines: str) -> str:
    return entry("\n".join(lines))


def found_text(name: str) -> str:
    """A module in which a bug was found."""
    return (FOUND_MODULES / f"{name}.hlo").read_text("utf-8")


def _signature(pass_name: str, text: str) -> str:
    return JudgeVerdict(FOUND, (), BugFinding("values", pass_name, "5 of 6"), reduced=text).cause


def test_xla_reads_what_is_generated_and_it_is_fair() -> None:
    traits: set[str] = set()
    with XlaParser() as parser:
        for seed in range(200):
            module = generate(seed)
            assert parser.refusal(module.text) is None, module.text
            assert unfair(parse_file(module.text).modules[0]) == ""
            traits.update(module.traits)
    assert traits == {*STEPS}


@pytest.mark.parametrize(
    ("lines", "reason"),
    [
        (
            "a = s32[] parameter(0); b = s32[] parameter(1); ROOT r = s32[] divide(a, b)",
            "an integer divisor may be 0 or -1",
        ),
        ("a = f32[] parameter(0); ROOT r = s32[] convert(a)", "out of range"),
        (
            "a = s32[4] parameter(0); b = s32[] parameter(1); "
            "ROOT r = s32[<=4] set-dimension-size(a, b), dimensions={0}",
            "a size may be out of range",
        ),
        ("a = f32[] parameter(0); ROOT r = s32[] bitcast-convert(a)", "the bits of a NaN"),
        (
            "a = f32[] parameter(0); ROOT r = f32[] custom-call(a)",
            "no front end writes custom-call",
        ),
        ("a = (f32[]) parameter(0); ROOT r = f32[] get-tuple-element(a), index=0", "array"),
        (
            "a = s32[2] parameter(0); c = s32[] constant(-3); "
            "b = s32[2] broadcast(c), dimensions={}; ROOT r = s32[2] remainder(a, b)",
            "",
        ),
        ("a = s16[] parameter(0); f = f32[] convert(a); ROOT r = s32[] convert(f)", ""),
    ],
)
def test_what_xla_leaves_open_is_unfair(lines: str, reason: str) -> None:
    found = unfair(parse_file(_entry(*lines.split("; "))).modules[0])
    assert reason in found
    assert bool(reason) == bool(found)


def test_a_seed_gives_the_same_module_and_the_same_inputs_again() -> None:
    assert generate(7).text == generate(7).text != generate(8).text
    module = parse_file(_entry("ROOT a = u64[8] parameter(0)")).modules[0]
    one, other = hunt_inputs(module, 0)[0], hunt_inputs(module, 0)[0]
    assert (one == other).all()
    assert (one != hunt_inputs(module, 1)[0]).any()


def test_a_signature_has_no_names_and_no_numbers() -> None:
    text = _entry("p = s4[3] parameter(0)", "ROOT r = s4[3] add(p, p)")
    assert _signature("algsimp", text) == "values algsimp: add"
    assert known_issue("values algsimp: add") == ""
    assert known_issue("values simplify-while-loops: compare, subtract, while, xor")
    assert known_issue("crash spmd-partitioning died: spmd_partitioner.cc:1128")


def test_what_is_known_of_a_gpu_hides_nothing_of_a_cpu() -> None:
    cause = "values code generation: convolution"
    assert known_issue(cause, "0.11.2 gpu")
    assert known_issue(cause, "0.12.0.1 cpu") == known_issue(cause, "0.11.2 h200") == ""


def test_a_known_slice_of_a_sharded_array_hides_no_other_slice() -> None:
    line = "ROOT r = s32[2] dynamic-slice(p, i), dynamic_slice_sizes={2}"
    text = _entry("p = s32[8] parameter(0)", "i = s32[] parameter(1)", line)
    sharded = text.replace("HloModule m", "HloModule m, num_partitions=4")
    for name, module, issue in (
        ("algsimp", sharded, "found: partitioned_slice; openxla/xla#49122"),
        ("algsimp", text, ""),
        ("cse", sharded, ""),
    ):
        assert known_issue(_signature(name, module)) == issue


def test_a_cause_is_written_for_a_maintainer(tmp_path: Path) -> None:
    finding = BugFinding("values", "algsimp", "1 of 3 elements differ")
    text = _entry("p = s8[3] parameter(0)", "ROOT r = s8[3] add(p, p)")
    for target, file in (("cpu", "reduced.hlo"), ("h200", "gpu.pbtxt")):
        by = f"0.11.2 {target}"
        record = JudgeVerdict(FOUND, (), finding, seed=1, by=by, reduced=text, size=(9, 2))
        write_cause(record, tmp_path / target)
        assert (tmp_path / target / file).exists()
        report = (tmp_path / target / "REPORT.md").read_text("utf-8")
        assert report.startswith("# [XLA:")
        assert "stablehlo/spec#add)" in report
    (numbers,) = inputs((tmp_path / "cpu" / "reduced.hlo").read_text("utf-8"))
    assert (numbers.dtype.name, numbers.shape) == ("int8", (3,))


def test_mutations_are_read_by_xla() -> None:
    texts = [generate(seed).text for seed in range(3)]
    kinds: set[str] = set()
    with XlaParser() as parser:
        for seed in range(20):
            made = mutated(texts, seed, lambda text: parser.refusal(text) is None)
            if made is not None:
                assert made.text not in texts
                assert parser.refusal(made.text) is None
                kinds.update(made.traits)
    assert len(kinds) >= 4
    assert kinds <= {*CHANGES}


def test_modules_to_mutate_are_small_and_fair(tmp_path: Path) -> None:
    (tmp_path / "a.hlo").write_text(generate(1).text, "utf-8")
    unfair_text = _entry("a = s32[] parameter(0)", "ROOT b = s32[] divide(a, a)")
    (tmp_path / "b.hlo").write_text(unfair_text, "utf-8")
    (tmp_path / "c.md").write_text("HloModule", "utf-8")
    assert list(fair_texts([tmp_path])) == [generate(1).text]


def test_a_campaign_goes_on_where_the_last_one_ended(tmp_path: Path) -> None:
    finding = BugFinding("crash", "cse", "died: a.cc:1")
    verdicts = iter([JudgeVerdict(SAME, ("algsimp",)), JudgeVerdict(FOUND, (), finding)])
    campaign = Campaign.at(tmp_path)
    modules = [generate(3), generate(4)]
    campaign.run({"0 cpu": lambda _: next(verdicts)}, modules)
    with (tmp_path / JUDGED).open("a", encoding="utf-8") as file:
        file.write('\n{"seed": 5, "by"')  # the process ended here
    again = Campaign.at(tmp_path)
    assert again.records == campaign.records
    assert [seed for _, seed in again.records] == [3, 4]
    again.run({"0 cpu": lambda _: JudgeVerdict(SAME)}, [generate(6)])
    assert [seed for _, seed in Campaign.at(tmp_path).records] == [3, 4, 6]
    assert [row[:5] for row in again.table()] == [("cse", finding.cause, "0 cpu", "4", "1")]
    assert (tmp_path / "modules" / "4.hlo").read_text("utf-8") == modules[1].text


@pytest.mark.parametrize(
    "record",
    [
        '{"seed": 1, "by": "0 cpu", "traits": [], "outcome": "same", "passes": [], "found": null}',
        '{"of": "0 cpu 1", "as": {"found": {"kind": "crash"}}}',
        "[1]",
    ],
)
def test_a_record_of_another_release_is_an_error(record: str, tmp_path: Path) -> None:
    (tmp_path / JUDGED).write_text(f"\n{record}", "utf-8")
    with pytest.raises(DumpError, match=r"judged\.jsonl:2: .*another folder \(-o\)"):
        Campaign.at(tmp_path)


def test_a_verdict_that_the_end_of_the_time_cut_off_does_not_count(tmp_path: Path) -> None:
    def judge(_: str) -> JudgeVerdict:
        raise NoTimeLeft

    campaign = Campaign.at(tmp_path)
    with pytest.raises(NoTimeLeft):
        campaign.run({"0 cpu": judge}, [generate(1)])
    assert campaign.records == Campaign.at(tmp_path).records == {}


def test_what_is_for_several_devices_says_so() -> None:
    texts = [generate(seed).text for seed in range(60)]
    assert {tuple(devices_of(text)) for text in texts} == {(1, 1), (4, 1), (1, 4)}
    assert all("sharding=" not in text for text in texts if devices_of(text)[1] == 1)


@pytest.mark.slow
def test_the_command_hunts_reduces_and_goes_on(tmp_path: Path) -> None:
    (tmp_path / "modules").mkdir()
    shutil.copy(FOUND_MODULES / "two_slices.hlo", tmp_path / "modules")
    out = tmp_path / "out"
    given = ["hunt", "--from", str(tmp_path / "modules"), "--minutes", "0.1", "-o", str(out)]
    first = CliRunner().invoke(cli, given)
    assert first.exit_code in (0, 1), first.output
    summary = re.search(r"cpu: (\d+) modules?: (.*); \d+ passes changed something", first.output)
    assert summary is not None, first.output
    judged = (out / JUDGED).read_text("utf-8")
    modules = {json.loads(line)["seed"] for line in judged.splitlines() if line}
    counts = [int(part.split()[0]) for part in summary[2].split(", ")]
    assert int(summary[1]) == sum(counts) == len(modules)
    second = CliRunner().invoke(cli, [*given, "--passes", "algsimp", "--jobs", "2"])
    assert second.exit_code in (0, 1), second.output
    assert (out / JUDGED).read_text("utf-8").startswith(judged)


def test_nothing_to_mutate_is_wrong_use(tmp_path: Path) -> None:
    result = CliRunner().invoke(cli, ["hunt", "--from", str(tmp_path), "-o", str(tmp_path / "o")])
    assert result.exit_code == 2
    assert "no module there is small" in result.output


# ---- what was found


OF_EVERY_RELEASE = {
    ("crash|error", "while-loop-.*"): "countdown",
    ("values", "simplify-while-loops"): "counter_wraps",
    ("error", ".*"): (
        "argmax_int2 bitcast_chain scatter_scalar partitioned_concatenate "
        "partitioned_features partitioned_scatter"
    ),
    ("crash", "spmd-partitioning"): "partitioned_pad partitioned_window partitioned_convolution",
    ("crash", ".*"): (
        "partitioned_gather partitioned_groups partitioned_size partitioned_device "
        "window_bounded concatenate_int2"
    ),
    ("values", ".*"): (
        "partitioned_update partitioned_stride trip_count partitioned_kernel partitioned_interior"
    ),
    ("crash", "sharding-propagation"): "named_iota named_reduce named_reshape unreduced_scalar",
    ("crash", "algsimp"): "window_negative",
    ("values", "algsimp"): "clamp_bounds",
    ("values", "code generation"): "maximum_int2",
}
BEFORE_0_12 = {
    ("values", "simplify-while-loops"): "no_turn one_turn",
    ("values", "algsimp"): "two_slices partitioned_slice",
}
"""The modules by their kind and their pass."""


@pytest.mark.slow
def test_a_bug_that_was_found_is_there() -> None:
    from importlib.metadata import version

    from hlo_lint.xla.environments import version_of

    is_new = version_of(version("jaxlib")) >= (0, 12)
    with Judge() as judge:
        for cause, names in (*OF_EVERY_RELEASE.items(), *BEFORE_0_12.items()):
            for name in names.split():
                verdict = judge(found_text(name))
                if is_new and name in BEFORE_0_12.get(cause, "").split():
                    assert verdict.outcome == SAME
                    continue
                finding = present(verdict.finding)
                for wanted, actual in zip(cause, (finding.kind, finding.pass_name), strict=True):
                    assert re.fullmatch(wanted, actual), name


@pytest.mark.slow
@pytest.mark.parametrize(
    ("pass_name", "outcome"), [("algsimp", FOUND), ("cse", "of another pass: algsimp")]
)
def test_a_pass_of_a_pipeline_is_judged_alone(pass_name: str, outcome: str) -> None:
    with Judge(passes=[pass_name]) as judge:
        verdict = judge(found_text("clamp_bounds"))
    assert verdict.outcome == outcome


def python_of(environment: str) -> Path:
    """The Python of an environment that has a compiler for chips."""
    python = Path(os.environ["HLO_LINT_RELEASES"]) / "hlo_lint" / environment / "bin" / "python"
    if not python.exists():
        pytest.skip(f"{environment} is not installed")
    return python


_SHOW = """
import json, sys
from hlo_lint_hunt.show import run
text = open(sys.argv[1]).read()
print(json.dumps([result.astype(int).tolist() for result in run(text, {})]))
assert not sys.modules.get("jax")
"""


@pytest.mark.slow
@pytest.mark.skipif("HLO_LINT_ORACLES" not in os.environ, reason="needs another jaxlib")
@pytest.mark.parametrize(
    "name", ["popcnt_int4", "sort_int2", "counter_wraps", "slice_at_u8", "convert_float4"]
)
def test_another_release_computes_it_wrong(name: str) -> None:
    right = present(re.search(r"^// right: (.*)", found_text(name), re.M))
    for python in os.environ["HLO_LINT_ORACLES"].split(os.pathsep):
        command = [python, "-c", _SHOW, str(FOUND_MODULES / f"{name}.hlo")]
        sources = os.pathsep.join((str(ROOT), str(ROOT / "hunt")))
        alone = {"PYTHONPATH": sources, "JAX_PLATFORMS": "cpu"}
        done = completed(command, env={**os.environ, **alone})
        # A sort that writes beside its array may end the process.
        assert not done.returncode or name == "sort_int2", done.stderr
        assert done.returncode or json.loads(done.stdout) != [json.loads(right[1])]


@pytest.mark.slow
@pytest.mark.skipif("HLO_LINT_RELEASES" not in os.environ, reason="needs compilers for chips")
@pytest.mark.parametrize(
    ("name", "environment", "target", "message"),
    [
        ("sort_int4", "jax-0.11.2", "h200", "does not support custom element sizes"),
        ("argmax_int4", "jax-0.11.2", "h200", "the same layout to all reduce inputs"),
        ("convolution_int4", "jax-0.11.2", "h200", "Invalid input layout"),
        ("reversed_float8", "jax-0.11.2", "h200", "failed to legalize operation 'arith.mulf'"),
        ("loop_int2", "jax-0.11.2", "h200", "Non-byte-aligned dimension in slice"),
        # The passes of this libtpu meet in either check, from run to run.
        ("scan_vector", "jax-0.10.2-tpu", "v5e", "lowering_util.cc|windowing_util.cc"),
        ("countdown", "jax-0.11.2", "h200", "bad optional access"),
        ("pad_int4", "jax-0.11.2", "h200", "algebraic_simplifier.cc:617"),
        ("bits_and_whole", "jax-0.11.2", "h200", "computation_partitioner.cc:269"),
        ("permute_int4", "jax-0.11.2", "h200", "SIGSEGV"),
        ("clamp_window", "jax-0.11.2", "h200", "hlo_instruction.cc"),
        ("partitioned_size", "jax-0.11.2", "h200", "spmd_partitioner.cc"),
        ("partitioned_gather", "jax-0.10.2-tpu", "v5e", "gather_scatter_handler.cc"),
        ("clamp_slice", "jax-0.10.2-tpu", "v5e", "must match rank"),
        ("clamp_window", "jax-0.10.2-tpu", "v5e", "hlo_instruction.cc"),
        ("gather_collapsed", "jax-0.10.2-tpu", "v5e", "can only collapse slice dims"),
        ("pooling_gradient", "jax-0.10.2-tpu", "v5e", "pipeline_emitter.cc"),
    ],
)
def test_compilers_for_chips_fail(name: str, environment: str, target: str, message: str) -> None:
    chip, text = target_of(target), found_text(name)
    platform = "tpu" if chip.is_tpu else "cuda"
    with XlaCompiler(python_of(environment), platform=platform) as compiler:
        ending = compiler.compile(text, chip.description, devices=devices_of(text))
    assert ending.crashed
    assert re.search(message, ending.message)


@pytest.mark.slow
@pytest.mark.skipif("HLO_LINT_RELEASES" not in os.environ, reason="needs compilers for chips")
@pytest.mark.parametrize(
    ("name", "note"),
    [
        ("batch_groups", "add.s32"),
        ("two_int4", "griddepcontrol.wait;\n\tret;"),
        ("constant_int4", ", 249;"),
        ("trip_count", '"known_trip_count":{"n":"-2147483640"}'),
        ("update_outside", '"dynamic_slice_config":{"byte_offset":"32"'),
        ("reduce_bounded", "bitcast(%numbers)"),
        ("bounded_zeros", "copy(%constant"),
        ("unsigned_step", '"known_trip_count":{"n":"1"}'),
        ("update_int4", '"dynamic_slice_config":{"byte_offset":"-1"'),
        ("flipped_kernel", 'custom_call_target="__cudnn$convBackwardInput"'),
    ],
)
def test_what_a_compiler_for_a_gpu_writes_is_wrong(name: str, note: str, tmp_path: Path) -> None:
    python, text = python_of("jax-0.11.2"), found_text(name)
    flags = f"--xla_dump_to={tmp_path} --xla_gpu_dump_llvmir=true --xla_dump_emitter_re=.*"
    with XlaCompiler(python, platform="cuda") as compiler:
        assert compiler.compile(text, target_of("h200").description, flags).status == "ok"
    (optimized,), code = tmp_path.glob("*gpu_after_optimizations.txt"), [*tmp_path.glob("*.ptx")]
    assert any(note in file.read_text("utf-8") for file in (optimized, *code))


def test_inputs_are_read_from_comments() -> None:
    first, second = inputs("// input: int4 [1, -8]\n// input: float32 [nan, -inf]\n")
    assert (first.dtype.name, first.tolist()) == ("int4", [1, -8])
    assert second.tolist()[1] == float("-inf")
