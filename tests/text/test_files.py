"""Files are written whole or not at all, and devices stay devices."""

from __future__ import annotations

import contextlib
import os
import shutil
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
from tests.conftest import completed, new_folder, present, started, written
from tests.texts import entry

BROKEN_RESHAPE = entry(
    "  p = f32[2,3]{0,1} parameter(0)\n  ROOT r = f32[6]{0} reshape(p)",
    header=", entry_computation_layout={(f32[2,3]{0,1})->f32[6]{0}}",
)
CLI = (sys.executable, "-m", "hlo_lint")

as_root = pytest.mark.skipif(
    not hasattr(os, "geteuid") or os.geteuid() != 0, reason="only root makes devices and mounts"
)


@pytest.fixture
def module(tmp_path: Path) -> Path:
    return written(tmp_path / "m.hlo", BROKEN_RESHAPE)


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    folder = new_folder(tmp_path / "disk")
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
        *(
            pytest.param(arguments, marks=pytest.mark.slow)
            for arguments in (
                ("report", "IN", "-o", "OUT"),
                ("fix", "IN", "-o", "OUT"),
                ("check", "IN", "--write-baseline", "OUT"),
            )
        ),
    ],
    ids=lambda arguments: arguments[0],
)
def test_a_device_stays_a_device(arguments: tuple[str, ...], module: Path, tmp_path: Path) -> None:
    node = tmp_path / "null"
    os.mknod(node, stat.S_IFCHR | 0o666, os.makedev(1, 3))
    words = [{"IN": str(module), "OUT": str(node)}.get(word, word) for word in arguments]
    ran = completed([*CLI, *words])
    assert ran.returncode in (0, 1), ran.stderr
    assert stat.S_ISCHR(node.stat().st_mode)
    assert sorted(os.listdir(tmp_path)) == ["m.hlo", "null"]


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="this system has no FIFO")
def test_output_to_a_fifo_is_read_at_its_other_end(tmp_path: Path) -> None:
    fifo = tmp_path / "fifo"
    os.mkfifo(fifo)
    read: list[str] = []
    reader = threading.Thread(target=lambda: read.append(fifo.read_text()), daemon=True)
    reader.start()
    files.write(fifo, "all of it\n")
    reader.join()
    assert read == ["all of it\n"]
    assert stat.S_ISFIFO(fifo.stat().st_mode)


@pytest.mark.skipif(not Path("/dev/stdout").exists(), reason="this system has no /dev/stdout")
def test_dev_stdout_is_standard_output_in_a_pipe_and_a_file(module: Path, tmp_path: Path) -> None:
    options = "--output-format json --exit-zero -o /dev/stdout".split()
    words = [*CLI, "check", *options, str(module)]
    piped = subprocess.run(words, capture_output=True, check=True).stdout
    assert piped.startswith(b"{")
    log = tmp_path / "log"
    with log.open("wb") as stream:
        stream.write(b"before\n")
        stream.flush()
        subprocess.run(words, stdout=stream, check=True)
    assert log.read_bytes() == b"before\n" + piped


def test_the_left_over_file_of_a_killed_run_goes_with_the_next_write(tmp_path: Path) -> None:
    target = written(tmp_path / "m.hlo", "old")
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
    files.remove_left_over.cache_clear()
    files.write(target, "newer")
    assert (target.read_text(), os.listdir(tmp_path)) == ("newer", ["m.hlo"])


def test_the_temporary_file_of_a_run_that_goes_on_stays(tmp_path: Path) -> None:
    code = f"""
from pathlib import Path
from hlo_lint.text import files
def fill(file):
    file.write(b"half")
    file.flush()
    print("half", flush=True)
    input()
files._replace(Path({str(tmp_path / "m.hlo")!r}), fill)
"""
    command = [sys.executable, "-c", code]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    with started(command, text=True, **pipes) as other:
        present(other.stdout).readline()
        files.remove_left_over.cache_clear()
        files.write(tmp_path / "n.hlo", "whole")
        assert len(os.listdir(tmp_path)) == 2
        other.communicate("\n")
    assert other.returncode == 0
    assert (tmp_path / "m.hlo").read_text() == "half"
    assert sorted(os.listdir(tmp_path)) == ["m.hlo", "n.hlo"]


