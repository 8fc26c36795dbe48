"""Options and arguments that several commands share besides those of a check."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import click

PATH = click.Path(path_type=Path)
json_option = click.option("--json", "as_json", is_flag=True, help="Print JSON.")


def written_to(metavar: str, text: str, **settings: Any) -> Callable[[Any], Any]:
    """`--output`, the file or folder that the command writes; the command gets it as `out`."""
    return click.option("-o", "--output", "out", type=PATH, metavar=metavar, help=text, **settings)


def two_folders(command: Callable[..., object]) -> Callable[..., object]:
    """The arguments A and B, the dumps of two runs; the command gets `before` and `after`."""
    after = click.argument("after", metavar="B", type=PATH)
    return click.argument("before", metavar="A", type=PATH)(after(command))
