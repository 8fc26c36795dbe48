"""Fusions, which must match their bodies."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain
from typing import Final

from hlo_lint.analysis.calls import calls_of
from hlo_lint.analysis.verifier.calls import parameter_layouts
from hlo_lint.analysis.verifier.checks import on, on_computation_if, on_module
from hlo_lint.analysis.verifier.scope import Scope, Violation
from hlo_lint.hlo.ir import Computation, Instruction, Module, cached_analysis
from hlo_lint.hlo.records import name_in, name_of, opcode_of, references_of
from hlo_lint.rules.base import Bad, Good, Stage
from hlo_lint.rules.verifier import VerifierRule
from hlo_lint.text.phrases import counted


class BrokenFusion(VerifierRule):
    """A fusion that does not match its body.

    ## Why
    XLA generates a kernel from the body and launches it with the operands and the result of the
    fusion: each parameter must have the layout of its operand, and the root that of the result
    (`HandleFusion` and `CheckFusionInstruction` in `xla/service/hlo_verifier.cc`).
    """

    messages = (
        "Shape mismatch between parameter number … and its operand in",
        "greater than the number of operands",
        "Fused computation shape",
    )
    opcodes = frozenset({"fusion"})
    table = """
        fusion-computation: ShapeVerifier::HandleFusion
          a fusion calls a single computation, on its own thread
            ROOT r = f32[8]{0} fusion(f32[8]{0} p), kind=kLoop  // error
        fusion-shape: ShapeVerifier::HandleFusion (fusion)
          a fusion has the shape of its root
            f { ROOT n = f32[8]{0} negate(f32[8]{0} a) }
            ROOT r = f32[4]{0} fusion(f32[8]{0} p), kind=kLoop, calls=f  // error
        fusion-parameters: ShapeVerifier::HandleFusion
          parameters of a fusion have the shapes of its operands
            f { ROOT n = f32[8,3]{1,0} negate(f32[8,3]{1,0} a) }
            ROOT r = f32[8,3]{1,0} fusion(f32[8,3]{0,1} p), kind=kLoop, calls=f  // error
        fusion-dead-instruction: CheckFusionInstruction
          all instructions of a fusion except the root have users
            f {
              m = f32[8]{0} sine(f32[8]{0} a)  // error
              ROOT n = f32[8]{0} negate(a)
            }
            ROOT r = f32[8]{0} fusion(f32[8]{0} p), kind=kLoop, calls=f
        fusion-shared: CheckFusionInstruction
          a body belongs to a single fusion
            f { ROOT n = f32[8]{0} negate(f32[8]{0} a) }
            r = f32[8]{0} fusion(f32[8]{0} p), kind=kLoop, calls=f
            ROOT s = f32[8]{0} fusion(r), kind=kLoop, calls=f  // error
    """
    examples = (
        Bad.entry("""
            f { ROOT n = f32[8]{0} negate(f32[8]{0} a) }
            q = f32[8]{0} sine(f32[8]{0} p)
            ROOT r = f32[8]{0} fusion(p, q), kind=kLoop, calls=f  // error
        """),
        Good.final("""
            HloModule m, is_scheduled=true
            f { ROOT n = f32[8]{0} negate(f32[8]{0} a) }
            r = f32[8]{0:S(1)} fusion(f32[8]{0} p), kind=kLoop, calls=f
            ROOT c = f32[8]{0} copy(r)
        """),
    )

    @on("fusion", local=True)
    def body(self, scope: Scope, fusion: Instruction) -> Iterator[Violation]:
        """A fusion has a single body, which takes its operands."""
        bodies = scope.called(fusion)
        if len(bodies) != 1:
            message = f"a fusion must call 1 computation, got {len(bodies)}"
            yield Violation("fusion-computation", fusion, message)
            return
        (body,) = bodies
        if body is None:
            return
        taken, given = len(body.positions("parameter")), len(fusion.operand_names)
        if taken < given:
            operands, parameters = counted(given, "operand"), counted(taken, "parameter")
            message = f"the fusion has {operands}, but %{body.name} has {parameters}"
            excess = [fusion.producer(number) for number in range(taken, given)]
            is_warning = all(operand is not None and _stays_outside(operand) for operand in excess)
            note = (
                "releases before jax 0.11 crash; later releases crash if an excess operand is fused"
            )
            yield Violation(
                "fusion-parameters", fusion, message, notes=(note,), is_warning=is_warning
            )
        yield from parameter_layouts("fusion-parameters", scope, fusion)

    @on_computation_if(lambda opcodes: "fusion" in opcodes)
    def inside(self, scope: Scope) -> Iterator[Violation]:
        """A body is on its fusion's thread, and all its instructions have users."""
        computation = scope.computation
        for name, number in _bodies(computation):
            body = scope.module.computation(name)
            if body is None or opcode_of(computation.rows[number]) != "fusion":
                continue
            if (body.tail or computation.tail) and body.thread != computation.thread:
                message = (
                    f"%{body.name} is on thread {body.thread}, "
                    f"but its fusion on {computation.thread}"
                )
                yield Violation("fusion-computation", computation.at(number), message)
            for position in _dead_instructions(body):
                dead = body.at(position)
                message = f"%{dead.name} is dead: no instruction in fusion %{body.name} uses it"
                # Tests of later releases accept such a parameter; jax 0.11.2 rejects it.
                is_given = dead.opcode == "parameter"
                yield Violation("fusion-dead-instruction", dead, message, is_warning=is_given)

    @on_module
    def shared(self, module: Module, stage: Stage) -> Iterator[Violation]:
        """A body belongs to a single fusion."""
        callers = [part for part in module.computations if not part.opcodes.isdisjoint(_FUSIONS)]
        bodies = list(chain.from_iterable(map(_bodies, callers)))
        if len({body for body, _ in bodies}) == len(bodies):
            return
        first: set[str] = set()
        for computation in callers:
            for body, number in _bodies(computation):
                if body in first and module.computation(body) is not None:
                    message = f"%{body} is already the body of another fusion"
                    yield Violation("fusion-shared", computation.at(number), message)
                first.add(body)


def _stays_outside(operand: Instruction) -> bool:
    """True for an operand that is never fused.

    XLA:CPU of jax 0.11.2 and 0.12.0 compiles a fusion with more operands than parameters if the
    excess operands are such, and crashes otherwise; 0.6.2 to 0.10.2 always crash (a CHECK).
    """
    if operand.opcode == "constant":
        return not operand.type_text.endswith("[]")  # scalar constants are fused
    return operand.opcode in ("parameter", "get-tuple-element", "copy")


_FUSIONS: Final = ("fusion", "fusion-start")


@cached_analysis
def _bodies(computation: Computation) -> tuple[tuple[str, int], ...]:
    """The bodies of a computation's fusions, with the fusions' positions."""
    rows = computation.rows
    calls = calls_of(computation).items() if not computation.opcodes.isdisjoint(_FUSIONS) else ()
    return tuple(
        [
            (body, number)
            for number, bodies in calls
            if opcode_of(rows[number]) in _FUSIONS
            for body in bodies
        ]
    )


@cached_analysis
def _dead_instructions(body: Computation) -> tuple[int, ...]:
    rows, root = body.rows, body.root
    if root is None or {root.name}.union(*map(references_of, rows)).issuperset(body.index):
        return ()
    used = set(map(name_in, chain.from_iterable(map(references_of, rows))))
    return tuple(
        [
            number
            for number, row in enumerate(rows)
            if name_of(row) not in used and number != root.number
        ]
    )
