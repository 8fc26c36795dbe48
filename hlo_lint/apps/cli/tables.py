"""Tables of text that fit the terminal: the last column is folded."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Sequence
from textwrap import wrap

import click

GAP = "  "
MIN_FOLDED = 24
"""Minimum columns for the folded column; with fewer it gets lines of its own."""
INDENT = 6


def terminal_width() -> int:
    """The columns of the terminal on standard output; 0 without a terminal."""
    return shutil.get_terminal_size().columns if sys.stdout.isatty() else 0


def print_table(
    rows: Sequence[Sequence[str]], *, right: Sequence[int] = (), dim: Sequence[int] = ()
) -> None:
    """Print rows, the first of them the head; on a terminal the last column is folded.

    Args:
        rows: the cells, as many in each row.
        right: the columns that are aligned to the right.
        dim: the rows that are printed dimly.
    """
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    room = terminal_width() - sum(width + len(GAP) for width in widths[:-1])
    for number, row in enumerate(rows):
        cells = [
            cell.rjust(width) if column in right else cell.ljust(width)
            for column, (cell, width) in enumerate(zip(row, widths, strict=True))
        ]
        line = GAP.join(cells[:-1])
        if not terminal_width():
            text = GAP.join(cells).rstrip()
        elif room >= MIN_FOLDED:
            indent = "\n" + " " * (len(line) + len(GAP))
            text = f"{line}{GAP}{indent.join(wrap(row[-1], room))}".rstrip()
        else:
            folded = wrap(row[-1], max(MIN_FOLDED, terminal_width() - INDENT)) if number else []
            text = "\n".join([line.rstrip(), *(" " * INDENT + part for part in folded)])
        click.echo(click.style(text, dim=True) if number in dim else text)
