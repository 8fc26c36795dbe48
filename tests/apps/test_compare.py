"""`hlo-lint compare`: from "slower", or "out of memory", to the pass and the line of Python."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import Result

from tests.commands import invoke
from tests.conftest import DUMPS, FIXTURES, new_folder
from tests.texts import counted, entry, summing

ATTENTION = FIXTURES / "upgrades" / "scanned_attention"
BEFORE, AFTER = (ATTENTION / f"gpu-jax{release}.tar.xz" for release in ("0.10.0", "0.11.2"))
PROFILES = FIXTURES / "profiles"
RELEASES = FIXTURES / "releases"


def compare(*arguments: object, status: int = 1) -> Result:
    result = invoke("compare", *arguments)
    assert result.exit_code == status, result.output
    return result


def quantities(*arguments: object) -> dict[str, dict[str, Any]]:
    (module,) = json.loads(compare(*arguments, "--output-format", "json").stdout)["modules"]
    return {row["name"]: row for row in module["quantities"]}


# What people come with


def test_slower_after_an_upgrade_leads_to_the_pass_and_the_line() -> None:
    """One command; the softmax of the attention is fused otherwise by jax 0.11.2."""
    shown = compare(BEFORE, AFTER).stdout
    row = next(line for line in shown.splitlines() if line.startswith("estimated time  "))
    assert re.search(r"22\.\d+ µs +23\.\d+ µs +\+7\.9%", row)
    assert "priority-fusion of fusion; programs.py:123 in scanned_attention" in row
    source = (FIXTURES / "programs" / "programs.py").read_text().splitlines()
    assert "softmax" in source[122]


def test_bisect_lists_what_all_bad_runs_chose() -> None:
    pair = FIXTURES / "bisect" / "gpu_without_hoist_fused_bitcasts"
    words = ["bisect", "--runs", f"{pair / 'all'}", "--bad", f"{pair / 'without'}"]
    shown = invoke(*words).stdout
    assert "setting xla_disable_hlo_passes: hoist-fused-bitcasts\n    good: none" in shown


def test_the_second_command_shows_what_the_pass_did_otherwise() -> None:
    result = invoke("bisect", BEFORE, AFTER)
    assert result.exit_code == 1
    assert "the final modules differ" in result.stdout


def test_a_scatter_across_the_layout_is_not_called_faster(tmp_path: Path) -> None:
    """openxla/xla#47203: fewer bytes and kernels, and five times slower."""
    text = summing(
        """
  p = f32[%s]{1,0} parameter(0)
  i = s32[64,1]{1,0} parameter(1)
  u = f32[64,%s]{2,1,0} parameter(2)
  %s
  ROOT r = f32[%s]{1,0} scatter(p, i, u), update_window_dims={1,2}, inserted_window_dims={}, \
scatter_dims_to_operand_dims={%s}, index_vector_dim=1, to_apply=add
""",
        header=", is_scheduled=true",
    )
    rows = text % ("128,256", "1,256", "n = f32[128,256]{1,0} negate(p)", "128,256", "0")
    columns = text % ("256,128", "256,1", "", "256,128", "1")
    for name, module in (("rows.hlo", rows), ("columns.hlo", columns)):
        (tmp_path / name).write_text(module)
    shown = compare(tmp_path / "rows.hlo", tmp_path / "columns.hlo", "--target", "h100").stdout
    row = next(line for line in shown.splitlines() if line.startswith("estimated time "))
    assert "unknown" in row
    assert "each update writes 1024 bytes side by side" in shown
    assert "each update writes 4 bytes side by side" in shown


def test_out_of_memory_after_an_upgrade_leads_to_the_pass_and_the_line() -> None:
    """Copies of loop state became asynchronous, and each has a place of its own."""
    releases = [RELEASES / f"gpu-jax{release}.tar.xz" for release in ("0.9.0", "0.11.2")]
    shown = compare(*releases).stdout
    row = next(line for line in shown.splitlines() if line.startswith("temporaries"))
    assert "+67.6%" in row
    assert "dynamic-slice-copy-fusion-async-wrapper of pre-scheduling-passes (B alone)" in row
    assert "programs.py:78 in scan_train" in row


