"""The table of docs/found.md: each module of fixtures/found in environments with jaxlib alone.

    python -m benchmarks.found PYTHON… [NAME…]

Each PYTHON is an interpreter with jaxlib, and for a GPU or TPU its compiler, which names the
column; each NAME is a module, all of them where none is named. The commands are those of
docs/found.md. What compiles and does not run there (for a chip, or for several devices) has its
dumps compared, as a hunt does: `steps right` says that these compute what is right. Lines on stderr
say what was seen.
"""

from __future__ import annotations

import ast
import os
import re
import subprocess
import sys
from math import prod
from pathlib import Path
from typing import Final

from hlo_lint.apps.jax.capture import targets
from hlo_lint.xla import pjrt
from hlo_lint.xla.cpu import devices_of
from hlo_lint_hunt import show
from hlo_lint_hunt.judge import CPU, FOUND, SAME, HuntCompiler, Judge

MODULES: Final = Path(__file__).parents[1] / "fixtures" / "found"
_GPU: Final = Path(targets.__file__).with_name("targets") / "h200.pbtxt"
_PROBE: Final = (
    "import importlib.util as u, jaxlib; print(jaxlib.__version__,"
    "'v5e' if u.find_spec('libtpu') else 'h200' if u.find_spec('jax_plugins') else 'cpu')"
)
_SECONDS: Final = 120
_unsupported = re.compile("UNIMPLEMENTED|is not supported for|Unsupported async|element_type TUPLE")


def column(python: str) -> HuntCompiler:
    """The compiler of an environment."""
    done = subprocess.run([python, "-c", _PROBE], capture_output=True, text=True, check=True)
    release, target = done.stdout.split()
    return HuntCompiler(Path(python), target, release)


def command(compiler: HuntCompiler, file: Path) -> list[str]:
    """The command of docs/found.md."""
    if compiler.target == CPU:
        return [f"{compiler.python}", "-m", show.__name__, f"{file}"]
    target = "v5e:2x2" if compiler.target == "v5e" else f"{_GPU}"
    partitions = f"{prod(devices_of(file.read_text('utf-8')))}"
    return [f"{compiler.python}", pjrt.__file__, f"{file}", target, partitions]


def seen(compiler: HuntCompiler, judge: Judge, file: Path) -> tuple[str, str]:
    """The cell of a module, `seen`, `right` or what else there is to say; and what was seen."""
    text = file.read_text("utf-8")
    alone = {"PATH": os.environ["PATH"], "HOME": os.environ.get("HOME", "/")}
    try:
        done = subprocess.run(
            command(compiler, file), capture_output=True, text=True, env=alone, timeout=_SECONDS
        )
    except subprocess.TimeoutExpired:
        return "seen", "it does not end"
    if done.returncode < 0 or done.returncode > 2:
        log = f"{done.stdout}\n{done.stderr}"
        words = re.search(r"[\w.]+:\d+\] .*(Check fail|Unsupported).*|[\w ():]+freed?\(?.*", log)
        return "seen", f"ended by {done.returncode}: {words[0] if words else ''}"
    lines = done.stdout.partition("without passes")[0].removeprefix("as it is: ").strip()
    if "Execution supplied 0 arguments" in lines:
        return "right", "it compiles"
    if "error: " in lines or (compiler.target == CPU and not re.match(r"\[|it compiles", lines)):
        return ("refused" if _unsupported.search(lines) else "seen"), lines
    right = re.search("^// right: (.*)", text, re.M) or ["", "it compiles"]
    if lines.startswith("["):
        (number,) = ast.literal_eval(re.sub(r"array\(|,\s*dtype=\w+\)", "", lines))
        return ("right" if number == ast.literal_eval(right[1]) else "seen"), f"{number}"
    if right[1] == "it compiles" and compiler.target == CPU:
        return "right", lines
    verdict = judge(text)
    cell = {FOUND: "seen", SAME: "right" if right[1] == "it compiles" else "steps right"}.get(
        verdict.outcome, "not run"
    )
    return cell, f"dumps: {verdict.finding.cause if verdict.finding else verdict.outcome}"


def main(given: list[str]) -> int:
    """Print the table."""
    names = {one for one in given if (MODULES / f"{one}.hlo").exists()}
    files = [one for one in sorted(MODULES.glob("*.hlo")) if not names or one.stem in names]
    columns = []
    for python in (one for one in given if one not in names):
        compiler, cells = column(python), []
        name = f"{compiler.release} {compiler.target}"
        with Judge(compiler) as judge:
            for file in files:
                cell, what = seen(compiler, judge, file)
                cells.append(cell)
                words = " ".join(what.split())[:200]
                print(f"{name} {file.stem}: {cell}: {words}", file=sys.stderr)
        columns.append([name, *cells])
    for row in zip(["module", *(f"`{file.name}`" for file in files)], *columns, strict=True):
        print(f"| {' | '.join(row)} |")
        if row[0] == "module":
            print("|---" * len(row) + "|")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