def test_fix_removes_what_was_left_over_also_where_nothing_is_to_be_fixed(tmp_path: Path) -> None:
    (tmp_path / "m.hlo").write_text("HloModule m\n\nENTRY e {\n  ROOT p = f32[] parameter(0)\n}\n")
    (tmp_path / f".m.hlo{files._TEMPORARY}0123456789abcdef").write_text("half")
    subprocess.run([*CLI, "fix", str(tmp_path)], capture_output=True, check=True)
    assert os.listdir(tmp_path) == ["m.hlo"]


def test_one_of_two_that_write_a_file_at_a_time_is_refused(module: Path) -> None:
    with open(module, "rb") as held:
        assert files.lock(held)
        with pytest.raises(DumpError, match=r"m\.hlo: not written: another process writes it"):
            files.write(module, "fixed", read=BROKEN_RESHAPE)
    assert module.read_text() == BROKEN_RESHAPE
    files.write(module, "fixed", read=BROKEN_RESHAPE)
    assert module.read_text() == "fixed"


def test_a_file_of_two_names_is_not_edited_in_place(module: Path, tmp_path: Path) -> None:
    os.link(module, tmp_path / "same.hlo")
    words = [*CLI, "fix", str(module), "--before", "layout_normalization"]
    ran = completed(words)
    assert ran.returncode == 2
    assert ran.stderr.splitlines()[-1].endswith(
        "m.hlo: not written: the file has 2 names (hard links), of which only this one would "
        "change; copy it, or give -o OUT"
    )
    assert module.read_text() == (tmp_path / "same.hlo").read_text() == BROKEN_RESHAPE
    subprocess.run([*words, "-o", str(tmp_path / "out.hlo")], capture_output=True, check=True)
    assert "bitcast" in (tmp_path / "out.hlo").read_text()


def test_a_loop_of_links_is_one_error(tmp_path: Path) -> None:
    (tmp_path / "a").symlink_to("b")
    (tmp_path / "b").symlink_to("a")
    with pytest.raises(DumpError, match=r"a: cannot be written: "):
        files.write(tmp_path / "a", "x")