def test_slower_with_profiles_is_what_was_measured() -> None:
    rows = quantities(PROFILES / "all", PROFILES / "without_fusion")
    measured = rows["measured time"]
    assert measured["after"] > 1.5 * measured["before"]
    assert measured["since"]["pass"] == "fusion"
    assert measured["origin"]["line"] == 30
    shown = compare(PROFILES / "all", PROFILES / "without_fusion").stdout
    assert "measured time by line" in shown
    assert "note: xla_disable_hlo_passes: unset in A, fusion in B" in shown


def test_a_measured_time_that_no_bytes_explain_has_no_pass() -> None:
    """Line 29 takes less, and moves more: no pass is to blame for noise."""
    folders = PROFILES / "all", PROFILES / "without_fusion"
    answer = json.loads(compare(*folders, "--output-format", "json").stdout)
    since = {
        row["origin"]["line"]: row["since"]
        for row in answer["modules"][0]["lines"]
        if row["origin"]
    }
    assert since[30]["pass"] == "fusion"
    assert since[29] is None


def test_what_is_true_of_all_modules_is_said_once(tmp_path: Path) -> None:
    text = entry("  x = f32[SIZE]{0} parameter(0)\n  ROOT n = f32[SIZE]{0} negate(x)")
    for side, size in (("a", "4"), ("b", "8")):
        (tmp_path / side).mkdir()
        for name in ("f", "g"):
            path = tmp_path / side / f"module_0001.jit_{name}.cpu_after_optimizations.txt"
            path.write_text(text.replace("SIZE", size))
    shown = compare(tmp_path / "a", tmp_path / "b").stdout
    assert shown.count("bytes moved  ") == 2
    assert shown.count("note: no time is estimated") == 1


# What the figures are


def test_the_memory_is_that_of_the_buffer_assignment() -> None:
    rows = quantities(PROFILES / "all", PROFILES / "without_fusion")
    text = next((PROFILES / "all").glob("*-buffer-assignment.txt")).read_text()
    sizes = re.findall(r"^allocation \d+: size (\d+)(.*):$", text, re.M)
    held = sum(int(size) for size, flags in sizes if "thread-local" not in flags)
    assert rows["peak memory"]["before"] == held
    assert rows["temporaries"]["since"]["pass"] == "fusion"


def test_what_one_run_has_alone_is_said() -> None:
    (row,) = [
        line
        for line in compare(PROFILES / "all", PROFILES / "without_fusion").stdout.splitlines()
        if line.startswith("bytes moved  ")
    ]
    assert "fusion of HLO_passes_after_layout_assignment (A alone)" in row


def test_a_run_costs_the_same_as_itself() -> None:
    result = compare(AFTER, AFTER, status=0)
    assert result.stdout == (
        "1 module costs the same in A and B: module_0001.jit_scanned_attention\n"
    )
    assert "estimated time" in compare(AFTER, AFTER, "--all", status=0).stdout


def test_loops_of_which_one_run_does_not_say_how_often_count_once_in_both(tmp_path: Path) -> None:
    around = "  p = f32[8]{0} parameter(0)\n  ROOT w = LOOP(p)"
    text = counted({"x": "f32[8]{0}"}, "y = f32[8]{0} OPCODE(x, x)", "y", around, "LIMIT")
    known, unknown = "constant(5)", 'custom-call(), custom_call_target="limit"'
    for limits, said in (((known, known), False), ((known, unknown), True)):
        sides = []
        for opcode, limit in zip(("multiply", "power"), limits, strict=True):
            side = new_folder(tmp_path / f"{opcode}{len(limit)}{said}")
            made = text.replace("OPCODE", opcode).replace("constant(LIMIT)", limit)
            (side / "module_0001.m.cpu_after_optimizations.txt").write_text(made)
            sides.append(side)
        shown = compare(*sides).stdout
        assert ("note: a loop has an unknown trip count" in shown) is said
        flops = 10 if said else 50
        assert re.search(rf"^flops +{flops}\b", shown, re.M)


