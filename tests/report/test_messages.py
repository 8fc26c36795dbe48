"""Messages of XLA lead to the rules that stand for them."""

from __future__ import annotations

import json
import lzma
import mmap
import os
import re
from pathlib import Path

import pytest
from click.testing import Result

from hlo_lint.apps.cli.explain import answer
from hlo_lint.dumps.messages import CATALOGUE, _tables, component_of
from hlo_lint.dumps.pass_lists import passes_and_pipelines
from hlo_lint.report.messages import meanings, messages_of, rules_for
from hlo_lint.rules.registry import all_rules, rule_entries
from hlo_lint.text.errors import UsageError
from tests.commands import invoke
from tests.conftest import FIXTURES, new_folder, written
from tests.rules.test_pipeline import CAUSES
from tests.texts import entry


def explain(asked: str, piped: str | None = None) -> Result:
    return invoke("explain", asked, piped=piped)


@pytest.mark.parametrize("death", CAUSES)
def test_what_xla_said_of_a_death_leads_to_the_rule_that_finds_its_cause(death: str) -> None:
    said = json.loads((FIXTURES / "deaths" / "OUTCOMES.json").read_text())[death]
    assert [rule.name for rule in rules_for(said, rule_entries())] == [CAUSES[death][0]]


@pytest.mark.parametrize(
    ("asked", "rule"),
    [
        ("Expected instruction to have shape equal to", "wrong-result-shape"),
        (
            "INTERNAL: Expected instruction to have shape equal to f32[2], actual shape is f32[3]:",
            "wrong-result-shape",
        ),
        (
            "INTERNAL: RET_CHECK failure (external/xla/xla/service/layout_normalization.cc:431) "
            "ShapeUtil::ReshapeIsBitcast(s, operand->shape())",
            "reshape-moves-data",
        ),
        ("bitcast cannot have different shape", "bad-bitcast"),
        ("Async start %s has no matching async done", "broken-async"),
        ("Orphan async update %u found", "broken-async"),
        ("INVALID_ARGUMENT: GetRngSeed custom call must have no operands", "bad-custom-call"),
        ("Mismatched tuple structure in shape and original value. Shape:", "origin-disagrees"),
        ("Seen buffers while buffers aren't allowed in this context", "bad-buffer"),
        (
            "Unexpected non-layout preserving elementwise unary: %n = f32[2,3]{0,1} negate(%p)",
            "layout-changed",
        ),
        ("Gemm rewriting should run after layout assignment", "required-pass-order"),
        ("instruction %add is missing from HLO schedule", "bad-schedule"),
        (
            "Expected aliased input 0 at index {} and output at index {} to have the same size",
            "bad-aliasing",
        ),
    ],
)
def test_a_message_or_a_part_of_it_leads_to_the_page_of_its_rule(asked: str, rule: str) -> None:
    assert f"\n# {rule}\n" in explain(asked).output
    assert f"\n# {rule}\n" in explain("-", asked).output


def test_a_source_file_leads_to_all_rules_with_a_message_of_it() -> None:
    ran = explain("layout_normalization.cc:431")
    assert ran.exit_code == 0
    assert "reshape-moves-data: " in ran.output
    assert "scatter-off-normal-form: " in ran.output


def test_a_message_of_no_rule_leads_to_a_command_or_is_refused() -> None:
    assert "huge-temporary" in explain("RESOURCE_EXHAUSTED: Out of memory allocating").output
    assert "hlo-lint ranks" in explain("-", "This thread has been waiting and may be stuck").output
    assert "hlo-lint run --first-nan DUMP" in explain("NaN").output
    said = "FloatingPointError: invalid value (nan) encountered in jit(f)"
    assert "hlo-lint run --first-nan DUMP" in explain("-", said).output
    assert "hlo-lint diff A B" in explain("-", "TRACING CACHE MISS at model.py:4").output
    assert "--select tma" in explain("Failed to initialize the TMA descriptor 700").output
    ran = explain("nothing that XLA says")
    assert (ran.exit_code, "no rule stands for" in ran.output) == (2, True)