def test_a_link_to_nothing_is_followed(tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to("file")
    files.write(tmp_path / "link", "x")
    assert (tmp_path / "link").is_symlink()
    assert (tmp_path / "file").read_text() == "x"


def test_a_copied_file_keeps_its_times_an_edited_one_not(module: Path, tmp_path: Path) -> None:
    other = tmp_path / "in" / "notes.json"
    other.parent.mkdir()
    other.write_text("{}")
    other.chmod(0o640)
    for path in (other, module):
        os.utime(path, (1_000_000_000, 1_000_000_000))
    files.copy_file(other, tmp_path / "out" / "notes.json")
    copy = (tmp_path / "out" / "notes.json").stat()
    assert (copy.st_mtime, stat.S_IMODE(copy.st_mode)) == (1_000_000_000, 0o640)
    files.write(module, "fixed", read=BROKEN_RESHAPE)
    assert module.stat().st_mtime > 1_000_000_000  # as `make` expects


@pytest.mark.skipif(not hasattr(os, "setxattr"), reason="this system has no such attributes")
def test_extended_attributes_stay(module: Path) -> None:
    try:
        os.setxattr(module, "user.origin", b"a run")
    except OSError:
        pytest.skip("this file system keeps no attributes of users")
    files.write(module, "fixed", read=BROKEN_RESHAPE)
    assert os.getxattr(module, "user.origin") == b"a run"


@pytest.mark.skipif(os.name == "nt", reason="modes are those of POSIX")
@pytest.mark.parametrize("protected", ["m.hlo", "."], ids=["file", "folder"])
def test_what_may_not_be_written_is_one_error(protected: str, tmp_path: Path) -> None:
    target = written(tmp_path / "m.hlo", BROKEN_RESHAPE)
    (tmp_path / protected).chmod(0o555)
    # Root is bound by modes without this capability.
    bound = ["setpriv", "--bounding-set=-dac_override"] if os.geteuid() == 0 else []
    if bound and not shutil.which("setpriv"):
        pytest.skip("modes do not bind root, and no setpriv is here")
    words = [*bound, *CLI, "fix", "--before", "layout_normalization", str(target)]
    ran = completed(words)
    assert ran.returncode == 2
    assert ran.stderr == f"Error: {target}: cannot be written: Permission denied\n"
    assert target.read_text() == BROKEN_RESHAPE
    assert os.listdir(tmp_path) == ["m.hlo"]


WRITERS = {
    "fix": ("fix", "IN", "--before", "layout_normalization", "-o", "OUT/x.hlo"),
    "check": ("check", "IN", "--output-format", "json", "-o", "OUT/x.json"),
    "report": ("report", "IN", "-o", "OUT/x.html"),
    "reduce": ("reduce", "IN", "--finding", "reshape-moves-data", "-o", "OUT/x.hlo"),
    "repro": ("repro", "IN", "reshape-moves-data", "--jax", "0.10.2", "-o", "OUT/x"),
    "new-rule": ("new-rule", "full-disk", "--package", "team_rules"),
    "baseline": ("check", "IN", "--write-baseline", "OUT/x.json"),
    "run": ("run", "IN", "-o", "OUT/x.npz"),
    "capture": ("capture", "SCRIPT:f", "--target", "h200", "--keep", "OUT/x"),
}
"""Each command that writes files, and how it is called."""


def test_a_file_that_changed_since_it_was_read_is_left_alone(module: Path) -> None:
    module.write_text("another")
    with pytest.raises(DumpError, match="it has changed since it was read"):
        files.write(module, "fixed", read=BROKEN_RESHAPE)
    assert module.read_text() == "another"


def test_mode_and_owner_stay(tmp_path: Path) -> None:
    target = written(tmp_path / "m.hlo", "old")
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
@pytest.mark.slow
@pytest.mark.parametrize("fault", ["full", "read-only"])
@pytest.mark.parametrize("command", WRITERS)
def test_each_command_that_writes_reports_a_disk_that_does_not_take_it(
    command: str, fault: str, module: Path, small_disk: Path
) -> None:
    if (command, fault) == ("capture", "full"):
        pytest.skip("XLA writes the dumps, and says nothing of what it cannot write")
    script = module.with_name("script.py")
    script.write_text("import jax\ndef f():\n    return jax.numpy.zeros(3)\n")
    if fault == "full":
        with contextlib.suppress(OSError), open(small_disk / "filler", "wb", buffering=0) as filler:
            while True:
                filler.write(bytes(4096))
    else:
        subprocess.run(["mount", "-o", "remount,ro", small_disk], check=True)
    before = sorted(os.listdir(small_disk))
    words = [*WRITERS[command]]
    for name, path in (("IN", module), ("SCRIPT", script), ("OUT", small_disk)):
        words = [word.replace(name, str(path)) for word in words]
    ran = completed([*CLI, *words], cwd=small_disk)
    assert ran.returncode == 2, ran.stdout + ran.stderr
    reason = "No space left on device" if fault == "full" else "Read-only file system"
    assert reason in ran.stderr.splitlines()[-1]
    assert "Traceback" not in ran.stderr
    assert "internal error" not in ran.stderr
    assert module.read_text() == BROKEN_RESHAPE
    if fault == "read-only":
        assert sorted(os.listdir(small_disk)) == before


@pytest.fixture
def quota(tmp_path: Path) -> Iterator[Path]:
    """A folder of 2 MB in a file system that has room."""
    image, disk = tmp_path / "image", tmp_path / "disk"
    if shutil.which("mkfs.btrfs") is None:
        pytest.skip("no mkfs.btrfs: a file system with quotas is made by btrfs-progs")
    disk.mkdir()
    with image.open("wb") as file:
        file.truncate(128 << 20)
    subprocess.run(["mkfs.btrfs", "-q", image], check=True, capture_output=True)
    if subprocess.run(["mount", "-o", "loop", image, disk], check=False).returncode:
        pytest.skip("no btrfs can be mounted here")
    folder = disk / "folder"
    for words in (
        ("quota", "enable", disk),
        ("subvolume", "create", folder),
        ("qgroup", "limit", "2M", folder),
    ):
        subprocess.run(["btrfs", *words], check=True, capture_output=True)
    yield folder
    subprocess.run(["umount", disk], check=True)


@as_root
def test_an_exhausted_quota_is_one_error_and_leaves_the_file(quota: Path) -> None:
    target = written(quota / "m.hlo", BROKEN_RESHAPE)
    filler = os.urandom(1 << 16)  # what is all zeros takes no room
    for number in range(100):
        try:
            with (quota / f"filler{number}").open("wb", buffering=0) as file:
                file.write(filler)
                os.fsync(file.fileno())
        except OSError:
            break
    words = ["fix", str(target), "--before", "layout_normalization"]
    ran = completed([*CLI, *words])
    assert ran.returncode == 2, ran.stdout + ran.stderr
    assert "Disk quota exceeded" in ran.stderr.splitlines()[-1]
    assert "Traceback" not in ran.stderr
    assert target.read_text() == BROKEN_RESHAPE
    assert sorted(path.suffix for path in quota.iterdir() if "filler" not in path.name) == [".hlo"]


@as_root
def test_a_folder_that_is_mounted_read_only_is_one_error(small_disk: Path, tmp_path: Path) -> None:
    target = written(small_disk / "m.hlo", BROKEN_RESHAPE)
    bound = new_folder(tmp_path / "bound")
    subprocess.run(["mount", "--bind", small_disk, bound], check=True)
    try:
        subprocess.run(["mount", "-o", "remount,bind,ro", bound], check=True)
        words = [*CLI, "fix", str(bound / "m.hlo"), "--before", "layout_normalization"]
        ran = completed(words)
    finally:
        subprocess.run(["umount", bound], check=True)
    assert ran.returncode == 2
    assert ran.stderr == f"Error: {bound}/m.hlo: cannot be written: Read-only file system\n"
    assert target.read_text() == BROKEN_RESHAPE


@as_root
def test_a_full_disk_is_one_error_and_the_file_is_as_it_was(small_disk: Path) -> None:
    target = written(small_disk / "m.hlo", "old")
    with pytest.raises(DumpError, match=r"m\.hlo: cannot be written: No space left on device"):
        files.write(target, "x" * 200_000)
    assert (target.read_text(), os.listdir(small_disk)) == ("old", ["m.hlo"])


@as_root
def test_a_read_only_disk_is_one_error(small_disk: Path) -> None:
    target = written(small_disk / "m.hlo", BROKEN_RESHAPE)
    subprocess.run(["mount", "-o", "remount,ro", small_disk], check=True)
    words = [*CLI, "fix", str(target), "--before", "layout_normalization"]
    ran = completed(words)
    assert ran.returncode == 2
    assert ran.stderr.splitlines()[-1].endswith("m.hlo: cannot be written: Read-only file system")
    assert "Traceback" not in ran.stderr


def test_a_name_of_the_greatest_length_is_written(tmp_path: Path) -> None:
    target = tmp_path / ("ß" * 127)
    files.write(target, "whole")
    assert target.read_text() == "whole"


@pytest.mark.skipif(not Path("/dev/stdin").exists(), reason="this system has no /dev/stdin")
@pytest.mark.parametrize("given", ["/dev/stdin", "a link to it", "a FIFO"])
def test_what_the_shell_opened_for_reading_is_not_edited(given: str, tmp_path: Path) -> None:
    text = BROKEN_RESHAPE.encode()
    file, path = tmp_path / "file.hlo", tmp_path / "given.hlo"
    file.write_bytes(text)
    if given == "a FIFO":
        os.mkfifo(path)
    elif given == "a link to it":
        path.symlink_to("/dev/stdin")
    else:
        path = Path(given)
    command = [sys.executable, "-m", "hlo_lint", "fix", "--isolated", str(path)]
    command += ["--before", "layout_normalization"]
    with file.open("rb") as opened, started(command, stdin=opened, stderr=subprocess.PIPE) as fix:
        _, errors = fix.communicate(timeout=20)
    assert fix.returncode == 2
    assert errors.startswith(f"Error: {path}: not a file that can be edited in place".encode())
    assert file.read_bytes() == text