def test_loops_that_carry_what_they_count_in_a_tuple_are_counted() -> None:
    releases = [RELEASES / f"tpu-jax{release}.tar.xz" for release in ("0.10.2", "0.12.0")]
    assert re.search(r"^flops +6\.599 k +6\.407 k", compare(*releases).stdout, re.M)


def test_the_names_of_tpu_modules_are_those_of_any_build() -> None:
    """`jit_scan_train.cl_933746096` and `jit_scan_train.cl_1004524046` are one program."""
    releases = [RELEASES / f"tpu-jax{release}.tar.xz" for release in ("0.10.2", "0.12.0")]
    assert "TPU v5e" in compare(*releases).stdout
    assert compare(*releases, "--module", "jit_scan_train").stdout


def test_a_device_may_be_named() -> None:
    folders = PROFILES / "all", PROFILES / "without_fusion"
    assert "no time is estimated: --target names the device" in compare(*folders).stdout
    h100, v5e = (quantities(*folders, "--target", name) for name in ("h100", "v5e"))
    # It moves bytes and little else: the time is that of the memory.
    assert h100["estimated time"]["after"] == pytest.approx(
        h100["bytes moved"]["after"] / 3.35232e12, rel=0.01
    )
    assert v5e["estimated time"]["after"] > 4 * h100["estimated time"]["after"]


def test_the_quantities_of_collectives_are_their_bytes(tmp_path: Path) -> None:
    text = summing(
        "  x = f32[SIZE]{0} parameter(0)\n"
        "  ROOT r = f32[SIZE]{0} all-reduce(x), replica_groups={{0,1}}, to_apply=add",
        header=", num_partitions=2",
    )
    for name, size in (("a", "64"), ("b", "256")):
        (tmp_path / f"{name}.hlo").write_text(text.replace("SIZE", size))
    row = quantities(tmp_path / "a.hlo", tmp_path / "b.hlo")["all-reduce bytes"]
    assert (row["unit"], row["before"], row["after"]) == ("B", 256, 1024)


# How it is shown


def test_the_page_needs_nothing_else_and_says_what_the_table_says() -> None:
    text = compare(BEFORE, AFTER, "--output-format", "html").stdout
    assert "http" not in re.sub(r"http-equiv", "", text)
    assert "<script" not in text
    assert "since priority-fusion of fusion" in text
    assert "programs.py:123 in scanned_attention.&lt;locals&gt;.attention" in text


def test_a_name_in_a_dump_is_text_on_the_page(tmp_path: Path) -> None:
    for side, count in (("a", 1), ("b", 2)):
        folder = new_folder(tmp_path / side)
        rows = "\n".join(f"  %n.{at} = f32[4]{{0}} negate(%x)" for at in range(count))
        (folder / "module_0001.<b>.before_optimizations.txt").write_text(
            f"HloModule m\n\nENTRY %main (x: f32[4]) -> f32[4] {{\n  %x = f32[4]{{0}} parameter(0)"
            f"\n{rows}\n  ROOT %r = f32[4]{{0}} negate(%x)\n}}\n"
        )
    page = compare(tmp_path / "a", tmp_path / "b", "--output-format", "html").stdout
    assert "module_0001.&lt;b&gt;" in page
    assert "<b>" not in page


# What is wrong with the input


