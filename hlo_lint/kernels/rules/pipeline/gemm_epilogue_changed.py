"""GEMM calls whose factors or bias differ from the instructions they replace."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from functools import partial
from math import isclose
from typing import TYPE_CHECKING, NamedTuple

from hlo_lint.analysis.buffers import source_of
from hlo_lint.analysis.pass_pairs import PassPair
from hlo_lint.analysis.walks import chain, reached
from hlo_lint.hlo.constants import number_of
from hlo_lint.hlo.ir import Computation, Instruction, Operand
from hlo_lint.hlo.opcodes import SAME_NUMBERS
from hlo_lint.hlo.records import attributes_of
from hlo_lint.hlo.shape import arrays
from hlo_lint.rules.base import Bad, Finding, Findings, Good, Rule
from hlo_lint.rules.evidence import WrongValues

if TYPE_CHECKING:  # loaded where a module has such a call
    from hlo_lint.kernels.custom_calls.gemm import GemmConfig

_TOLERANCE = 0.01
"""The relative tolerance of factors: constants of bf16 are printed rounded."""


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

    evidence = (WrongValues(),)
    reports = "openxla/xla#46110"
    examples = (
        Bad.step(
            """
            - dot = f32[8,8] dot(f32[8,8] x, f32[8,8] y), lhs_contracting_dims={1},
            -     rhs_contracting_dims={0}
            - bias = f32[8,8] broadcast(f32[8] z), dimensions={1}
            - sum = f32[8,8] add(dot, bias)
            - half = f32[] constant(0.5)
            - factor = f32[8,8] broadcast(half), dimensions={}
            - ROOT product = f32[8,8] multiply(sum, factor)
            + call = (f32[8,8], s8[4096]) custom-call(f32[8,8] x, f32[8,8] y, f32[8] z),  // error
            +     custom_call_target="__cublas$lt$matmul", backend_config={"gemm_backend_config":{
            +     "alpha_real":0.5,"beta":0,"epilogue":"BIAS","dot_dimension_numbers":{
            +     "lhs_contracting_dimensions":["1"],"rhs_contracting_dimensions":["0"]}}}
            + ROOT product = f32[8,8] get-tuple-element(call), index=0
            """,
            by="cublas-gemm-rewriter",
        ),
        Good.step(
            """
            - dot = f32[8,8] dot(f32[8,8] x, f32[8,8] y), lhs_contracting_dims={1},
            -     rhs_contracting_dims={0}
            - bias = f32[8,8] broadcast(f32[8] z), dimensions={1}
            - sum = f32[8,8] add(dot, bias)
            + call = (f32[8,8], s8[4096]) custom-call(f32[8,8] x, f32[8,8] y, f32[8] z),
            +     custom_call_target="__cublas$lt$matmul", backend_config={"gemm_backend_config":{
            +     "alpha_real":1,"beta":0,"epilogue":"BIAS","dot_dimension_numbers":{
            +     "lhs_contracting_dimensions":["1"],"rhs_contracting_dimensions":["0"]}}}
            + sum = f32[8,8] get-tuple-element(call), index=0
              half = f32[] constant(0.5)
              factor = f32[8,8] broadcast(half), dimensions={}
              ROOT product = f32[8,8] multiply(sum, factor)
            """,
            by="cublas-gemm-rewriter",
        ),
    )

    def check(self, pair: PassPair) -> Findings:
        """Calls whose factors or bias disagree with the module before the pass."""
        for call, config, before in _changed_calls(pair):
            sums = list(_sums(before, call))
            for addend, is_bias in _addends(call, config):
                terms = [
                    (product, term)
                    for product, addends in sums
                    for term in addends
                    if term.instruction.name == addend.instruction.name
                ]
                if not terms:
                    continue
                total, former = terms[0]
                if not any(_agree(config, addend, product, term) for product, term in terms):
                    yield Finding(
                        call,
                        f"%{addend.instruction.name} is added with factor {addend.factor:g} to a "
                        f"product with factor {config.alpha.real:g}: before {pair.pass_name} the "
                        f"factors were {former.factor:g} and {total.factor:g}",
                        notes=("alpha scales only A * B; beta * C and the bias are added to it",),
                    )
                elif is_bias and all(
                    _runs_elsewhere(call, product, term) for product, term in terms
                ):
                    yield Finding(
                        call,
                        f"the bias %{addend.instruction.name} was along dimension "
                        f"{former.dimension} before {pair.pass_name}: cuBLASLt adds it along the "
                        "most minor dimension",
                    )


class _Term(NamedTuple):
    """A term of a sum."""

    instruction: Instruction
    factor: float
    dimension: int | None = None
    """The dimension of a broadcast vector."""
    is_moved: bool = False
    """True if its elements are in another order, or in another shape."""


def _changed_calls(pair: PassPair) -> Iterator[tuple[Instruction, GemmConfig, Computation]]:
    """New or reconfigured GEMM calls, with their computation before the pass."""
    for body in pair.changed:
        for number in body.added:
            if '"__cublas$' not in attributes_of(body.after.rows[number]):
                continue
            call = body.after.at(number)
            old, config = body.before.instruction(call.name), _config(call)
            if config and (old is None or old.attributes_text != call.attributes_text):
                yield call, config, body.before


def _config(call: Instruction) -> GemmConfig | None:
    """The configuration of a call with a single real factor; None for f8, which has several."""
    from hlo_lint.kernels.custom_calls import GemmConfig, readable_payload

    config = readable_payload(call)
    if not isinstance(config, GemmConfig) or config.target.endswith("$f8"):
        return None
    return None if config.alpha.imag else config


def _addends(call: Instruction, config: GemmConfig) -> Iterator[tuple[_Term, bool]]:
    """The terms that a call adds to its product; True for a bias."""
    # After A and B come C, unless beta is 0, and the bias, if the epilogue has one.
    added = [(config.beta, False)] if config.beta else []
    added += [(1.0, True)] if "BIAS" in config.epilogue else []
    for operand, (factor, is_bias) in zip(call.operands[2:], added, strict=False):
        if operand.instruction is not None:
            yield from ((term, is_bias) for term in _terms(_Term(operand.instruction, factor)))


def _sums(computation: Computation, call: Instruction) -> Iterator[tuple[_Term, Sequence[_Term]]]:
    """The products that a call may replace: dots of its operands, or the call before; each with
    the terms that are added to it."""
    old, factors = computation.instruction(call.name), _sources(call)
    is_call = old is not None and old.opcode == "custom-call"
    dots = [dot for dot in computation.with_opcode("dot") if _sources(dot) == factors]
    for product in [old] if is_call and old is not None else dots:
        config, path = _config(product) if is_call else None, list(chain(product, _summed))
        terms = list(_terms(_Term(path[-1], 1.0), frozenset(path)))
        own = next((term for term in terms if term.instruction is product), None)
        if own is None:
            continue
        terms.remove(own)
        if config is not None:
            terms += [
                term._replace(factor=term.factor * own.factor)
                for term, _ in _addends(product, config)
            ]
            own = own._replace(factor=own.factor * config.alpha.real, is_moved=True)
        if config is not None or not is_call:
            yield own, terms


def _sources(instruction: Instruction) -> list[str] | None:
    """The names of the two factors, seen through data movement."""
    moves = SAME_NUMBERS | {"transpose"}
    return sorted(
        (source_of(operand, moves) or operand).name for operand in instruction.operands[:2]
    )


def _summed(value: Instruction) -> Instruction | None:
    """The only user of a value, if it moves or scales it, or adds something."""
    user = value.users[0] if len(value.users) == 1 else None
    # In x + x the factor of x is not that of an operand.
    if user is None or user.producers.count(value) != 1:
        return None
    return user if any(_parts(_Term(user, 1.0), (user,))) else None


def _terms(total: _Term, sums: Collection[Instruction] = ()) -> Iterator[_Term]:
    """The terms of a value, without constant factors and changes of shape; of additions and
    transposes, only `sums` are taken apart."""
    parts = partial(_parts, sums=sums)
    return (term for term in reached([total], parts) if not any(parts(term)))


def _parts(term: _Term, sums: Collection[Instruction]) -> Iterator[_Term]:
    value, factor, _, _ = term
    signs = [1.0]
    numbers = [_constant(operand) for operand in value.operands]
    inner = [operand.instruction for operand in value.operands]
    match value.opcode, numbers:
        case "add" | "subtract", [_, _] if value in sums:
            signs = [1.0, -1.0 if value.opcode == "subtract" else 1.0]
        case "multiply", [None, float(number)] | [float(number), None] if number:
            inner, factor = [inner[numbers.index(None)]], factor * number
        case "divide", [None, float(number)] if number:
            factor /= number
        case "negate", _:
            factor = -factor
        case "broadcast", _:
            dimensions = value.integers_attribute("dimensions") or ()
            if len(dimensions) == 1:
                term = term._replace(dimension=dimensions[0])
        case "get-tuple-element" | "convert", _:
            pass
        case opcode, _ if opcode in SAME_NUMBERS or (opcode == "transpose" and value in sums):
            term = term._replace(is_moved=True)
        case _:
            return
    for part, sign in zip(inner, signs, strict=False):
        if part is not None:
            yield term._replace(instruction=part, factor=factor * sign)


def _constant(operand: Operand) -> float | None:
    """The value of an operand whose elements are all the same constant."""
    number = number_of(source_of(operand, SAME_NUMBERS | {"broadcast"}))
    return None if number is None else float(number)


def _agree(config: GemmConfig, addend: _Term, product: _Term, term: _Term) -> bool:
    """True if product and addend have the same ratio as before; a common factor may remain."""
    ratios = config.alpha.real * term.factor, addend.factor * product.factor
    return isclose(*ratios, rel_tol=_TOLERANCE, abs_tol=1e-30)


def _runs_elsewhere(call: Instruction, product: _Term, term: _Term) -> bool:
    """True if a bias was not along the call's most minor dimension."""
    output = next(arrays(call.shape_or_none), None)
    is_told = output is not None and output.rank and term.dimension is not None
    # In a different shape, dimensions have different numbers.
    if output is None or not is_told or output != product.instruction.shape_or_none:
        return False
    return not product.is_moved and term.dimension != output.minor_to_major[0]
