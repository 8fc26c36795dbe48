"""`hlo-lint payload`: prints the payload of a custom call."""

from __future__ import annotations

from itertools import chain
from pathlib import Path

import click

from hlo_lint.apps.cli import parameters
from hlo_lint.dumps.directory import open_dump
from hlo_lint.dumps.selection import only_module
from hlo_lint.kernels.custom_calls import PayloadError, decode_payload, render_payload
from hlo_lint.text.errors import DumpError, UsageError, os_errors_as


@click.command("payload")
@click.argument("path", type=parameters.PATH)
@click.argument("instruction")
@parameters.module_option
def command(path: Path, instruction: str, module: str | None) -> None:
    """Print the payload of a custom call, such as a kernel.

    INSTRUCTION is its name in the HLO in PATH. The launch and the tuning of a kernel are printed,
    too.
    """
    click.echo(payload_text(path, instruction, module), nl=False)


def payload_text(path: Path, instruction: str, module: str | None = None) -> str:
    """The payload of the first instruction of a name, with or without `%`, in readable form.

    Raises:
        DumpError: where the file or the payload cannot be read.
        UsageError: for an instruction that is not there or carries nothing.
    """
    name = instruction.removeprefix("%")
    carriers = []
    compilations = only_module(open_dump(path), module, [path])
    for dump in (dump for compilation in compilations for dump in compilation.dumps):
        with os_errors_as(f"{dump.path}"):
            modules = dump.file.modules
        for candidate in chain.from_iterable(text.instructions() for text in modules):
            try:
                payload = decode_payload(candidate)
            except PayloadError as error:
                if candidate.name == name:
                    raise DumpError(f"{dump.path}: %{name}: {error}") from error
                continue
            if payload is None:
                continue
            if candidate.name == name:
                return render_payload(payload).rstrip("\n") + "\n"
            carriers.append(f"%{candidate.name}")
    others = ", ".join(dict.fromkeys(carriers)) or "none of its instructions carries one"
    raise UsageError(f"{path}: %{name} carries no payload; {others}")
