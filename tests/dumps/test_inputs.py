"""The table of inputs: each kind of file, as jax and XLA write it, is read or named.

One program writes them all.
"""

from __future__ import annotations

import bz2
import gzip
import io
import lzma
import os
import shutil
import sys
import tarfile
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import CliRunner

from hlo_lint.apps.cli.main import cli
from hlo_lint.dumps.artefacts.buffer_assignment import read_buffer_assignment
from hlo_lint.dumps.artefacts.buffer_proto import buffer_assignment_text
from hlo_lint.dumps.artefacts.xplane import planes, programs
from hlo_lint.dumps.directory import open_dump
from hlo_lint.dumps.pass_lists import pass_lists
from hlo_lint.text.errors import PayloadError
from tests.conftest import FIXTURES, completed

pytestmark = pytest.mark.slow

PROGRAM = """\
import sys
import jax, jax.numpy as jnp
from jax import export

devices = int(sys.argv[1])
jax.config.update("jax_num_cpu_devices", devices)
mesh = jax.make_mesh((devices,), ("x",))
shard = lambda *axes: jax.sharding.NamedSharding(mesh, jax.sharding.PartitionSpec(*axes))

@jax.jit
def step(x, w):
    return jnp.tanh(x @ w).sum()

@jax.jit
def looped(w, xs):
    def body(state, x):
        w, count = state
        gradient = jax.grad(lambda w: jnp.sum(jnp.tanh(x @ w) ** 2))(w)
        return (w - 0.1 * gradient, count + 1), jnp.sum(gradient)
    return jax.lax.scan(body, (w, 0), xs)

if devices == 1:
    looped(jnp.ones((16, 8)), jnp.ones((5, 4, 16)))
x = jax.device_put(jnp.ones((64, 32)), shard("x", None))
w = jax.device_put(jnp.ones((32, 16)), shard(None, None))
with jax.profiler.trace("trace"):
    step(x, w).block_until_ready()
lowered = step.lower(x, w)
open("stablehlo.mlir", "w").write(lowered.as_text())
open("jaxpr.txt", "w").write(str(jax.make_jaxpr(step)(x, w)))
exported = export.export(step)(x, w)
open("bytecode.mlirbc", "wb").write(exported.mlir_module_serialized)
open("exported.bin", "wb").write(exported.serialize())
open("lowered.hlo", "w").write(lowered.as_text(dialect="hlo"))
"""
EVERYTHING = "--xla_dump_hlo_as_text --xla_dump_hlo_as_proto --xla_dump_hlo_snapshots"
FINAL = "*.jit_step.cpu_after_optimizations"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("inputs")
    (folder / "model.py").write_text(PROGRAM)
    compiled(folder, 1, f"{EVERYTHING} --xla_dump_to=dump")
    snapshots = "--xla_dump_hlo_unoptimized_snapshots --xla_dump_to=unoptimized"
    for kind in ("", "_text", "_proto"):
        flag = f" --xla_dump_hlo_as{kind}" if kind else ""
        compiled(folder, 1, f"{snapshots}{kind}{flag}")
    return folder


def compiled(folder: Path, devices: int, flags: str, **variables: str) -> None:
    """Run the program in a folder; XLA dumps no snapshots of a program for several devices."""
    flags = f"{flags} --xla_dump_hlo_pass_re=.*"
    environment = {**os.environ, "XLA_FLAGS": flags, **variables}
    completed([sys.executable, "model.py", str(devices)], check=True, cwd=folder, env=environment)


def one(folder: Path, pattern: str) -> Path:
    return next(iter(sorted(folder.glob(pattern))))


def checked(*words: object, data: bytes | None = None) -> tuple[int, str]:
    ran = CliRunner().invoke(cli, ["check", "--isolated", *map(str, words)], input=data)
    return ran.exit_code, ran.stdout


def assert_read(*words: object, data: bytes | None = None) -> None:
    """One file is read, without findings."""
    status, said = checked(*words, data=data)
    assert (status, "no findings in 1 file, 1 module of HLO" in said) == (0, True), said


