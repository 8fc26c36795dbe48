"""GEMM calls whose factors or bias differ from the instructions they replace."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from math import isclose
from typing import TYPE_CHECKING, NamedTuple

from hlo_lint.analysis.buffers import source_of
from hlo_lint.analysis.pass_pairs import PassPair
from hlo_lint.hlo.constants import number_of
from hlo_lint.hlo.ir import Computation, Instruction, Operand
from hlo_lint.hlo.opcodes import SAME_NUMBERS
from hlo_lint.hlo.shape import ArrayShape, arrays
from hlo_lint.rules.base import Bad, Finding, Findings, Good, PublicReport, Rule, WrongValues

if TYPE_CHECKING:  # loaded where a module has such a call
    from hlo_lint.kernels.custom_calls.gemm import GemmConfig

_TOLERANCE = 0.01
"""The relative tolerance of factors: constants of bf16 are printed rounded."""

_AFTER = "module_0001.m.0002.simplification.after_cublas-gemm-rewriter.before_algsimp.txt"
_BEFORE = "module_0001.m.0001.simplification.after_pipeline-start.before_cublas-gemm-rewriter.txt"
_DOT = """HloModule m

ENTRY %e (x: f32[8,8], y: f32[8,8], z: f32[8]) -> f32[8,8] {
  %x = f32[8,8]{1,0} parameter(0)
  %y = f32[8,8]{1,0} parameter(1)
  %z = f32[8]{0} parameter(2)
  %dot = f32[8,8]{1,0} dot(%x, %y), lhs_contracting_dims={1}, rhs_contracting_dims={0}
  %bias = f32[8,8]{1,0} broadcast(%z), dimensions={1}
  %sum = f32[8,8]{1,0} add(%dot, %bias)
  %half = f32[] constant(0.5)
  %factor = f32[8,8]{1,0} broadcast(%half), dimensions={}
  ROOT %product = f32[8,8]{1,0} multiply(%sum, %factor)
}
"""
_CALL = """
HloModule m

