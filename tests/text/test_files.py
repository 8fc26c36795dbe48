"""Files are written whole or not at all, and devices stay devices."""

from __future__ import annotations

import os
import signal
import stat
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from hlo_lint.text import files
from hlo_lint.text.errors import DumpError

BROKEN_RESHAPE = """HloModule m, entry_computation_layout={(f32[2,3]{0,1})->f32[6]{0}}

ENTRY e {
  p = f32[2,3]{0,1} parameter(0)
  ROOT r = f32[6]{0} reshape(p)
}
"""
CLI = (sys.executable, "-m", "hlo_lint")

as_root = pytest.mark.skipif(
    not hasattr(os, "geteuid") or os.geteuid() != 0, reason="only root makes devices and mounts"
)


@pytest.fixture
def module(tmp_path: Path) -> Path:
    path = tmp_path / "m.hlo"
    path.write_text(BROKEN_RESHAPE)
    return path


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    folder = tmp_path / "disk"
    folder.mkdir()
    made = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=64k", "tmpfs", folder], check=False)
    if made.returncode:
        pytest.skip("no file system can be mounted here")
    yield folder
    subprocess.run(["umount", folder], check=True)


@as_root
@pytest.mark.parametrize(
    "arguments",
    [
        ("check", "IN", "-o", "OUT"),
        ("report", "IN", "-o", "OUT"),
        ("fix", "IN", "-o", "OUT"),
        ("convert", "IN", "--to", "short", "-o", "OUT"),
        ("baseline", "IN", "--update", "-o", "OUT"),
    ],
    ids=lambda arguments: arguments[0],
)
def test_output_to_a_device_leaves_it_a_device(
    arguments: tuple[str, ...], module: Path, tmp_path: Path
) -> None:
    node = tmp_path / "null"
    os.mknod(node, stat.S_IFCHR | 0o666, os.makedev(1, 3))
    words = [{"IN": str(module), "OUT": str(node)}.get(word, word) for word in arguments]
    ran = subprocess.run([*CLI, *words], capture_output=True, text=True, check=False)
    assert ran.returncode in (0, 1), ran.stderr
    assert stat.S_ISCHR(node.stat().st_mode)
    assert sorted(os.listdir(tmp_path)) == ["m.hlo", "null"]


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="this system has no FIFO")
def test_output_to_a_fifo_is_read_at_its_other_end(tmp_path: Path) -> None:
    fifo = tmp_path / "fifo"
    os.mkfifo(fifo)
    read: list[str] = []
    reader = threading.Thread(target=lambda: read.append(fifo.read_text()))
    reader.start()
    files.write(fifo, "all of it\n")
    reader.join()
    assert read == ["all of it\n"]
    assert stat.S_ISFIFO(fifo.stat().st_mode)


@pytest.mark.skipif(not Path("/dev/stdout").exists(), reason="this system has no /dev/stdout")
def test_dev_stdout_is_standard_output_in_a_pipe_and_in_a_file(
    module: Path, tmp_path: Path
) -> None:
    words = [
        *CLI,
        "check",
        "--output-format",
        "json",
        "--exit-zero",
        "-o",
        "/dev/stdout",
        str(module),
    ]
    piped = subprocess.run(words, capture_output=True, check=True).stdout
    assert piped.startswith(b"{")
    log = tmp_path / "log"
    with log.open("wb") as stream:
        stream.write(b"before\n")
        stream.flush()
        subprocess.run(words, stdout=stream, check=True)
    assert log.read_bytes() == b"before\n" + piped


def test_the_left_over_file_of_a_killed_run_goes_with_the_next_write(tmp_path: Path) -> None:
    target = tmp_path / "m.hlo"
    target.write_text("old")
    code = f"""
import os, signal
from pathlib import Path
from hlo_lint.text import files
files.os.replace = lambda *_: os.kill(os.getpid(), signal.SIGKILL)
files.write(Path({str(target)!r}), "new")
"""
    killed = subprocess.run([sys.executable, "-c", code], check=False)
    assert killed.returncode == -signal.SIGKILL
    assert target.read_text() == "old"
    assert len(os.listdir(tmp_path)) == 2
    files._remove_left_over.cache_clear()
    files.write(target, "newer")
    assert (target.read_text(), os.listdir(tmp_path)) == ("newer", ["m.hlo"])


def test_the_temporary_file_of_a_run_that_goes_on_stays(tmp_path: Path) -> None:
    other = tmp_path / f".m.hlo{files._TEMPORARY}{os.getppid()}-1"
    other.write_text("half")
    files.write(tmp_path / "m.hlo", "whole")
    assert other.read_text() == "half"


def test_a_file_that_changed_since_it_was_read_is_left_alone(module: Path) -> None:
    module.write_text("another")
    with pytest.raises(DumpError, match="it has changed since it was read"):
        files.write(module, "fixed", read=BROKEN_RESHAPE)
    assert module.read_text() == "another"


def test_mode_and_owner_stay(tmp_path: Path) -> None:
    target = tmp_path / "m.hlo"
    target.write_text("old")
    target.chmod(0o604)
    owner = (12345, 12345) if os.geteuid() == 0 else (os.getuid(), os.getgid())
    os.chown(target, *owner)
    files.write(target, "new")
    after = target.stat()
    assert (stat.S_IMODE(after.st_mode), (after.st_uid, after.st_gid)) == (0o604, owner)


def test_a_new_file_has_the_mode_that_umask_leaves(tmp_path: Path) -> None:
    before = os.umask(0o027)
    try:
        files.write(tmp_path / "m.hlo", "new")
    finally:
        os.umask(before)
    assert stat.S_IMODE((tmp_path / "m.hlo").stat().st_mode) == 0o640


@as_root
def test_a_full_disk_is_one_error_and_the_file_is_as_it_was(small_disk: Path) -> None:
    target = small_disk / "m.hlo"
    target.write_text("old")
    with pytest.raises(DumpError, match=r"m\.hlo: cannot be written: No space left on device"):
        files.write(target, "x" * 200_000)
    assert (target.read_text(), os.listdir(small_disk)) == ("old", ["m.hlo"])


@as_root
def test_a_read_only_disk_is_one_error(small_disk: Path) -> None:
    target = small_disk / "m.hlo"
    target.write_text(BROKEN_RESHAPE)
    subprocess.run(["mount", "-o", "remount,ro", small_disk], check=True)
    words = [*CLI, "fix", str(target), "--before", "layout_normalization"]
    ran = subprocess.run(words, capture_output=True, text=True, check=False)
    assert ran.returncode == 2
    assert ran.stderr.splitlines()[-1].endswith("m.hlo: cannot be written: Read-only file system")
    assert "Traceback" not in ran.stderr


def test_a_name_of_the_greatest_length_is_written(tmp_path: Path) -> None:
    target = tmp_path / ("ß" * 127)
    files.write(target, "whole")
    assert target.read_text() == "whole"
