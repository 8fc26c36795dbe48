"""Dumps of several processes: what jax compiled for two devices, copied for each rank."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from itertools import product
from pathlib import Path

import pytest
from click.testing import CliRunner

from hlo_lint.analysis.ranks import Divergence, Rank, compare_ranks, rank_folders
from hlo_lint.analysis.waits import waits_of
from hlo_lint.apps.cli.main import cli
from hlo_lint.text.errors import DumpError
from tests import texts
from tests.conftest import CRASH, completed, present

PROGRAM = """
import jax, numpy as np
from jax.sharding import Mesh, PartitionSpec as P
def body(a, b):
    return jax.lax.psum(a.sum(0), "d"), jax.lax.all_gather(b * 2.0, "d")
mesh = Mesh(np.array(jax.devices()), "d")
step = jax.jit(jax.shard_map(body, mesh=mesh, in_specs=P("d"), out_specs=(P(), P("d"))))
step.lower(np.ones((8, 4), "f"), np.ones((4,), "f")).compile()
"""
PASS = "copy-insertion"


@pytest.fixture(scope="module")
def dump(tmp_path_factory: pytest.TempPathFactory) -> Path:
    pytest.importorskip("jax")
    folder = tmp_path_factory.mktemp("dump")
    flags = f"--xla_dump_to={folder} --xla_dump_hlo_pass_re=.*"
    flags = f"--xla_force_host_platform_device_count=2 {flags}"
    environment = {**os.environ, "XLA_FLAGS": flags, "JAX_PLATFORMS": "cpu"}
    completed([sys.executable, "-c", PROGRAM], env=environment, check=True)
    return folder


@pytest.fixture
def ranks(dump: Path, tmp_path: Path) -> Path:
    for number in range(64):
        shutil.copytree(dump, tmp_path / f"rank{number}", copy_function=os.symlink)
    return tmp_path


def swap_collectives(rank: Path) -> None:
    """Swap two collectives, in what a pass left and in all that comes after it."""
    swapped = False
    for path in sorted(rank.glob("*jit_body*.txt")):
        swapped = swapped or f"after_{PASS}.before" in path.name
        text = path.read_text("utf-8")
        lines = text.split("\n")
        places = [at for at, line in enumerate(lines) if " all-reduce(" in line]
        places += [at for at, line in enumerate(lines) if " all-gather(" in line]
        if (swapped or "cpu_after_optimizations.txt" in path.name) and len(places) == 2:
            one, other = places
            lines[one], lines[other] = lines[other], lines[one]
            path.unlink()  # a link to the dump of all ranks
            path.write_text("\n".join(lines), "utf-8")


def run(*arguments: object) -> subprocess.CompletedProcess[str]:
    return completed([sys.executable, "-m", "hlo_lint", "ranks", *map(str, arguments)])


def test_equal_ranks_agree(ranks: Path) -> None:
    done = run(ranks)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout == "64 ranks, 1 module: the collectives agree\n"


def test_a_swap_on_one_rank_is_found_with_the_pass_that_made_it(ranks: Path) -> None:
    swap_collectives(ranks / "rank17")
    done = run(ranks)
    assert done.returncode == 1
    assert "error: jit_body: the ranks run different collectives" in done.stdout
    assert "rank0 and 62 more: %all_gather" in done.stdout
    assert "rank17: %psum" in done.stdout
    assert f"first pass after which their texts differ: {PASS} of HLO_passes_" in done.stdout
    assert "jit_body: compiled to 2 different texts" in done.stdout


def changed(path: Path, factor: str) -> None:
    """Another factor in a dump."""
    text = path.read_text("utf-8").replace("constant(2)", f"constant({factor})")
    path.unlink()  # a link to the dump of all ranks
    path.write_text(text, "utf-8")


def stop_in_the_middle(rank: Path, *, factor: str = "2") -> None:
    """Leave the first half of a compilation, of a program that multiplies by a factor."""
    for path in rank.glob("*jit_body*"):
        if path.is_file() and ("after_optimizations" in path.name or f"after_{PASS}" in path.name):
            path.unlink()
        elif path.suffix == ".txt":
            changed(path, factor)


def test_different_programs_of_compilations_that_did_not_end_are_an_error(ranks: Path) -> None:
    four = [ranks / f"rank{number}" for number in range(4)]
    for rank in four:
        stop_in_the_middle(rank, factor="3" if rank.name == "rank2" else "2")
    done = run(*four)
    assert done.returncode == 1
    assert done.stdout.startswith("error: jit_body: the ranks compile different programs\n")
    assert "rank0 and 2 more: " in done.stdout
    assert "4 ranks, 1 module: the collectives agree; the programs of 1 differ" in done.stdout


def test_one_program_that_did_not_end_is_no_error(ranks: Path) -> None:
    two = [ranks / "rank0", ranks / "rank1"]
    for rank in two:
        stop_in_the_middle(rank)
    assert run(*two).returncode == 0


def test_different_programs_that_ended_are_no_error(ranks: Path) -> None:
    for path in (ranks / "rank3").glob("*jit_body*.txt"):
        changed(path, "3")
    assert run(ranks).returncode == 0


def test_json_names_the_ranks_and_the_place(ranks: Path) -> None:
    swap_collectives(ranks / "rank17")
    found = json.loads(run(ranks / "rank1?", "--output-format", "json").stdout)
    (module,) = [each for each in found["modules"] if each["divergences"]]
    (divergence,) = module["divergences"]
    assert found["ranks"] == [f"rank{number}" for number in range(10, 20)]
    assert divergence["ranks"][1] == ["rank17"]
    assert divergence["position"] == 0
    assert divergence["places"][0].startswith(str(ranks / "rank10"))
    assert divergence["first_text"].startswith(PASS)


def test_a_module_that_a_rank_lacks_is_listed(ranks: Path) -> None:
    for path in (ranks / "rank3").glob("*jit_body*"):
        path.unlink() if path.is_symlink() else shutil.rmtree(path)
    (module,) = compare_ranks(rank_folders([ranks]))
    assert module.missing == ("rank3",)
    assert not module.divergences


@pytest.mark.parametrize("paths", [["absent"], ["pyproject.toml"]])
def test_one_rank_or_none_is_refused(paths: list[str]) -> None:
    with pytest.raises(DumpError):
        rank_folders(paths)


SUMS = "add { a = f32[] parameter(0) b = f32[] parameter(1) ROOT s = f32[] add(a, b) }\n\n"


def entry(*lines: str, header: str = "", before: str = SUMS) -> str:
    """A module with the reducer of `SUMS`, and an entry that reads `p` and `q`."""
    body = "\n  ".join(("p = f32[8]{0} parameter(0)", "q = f32[8]{0} parameter(1)", *lines))
    return texts.entry(body, before, f", is_scheduled=true{header}")


def divergences(folder: Path, *modules: str) -> tuple[Divergence, ...]:
    files = [folder / f"{number}.hlo" for number in range(len(modules))]
    for file, text in zip(files, modules, strict=True):
        file.write_text(text)
    (module,) = compare_ranks(rank_folders(files))
    return module.divergences


SUM = "f32[8]{0} all-reduce"
ALL = "replica_groups={{0,1,2,3}}, use_global_device_ids=true, to_apply=add"
PAIR = "replica_groups={{0,1}}, to_apply=add"
GATHER = "ROOT g = f32[16]{0} all-gather(p), dimensions={0}, channel_id=1, "
PERMUTE = "ROOT c = f32[8]{0} collective-permute(p), source_target_pairs="
ORDERS = (
    f'a = {SUM}(p), channel_id=1, {ALL}, metadata={{op_name="left"}}',
    f'b = {SUM}(q), channel_id=2, {ALL}, metadata={{op_name="right"}}',
    "ROOT t = (f32[8]{0}, f32[8]{0}) tuple(a, b)",
)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (f"ROOT r = {SUM}(p), channel_id=1, {ALL}", f"ROOT r = {SUM}(p), channel_id=7, {ALL}"),
        *(
            (GATHER + "replica_groups={{0,2},{1,3}}", f"{GATHER}replica_groups={groups}")
            for groups in ("[2,2]<=[2,2]T(1,0)", "mesh['x'=2,'y'=2] {'x'}", "{{1,3},{0,2}}")
        ),
        (
            f"ROOT r = {SUM}(p), {PAIR}",
            f"ROOT r = {SUM}(p), channel_id=1, replica_groups={{{{0,2}},{{1,3}}}}, "
            "use_global_device_ids=true, to_apply=add",
        ),
        (PERMUTE + "{{0,1},{1,0}}", PERMUTE + "{{1,0},{0,1}}"),
        (
            "k = token[] after-all()\n"
            "ROOT s = (f32[8]{0}, u32[], token[]) send(p, k), channel_id=3, is_host_transfer=true",
            "ROOT n = f32[8]{0} negate(p)",
        ),
    ],
)
def test_other_spellings_of_the_same_agree(tmp_path: Path, one: str, other: str) -> None:
    header = ", replica_count=2, num_partitions=2"
    assert not divergences(tmp_path, entry(one, header=header), entry(other, header=header))


@pytest.mark.parametrize(
    ("one", "other", "position"),
    [
        (ORDERS, (ORDERS[1], ORDERS[0], ORDERS[2]), 0),
        (ORDERS, (ORDERS[0], ORDERS[1].replace("channel_id=2", "channel_id=1"), ORDERS[2]), 1),
        (ORDERS, [line.replace("{{0,1,2,3}}", "{{0,1,3,2}}") for line in ORDERS], 0),
        ([GATHER + "replica_groups={{0,1}}"], [f"{GATHER}replica_groups={{{{0,1}},{{2,3}}}}"], 0),
    ],
)
def test_same_types_on_other_devices_or_in_another_order_diverge(
    tmp_path: Path, one: Sequence[str], other: Sequence[str], position: int
) -> None:
    (divergence,) = divergences(tmp_path, entry(*one), entry(*other))
    assert divergence.position == position


def loop(trips: int, collectives: int = 1, reduction: str = "add") -> str:
    """A loop over all-reduces; its limit is its trip count."""
    lines = (f"  x{at + 1} = {SUM}(x{at}), channel_id=1, {ALL}\n" for at in range(collectives))
    around = "  p = f32[8]{0} parameter(0)\n  ROOT w = LOOP(p)"
    text = texts.counted({"x0": "f32[8]{0}"}, "".join(lines), f"x{collectives}", around, trips)
    before = SUMS.replace("add(a", f"{reduction}(a")
    return text.replace("\n\n", f", is_scheduled=true\n\n{before}", 1)


def test_collectives_of_a_loop_count_in_each_iteration(tmp_path: Path) -> None:
    assert not divergences(tmp_path, loop(6), loop(3, collectives=2))
    (divergence,) = divergences(tmp_path, loop(6), loop(2, collectives=2))
    assert divergence.position == 4
    assert divergence.collectives[1] is None
    (huge,) = divergences(tmp_path, loop(1_000_000), loop(1_000_000, collectives=2))
    assert huge.position == 1


def test_another_reduction_is_another_collective(tmp_path: Path) -> None:
    (divergence,) = divergences(tmp_path, loop(6), loop(6, reduction="maximum"))
    assert str(divergence.collectives[1]).endswith("reduction=maximum")


def test_files_are_ranks_too(tmp_path: Path) -> None:
    text = entry(f"ROOT r = {SUM}(p), channel_id=1, {PAIR}")
    (divergence,) = divergences(tmp_path, text, text.replace("f32[8]", "f32[16]"))
    assert [str(each) for each in divergence.collectives] == [
        "%r: all-reduce (f32[8]{0}) channel_id=1 replica_groups={{0,1}} reduction=add",
        "%r: all-reduce (f32[16]{0}) channel_id=1 replica_groups={{0,1}} reduction=add",
    ]
    assert divergence.cause is None


def test_a_collective_in_a_fusion_is_one_of_its_rank(tmp_path: Path) -> None:
    """XLA:GPU makes a small all-reduce a fusion of its own, `__triton_collective`."""
    fused = f"fused {{ p = f32[8]{{0}} parameter(0) ROOT r = {SUM}(p), channel_id=1, {PAIR} }}\n\n"
    text = entry("ROOT f = f32[8]{0} fusion(p), kind=kCustom, calls=fused", before=SUMS + fused)
    other = text.replace(f"all-reduce(p), channel_id=1, {PAIR}", "sine(p)")
    (divergence,) = divergences(tmp_path, text, other)
    assert divergence.collectives[1] is None
    assert present(divergence.collectives[0]).opcode == "all-reduce"


def calls(depth: int, width: int, name: str = "reduced") -> str:
    """Computations that call each other `width` times, the innermost with a collective."""
    text = f"""HloModule m, is_scheduled=true

