"""Measure that a fix never breaks what compiles: XLA:CPU compiles each fixed text that it compiled.

    python -m benchmarks.fixes TEXTS...

TEXTS are `.hlo` files, folders of them, or `.jsonl.xz` files with an object of `id` and `text` a
line. A text is compiled only where `fix` edits it, with unsafe fixes too. jaxlib reads the text,
turns it into StableHLO, and compiles that. Each compilation runs in a child process, because a
check that fails ends it. The exit status is 1 where a fixed text no longer compiles.
"""

from __future__ import annotations

import json
import lzma
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import hlo_lint
from hlo_lint.text.errors import HloLintError

MAX_SECONDS = 300

COMPILE = """
import sys
import jax
from jaxlib import _hlo, _jax
module = _hlo.hlo_module_from_text(sys.stdin.read())
program = _jax.mlir.hlo_to_stablehlo(module.as_serialized_hlo_module_proto())
devices = jax.devices("cpu")[:1]
devices[0].client.compile_and_load(program, _jax.DeviceList(tuple(devices)), _jax.CompileOptions())
"""


def compiles(text: str) -> bool:
    """True if XLA:CPU of the jaxlib at hand compiles a text."""
    child = subprocess.run(
        [sys.executable, "-c", COMPILE],
        input=text.encode("utf-8", "replace"),
        capture_output=True,
        timeout=MAX_SECONDS,
        check=False,
    )
    return child.returncode == 0


def texts(path: Path) -> Iterator[tuple[str, str]]:
    """Yield the texts that a path holds, each with its name."""
    if path.is_dir():
        for file in sorted(path.rglob("*.hlo")):
            yield from texts(file)
    elif path.name.endswith(".jsonl.xz"):
        with lzma.open(path, "rt", encoding="utf-8") as lines:
            for line in lines:
                found = json.loads(line)
                yield found["id"], found["text"] + "\n"
    else:
        yield str(path), path.read_text("utf-8", "surrogateescape")


def main(paths: list[Path]) -> int:
    count, edited, compiled = 0, 0, 0
    broken = []
    for path in paths:
        for name, text in texts(path):
            count += 1
            try:
                result = hlo_lint.fix(text, unsafe_fixes=True)
            except HloLintError as error:
                print(f"{name}: {error}")
                continue
            if not result.edits:
                continue
            edited += 1
            if compiles(text):
                compiled += 1
                if not compiles(result.text):
                    broken.append(name)
    print(f"{count} texts, {edited} edited, {compiled} of these compiled before, ", end="")
    print(f"{len(broken)} no longer compile")
    for name in broken:
        print(f"  {name}")
    return 1 if broken else 0


if __name__ == "__main__":
    sys.exit(main([Path(each) for each in sys.argv[1:]]))
