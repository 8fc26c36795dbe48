"""XLA's parser asked about many texts, in a child process: some texts abort it."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Sequence
from importlib import import_module
from typing import Final

from hlo_lint.hlo import children
from hlo_lint.hlo.xla_child import module_of_text, xla_bindings, xla_message
from hlo_lint.text.source import decode, encode, shown

MAX_SECONDS: Final = 300.0
"""Time that the texts of one call may take together."""


def refusals(texts: Sequence[str]) -> list[str] | None:
    """For each text the reason why XLA's parser refuses it, empty if it reads it.

    None if jaxlib is not installed.
    """
    answers: list[str] = []
    while len(answers) < len(texts):
        status, lines = _ask(texts[len(answers) :])
        if lines[:1] == [""]:
            return None
        answers += [json.loads(line) for line in lines]
        if len(answers) < len(texts):  # the next one ended the child
            answers.append(f"XLA's parser aborts ({status})")
    return answers


def _ask(texts: Sequence[str]) -> tuple[str, list[str]]:
    """The exit of the child, and the lines that it wrote: an empty one if it has no jaxlib."""
    limits = children.ResourceLimits.by_default(seconds=MAX_SECONDS)
    command = children.python_command("hlo_lint.engine.proof.xla_parser", limits=limits)
    request = encode(json.dumps(list(texts)))
    try:
        child = children.run(command, request, limits, children.environment())
    except children.ChildTimeout as error:
        return f"{error}", decode(error.output).splitlines()
    ending = children.ending(child.returncode, decode(child.stderr))
    return f"it {ending}", decode(child.stdout).splitlines()


def main() -> None:
    """Answer for each text of the JSON list on standard input, one line each."""
    answer = os.fdopen(os.dup(sys.stdout.fileno()), "w")
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())  # nothing else may print into the answer
    try:
        xla = xla_bindings()
        import_module("jaxlib.version")
    except ImportError:
        print(file=answer, flush=True)
        return
    for text in json.loads(sys.stdin.buffer.read()):
        try:
            module_of_text(xla, encode(text))
            refusal = ""
        except (ValueError, RuntimeError) as error:  # absl::Status is a RuntimeError
            refusal = shown(xla_message(f"{error}")) or type(error).__name__
        print(json.dumps(refusal), file=answer, flush=True)