ENTRY %%e (x: f32[8,8], y: f32[8,8], z: f32[8]) -> f32[8,8] {
  %%x = f32[8,8]{1,0} parameter(0)
  %%y = f32[8,8]{1,0} parameter(1)
  %%z = f32[8]{0} parameter(2)
  %%call = (f32[8,8]{1,0}, s8[4096]{0}) custom-call(%%x, %%y, %%z), custom_call_target="__cublas$lt$matmul", backend_config={"gemm_backend_config":{"alpha_real":%s,"alpha_imag":0,"beta":0,"dot_dimension_numbers":{"lhs_contracting_dimensions":["1"],"rhs_contracting_dimensions":["0"]},"epilogue":"BIAS"}}%s
  %%sum = f32[8,8]{1,0} get-tuple-element(%%call), index=0
  %%half = f32[] constant(0.5)
  %%factor = f32[8,8]{1,0} broadcast(%%half), dimensions={}
  ROOT %%product = f32[8,8]{1,0} multiply(%%sum, %%factor)
}
"""  # noqa: E501


class GemmEpilogueChanged(Rule):
    """A GEMM call that scales or adds its bias differently from the instructions it replaces.

    ## Why
    cuBLASLt computes `alpha * A * B + beta * C` and adds the bias along the most minor dimension of
    the output. A factor of the sum scales both product and bias, so it must not become only alpha.
    In openxla/xla#46110 (jax 0.10.0 to 0.10.2) GemmRewriter does that: `alpha * (A @ B + b)`
    silently compiles to `alpha * A @ B + b`.

    The rule compares the ratio of the factors of product and addends before and after each pass
    that makes a call or changes its configuration.
    `--xla_disable_hlo_passes=cublas-gemm-rewriter` keeps the dot.
    """

    evidence = (WrongValues(), PublicReport("openxla/xla#46110"))
    examples = (
        Bad(_CALL % (0.5, "  // error"), file=_AFTER, beside={_BEFORE: _DOT}),
        Good(_CALL % (1, ""), file=_AFTER, beside={_BEFORE: _DOT}),
    )

    def check(self, pair: PassPair) -> Findings:
        """Calls whose factors or bias disagree with the module before the pass."""
        for call, config, before in _changed_calls(pair):
            sums = list(_sums(before, call))
            addends = list(_addends(call, config))
            for addend, factor, is_bias in addends:
                terms = [
                    (sum, term)
                    for sum in sums
                    for term in sum.terms
                    if term.instruction.name == addend.name
                ]
                if not terms:
                    continue
                if not any(_agree(config, factor, sum_, term) for sum_, term in terms):
                    total, term = terms[0]
                    yield Finding(
                        call,
                        f"%{addend.name} is added with factor {factor:g} to a product with factor "
                        f"{config.alpha.real:g}: before {pair.pass_name} the factors were "
                        f"{term.factor:g} and {total.factor:g}",
                        notes=("alpha scales only A * B; beta * C and the bias are added to it",),
                    )
                elif is_bias and all(_runs_elsewhere(call, sum_, term) for sum_, term in terms):
                    _, term = terms[0]
                    yield Finding(
                        call,
                        f"the bias %{addend.name} was along dimension {term.dimension} before "
                        f"{pair.pass_name}: cuBLASLt adds it along the most minor dimension",
                    )


@dataclass(frozen=True, slots=True)
class _Term:
    """An addend: an instruction, its factor, and the dimension of a broadcast vector."""

    instruction: Instruction
    factor: float
    dimension: int | None = None

    def scaled(self, factor: float) -> _Term:
        return _Term(self.instruction, self.factor * factor, self.dimension)


class _Sum(NamedTuple):
    """`factor * product + terms`."""

    shape: ArrayShape | None
    """The product's shape; None if a later instruction moved it."""
    factor: float
    terms: tuple[_Term, ...]

    def scaled(self, factor: float) -> _Sum:
        terms = tuple(term.scaled(factor) for term in self.terms)
        return _Sum(self.shape, self.factor * factor, terms)


def _changed_calls(pair: PassPair) -> Iterator[tuple[Instruction, GemmConfig, Computation]]:
    """New or reconfigured GEMM calls, with their computation before the pass."""
    for computation in pair.after.computations:
        for call in computation.with_opcode("custom-call"):
            if '"__cublas$' not in call.attributes_text:
                continue
            before = pair.before.computation(computation.name)
            old = None if before is None else before.instruction(call.name)
            if before is None or (old is not None and old.attributes_text == call.attributes_text):
                continue
            config = _config(call)
            if config is not None:
                yield call, config, before


def _config(call: Instruction) -> GemmConfig | None:
    """The configuration of a call with a single real factor; None for f8, which has several."""
    from hlo_lint.kernels.custom_calls import GemmConfig, readable_payload

    config = readable_payload(call)
    if not isinstance(config, GemmConfig) or config.target.endswith("$f8"):
        return None
    return None if config.alpha.imag else config


def _addends(call: Instruction, config: GemmConfig) -> Iterator[tuple[Instruction, float, bool]]:
    """The terms that a call adds to its product, as (instruction, factor, is bias)."""
    # After A and B come C, unless beta is 0, and the bias, if the epilogue has one.
    added = [(config.beta, False)] if config.beta else []
    added += [(1.0, True)] if "BIAS" in config.epilogue else []
    for operand, (factor, is_bias) in zip(call.operands[2:], added, strict=False):
        term = _term(operand)
        if term is not None:
            yield term.instruction, factor * term.factor, is_bias


