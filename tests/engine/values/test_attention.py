"""Calls of cuDNN's attention compute what an H100 gave for them."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.typing import NDArray

from hlo_lint import parse
from hlo_lint.engine.values.lowering.graph import Nodes, NotLowered
from hlo_lint.engine.values.lowering.lower import Lowering
from hlo_lint.engine.values.lowering.program import Program
from hlo_lint.engine.values.run import arrays_of, values_of
from hlo_lint.xla.cpu import XlaCpu
from tests.conftest import FIXTURES

FOLDER = FIXTURES / "cudnn_attention"
CALLS = ["bias", "causal", "eight_bits", "padding", "sums", "window"]


def text_of(name: str) -> str:
    return (FOLDER / f"{name}.hlo").read_text()


def lowered(text: str, nodes: Nodes | None = None) -> Program:
    return Lowering(parse(text), nodes or Nodes()).program()


@pytest.mark.slow
@pytest.mark.parametrize("name", CALLS)
def test_a_call_gives_what_a_gpu_gave(name: str) -> None:
    given = np.load(FOLDER / f"{name}.npz")
    module = parse(text_of(name))
    inputs = [given[f"p{at}"] for at in range(sum(key.startswith("p") for key in given.files))]
    with XlaCpu(seconds=30) as xla:
        (value,) = values_of(module, inputs, xla=xla, wide=True)
    results: list[NDArray[np.float64]] = list(arrays_of(value))
    assert len(results) == sum(key.startswith("r") for key in given.files)
    for at, result in enumerate(results):
        right = given[f"r{at}"]
        # Weights and gradients are rounded to the type of the operands before each product.
        bits = 2.0**-3 if name == "eight_bits" else 2.0**-7
        assert np.abs(result - right).max() <= bits * max(np.abs(right).max(), 1), at


@pytest.mark.parametrize(
    ("name", "old", "new"),
    [
        ("causal", '"fmha_scale":0.25', '"fmha_scale":0.125'),
        ("causal", '"mask_type":"CAUSAL"', '"mask_type":"NO_MASK"'),
        ("window", '"sliding_window_length":3', '"sliding_window_length":4'),
        ("bias", '"lhs_contracting_dimensions":["3"]', '"lhs_contracting_dimensions":["2"]'),
    ],
)
def test_what_the_configuration_says_counts(name: str, old: str, new: str) -> None:
    text, nodes = text_of(name), Nodes()
    assert old in text
    first, second = lowered(text, nodes), lowered(text.replace(old, new), nodes)
    assert first.graph is not second.graph


def test_a_call_that_drops_elements_is_cut() -> None:
    (cut,) = lowered(text_of("dropped")).cuts
    assert cut.what == "__cudnn$fmhaSoftmaxDropout"
    assert not any(lowered(text_of(name)).cuts for name in CALLS)


@pytest.mark.parametrize(
    ("name", "old", "new", "reason"),
    [
        ("causal", "(%query.1, %key.1, %value.1)", "(%query.1, %key.1)", "has 2 operands"),
        (
            "causal",
            '"lhs_batch_dimensions":["0","2"]',
            '"lhs_batch_dimensions":["0"]',
            "dimensions",
        ),
        ("sums", "f32[2,4,8]", "f32[2,4,9]", "has results whose shapes"),
    ],
)
def test_a_call_that_is_none_of_attention_is_not_lowered(
    name: str, old: str, new: str, reason: str
) -> None:
    text = text_of(name)
    assert old in text
    with pytest.raises(NotLowered, match=reason):
        lowered(text.replace(old, new))
