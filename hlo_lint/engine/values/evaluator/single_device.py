"""Collectives whose groups are one device each: what they give back is what they took."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from hlo_lint.engine.values.evaluator.arrays import Unsupported, Value
from hlo_lint.engine.values.evaluator.site import Kernel, Site


def _require_alone(site: Site) -> None:
    """Refuse what takes part in an exchange of several devices."""
    groups = site.instruction.attribute("replica_groups")
    pairs = site.instruction.attribute("source_target_pairs")
    alone = site.is_single_device and pairs in (None, ((0, 0),))
    if isinstance(groups, tuple) and groups and pairs is None:
        alone = all(isinstance(group, tuple) and len(group) == 1 for group in groups)
    if not alone:
        raise Unsupported("an exchange of several devices")


def _collective(site: Site) -> Kernel:
    _require_alone(site)

    def give(*operands: Value) -> Value:
        return operands if len(operands) > 1 else operands[0]

    return give


def _start_with_operands(site: Site) -> Kernel:
    """The start of all-gather or collective-permute: operands and results, side by side."""
    _require_alone(site)

    def give(*operands: Value) -> Value:
        value = operands if len(operands) > 1 else operands[0]
        return value, value

    return give


def _device_number(site: Site) -> Kernel:
    if not site.is_single_device:
        raise Unsupported("the number of one of several devices")
    return lambda: np.zeros((), np.uint32)


_EXCHANGES = (
    "all-reduce all-reduce-start all-gather reduce-scatter all-to-all collective-permute "
    "collective-broadcast"
).split()
BUILDERS: dict[str, Callable[[Site], Kernel]] = {
    **dict.fromkeys(_EXCHANGES, _collective),
    "all-reduce-done": lambda _: lambda value: value,
    **dict.fromkeys(("all-gather-start", "collective-permute-start"), _start_with_operands),
    **dict.fromkeys(
        ("all-gather-done", "collective-permute-done"), lambda _: lambda value: value[1]
    ),
    **dict.fromkeys(("partition-id", "replica-id"), _device_number),
}