@pytest.mark.parametrize(
    ("log", "parts"),
    [
        (
            "F1128 10:00:00.1 42 spmd_partitioner.cc:4321] Check failed: x == y (1 vs. 2)",
            ("the SPMD partitioner", "pass: spmd-partitioning"),
        ),
        (
            "RET_CHECK failure (external/xla/xla/service/gpu/model/gpu_performance_model.cc:5) x",
            ("the cost model of XLA:GPU", "passes that call it: gpu_cost_model_stats_collection"),
        ),
        # In no catalogue: the folder says the component.
        ("xla/backends/gpu/runtime/of_next_year_thunk.cc:3] Check failed: x", ("thunk of the",)),
        # By its words: quoted, wrapped, and with values.
        (
            'RuntimeError: "Given root operation\n    is not in this computation."',
            ("the builder of HLO", "by its words"),
        ),
        # By the dialect of an operation that MLIR refuses.
        ("loc(1): 'tt.load' op operation destroyed but still has uses", ("the Triton emitter",)),
        (
            "Expected the sort_dimension 3 of sort to be smaller than the rank 2 of the operand",
            ("the HLO verifier", "hlo-lint check --select verifier DUMP"),
        ),
    ],
)
def test_a_message_leads_to_the_component_it_comes_from(log: str, parts: tuple[str, ...]) -> None:
    said = explain("-", log).output
    assert [part for part in parts if part not in said] == []


def test_a_warning_before_a_failure_does_not_hide_where_it_died() -> None:
    log = (
        "W1128 10:00:00.1 42 spmd_partitioner.cc:600] Involuntary full rematerialization.\n"
        "F1128 10:00:01.1 42 copy_insertion.cc:100] Check failed: x\n"
    )
    said = explain("-", log).output
    assert "from: copy insertion (copy_insertion.cc)" in said
    assert "partitioner" not in said


@pytest.mark.parametrize(
    ("said", "part"),
    [
        ("RESOURCE_EXHAUSTED: Shared memory size limit exceeded: requested 9", "shared memory"),
        ("RESOURCE_EXHAUSTED: Ran out of memory in memory space vmem.", "on-chip memory"),
    ],
)
def test_memory_of_a_kernel_is_no_memory_of_the_device(said: str, part: str) -> None:
    out = explain(said).output
    assert part in out
    assert "huge-temporary" not in out


def test_the_catalogue_is_small_and_each_of_its_files_has_a_component() -> None:
    assert CATALOGUE.stat().st_size <= 400_000
    paths = lzma.decompress(CATALOGUE.read_bytes()).partition(b"\n\n")[0].decode().split("\n")
    assert len(paths) > 1000
    assert [path for path in paths if component_of(path.split(" ")[0]) is None] == []


def test_each_listed_pass_is_of_a_release() -> None:
    names = [name for passes in _tables().passes.values() for name in passes]
    assert [name for name in names if name not in passes_and_pipelines()] == []


def test_the_instructions_of_a_message_are_looked_up_in_the_dump(tmp_path: Path) -> None:
    fused = """%fused {
  %p = f32[4]{0} parameter(0)
  ROOT %slice.13.1 = f32[4]{0} negate(%p), metadata={source_file="model.py" source_line=12}
}

"""
    call = "ROOT %loop_fusion = f32[4]{0} fusion(%x), kind=kLoop, calls=%fused"
    dump = written(tmp_path / "f.hlo", entry(f"  %x = f32[4]{{0}} parameter(0)\n  {call}", fused))
    said = "loc(\"slice.13.1\"): 'scf.if' op along control flow edge\n"
    log = written(tmp_path / "run.log", said)
    said = invoke("explain", log, dump).output
    assert f"%slice.13.1: {dump}:5\n" in said
    assert "from: model.py:12\n" in said
    assert "called by: %loop_fusion\n" in said


@pytest.mark.parametrize(
    "said",
    [
        "TypeError: pallas_call() got an unexpected keyword argument 'backend'",
        "ValueError: n=7 must be a multiple of block_n=4",
        "XlaRuntimeError: Couldn't find a suitable thing",
    ],
)
def test_words_that_anyone_says_are_no_message_of_xla(said: str) -> None:
    assert explain("-", said).exit_code == 2