def _sums(computation: Computation, call: Instruction) -> Iterator[_Sum]:
    """The sums that a call may replace: those of dots of its operands, or of the call before."""
    old = computation.instruction(call.name)
    if old is not None and old.opcode == "custom-call":
        config = _config(old)
        if config is not None:
            terms = [_Term(addend, factor) for addend, factor, _ in _addends(old, config)]
            yield _followed(old, _Sum(None, config.alpha.real, tuple(terms)))
        return
    factors = _sources(call)
    for dot in computation.with_opcode("dot"):
        if _sources(dot) == factors:
            shape = dot.shape_or_none
            yield _followed(dot, _Sum(shape if isinstance(shape, ArrayShape) else None, 1.0, ()))


def _sources(instruction: Instruction) -> list[str] | None:
    """The names of the two factors, seen through data movement."""
    sources = (
        (operand, source_of(operand, SAME_NUMBERS | {"transpose"}))
        for operand in instruction.operands[:2]
    )
    return sorted(operand.name if source is None else source.name for operand, source in sources)


def _followed(product: Instruction, total: _Sum) -> _Sum:
    """The sum computed from a product, followed as long as each step has a single user."""
    value = product
    while len(value.users) == 1:
        (user,) = value.users
        places = [
            place for place, operand in enumerate(user.operands) if operand.instruction is value
        ]
        if len(places) != 1:
            break
        sibling = user.operands[1 - places[0]] if len(user.operands) == 2 else None
        match user.opcode:
            case "get-tuple-element" | "convert":
                pass
            case "bitcast" | "copy" | "reshape" | "transpose":
                total = _Sum(None, total.factor, total.terms)
            case "negate":
                total = total.scaled(-1)
            case "multiply" | "divide" if sibling is not None:
                constant = _constant(sibling)
                if not constant or (user.opcode == "divide" and places[0]):
                    break
                total = total.scaled(constant if user.opcode == "multiply" else 1 / constant)
            case "add" | "subtract" if sibling is not None:
                term = _term(sibling)
                if user.opcode == "subtract" and places[0]:
                    total = total.scaled(-1)
                elif user.opcode == "subtract" and term is not None:
                    term = term.scaled(-1)
                if term is not None:
                    total = _Sum(total.shape, total.factor, (*total.terms, term))
            case _:
                break
        value = user
    return total


def _term(operand: Operand) -> _Term | None:
    """An addend, with its constant factors and data movement stripped off."""
    value, factor = operand.instruction, 1.0
    dimension: int | None = None
    while value is not None:
        operands = value.operands
        if value.opcode == "multiply" and len(operands) == 2:
            constants = [_constant(operand) for operand in operands]
            place = next((n for n, number in enumerate(constants) if number is not None), None)
            if place is None:
                break
            factor *= constants[place] or 0.0
            value = operands[1 - place].instruction
            continue
        if value.opcode == "negate":
            factor = -factor
        elif value.opcode == "broadcast":
            dimensions = value.integers_attribute("dimensions") or ()
            if len(dimensions) == 1:
                dimension = dimensions[0]
        elif value.opcode not in SAME_NUMBERS:
            break
        value = operands[0].instruction if operands else None
    return None if value is None else _Term(value, factor, dimension)


def _constant(operand: Operand) -> float | None:
    """The value of an operand whose elements are all the same constant."""
    return number_of(source_of(operand, SAME_NUMBERS | {"broadcast"}))


def _agree(config: GemmConfig, factor: float, total: _Sum, term: _Term) -> bool:
    """True if product and addend have the same ratio as before; a common factor may remain."""
    return isclose(
        config.alpha.real * term.factor, factor * total.factor, rel_tol=_TOLERANCE, abs_tol=1e-30
    )


def _runs_elsewhere(call: Instruction, total: _Sum, term: _Term) -> bool:
    """True if a bias was not along the call's most minor dimension."""
    shape = call.shape_or_none
    output = next(arrays(shape), None)
    if output is None or output != total.shape or term.dimension is None or not output.rank:
        return False
    return term.dimension != output.minor_to_major[0]