def test_a_run_that_died_is_compared_by_its_last_dump() -> None:
    crash = DUMPS / "gpu-jax0.10.0" / "cublaslt_fission_crash"
    later = DUMPS / "gpu-jax0.11.2" / "cublaslt_fission"
    shown = compare(crash, later).stdout
    assert "note: A has no final module: its last dump is compared" in shown
    assert "note: A has no buffer assignment: its memory is unknown" in shown
    assert re.search(r"^peak memory +- +\d", shown, re.M)


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["{all}", "absent"], "absent: no such file or directory"),
        (["{all}", "{other}"], "no module is in both"),
        (["{all}", "{all}", "--module", "jit_other"], "is named jit_other"),
        (["{all}", "{all}", "--target", "tpu7x"], "the rates of tpu7x are not known"),
        (["{all}", "{all}", "--target", "abacus"], "no target is named abacus"),
    ],
)
def test_wrong_use_is_explained(arguments: list[str], says: str) -> None:
    places = {"all": str(PROFILES / "all"), "other": str(BEFORE)}
    result = compare(*[word.format_map(places) for word in arguments], status=2)
    assert says in result.output


def test_a_broken_profile_is_named(tmp_path: Path) -> None:
    folder = Path(shutil.copytree(PROFILES / "all", tmp_path / "dump"))
    (folder / "host.xplane.pb").write_bytes(b"\x0a\xff")
    assert "host.xplane.pb: not a profile" in compare(folder, folder, status=2).output


def test_a_profile_of_one_side_alone_is_said(tmp_path: Path) -> None:
    folder = Path(shutil.copytree(PROFILES / "without_fusion", tmp_path / "dump"))
    (folder / "host.xplane.pb").unlink()
    shown = compare(PROFILES / "all", folder).stdout
    assert "note: A has a profile of this module, B does not: no measured time" in shown


# The other command that reads profiles


def test_passes_prints_the_measured_time_of_the_final_instructions() -> None:
    folder = str(PROFILES / "without_fusion")
    shown = invoke("passes", "--changed", folder).stdout
    table = shown.partition("\nmeasured ")[2]
    assert table.startswith("1.293 ms  share  instruction")
    assert re.search(r"[\d.]+ µs +\d+\.\d% +%wrapped_sine +fusion  profiled.py:30 in step", table)
    answer = json.loads(invoke("passes", "--output-format", "json", folder).stdout)
    (module,) = answer["modules"]
    seconds = [kernel["seconds"] for kernel in module["measured"]]
    assert seconds == sorted(seconds, reverse=True)
    assert sum(seconds) == pytest.approx(1.293e-3, rel=0.01)


# Values


@pytest.mark.slow
def test_two_modules_run_on_the_same_inputs(tmp_path: Path) -> None:
    text = (
        "ENTRY e { p = f32[2]{0} parameter(0) q = f32[2]{0} parameter(1) ROOT r = f32[2]{0} RIGHT }"
    )
    paths = [tmp_path / name for name in ("a.hlo", "b.hlo", "c.hlo")]
    for path, root in zip(paths, ("divide(p, q)", "divide(q, p)", "divide(p, q)"), strict=True):
        path.write_text(text.replace("RIGHT", root))
    a, b, c = paths
    shown = compare("--results", a, b).stdout
    assert "the module computes different values in this dump: result 0" in shown
    assert "%r is the first instruction whose value differs" in shown
    assert "1 equal by graph" in compare("--results", a, c, status=0).stdout
    np.savez(tmp_path / "given.npz", p=np.array([2, 4], "f"), q=np.array([8, 8], "f"))
    words = ("--results", "--inputs", tmp_path / "given.npz", "--output-format", "json")
    (finding,) = json.loads(compare(*words, a, b).stdout)["findings"]
    assert "result 0[0] is 4 and was 0.25" in finding["message"]
    refused = compare(*words[1:], a, b, status=2)
    assert "--inputs and --show-inputs go with --results" in refused.output


@pytest.mark.slow
def test_modules_that_do_not_run_are_no_answer(tmp_path: Path) -> None:
    text = "ENTRY e { p = f32[SIZE]{0} parameter(0) ROOT r = f32[SIZE]{0} negate(p) }"
    for size in "23":
        (tmp_path / f"{size}.hlo").write_text(text.replace("SIZE", size))
    shown = compare("--results", tmp_path / "2.hlo", tmp_path / "3.hlo", status=2)
    assert "nothing compared" in shown.output