def modules_in(path: Path) -> list[str]:
    files = [dump.file for compilation in open_dump(path) for dump in compilation.dumps]
    return [module.name for file in files for module in file.modules]


def test_a_dump_of_four_devices_is_of_a_known_release_as_that_of_one(folder: Path) -> None:
    compiled(folder, 4, "--xla_dump_to=dump4")
    one, four = (
        {compilation.release_title for compilation in open_dump(folder / name)}
        for name in ("dump", "dump4")
    )
    assert one == four
    assert one <= {entry.title for entry in pass_lists("cpu")}


@pytest.mark.parametrize(
    "pattern",
    [
        f"dump/{FINAL}.txt",
        f"dump/{FINAL}.hlo.pb",
        "dump/*.jit_step.snapshot.*.pb",
        "unoptimized/*.jit_step.*.hlo_unoptimized_snapshot.pb",
        "unoptimized_text/*.jit_step.*.hlo_unoptimized_snapshot.txt",
        "unoptimized_proto/*.jit_step.*.hlo_unoptimized_snapshot.pb",
        "lowered.hlo",
        "trace/plugins/profile/*/*.xplane.pb",
    ],
)
def test_a_file_is_read(folder: Path, pattern: str) -> None:
    path = one(folder, pattern)
    assert "jit_step" in modules_in(path)
    status, said = checked(path)
    assert status == 0, said
    assert "no findings in 1 file" in said


def allocations_in(text: str) -> list[tuple[object, ...]]:
    read = read_buffer_assignment(text)
    assert not read.problems
    return [
        (
            *(of.index, of.size, of.color, of.parameter, of.flags),
            [(v.id, v.instruction, v.index, v.slice, v.shape) for v in of.values],
        )
        for of in read.allocations
    ]


def test_the_buffer_assignment_of_a_protocol_buffer_is_that_of_the_text(folder: Path) -> None:
    protos = sorted((folder / "dump").glob("*.cpu_after_optimizations.hlo.pb"))
    assert any("jit_looped" in path.name for path in protos)
    for path in protos:
        module = open_dump(path).compilations[0].dumps[0].module
        made = buffer_assignment_text(path.read_bytes(), module)
        beside = path.with_name(path.name.replace(".hlo.pb", "-buffer-assignment.txt"))
        assert made is not None
        assert allocations_in(made) == allocations_in(beside.read_text())
        assert "buffer assignment" not in checked(path)[1]
    before = one(folder, "dump/*.before_optimizations.hlo.pb")
    assert buffer_assignment_text(before.read_bytes(), module) is None


def test_a_file_that_a_profiler_writes_of_one_program_is_read() -> None:
    folder = FIXTURES / "profiled_programs"
    assert modules_in(one(folder, "*.hlo_proto.pb")) == ["jit_step"]
    assert_read(folder)


@pytest.mark.parametrize(
    "pattern",
    ["dump/*.snapshot.*.pb", "unoptimized/*_snapshot.pb", "unoptimized_text/*_snapshot.txt"],
)
def test_snapshots_alone_are_read_once_a_module(folder: Path, tmp_path: Path, pattern: str) -> None:
    for path in folder.glob(pattern):
        shutil.copy(path, tmp_path)
        again = path.name.replace("_0000.", "_0002.").replace("snapshot.", "snapshot.9")
        shutil.copy(path, tmp_path / again.replace("snapshot.9pb", "snapshot.pb"))
    names = modules_in(tmp_path)
    assert names.count("jit_step") == 1
    assert len(names) < len(list(tmp_path.iterdir()))


def test_beside_texts_no_snapshot_and_no_profile_is_read(folder: Path, tmp_path: Path) -> None:
    dump = Path(shutil.copytree(folder / "dump", tmp_path / "dump"))
    shutil.copy(one(folder, "trace/plugins/profile/*/*.xplane.pb"), dump)
    read = [file.path.name for compilation in open_dump(dump) for file in compilation.dumps]
    assert not [name for name in read if "snapshot" in name or "xplane" in name]