{SUMS}c0 {{
  p = f32[8]{{0}} parameter(0)
  ROOT {name} = {SUM}(p), channel_id=1, {PAIR}
}}
"""
    for level in range(1, depth):
        lines = [
            f"  {'ROOT ' * (number == width - 1)}x{number} = f32[8]{{0}} "
            f"call({f'x{number - 1}' if number else 'p'}), to_apply=c{level - 1}"
            for number in range(width)
        ]
        head = f"{'ENTRY ' * (level == depth - 1)}c{level} {{\n  p = f32[8]{{0}} parameter(0)"
        text += "\n".join(["", head, *lines, "}", ""])
    return text


def test_calls_that_are_deep_or_double_are_followed(tmp_path: Path) -> None:
    deep = calls(2000, 1)
    (divergence,) = divergences(tmp_path, deep, deep.replace("{{0,1}}", "{{1,0}}"))
    assert divergence.position == 0


@pytest.mark.slow
def test_collectives_beyond_the_limit_are_not_compared(tmp_path: Path) -> None:
    for rank, name in (("one", "a"), ("other", "b")):
        (tmp_path / rank).mkdir()
        (tmp_path / rank / "step.hlo").write_text(calls(18, 2, name))
    done = run(*sorted(tmp_path.iterdir()))
    assert done.returncode == 0
    assert "only the first 100,000 collectives were compared" in done.stdout


def test_one_dump_is_no_run_whatever_folders_lie_in_it(tmp_path: Path) -> None:
    dump = tmp_path / "dump"
    shutil.copytree(CRASH, dump)
    for name in ("artefact", "other"):
        (dump / name).mkdir()
        (dump / name / "kernel.ptx").write_text(".version 8.7")
    with pytest.raises(DumpError, match="two folders at least"):
        rank_folders([dump])


def test_processes_in_one_folder_are_told_apart_by_their_timestamps(tmp_path: Path) -> None:
    for process, number in product(range(2), range(2)):
        name = f"17000000{process}{number}.module_{number:04d}.jit_f{number}"
        path = tmp_path / f"{name}.cpu_after_optimizations.txt"
        path.write_text(texts.entry("  ROOT p = f32[] parameter(0)"))
    # XLA gives an object file a timestamp of its own.
    (tmp_path / "1700000099.module_0000.jit_f0.obj-file.kernel.o").write_text("")
    modules = compare_ranks(rank_folders([tmp_path]))
    assert [module.variants[0].ranks for module in modules] == [("process 0", "process 1")] * 2


def test_nothing_compared_is_an_error(tmp_path: Path) -> None:
    for rank in ("a", "b"):
        (tmp_path / rank).mkdir()
        (tmp_path / rank / f"{rank}.hlo").write_text("HloModule m\n")
    ran = CliRunner().invoke(cli, ["ranks", str(tmp_path)])
    assert ran.exit_code == 2
    (tmp_path / "b" / "b.hlo").rename(tmp_path / "b" / "a.hlo")
    assert CliRunner().invoke(cli, ["ranks", str(tmp_path)]).exit_code == 0


def test_logs_tell_which_rank_waits_for_which_collective(ranks: Path) -> None:
    log = (
        "E1128 10:00:00.1 42 rendezvous.cc:161] [id=0] Termination timeout for `all reduce "
        "RendezvousKey{run_id=1, global_devices=[0, 1], op_id=1}` of 10 seconds exceeded. Exiting "
        "to ensure a consistent program state. Expected 2 threads to join the rendezvous, but only "
        "1 of them arrived on time.\n"
    )
    (ranks / "rank0" / "run.log").write_text("I1128 started\n" + log)
    (ranks / "rank1.log").write_text("I1128 started\n")
    ran = run(ranks)
    assert ran.returncode == 1
    assert "rank0 waits: all reduce RendezvousKey{run_id=1" in ran.stdout
    assert f"{ranks / 'rank0' / 'run.log'}:2\n" in ran.stdout
    assert "the log of rank1 tells of no wait: it is ahead, or it died" in ran.stdout


@pytest.mark.parametrize(
    ("line", "what"),
    [
        ("F1 x.cc:94] jit_step: prepare to abort the process to avoid infinite hangs.", "jit_step"),
        ("MegaScale runtime detects a hang, aborting...", "MegaScale"),
        ("h:1:2 [0] transport/net.cc:3 NCCL WARN Timeout waiting for connection", "NCCL WARN"),
        ("INTERNAL: Gloo all-reduce failed: Timed out waiting 30000ms for recv", "Gloo"),
        ("/job:jax_worker/replica:0/task:1 Task 1 heartbeat timeout. This", "Task 1"),
    ],
)
def test_a_watchdog_and_each_library_say_what_waits(tmp_path: Path, line: str, what: str) -> None:
    (tmp_path / "run.log").write_text(f"{line}\n")
    ((wait,),) = [waits_of(Rank("rank0", tmp_path))[1]]
    assert (wait.what, wait.line) == (what, 1)