def test_a_message_without_names_leads_to_the_kernels_that_may_say_it(tmp_path: Path) -> None:
    text = entry("""
  %x = f32[4]{0} parameter(0)
  ROOT %call.1 = f32[4]{0} custom-call(%x), custom_call_target="__gpu$xla.gpu.triton", \
metadata={source_file="model.py" source_line=7}""")
    dump = tmp_path / "module_0001.jit_f.sm_9.0_gpu_after_optimizations.txt"
    dump.write_text(text)
    said = "RESOURCE_EXHAUSTED: Shared memory size limit exceeded: requested 9, available: 8"
    shown = invoke("explain", said, dump).output
    assert f"%call.1: {dump}:5\n" in shown
    assert "from: model.py:7\n" in shown
    (tmp_path / "run.log").write_text(f"jax.errors.JaxRuntimeError: {said}\n")
    log = ["--log", str(tmp_path / "run.log")]
    checked = invoke("check", dump, *log).output
    assert shown in checked


def test_of_the_log_of_a_run_that_went_well_only_advice_is_told(tmp_path: Path) -> None:
    dump = new_folder(tmp_path / "dump")
    text = "HloModule f\n\nENTRY e {\n  ROOT x = f32[4]{0} parameter(0)\n}\n"
    (dump / "module_0001.jit_f.cpu_after_optimizations.txt").write_text(text)
    stamp = "0000 00:00:00.100000    27634"
    noise = f"E{stamp} common_lib.cc:554] unexpected worker hostname: 'x'\n"
    advice = (
        f"W{stamp} spmd_partitioner.cc:661] [SPMD] Involuntary full rematerialization. The "
        "compiler cannot go from sharding {mesh['x'=2], [{'x'}]} to {replicated} efficiently\n"
    )
    said = []
    for log in ("", noise, advice):
        dump.with_suffix(".log").write_text(log)
        said.append(invoke("check", dump).output.splitlines())
    assert said[0] == said[1] == said[2][:-1]
    assert "the SPMD partitioner" in said[2][-1]


def test_each_command_that_is_named_exists() -> None:
    named = [meaning.next for meaning in meanings()]
    named += [command for _, component in _tables().components for command in component.next]
    chosen = {name for rule in all_rules() for name in (rule.name(), rule.family())}
    for text in named:
        for name, words in re.findall(r"hlo-lint ([a-z]+)([^,;(]*)", text):
            shown = invoke(name, "--help").output
            assert all(option in shown for option in re.findall(r"--[a-z-]+", words)), text
            for rules in re.findall(r"--select (\S+)", words):
                assert {*rules.split(",")} <= chosen, text


LIBRARIES = Path(__file__).with_name("library_messages.tsv").read_text("utf-8").splitlines()


@pytest.mark.parametrize("row", LIBRARIES)
def test_a_message_of_a_library_or_a_kernel_compiler_leads_to_it(row: str) -> None:
    said, expected = row.split("\t")
    assert expected in answer(said)


def test_a_day_in_a_stamp_is_no_error_code() -> None:
    with pytest.raises(UsageError):
        answer("E0101 10:00:00.000001 4242 unknown.cc:7] text of the line")


@pytest.mark.slow
def test_xla_has_each_message() -> None:
    folder = Path(os.environ.get("HLO_LINT_RELEASES", "no folder"))
    files = list(folder.rglob("xla_cuda_plugin.so"))
    if not files:
        pytest.skip("no XLA:GPU is installed")
    parts = {
        part.strip()
        for rule in rule_entries()
        for message in messages_of(rule)
        for part in message.text.split("…")
    }
    for file in files:
        parts -= parts_in(file, parts)
    assert not parts


def parts_in(file: Path, parts: set[str]) -> set[str]:
    with file.open("rb") as stream, mmap.mmap(stream.fileno(), 0, access=mmap.ACCESS_READ) as data:
        return {part for part in parts if data.find(part.encode()) >= 0}
