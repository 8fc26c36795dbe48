"""The sizes and precisions of products and sums, to compare them across a pass."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence, Set
from math import prod
from operator import eq
from typing import Final, NamedTuple, TypeAlias

from hlo_lint.analysis.buffers import renamed_source
from hlo_lint.analysis.callees import configuration
from hlo_lint.analysis.walks import reached
from hlo_lint.hlo.dtypes import ELEMENT_TYPES
from hlo_lint.hlo.ir import Computation, Instruction, Module
from hlo_lint.hlo.records import InstructionRecord, opcode_of
from hlo_lint.hlo.shape import ArrayShape, arrays

_PRODUCTS: Final = frozenset({"convolution", "custom-call", "dot"})
ROUNDED: Final = frozenset({"f32", "f64", "c64", "c128"})
"""Element types that a default precision may round."""
_DEFAULT: Final = frozenset({"", "default", "alg_unset", "dot_any_f8_any_f8_f32"})


ProductSize: TypeAlias = "tuple[tuple[tuple[str, int], ...], int]"


class Product(NamedTuple):
    """A dot, a convolution, or a library call that computes either."""

    instruction: Instruction
    factors: tuple[tuple[str, int], ...]
    """The types of the factors, and their numbers of elements."""
    elements: int
    """The number of elements of the result."""
    asked: str
    """The precision or the algorithm; empty for the default."""
    result: str
    """The element type of the result."""

    @property
    def size(self) -> ProductSize:
        """The factors and the size of the result: a rewritten product keeps them."""
        return self.factors, self.elements


def products(
    computations: tuple[Computation, ...], factors_of: Set[str] = ROUNDED
) -> Iterator[Product]:
    """The products of factors of some element types."""
    for instruction in product_instructions(computations):
        asked = asked_of(instruction)
        is_gemm = "__cublas$" in instruction.attributes_text and factors_of is not ROUNDED
        if asked is None and not is_gemm:
            continue
        read = (operand.shape for operand in instruction.operands[:2])
        factors = [shape for shape in read if isinstance(shape, ArrayShape)]
        result = next(iter(arrays(instruction.shape_or_none)), None)
        if len(factors) == 2 and result and {factor.dtype for factor in factors} <= factors_of:
            sizes = sorted((factor.dtype, prod(factor.dims)) for factor in factors)
            yield Product(instruction, tuple(sizes), prod(result.dims), asked or "", result.dtype)


def product_instructions(computations: tuple[Computation, ...]) -> Iterator[Instruction]:
    """The instructions that may be products."""
    for computation in computations:
        for opcode in _PRODUCTS & computation.opcodes:
            yield from computation.with_opcode(opcode)


def lost_precisions(
    gone: Sequence[Product], added: Sequence[Product]
) -> Iterator[tuple[Product, Product, str]]:
    """Products with a requested precision, each with its successor without that request, and a
    note on the pair."""
    lost = Counter(product.size for product in gone if product.asked)
    lost.subtract(product.size for product in added if product.asked)
    spare = Counter(product.size for product in added if not product.asked)
    spare.subtract(product.size for product in gone if not product.asked)
    for is_alike, note in ((eq, ""), (_is_part, ", for a larger product")):
        if is_alike is _is_part:
            parts = [product.size for product in added if product.asked]
            for size in [size for size in lost if any(_is_part(part, size) for part in parts)]:
                del lost[size]
        for new in added if any(count > 0 for count in lost.values()) else ():
            if new.asked or spare[new.size] <= 0:
                continue
            asking = (old for old in gone if old.asked and lost[old.size] > 0)
            old = next((old for old in asking if is_alike(new.size, old.size)), None)
            if old is not None:
                lost[old.size] -= 1
                spare[new.size] -= 1
                yield old, new, note
    yield from ((old, new, ", for a part of this product") for old, new in _merged(gone, added))


def _is_part(part: ProductSize, whole: ProductSize) -> bool:
    """True if each device, or each step, may compute a part of a product of that size."""
    (factors, elements), (all_factors, all_elements) = part, whole
    if [dtype for dtype, _ in factors] != [dtype for dtype, _ in all_factors]:
        return False
    sizes = [*(count for _, count in factors), elements]
    wholes = [*(count for _, count in all_factors), all_elements]
    return any(
        all(ours and theirs % ours == 0 for ours, theirs in zip(counts, wholes, strict=True))
        for counts in (sizes, [*sizes[1::-1], elements])
    )


def _merged(gone: Sequence[Product], added: Sequence[Product]) -> Iterator[tuple[Product, Product]]:
    """Products with a requested precision, each with a combined product without that request."""
    names = {product.instruction.name for product in added}
    old_names = {product.instruction.name for product in gone}
    for new in added:
        if new.asked or new.instruction.name in old_names or new.instruction.opcode != "dot":
            continue
        # The joined factor has a part for each old product.
        parts = [
            old
            for old in gone
            if old.instruction.name not in names
            and old.instruction.opcode == "dot"
            and not {*old.instruction.operand_names}.isdisjoint(new.instruction.operand_names)
        ]
        if len(parts) > 1 and sum(old.elements for old in parts) == new.elements:
            yield from ((old, new) for old in parts if old.asked)


def readers_of(old: Product, new: Product) -> Iterator[Instruction]:
    """The readers of a product; if it became a library call, their readers, too."""
    users = old.instruction.users
    is_call = new.instruction.opcode == "custom-call"
    return reached(users, lambda reader: reader.users if is_call else ())


def may_give_sum(row: InstructionRecord) -> bool:
    """True for a sum, or a conversion, which may be of a sum."""
    return opcode_of(row) in ("convert", "dot", "reduce")


def sum_in(value: Instruction) -> Instruction | None:
    """The dot or reduction behind a value, through conversions and changes of shape or order."""
    moves = ("bitcast", "convert", "copy", "reshape", "transpose")
    last = renamed_source(value, moves)
    return last if last is not None and last.opcode in ("dot", "reduce") else None


def sum_bits(total: Instruction, module: Module) -> int:
    """The bits of a float's significand that each step of a sum keeps; -1 for any other value."""
    bits = significand_bits(total.type_text.partition("[")[0])
    if total.opcode == "dot":
        # Each library sums in f32 at least.
        return max(bits, significand_bits("f32")) if bits > 0 else -1
    body = module.callee(total)
    return bits if body and body.root and body.root.opcode == "add" else -1


def asked_of(product: Instruction) -> str | None:
    """The precision that a product requests; None if it is not a product."""
    attributes = product.attributes_text
    # A cuDNN call has the attribute of the convolution; a cuBLAS call has it in the config.
    is_call = product.opcode == "custom-call"
    has_config = is_call and not product.custom_call_target.startswith("__cudnn$conv")
    if "operand_precision" not in attributes and "algorithm" not in attributes:
        return None if has_config else ""
    if has_config:
        config = configuration(product.attribute_text("backend_config") or "")
        if "operand_precision" not in config and "algorithm" not in config:
            return None
        named, algorithm = config.get("operand_precision"), config.get("algorithm")
        words = [str(word) for word in (*(named if isinstance(named, list) else ()), algorithm)]
    else:
        named = (product.attribute_text("operand_precision") or "").strip("{}").split(",")
        words = [*named, product.attribute_text("algorithm") or ""]
    asked = [word for word in words if word.strip().lower() not in _DEFAULT | {"none"}]
    return ", ".join(dict.fromkeys(word.strip() for word in asked))


def significand_bits(dtype: str) -> int:
    """The bits of a float's significand; -1 for any other type."""
    facts = ELEMENT_TYPES.get(dtype)
    return -1 if facts is None else facts.significand_bits
