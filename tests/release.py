"""A new release of jax: its dumps and pass lists are made, and its parser is asked.

`make release JAX=0.13.0` prints what differs from what this package knows, and where it goes;
docs/releasing.md is the checklist.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from hlo_lint.apps.api import lint
from hlo_lint.dumps.pass_lists import pass_list, pass_lists
from hlo_lint.hlo.dtypes import ELEMENT_TYPES
from hlo_lint.hlo.opcodes import OPCODES
from hlo_lint.xla.environments import Platform, environment_of

ROOT = Path(__file__).resolve().parents[1]
PROGRAMS = ROOT / "fixtures" / "programs"
PASS_LISTS = ROOT / "hlo_lint" / "dumps" / "pipelines"
RELEASES = ROOT / "fixtures" / "releases"
NOT_OF_ARRAYS = {"opaque", "token"}
OF_THE_OPERAND = {"conditional": {"true_computation", "false_computation"}}
"""Attributes that XLA lists only where the type of an operand allows them."""


def main(release: str) -> None:
    """Make what is new, and print what differs."""
    gpu = environment_of(release, print).path
    tpu = environment_of(release, print, Platform.TPU).path
    for python, backend in ((gpu, "cpu"), (gpu, "gpu"), (tpu, "tpu")):
        before = pass_lists(backend)[-1].name
        for kept in ("pipelines", "releases"):
            _run(python, "make_dumps.py", kept, backend)
        print("\n".join(_passes(before, f"{backend}-jax{release}")))
        print("\n".join(_findings(RELEASES / f"{backend}-jax{release}.tar.xz")))
    print(_run(gpu, "what_xla_reads.py").strip())
    with tempfile.TemporaryDirectory() as folder:
        words = Path(folder, "words.json")
        words.write_text(json.dumps([*OPCODES, *ELEMENT_TYPES]))
        facts = json.loads(_run(gpu, "what_xla_knows.py", str(words)))
    print("\n".join(_words(facts)) or "its parser knows the words that are known here")


def _run(python: Path, program: str, *arguments: str) -> str:
    command = [str(python), str(PROGRAMS / program), *arguments]
    done = subprocess.run(command, cwd=PROGRAMS, stdout=subprocess.PIPE, text=True)
    if done.returncode:
        raise SystemExit(f"{program} {' '.join(arguments)}: status {done.returncode}")
    return done.stdout


def _passes(before: str, now: str) -> Iterator[str]:
    """The passes that a backend has gained and lost since the last list; equal lists are one."""
    old, new = (pass_list(name).passes for name in (before, now))
    if old == new and before != now:
        (PASS_LISTS / f"{now}.txt").unlink()
        yield f"{now}: the passes of {before}; no list is kept, and you need not keep the dump"
        return
    for sign, passes, others in (("+", new, old), ("-", old, new)):
        for pipeline, name in dict.fromkeys(entry for entry in passes if entry not in others):
            yield f"{now}: {sign} {name} of {pipeline}"
    if set(old) == set(new) and old != new:
        yield f"{now}: the passes of {before} in another order"
    yield f"{now}: what new passes demand and promise goes into dumps/phases.py and contracts.toml"


def _findings(archive: Path) -> Iterator[str]:
    """Findings in the dump of a program that compiled: false alarms, until each has been read."""
    with tempfile.TemporaryDirectory() as folder:
        subprocess.run(["tar", "xJf", str(archive), "-C", folder], check=True)
        for finding in lint(folder).findings:
            yield f"{archive.name}: read this {finding.severity} {finding.rule}: {finding.message}"


def _words(facts: Mapping[str, Any]) -> Iterator[str]:
    """Opcodes, attributes and element types that one side alone knows."""
    opcodes: Mapping[str, list[str]] = facts["opcodes"]
    types = set(facts["element_types"]) - NOT_OF_ARRAYS - OPCODES.keys() - opcodes.keys()
    for title, theirs, ours in (
        ("opcode (hlo/opcodes.py, then analysis/shape_inference)", opcodes.keys(), OPCODES.keys()),
        ("element type (hlo/dtypes.py)", types, ELEMENT_TYPES.keys()),
    ):
        yield from (f"+ {title}: {name}" for name in sorted(theirs - ours))
        yield from (f"- {title}: {name}" for name in sorted(ours - theirs))
    for opcode in sorted(opcodes.keys() & OPCODES.keys()):
        listed, allowed = set(opcodes[opcode]), OPCODES[opcode].allowed
        yield from (f"+ attribute of {opcode}: {name}" for name in sorted(listed - allowed))
        gone = allowed - listed - OF_THE_OPERAND.get(opcode, set())
        yield from (f"- attribute of {opcode}: {name}" for name in sorted(gone))
    yield f"attributes of the header: {', '.join(facts['header'])}"


if __name__ == "__main__":
    main(sys.argv[1])