def test_a_profile_has_planes_and_its_programs(folder: Path) -> None:
    data = one(folder, "trace/plugins/profile/*/*.xplane.pb").read_bytes()
    assert {"/host:metadata", "/host:CPU"} <= {plane.name for plane in planes(data)}
    assert programs(data)
    with pytest.raises(PayloadError, match="no program is in this profile"):
        programs(b"")


def zstd(data: bytes) -> bytes:
    compress: Callable[[bytes], bytes] = pytest.importorskip("zstandard").compress
    return compress(data)


COMPRESS: dict[str, Callable[[bytes], bytes]]
COMPRESS = {"gz": gzip.compress, "xz": lzma.compress, "zst": zstd, "bz2": bz2.compress}


@pytest.mark.parametrize(
    "kind", ["zip", "tar", "tar.gz", "tar.xz", "tar.zst", "tar.bz2", "gz", "xz", "zst"]
)
def test_packed_files_are_read_by_name_or_as_input(folder: Path, tmp_path: Path, kind: str) -> None:
    text = one(folder, f"dump/{FINAL}.txt")
    packed = tmp_path / f"dump.{kind}"
    if kind == "zip":
        with zipfile.ZipFile(packed, "w") as archive:
            archive.write(text, text.name)
    elif kind in COMPRESS:
        packed = tmp_path / f"{text.name}.{kind}"
        packed.write_bytes(COMPRESS[kind](text.read_bytes()))
    else:
        content = io.BytesIO()
        with tarfile.open(fileobj=content, mode="w") as archive:
            archive.add(text, text.name)
        compress = COMPRESS.get(kind.removeprefix("tar").removeprefix("."), bytes)
        packed.write_bytes(compress(content.getvalue()))
    assert_read(packed)
    assert_read("-", data=packed.read_bytes())


def test_hlo_in_a_log_and_in_a_page_of_markdown_is_read(folder: Path) -> None:
    text = one(folder, f"dump/{FINAL}.txt").read_text()
    log = "".join(f"[rank0]: {line}\n" for line in ("before", *text.splitlines()))
    page = f"What I see:\n\n```hlo\n{text}```\n\nIs this right?\n"
    for data in (log, page):
        assert_read("-", data=data.encode())


@pytest.mark.parametrize(
    ("paths", "rule"),
    [
        (["ptx/last_wait_removed/triton_sm80_three_stages.ptx"], "store-overtakes-copy"),
        (["autotune/old.textproto", "autotune/new.textproto"], "fragile-autotuner-winner"),
        (["tma/cutlass_size_1_stride.txt"], "tma-descriptor-refused"),
    ],
)
def test_what_is_no_hlo_and_has_rules_of_its_own_is_read(paths: list[str], rule: str) -> None:
    status, said = checked(*(FIXTURES / path for path in paths))
    assert (status, f"[{rule}]" in said) == (1, True), said


@pytest.mark.parametrize(
    ("name", "what"),
    [
        ("stablehlo.mlir", "StableHLO"),
        ("jaxpr.txt", "a jaxpr"),
        ("bytecode.mlirbc", "MLIR as bytecode, as jax.export keeps it"),
        ("exported.bin", "MLIR as bytecode, as jax.export keeps it"),
    ],
)
def test_what_is_not_read_is_named_with_a_call_for_hlo(folder: Path, name: str, what: str) -> None:
    status, said = checked(folder / name)
    assert status == 1
    call = 'jax.jit(f).lower(…).as_text(dialect="hlo")'
    assert f"this is {what}, not HLO, which `{call}` gives" in said


def test_a_dump_that_a_persistent_cache_answered_says_so(folder: Path, tmp_path: Path) -> None:
    shutil.copy(folder / "model.py", tmp_path)
    for number in (1, 2):
        compiled(
            tmp_path,
            1,
            f"--xla_dump_to=dump{number}",
            JAX_COMPILATION_CACHE_DIR=str(tmp_path / "cache"),
            JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS="0",
            JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES="-1",
        )
    said = checked(tmp_path / "dump2")[1]
    assert said.count("a persistent cache answered, and no pass ran") == 1
    assert "JAX_ENABLE_COMPILATION_CACHE=false forces a compile" in said
    assert "persistent cache" not in checked(tmp_path / "dump1")[1]
