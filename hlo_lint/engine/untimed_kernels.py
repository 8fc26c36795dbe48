"""Kernels whose time depends on more than bytes and arithmetic."""

from __future__ import annotations

from collections.abc import Mapping

from hlo_lint.analysis.calls import instructions_of
from hlo_lint.analysis.opcode_costs import NOTHING, library_cost
from hlo_lint.hlo.arrays import operand_array
from hlo_lint.hlo.ir import Instruction, Module
from hlo_lint.text.phrases import sized


def untimed_differences(before: Module, after: Module) -> tuple[str, ...]:
    """A kernel of unknown time that only one of two modules has, for each module that has one.

    Scatters are equal if their updates write equally many bytes side by side.
    """
    ours, theirs = _untimed(before), _untimed(after)
    return tuple(
        f"{side} has {kinds[kind].opcode} %{kinds[kind].name}: {kind}"
        for side, kinds, others in (("A", ours, theirs), ("B", theirs, ours))
        for kind in [kind for kind in kinds if kind not in others][:1]
    )


def _untimed(module: Module) -> Mapping[str, Instruction]:
    """The kernels of unknown time, by the fact that their time depends on."""
    kernels: dict[str, Instruction] = {}
    for scatter in instructions_of(module, "scatter"):
        if run := scatter_run(scatter):
            kernels.setdefault(f"each update writes {sized(run)} side by side", scatter)
    for call in instructions_of(module, "custom-call"):
        if library_cost(call) == NOTHING:
            kernels.setdefault(call.custom_call_target, call)
    return kernels


def scatter_run(scatter: Instruction) -> int | None:
    """The bytes that each update of a scatter writes side by side; None if unknown."""
    array, updates = operand_array(scatter, 0), operand_array(scatter, len(scatter.operands) - 1)
    windows = scatter.integers_attribute("update_window_dims")
    if array is None or updates is None or windows is None or not array.has_valid_layout:
        return None
    single = {
        dimension
        for name in ("inserted_window_dims", "input_batching_dims")
        for dimension in scatter.integers_attribute(name) or ()
    }
    spread = [dimension for dimension in range(array.rank) if dimension not in single]
    if len(spread) != len(windows) or any(window >= updates.rank for window in windows):
        return None
    sizes = {
        dimension: updates.dims[window] for dimension, window in zip(spread, windows, strict=True)
    }
    run = 1
    for dimension in array.minor_to_major:
        run *= sizes.get(dimension, 1)
        if sizes.get(dimension, 1) < array.dims[dimension]:
            break
    return run * (array.byte_size or 0) // (array.elements or 1)
