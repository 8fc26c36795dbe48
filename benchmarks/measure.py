"""One measurement in a process of its own: `python -m benchmarks.measure KIND FOLDER`.

Prints a JSON object: seconds of CPU for the work and for the whole process (start-up and imports
included), and memory in MB: what is held when all is read, and the peak.
"""

from __future__ import annotations

import gc
import json
import os
import resource
import sys
import time
from collections.abc import Callable
from pathlib import Path


def hlo_texts(folder: Path) -> list[Path]:
    """The files below a folder whose first word is HloModule."""
    found = []
    for path in sorted(folder.rglob("*")):
        if path.is_file():
            with path.open("rb") as file:
                if file.read(9) == b"HloModule":
                    found.append(path)
    return found


def unpacked(folder: Path, scratch: Path) -> Path:
    """The place of a folder's dumps: in it, or in `scratch` if it holds them in archives."""
    import tarfile

    archives = sorted(folder.glob("*.tar.xz"))
    for archive in archives:
        with tarfile.open(archive) as tar:
            tar.extractall(scratch, filter="data")
    return scratch if archives else folder


def resident() -> float:
    """Memory of this process, in MB."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / 1e6


def read_with_xla(folder: Path) -> object:
    from jaxlib import _hlo  # type: ignore[attr-defined]  # private, and without stubs

    held = []
    for path in hlo_texts(folder):
        try:
            held.append(_hlo.hlo_module_from_text(path.read_text("utf-8")))
        except Exception:
            held.append(None)  # a text of another release; its time counts all the same
    return held


def parse_each(folder: Path) -> object:
    import hlo_lint

    return [hlo_lint.parse(path.read_bytes()) for path in hlo_texts(folder)]


def open_whole(folder: Path) -> object:
    import hlo_lint

    dump = hlo_lint.open_dump(folder)
    return dump, [entry.file for pipeline in dump for entry in pipeline.dumps]


def check_whole(folder: Path) -> object:
    import hlo_lint

    return hlo_lint.lint(folder)


def check_by_command(folder: Path) -> object:
    from click.testing import CliRunner

    from hlo_lint.apps.cli.main import cli

    return CliRunner().invoke(cli, ["check", "--jobs", "1", "--no-cache", str(folder)])


KINDS: dict[str, Callable[[Path], object]] = {
    "xla": read_with_xla,
    "parse": parse_each,
    "open": open_whole,
    "check": check_whole,
    "command": check_by_command,
}


def imports(kind: str) -> None:
    """Import what the work needs, so that work and start-up can be told apart."""
    if kind == "xla":
        from jaxlib import _hlo  # type: ignore[attr-defined]  # private, and without stubs

        # The first text of a process costs over a second on some machines, whatever it holds.
        _hlo.hlo_module_from_text("HloModule m\nENTRY e { ROOT p = f32[] parameter(0) }")
    else:
        import hlo_lint

        assert hlo_lint


def main() -> None:
    kind, folder = sys.argv[1], Path(sys.argv[2])
    imports(kind)
    gc.disable()  # as the command line does; XLA's objects know no collector
    base, begun = resident(), time.thread_time()  # what jaxlib's other threads do is not reading
    held = KINDS[kind](folder)
    work = time.thread_time() - begun
    gc.collect()
    print(
        json.dumps(
            {
                "work": work,
                "process": time.process_time(),
                "held": resident() - base,
                "peak": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e3,
            }
        )
    )
    del held


if __name__ == "__main__":
    main()
