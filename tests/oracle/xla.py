"""The releases of XLA's parser that are at hand, and what each reads out of a text.

An oracle is an interpreter with a jaxlib: the one that runs the tests, and those that
`HLO_LINT_ORACLES` names, paths separated as in PATH. Each reads in a child process.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

from hlo_lint.text.source import encode
from tests.conftest import completed

_ROOT = Path(__file__).resolve().parents[2]
_VERSION = "from importlib.metadata import version; print(version('jaxlib'))"
_PATIENCE_IN_SECONDS = 120


@dataclass(frozen=True, slots=True)
class XlaInstruction:
    """An instruction as XLA read it."""

    name: str
    opcode: str
    shape: str
    """With its layout, in XLA's own spelling."""
    operands: tuple[str, ...]
    users: tuple[str, ...]
    called: tuple[str, ...]
    parameter: int
    """The number of a parameter; of other opcodes 0."""
    index: int
    """The element that a get-tuple-element takes; 0 for other opcodes."""
    control: tuple[str, ...]
    """Its control predecessors."""
    fields: str
    """All that its `HloInstructionProto` says beside the graph and metadata, as JSON."""
    metadata: str
    """Its `OpMetadata`, as JSON."""


@dataclass(frozen=True, slots=True)
class XlaComputation:
    """A computation as XLA read it, in the order of the text."""

    name: str
    root: str
    thread: str
    schedule: tuple[str, ...]
    """Its instructions in the order of execution; empty where none is given."""
    instructions: tuple[XlaInstruction, ...]
    alike: dict[str, frozenset[tuple[int, int]]] = field(
        default_factory=dict, compare=False, repr=False
    )
    """Texts that spell it: modules share what dumps repeat, and it is compared once. With each, the
    ids of its stack frames, as the text has them and as XLA has them.
    """


@dataclass(frozen=True)
class XlaModule:
    """A module as XLA read it."""

    name: str
    entry: str
    is_scheduled: bool
    computations: tuple[XlaComputation, ...]
    shapes: dict[str, Any]
    """Each spelling in it with the numbers of its `ShapeProto`."""
    header: dict[str, Any]
    """Shapes of the entry, aliases, donors and frontend attributes of its `HloModuleProto`."""
    printed_header: str
    """The text that XLA prints before the first computation."""
    stacks: dict[str, list[list[Any]]]
    """File, line and function of each frame, by `stack_frame_id`."""


@dataclass(frozen=True, slots=True)
class Refusal:
    """XLA did not read the text."""

    message: str
    """`line:column: first complaint`, or `died` where the text ended the process."""


Answer = XlaModule | Refusal
DIED = Refusal("died")


@dataclass(frozen=True, slots=True)
class Oracle:
    """XLA's parser in one release."""

    version: str
    """Of jaxlib: 0.11.2."""
    python: str
    """The interpreter that has it."""

    def read(self, texts: Sequence[str]) -> list[Answer]:
        """XLA's answer to each text; a text that ends the child costs the others nothing."""
        found: list[Answer] = []
        while len(found) < len(texts):
            lines, status, complaint = self._ask(texts[len(found) :])
            told = _Told([], [], [])
            found += [told.answer(json.loads(line)) for line in lines]
            if len(found) == len(texts):
                break
            if status >= 0:  # no signal: the child is broken, not the text
                raise RuntimeError(f"{self.python}: {complaint}")
            found.append(DIED)
        return found

    def _ask(self, texts: Sequence[str]) -> tuple[list[str], int, str]:
        command = [self.python, "-P", "-m", "tests.oracle.read_hlo"]
        env = {**os.environ, "PYTHONPATH": str(_ROOT)}
        data = json.dumps([as_utf8(text) for text in texts]).encode()
        child = subprocess.run(
            command, env=env, input=data, capture_output=True, timeout=_PATIENCE_IN_SECONDS
        )
        whole, _, _ = child.stdout.decode().rpartition("\n")
        return whole.splitlines(), child.returncode, child.stderr.decode(errors="replace")


def as_utf8(text: str) -> str:
    """The bindings want UTF-8: bytes that are none arrive as Latin-1, so that XLA meets them."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return encode(text).decode("latin-1")
    return text


class _Told(NamedTuple):
    """The output of a child so far."""

    fields: list[str]
    metadata: list[str]
    computations: list[XlaComputation]

    def answer(self, found: dict[str, Any]) -> Answer:
        """The answer in a line of the child's output."""
        if "error" in found:
            return Refusal(found["error"])
        self.fields.extend(found["fields"])
        self.metadata.extend(found["metadata"])
        self.computations.extend(map(self._computation, found["new"]))
        computations = tuple(self.computations[number] for number in found["computations"])
        told = {name: found[name] for name in XlaModule.__match_args__}
        return XlaModule(**{**told, "computations": computations})

    def _computation(self, found: dict[str, Any]) -> XlaComputation:
        instructions = tuple(map(self._instruction, found["instructions"]))
        told = {**found, "schedule": tuple(found["schedule"]), "instructions": instructions}
        return XlaComputation(**told)

    def _instruction(self, found: dict[str, Any]) -> XlaInstruction:
        names = {key: tuple(value) for key, value in found.items() if isinstance(value, list)}
        fields, metadata = self.fields[found["fields"]], self.metadata[found["metadata"]]
        return XlaInstruction(**{**found, **names, "fields": fields, "metadata": metadata})


@cache
def oracle_of(release: str) -> Oracle | None:
    """The first at hand of the releases that begin with these numbers."""
    return next((each for each in oracles() if each.version.startswith(f"{release}.")), None)


@cache
def oracles() -> tuple[Oracle, ...]:
    """Every release at hand, this interpreter's first.

    Raises:
        RuntimeError: where `HLO_LINT_ORACLES` names an interpreter without jaxlib.
    """
    found = []
    own = _jaxlib_version(sys.executable)
    if own is not None:
        found.append(Oracle(own, sys.executable))
    for python in filter(None, os.environ.get("HLO_LINT_ORACLES", "").split(os.pathsep)):
        version = _jaxlib_version(python)
        if version is None:
            raise RuntimeError(f"HLO_LINT_ORACLES: {python} has no jaxlib")
        if version not in {oracle.version for oracle in found}:
            found.append(Oracle(version, python))
    return tuple(found)


def _jaxlib_version(python: str) -> str | None:
    child = completed([python, "-c", _VERSION], timeout=60)
    return child.stdout.strip() if child.returncode == 0 else None
