"""Lower calls of cuDNN's attention to dots with a softmax between them.

The operands are those that jax gives (`jax/_src/cudnn/fused_attention_stablehlo.py`): query, key,
value, an addend of the scores (bias), the lengths of the sequences. In a backward call the
logarithms of the sums and the gradient come before the addend, and the result of the forward call
after it. Masks and scales behave as on an H100 with cuDNN 9.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import inf
from typing import TYPE_CHECKING, Final

from hlo_lint.engine.values.lowering.gemms import spread, times
from hlo_lint.engine.values.lowering.graph import Node, Nodes, NotLowered
from hlo_lint.hlo.ir import Instruction
from hlo_lint.hlo.shape import ArrayShape
from hlo_lint.kernels.custom_calls.carrier import JsonReader
from hlo_lint.kernels.custom_calls.gemm import dot_dimensions

if TYPE_CHECKING:
    from hlo_lint.engine.values.lowering.lower import Lowering

PREFIX: Final = "__cudnn$fmha"
_MASKS: Final = ("NO_MASK", "PADDING", "CAUSAL", "PADDING_CAUSAL")
_LOWEST: Final = -1e30
"""The score of a masked position; an infinity would give NaN when subtracted."""


def attention(
    lowering: Lowering,
    call: Instruction,
    target: str,
    operands: Sequence[Node],
    results: Sequence[ArrayShape],
) -> list[Node] | None:
    """The results without the scratch memory; None for a call that has to be cut.

    A call is cut if it uses dropout, pages, packed sequences or slopes, or has gradients of 8-bit
    floats.
    """
    config = JsonReader(call.backend_config(), "backend_config").object("cudnn_fmha_backend_config")
    mask = config.text("mask_type") if config is not None else ""
    if config is None or mask not in _MASKS:
        return None
    if config.number("max_seg_per_batch", 1) > 1 or config.boolean("is_paged_attention"):
        return None
    given = _Attention(lowering.nodes, config, list(results[:-1]), "Bias" in target)
    kinds = {
        "Softmax": (3, given.forward),
        "SoftmaxF8": (9, given.forward_of_8_bits),
        "SoftmaxBackward": (6, given.backward),
    }
    kind = target.removeprefix(PREFIX).replace("ScaleBias", "")
    if kind not in kinds:
        return None
    count, make = kinds[kind]
    if len(operands) != count + given.has_bias + 2 * ("PADDING" in mask):
        raise NotLowered(f"%{call.name} has {len(operands)} operands")
    lowered = make(operands)
    if [node.shape.dims for node in lowered] != [shape.dims for shape in given.results]:
        raise NotLowered(f"%{call.name} has results whose shapes do not follow from its operands")
    pairs = zip(lowered, results, strict=False)
    return [lowering.nodes.convert(node, result.dtype) for node, result in pairs]


@dataclass(frozen=True)
class _Attention:
    """An attention call, with f32 arrays of dimensions batch, heads, positions, features.

    Scores and weights have the positions of the keys as their last dimension.
    """

    nodes: Nodes
    config: JsonReader
    results: list[ArrayShape]
    has_bias: bool

    def forward(self, operands: Sequence[Node]) -> list[Node]:
        """The mean of the values, and the logarithms of the sums where the call gives them."""
        query, key, value, *rest = operands
        weights, sums = self._softmax(self._of_query(query), self._of_key(key), rest)
        return [self._mean(weights, self._of_value(value)), sums][: len(self.results)]

    def forward_of_8_bits(self, operands: Sequence[Node]) -> list[Node]:
        """The mean, and the largest weight and mean before they are scaled to 8 bits."""
        query, key, value, by_query, by_key, by_value, by_weights, weights_by, mean_by = operands
        weights, sums = self._softmax(
            self._scaled(self._of_query(query), by_query),
            self._scaled(self._of_key(key), by_key),
            (),
        )
        values = self._scaled(self._of_value(value), by_value)
        mean = self._scaled(self._mean(self._scaled(weights, weights_by), values), by_weights)
        largest = [
            self.nodes.reduced(self.nodes.unary("abs", node), "maximum", -inf)
            for node in (weights, mean)
        ]
        ones = [self.nodes.reshape(node, (1, 1, 1, 1)) for node in largest]
        return [self._scaled(mean, mean_by), *ones, sums][: len(self.results)]

    def backward(self, operands: Sequence[Node]) -> list[Node]:
        """The gradients of query, key and value, and that of the addend where the call gives it."""
        nodes = self.nodes
        query, key, value, sums, gradient, *rest = operands
        after = rest.pop(1 if self.has_bias else 0)
        queries = self._array(query, "bmm1_grad_gemm1", "rhs")
        keys = self._array(key, "bmm1_grad_gemm2", "rhs")
        values = self._array(value, "bmm2_grad_gemm2", "rhs", of_features=True)
        given, mean = (
            self._array(node, "bmm2_grad_gemm2", "lhs", of_features=True)
            for node in (gradient, after)
        )
        scores, is_seen, is_row = self._scores(queries, keys, rest)
        weights = nodes.unary("exponential", self._by_row("subtract", scores, sums))
        weights = self._where(is_row, self._where(is_seen, weights))
        lost = nodes.reduced(nodes.binary("multiply", given, mean), "add", 0, (3,))
        of_weights = self._dot(given, self._for_each_head(values, weights), 3, 3)
        of_scores = nodes.binary("multiply", weights, self._by_row("subtract", of_weights, lost))
        scale = self.config.number("fmha_scale")
        by_keys = self._dot(of_scores, self._for_each_head(keys, weights), 3, 2)
        by_queries = self._dot(of_scores, queries, 2, 2)
        gradients = [
            times(nodes, by_keys, scale),
            self._of_shared_heads(times(nodes, by_queries, scale), keys),
            self._of_shared_heads(self._dot(weights, given, 2, 2), values),
        ]
        for shape in self.results[3:]:  # of the addend, which is the same along dimensions of 1
            sizes = zip(shape.dims, of_scores.shape.dims, strict=False)
            axes = [axis for axis, (own, size) in enumerate(sizes) if own != size]
            gradients.append(nodes.reshape(nodes.reduced(of_scores, "add", 0, axes), shape.dims))
        return gradients

    def _of_query(self, node: Node) -> Node:
        return self._array(node, "bmm1", "lhs", of_features=True)

    def _of_key(self, node: Node) -> Node:
        return self._array(node, "bmm1", "rhs", of_features=True)

    def _of_value(self, node: Node) -> Node:
        return self._array(node, "bmm2", "rhs")

    def _array(self, node: Node, product: str, side: str, *, of_features: bool = False) -> Node:
        """An operand as f32, transposed to batch, heads, positions, features.

        `product` names the dot whose dimensions tell them; it contracts the features if
        `of_features`, else the positions.
        """
        config = self.config.object(f"{product}_dot_dimension_numbers")
        if config is None or node.shape.rank != 4:
            raise NotLowered(f"attention without dimensions of {product}")
        numbers = dot_dimensions(config)
        batch, summed = (
            (numbers.lhs_batch, numbers.lhs_contracting)
            if side == "lhs"
            else (numbers.rhs_batch, numbers.rhs_contracting)
        )
        remaining = [axis for axis in range(4) if axis not in (*batch, *summed)]
        order = [*batch, *remaining, *summed] if of_features else [*batch, *summed, *remaining]
        if (len(batch), len(summed)) != (2, 1) or sorted(order) != [0, 1, 2, 3]:
            raise NotLowered(f"attention with the dimensions {order} of {product}")
        return self.nodes.convert(self.nodes.transpose(node, order), "f32")

    def _scores(
        self, queries: Node, keys: Node, rest: Sequence[Node]
    ) -> tuple[Node, Node | None, Node | None]:
        """The biased scores, a mask of the scores that count, and a mask of the nonzero rows."""
        nodes, lengths = self.nodes, list(rest)
        scores = self._dot(queries, self._for_each_head(keys, queries), 3, 3)
        scores = times(nodes, scores, self.config.number("fmha_scale"))
        shape = scores.shape
        if self.has_bias:
            scores = nodes.binary("add", scores, spread(nodes, lengths.pop(0), shape))
        row, column = (
            nodes.make(
                "iota", ArrayShape("s32", shape.dims), attributes=(("iota_dimension", str(axis)),)
            )
            for axis in (2, 3)
        )
        mask = self.config.text("mask_type")
        window = int(self.config.number("sliding_window_length"))
        is_seen: Node | None = None
        is_row: Node | None = None
        if "CAUSAL" in mask:
            is_seen = self._less(column, row, is_seen, or_equal=True)
        if window:
            begin = nodes.binary("subtract", row, nodes.scalar(window, "s32"))
            is_seen = self._less(begin, column, is_seen)
        if "PADDING" in mask:
            of_queries, of_keys = (nodes.broadcast(node, shape.dims, (0,)) for node in lengths)
            is_seen = self._less(column, of_keys, is_seen)
            is_row = self._less(row, of_queries, None)
        return scores, is_seen, is_row

    def _less(
        self, left: Node, right: Node, others: Node | None, *, or_equal: bool = False
    ) -> Node:
        """True where `left` is less than `right`, and `others` is true if given."""
        direction = "LE" if or_equal else "LT"
        shape = ArrayShape("pred", left.shape.dims)
        node = self.nodes.make("compare", shape, (left, right), (("direction", direction),))
        return self.nodes.binary("and", others, node) if others is not None else node

    def _where(self, is_there: Node | None, node: Node, number: float = 0) -> Node:
        if is_there is None:
            return node
        filler = self.nodes.filled(number, node.shape)
        return self.nodes.make("select", node.shape, (is_there, node, filler))

    def _softmax(self, queries: Node, keys: Node, rest: Sequence[Node]) -> tuple[Node, Node]:
        """The weights of the values, and the logarithms of the sums that they were divided by."""
        nodes = self.nodes
        scores, is_seen, is_row = self._scores(queries, keys, rest)
        scores = self._where(is_seen, scores, _LOWEST)
        largest = nodes.reduced(scores, "maximum", -inf, (3,))
        weights = nodes.unary("exponential", self._by_row("subtract", scores, largest))
        weights = self._where(is_seen, weights)
        total = nodes.reduced(weights, "add", 0, (3,))
        weights = self._by_row("divide", weights, total)
        return self._where(is_row, weights), nodes.binary("add", largest, nodes.unary("log", total))

    def _by_row(self, opcode: str, node: Node, rows: Node) -> Node:
        """An operation between scores or weights and a number per row."""
        wide = self.nodes.broadcast(rows, node.shape.dims, (0, 1, 2))
        return self.nodes.binary(opcode, node, wide)

    def _mean(self, weights: Node, values: Node) -> Node:
        return self._dot(weights, self._for_each_head(values, weights), 3, 2)

    def _dot(self, left: Node, right: Node, of_left: int, of_right: int) -> Node:
        """A product for each head of each array of the batch."""
        return self.nodes.dot(left, right, "f32", [(0, 0), (1, 1)], [(of_left, of_right)])

    def _for_each_head(self, node: Node, queries: Node) -> Node:
        """Keys or values, with heads repeated where several query heads share them."""
        batch, heads, *sizes = node.shape.dims
        of_queries = queries.shape.dims[1]
        if of_queries == heads or of_queries % heads:
            return node
        wide = self.nodes.broadcast(node, (batch, heads, of_queries // heads, *sizes), (0, 1, 3, 4))
        return self.nodes.reshape(wide, (batch, of_queries, *sizes))

    def _of_shared_heads(self, node: Node, shared: Node) -> Node:
        """Gradients summed over the query heads that share a head of keys or values."""
        batch, heads, *sizes = node.shape.dims
        own = shared.shape.dims[1]
        if own == heads or heads % own:
            return node
        parts = self.nodes.reshape(node, (batch, own, heads // own, *sizes))
        return self.nodes.reduced(parts, "add", 0, (2,))

    def _scaled(self, node: Node, scale: Node) -> Node:
        return self.nodes.binary("multiply", node, self.nodes.reshape(scale, ()))
