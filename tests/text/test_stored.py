"""Compressed files and archives read as what is in them; what is damaged or a bomb is refused."""

from __future__ import annotations

import bz2
import gzip
import io
import lzma
import shutil
import sys
import tarfile
import zipfile
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest

import hlo_lint
from hlo_lint.analysis.pass_stats import passes as passes_of
from hlo_lint.dumps.directory import open_dump
from hlo_lint.report.concise import render
from hlo_lint.text.errors import DumpError
from hlo_lint.text.stored import ANY_EXPANSION, on_disk, read_stored, unpacked
from tests.apps.test_cli import run
from tests.commands import invoke
from tests.conftest import CRASH
from tests.texts import LOOSE

zstandard = pytest.importorskip("zstandard", reason="`make test` installs it")

COMPRESS: dict[str, Callable[[bytes], bytes]] = {
    ".gz": gzip.compress,
    ".xz": lzma.compress,
    ".zst": zstandard.ZstdCompressor(write_checksum=True).compress,
    ".bz2": bz2.compress,
}


def tar(*members: tuple[tarfile.TarInfo, bytes]) -> bytes:
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w") as archive:
        for member, data in members:
            member.size = len(data)
            archive.addfile(member, io.BytesIO(data))
    return out.getvalue()


def crash_tar() -> bytes:
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w") as archive:
        archive.add(CRASH, "crash")
    return out.getvalue()


def findings(target: Path) -> str:
    return render(hlo_lint.lint(target), lambda _: None)


@pytest.mark.parametrize("ending", ["", ".gz", ".xz", ".zst", ".bz2"])
def test_an_archive_reads_as_the_folder_in_it(tmp_path: Path, ending: str) -> None:
    compress = COMPRESS.get(ending, bytes)
    path = tmp_path / f"dump.tar{ending}"
    path.write_bytes(compress(crash_tar()))
    assert findings(path) == findings(CRASH).replace(str(CRASH), f"{path}/crash")
    passes = [list(passes_of(open_dump(at).compilations[0])) for at in (path, CRASH)]
    assert [step.name for step in passes[0]] == [step.name for step in passes[1]]
    assert findings(tmp_path) == findings(path)


@pytest.mark.parametrize("ending", [".gz", ".xz", ".zst"])
def test_a_folder_of_compressed_files_reads_like_the_files(tmp_path: Path, ending: str) -> None:
    for path in CRASH.iterdir():
        (tmp_path / f"{path.name}{ending}").write_bytes(COMPRESS[ending](path.read_bytes()))
    expected = findings(CRASH).replace(str(CRASH), str(tmp_path)).replace(".txt:", f".txt{ending}:")
    assert findings(tmp_path) == expected
    (loose,) = tmp_path.glob(f"*.0030.*.txt{ending}")
    assert findings(loose).startswith(f"{loose}:43:50: error[reshape-moves-data]")


