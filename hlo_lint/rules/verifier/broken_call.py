"""Calls, which must match their computation."""

from __future__ import annotations

from collections.abc import Iterator

from hlo_lint.analysis.shape_inference.shape_check import inference_of
from hlo_lint.analysis.verifier.calls import parameter_layouts
from hlo_lint.analysis.verifier.checks import on, on_attribute
from hlo_lint.analysis.verifier.scope import Scope, Violation
from hlo_lint.hlo.ir import CALLING_ATTRIBUTES, Instruction
from hlo_lint.hlo.opcodes import CALLERS
from hlo_lint.rules.base import Good
from hlo_lint.rules.verifier import VerifierRule


class BrokenCall(VerifierRule):
    """A call that does not match its computation, or a call by an opcode that cannot call.

    ## Why
    XLA inlines a call, or emits it as a thunk, by matching operands with parameters (`HandleCall`
    in `xla/service/hlo_verifier.cc`). A composite call must name its composite.
    """

    messages = (
        "expects parent computation thread name same as called computation's thread name",
        "shape does not match parameter",
        "A composite call op must have frontend attributes",
    )
    table = """
        control-flow-thread: CheckCallableInstructionThreadName
          while, conditional: computations run on their caller's thread
            yes {
              ROOT n = f32[8] negate(f32[8] a)
            }, execution_thread="host"
            no { ROOT c = f32[8] copy(f32[8] b) }
            ROOT r = f32[8] conditional(pred[] i, f32[8] p, p), true_computation=yes,  // error
                false_computation=no
        caller-opcode: ShapeVerifier::Preprocess
          only calling opcodes have called computations
            f { ROOT n = f32[8]{0} negate(f32[8]{0} a) }
            ROOT r = f32[8]{0} negate(f32[8]{0} p), to_apply=f  // error
        call-shapes: ShapeVerifier::HandleCall (call)
          call: operands match the parameters, the result matches the root
            f { ROOT n = f32[8]{0} negate(f32[8]{0} a) }
            ROOT r = f32[8]{0} call(f32[9]{0} p), to_apply=f  // error
        composite-name: ShapeVerifier::HandleCall
          a composite call has a name, and its version, if any, is not negative
            f { ROOT n = f32[8]{0} negate(f32[8]{0} a) }
            ROOT r = f32[8]{0} call(f32[8]{0} p), to_apply=f, is_composite=true,  // error
                frontend_attributes={composite.version="1"}
        nested-thread: InstructionVerifier::Preprocess
          with an option: computations run on their caller's thread
        call-aliasing: InstructionVerifier::HandleCall
          call: no output_to_operand_aliasing
            f { ROOT n = f32[8]{0} negate(f32[8]{0} a) }
            ROOT r = f32[8]{0} call(f32[8]{0} p), to_apply=f,  // error
                output_to_operand_aliasing={{}: (0, {})}
    """
    examples = (
        Good.entry("""
            f { ROOT n = f32[8]{0} negate(f32[8]{0} a) }
            ROOT r = f32[8]{0} call(f32[8]{0} p), to_apply=f
        """),
    )

    @on("call", option="layouts")
    def shapes(self, scope: Scope, call: Instruction) -> Iterator[Violation]:
        """Operands of a call have the layouts of the parameters."""
        yield from parameter_layouts("call-shapes", scope, call)

    @on("call", word="is_composite")
    def composite(self, scope: Scope, call: Instruction) -> Iterator[Violation]:
        """A composite call has a name, valid attributes and a valid version."""
        if call.attribute_text("is_composite") != "true":
            return
        attributes = call.frontend_attributes()
        name = attributes.get("composite.name", "")
        if not isinstance(name, str) or not name.strip('"'):
            message = "a composite call needs a non-empty composite.name"
            yield Violation("composite-name", call, message)
        if attributes.get("composite.attributes") in ("", '""'):
            message = "composite.attributes is empty, expected {} or no such attribute"
            yield Violation("composite-name", call, message)
        version = attributes.get("composite.version")
        if isinstance(version, str) and not version.strip('"').isdecimal():
            message = f"composite.version={version} is not a non-negative integer"
            yield Violation("composite-name", call, message)

    @on_attribute("to_apply=", "calls=", option="thread_names")
    def nested_thread(self, scope: Scope, caller: Instruction) -> Iterator[Violation]:
        """With the option, computations run on their caller's thread."""
        if not caller.opcode.startswith("async-"):
            yield from _on_other_threads("nested-thread", scope, caller)

    @on("while", "conditional")
    def control_flow_thread(self, scope: Scope, caller: Instruction) -> Iterator[Violation]:
        """Computations of loops and conditionals run on their caller's thread."""
        yield from _on_other_threads("control-flow-thread", scope, caller)

    @on("call", word="output_to_operand_aliasing")
    def aliasing(self, scope: Scope, call: Instruction) -> Iterator[Violation]:
        """A call has no output_to_operand_aliasing."""
        if call.attribute_text("output_to_operand_aliasing") not in (None, "{}"):
            message = "a call must not have output_to_operand_aliasing"
            yield Violation("call-aliasing", call, message)

    @on_attribute("calls=", "to_apply=", "body=", other_than=CALLERS)
    def caller(self, scope: Scope, instruction: Instruction) -> Iterator[Violation]:
        """Only calling opcodes have called computations."""
        opcode = instruction.opcode
        if opcode.endswith(("-start", "-update", "-done")) or inference_of(opcode) is None:
            return
        if any(name in CALLING_ATTRIBUTES for name in instruction.attributes):
            yield Violation("caller-opcode", instruction, f"{opcode} cannot call a computation")


def _on_other_threads(check: str, scope: Scope, caller: Instruction) -> Iterator[Violation]:
    ours = scope.computation.thread
    for callee in scope.called(caller):
        if callee is not None and callee.thread != ours:
            message = f"%{callee.name} is on thread {callee.thread}, but its caller on {ours}"
            yield Violation(check, caller, message)
