"""Rules about values, held against XLA:CPU: an example gives what its page says."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np
import pytest

from hlo_lint import lint
from hlo_lint.rules.registry import find_rule
from hlo_lint.xla.cpu import FLAGS, XlaCpu

_UPDATED = [np.zeros(8, np.float32), np.ones(4, np.float32), np.int32(2)]
_KEYS = [np.arange(64) % 3 == 0, np.arange(64, dtype=np.int32)]
CLAIMS: list[tuple[str, int, list[Any], Iterable[float]]] = [
    ("accumulator-too-narrow", 0, [np.ones((4, 1000), np.uint8)], [1000 % 256] * 4),
    ("accumulator-too-narrow", 2, [np.ones((4, 1000), np.uint16)], [1000] * 4),
    ("accumulator-too-narrow", 1, [np.ones((8, 512), np.int8), np.ones((512, 8), np.int8)], [0]),
    ("accumulator-too-narrow", 3, [np.ones((8, 512), np.int8), np.ones((512, 8), np.int8)], [512]),
    ("accumulator-too-narrow", 4, [np.ones((8, 64), np.int8), np.ones((64, 8), np.int8)], [64]),
    ("attribute-lost", 17, _KEYS, [44, 26, 28, 29]),
    ("constant-does-not-fit", 0, [], [5_000_000_000 - (1 << 32)]),
    ("constant-does-not-fit", 1, [], [np.nan]),
    ("constant-does-not-fit", 2, [np.arange(8, dtype=np.int32)], [-1] * 8),
    ("constant-does-not-fit", 5, [], [-np.inf]),
    ("dropped-operand", 0, [np.ones(8, np.float32)], [2] * 8),
    ("fused-update-reads-elsewhere", 0, [np.arange(16, dtype="f"), np.int32(2)], [0, 1, 2, -2, 2]),
    ("index-too-narrow", 0, [np.arange(1000, dtype=np.float32), np.int8(127)], [127, 128]),
    ("index-too-narrow", 1, [np.arange(1000, dtype=np.float32), np.int16(992)], [992, 993]),
    ("iota-overflows", 0, [], [*range(128), -128, -127]),
    ("iota-overflows", 1, [], [*range(257), 256, 258]),
    ("iota-overflows", 3, [], range(256)),
    ("order-dependent-reduction", 2, [np.tile(np.array([1, 5], np.float32), 32)], [5.0, 63]),
    ("order-dependent-reduction", 3, [np.tile(np.array([1, 5], np.float32), 32)], [5.0, 1]),
    ("read-after-overwrite", 0, _UPDATED, [0, 0, 1, 1, 1, 1, 0, 0, 0, 0, *[math.sin(1)] * 4]),
    ("side-effect-lost", 2, [], [0] * 8),
    ("slice-clamped", 0, [np.arange(10, dtype=np.float32)], range(2, 10)),
    ("slice-clamped", 1, [np.arange(8, dtype=np.float32)], [1, 7, 2]),
    ("slice-clamped", 4, [np.arange(10, dtype=np.float32)], range(2, 10)),
]
"""The rule, the number of its example, the inputs, and the first elements of the results."""


@pytest.fixture(scope="module")
def xla() -> Iterator[XlaCpu]:
    pytest.importorskip("jaxlib")
    with XlaCpu() as child:
        yield child


@pytest.mark.slow
@pytest.mark.parametrize(("rule", "number", "inputs", "expected"), CLAIMS)
def test_an_example_computes_what_the_page_says(
    rule: str, number: int, inputs: list[Any], expected: Iterable[float], xla: XlaCpu
) -> None:
    example, first = find_rule(rule).examples[number], list(expected)
    without = getattr(find_rule(rule).evidence[0], "without", "")
    flags = {"xla_disable_hlo_passes": f"{FLAGS['xla_disable_hlo_passes']},{without}"}
    for text in (re.sub("  // error", "", example.shown), *example.others.values()):
        values = [np.asarray(value) for value in inputs]
        results = xla.run(text, values, flags=flags if without else {})
        elements = [float(element) for result in results for element in result.ravel()]
        if text in example.others.values():  # before the pass
            assert elements[: len(first)] != first
        else:
            np.testing.assert_allclose(elements[: len(first)], first, 1e-6)


@pytest.mark.parametrize(("value", "count"), [("nan", 0), ("inf", 1), ("-1000", 1), ("448", 0)])
def test_a_nan_stays_one_in_a_type_without_infinities(value: str, count: int) -> None:
    body = f"b = f32[] constant({value})\nROOT c = f8e4m3fn[] convert(b)"
    text = f"HloModule m\nENTRY e {{\n{body}\n}}\n"
    assert len(lint(text, ["constant-does-not-fit"]).findings) == count