@pytest.mark.parametrize("ending", [".gz", ".xz", ".zst"])
def test_what_is_damaged_or_cut_off_is_said(tmp_path: Path, ending: str) -> None:
    data = COMPRESS[ending](b"HloModule m\n" * 10_000)
    path = tmp_path / f"m.hlo{ending}"
    for damaged in (data[: len(data) // 2], b"HloModule m\n", data[:6] + b"\xff" * 8 + data[14:]):
        path.write_bytes(damaged)
        (skipped,) = hlo_lint.lint(path).skipped
        assert "its compressed data is damaged or cut off" in skipped.reason
        assert skipped.given
    archive = tmp_path / f"d.tar{ending}"
    archive.write_bytes(COMPRESS[ending](crash_tar())[:-2000])
    with pytest.raises(DumpError, match=r"d\.tar.*damaged or cut off"):
        hlo_lint.lint(archive)


@pytest.mark.slow
@pytest.mark.parametrize("ending", [".gz", ".xz", ".zst"])
def test_a_bomb_is_refused_before_it_fills_the_memory(tmp_path: Path, ending: str) -> None:
    size = ANY_EXPANSION + (8 << 20)
    compress = partial(lzma.compress, preset=0) if ending == ".xz" else COMPRESS[ending]
    bomb = tmp_path / f"m.hlo{ending}"
    bomb.write_bytes(compress(bytes(size)))
    if bomb.stat().st_size * 1000 > size:
        pytest.skip("it does not compress a thousandfold")
    with pytest.raises(DumpError, match="expand to more than"):
        read_stored(bomb)
    archive = tmp_path / f"d.tar{ending}"
    archive.write_bytes(compress(tar((tarfile.TarInfo("m.hlo"), bytes(size)))))
    with pytest.raises(DumpError, match="expand to more than"):
        unpacked(archive)


def test_a_name_that_takes_megabytes_is_refused(tmp_path: Path) -> None:
    header = tarfile.TarInfo("x")
    header.type = tarfile.GNUTYPE_LONGNAME
    path = tmp_path / "d.tar"
    path.write_bytes(tar((header, b"a" * (2 << 20))))
    with pytest.raises(DumpError, match="a header of 2097152 bytes"):
        unpacked(path)


def test_nothing_leaves_the_folder_and_links_are_passed_over(tmp_path: Path) -> None:
    link = tarfile.TarInfo("link.hlo")
    link.type, link.linkname = tarfile.SYMTYPE, "/etc/passwd"
    device = tarfile.TarInfo("device.hlo")
    device.type = tarfile.CHRTYPE
    names = ("../up.hlo", "/absolute.hlo", "a/../../b.hlo")
    members = [(tarfile.TarInfo(name), b"HloModule m\n") for name in (*names, "ok/in.hlo")]
    path = tmp_path / "d.tar"
    path.write_bytes(tar(*members, (link, b""), (device, b"")))
    folder = unpacked(path)
    assert [file for file in folder.rglob("*") if file.is_file()] == [folder / "ok" / "in.hlo"]
    assert on_disk(path / "ok" / "in.hlo") == folder / "ok" / "in.hlo"
    assert read_stored(path / "ok" / "in.hlo") == b"HloModule m\n"


@pytest.mark.slow
@pytest.mark.parametrize("name", ["m.hlo.gz", "m.tar"])
def test_fix_refuses_to_write_what_is_compressed(tmp_path: Path, name: str) -> None:
    text = LOOSE.encode()
    data = gzip.compress(text) if name.endswith("gz") else tar((tarfile.TarInfo("m.hlo"), text))
    (tmp_path / name).write_bytes(data)
    ran = run("fix", str(tmp_path / name), "--before", "layout_normalization")
    assert ran.status == 2
    assert "fix does not write compressed files: unpack it first" in ran.errors
    assert (tmp_path / name).read_bytes() == data
    assert [path.name for path in tmp_path.iterdir()] == [name]


def test_without_zstandard_it_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "zstandard", None)
    path = tmp_path / "m.hlo.zst"
    path.write_bytes(zstandard.compress(b"HloModule m\n"))
    (skipped,) = hlo_lint.lint(path).skipped
    assert "pip install 'hlo-lint[zstd]'" in skipped.reason


def test_an_archive_of_something_else_in_a_folder_is_said_and_no_more(tmp_path: Path) -> None:
    shutil.copytree(CRASH, tmp_path / "d")
    (tmp_path / "d" / "other.tar.gz").write_bytes(b"not an archive")
    report = hlo_lint.lint(tmp_path / "d")
    assert len(report.findings) == 1
    assert any("damaged" in entry.reason for entry in report.skipped)
    assert not report.unchecked


def zipped(folder: Path, path: Path) -> Path:
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for file in folder.iterdir():
            archive.write(file, f"crash/{file.name}")
    return path


def test_a_zip_reads_as_the_folder_in_it(tmp_path: Path) -> None:
    path = zipped(CRASH, tmp_path / "dump.zip")
    assert findings(path) == findings(CRASH).replace(str(CRASH), f"{path}/crash")
    assert findings(tmp_path) == findings(path)
    ran = invoke("fix", path)
    assert (ran.exit_code, "unpack it first" in ran.output) == (2, True)


def test_a_damaged_zip_a_bomb_and_names_that_lead_out_of_it_write_nothing(tmp_path: Path) -> None:
    path = zipped(CRASH, tmp_path / "dump.zip")
    whole = path.read_bytes()
    path.write_bytes(whole[: len(whole) // 2])
    with pytest.raises(DumpError, match="damaged or cut off"):
        open_dump(path)
    with zipfile.ZipFile(tmp_path / "other.zip", "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("../out.hlo", "HloModule m")
        archive.writestr("/out.hlo", "HloModule m")
    assert not [*unpacked(tmp_path / "other.zip").rglob("*.hlo")]
    with zipfile.ZipFile(tmp_path / "bomb.zip", "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("m.hlo", bytes(ANY_EXPANSION + 1))
    with pytest.raises(DumpError, match="expand to more than"):
        open_dump(tmp_path / "bomb.zip")


@pytest.mark.parametrize("ending", [".zip", ".tar.gz", ".tar.xz", ".tar.bz2", ".gz", ".zst"])
def test_standard_input_may_be_packed(tmp_path: Path, ending: str) -> None:
    if ending == ".zip":
        data = zipped(CRASH, tmp_path / "dump.zip").read_bytes()
    elif ending.startswith(".tar"):
        data = COMPRESS[ending.removeprefix(".tar")](crash_tar())
    else:
        data = COMPRESS[ending](LOOSE.encode())
    ran = invoke("check", "-", piped=data)
    assert "[reshape-moves-data]: this reshape moves bytes" in ran.output
