"""Comparisons of costs, as tables or as JSON."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from hlo_lint.engine.cost_comparison import CostComparison
from hlo_lint.engine.cost_figures import (
    BYTES,
    COUNT,
    INSTRUCTIONS,
    MAIN,
    PEAK,
    SECONDS,
    TEMPORARIES,
    CostRow,
    MeasuredKernel,
)
from hlo_lint.text.phrases import sized

MAX_OTHERS = 12
"""The number of further quantities that are shown by default."""
MAX_MEASURED = 10
"""The number of instructions whose measured time is shown."""
_NONE = "-"
"""The cell of an unknown value."""


def amount(value: float | None, unit: str) -> str:
    """A value with its unit, in four digits: `3.91 ms`, `1.466 GiB`, `416.0 G`.

    >>> amount(0.00391, "s"), amount(1574169072, "B"), amount(415991201900, "flop"), amount(7, "")
    ('3.910 ms', '1.466 GiB', '416.0 G', '7')
    """
    if value is None:
        return _NONE
    if unit == SECONDS:
        return _scaled(value * 1e9, (" ns", " µs", " ms", " s"))
    if unit == BYTES:
        return sized(int(value))
    if unit == COUNT:
        return f"{value:.0f}"
    return _scaled(value, ("", " k", " M", " G", " T", " P", " E"))


def _scaled(value: float, units: tuple[str, ...]) -> str:
    number, size = 0, value
    while abs(size) >= 1000 and number < len(units) - 1:
        size, number = size / 1000, number + 1
    if value == int(value) and not number:
        return f"{value:.0f}{units[0]}"
    digits = 3 if abs(size) < 10 else 2 if abs(size) < 100 else 1
    return f"{size:.{digits}f}{units[number]}"


def change_of(row: CostRow) -> str:
    """The change in the form `+3` or `-12.4%`; empty for equal or unknown values."""
    if not row.change or row.before is None:
        return ""
    if not row.is_known:
        return "unknown"
    part = 100 * row.change / row.before if row.before else 0
    if row.unit == COUNT or abs(part) < 0.05:
        sign = "+" if row.change > 0 else "-"
        return f"{sign}{amount(abs(row.change), row.unit)}"
    return f"x{(row.after or 0) / row.before:.1f}" if abs(part) >= 900 else f"{part:+.1f}%"


def since_of(row: CostRow) -> str:
    """The pass after which a difference begins; empty if unknown."""
    onset = row.since
    if onset is None:
        # The line holds more memory, but its results are not larger in any dump.
        is_memory = row.name in (PEAK, TEMPORARIES) and row.origin is not None
        return "buffer assignment (order or reuse)" if is_memory else ""
    step = onset.step
    only = " (A alone)" if step.after is None else " (B alone)" if step.before is None else ""
    return onset.title + ("" if onset.is_first else only)


def row_cells(row: CostRow) -> tuple[str, ...]:
    """The cells of a quantity: name, both values, change, pass and line of Python."""
    cause = "; ".join(filter(None, (since_of(row), str(row.origin or ""))))
    return row.name, *_values(row), cause


def line_cells(row: CostRow) -> tuple[str, ...]:
    """The cells of a line of Python: line, both values, change, pass."""
    return str(row.origin or "no line"), *_values(row), since_of(row)


def _values(row: CostRow) -> tuple[str, str, str]:
    return amount(row.before, row.unit), amount(row.after, row.unit), change_of(row)


def shown_rows(comparison: CostComparison, *, everything: bool = False) -> list[CostRow]:
    """The main quantities, then the largest differences; all quantities with `everything`."""
    main = [row for row in comparison.rows if row.name in MAIN]
    others = [row for row in comparison.rows if row.name not in MAIN and (everything or row.change)]
    # The number of instructions has no cost.
    others.sort(key=lambda row: (row.name == INSTRUCTIONS, row.unit == COUNT, -abs(row.change)))
    return main + (others if everything else others[:MAX_OTHERS])


def comparison_as_dict(comparison: CostComparison) -> dict[str, Any]:
    """The comparison of a module as JSON values."""
    return {
        "before": comparison.before.title,
        "after": comparison.after.title,
        "device": comparison.device and comparison.device.name,
        "same": comparison.same,
        "quantities": [_row_as_dict(row) for row in comparison.rows],
        "lines": [_row_as_dict(row) for row in comparison.lines],
        "notes": list(comparison.notes),
    }


def _row_as_dict(row: CostRow) -> dict[str, Any]:
    since = row.since
    return {
        "name": row.name,
        "unit": row.unit or None,
        "before": row.before,
        "after": row.after,
        "is_known": row.is_known,
        "origin": row.origin and asdict(row.origin),
        "since": since
        and {
            "pass": since.step.name,
            "pipeline": since.step.pipeline or None,
            "is_first": since.is_first,
            "before": since.step.before and str(since.step.before.path),
            "after": since.step.after and str(since.step.after.path),
        },
    }


def measured_table(kernels: Sequence[MeasuredKernel]) -> list[tuple[str, ...]]:
    """A header row, and a row for each of the instructions that took the most time."""
    total = sum(kernel.seconds for kernel in kernels)
    rows = [
        (
            amount(kernel.seconds, SECONDS),
            f"{100 * kernel.seconds / total:.1f}%" if total else "",
            f"%{kernel.instruction.name}",
            kernel.instruction.opcode,
            str(kernel.origin or ""),
        )
        for kernel in kernels[:MAX_MEASURED]
    ]
    return [(f"measured {amount(total, SECONDS)}", "share", "instruction", "opcode", "from"), *rows]


def kernel_as_dict(kernel: MeasuredKernel) -> dict[str, Any]:
    """The measured time of an instruction as JSON values."""
    return {
        "instruction": kernel.instruction.name,
        "opcode": kernel.instruction.opcode,
        "seconds": kernel.seconds,
        "origin": kernel.origin and asdict(kernel.origin),
    }
