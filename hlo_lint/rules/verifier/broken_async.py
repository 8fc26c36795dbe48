"""Asynchronous operations, from start to done."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import chain
from typing import Final

from hlo_lint.analysis.async_chains import SHARDING
from hlo_lint.analysis.shape_inference.asynchronous import prefix_error
from hlo_lint.analysis.shape_inference.types import brief, compatible
from hlo_lint.analysis.verifier.calls import shapes_differ
from hlo_lint.analysis.verifier.checks import on, on_computation_if
from hlo_lint.analysis.verifier.scope import Scope, Violation, parameter, shape_of
from hlo_lint.hlo.ir import Computation, Instruction
from hlo_lint.hlo.opcodes import (
    DONE_OF,
    PASSES_STATE,
    SAME_MEMORY,
    SUGAR,
    TRANSFERS,
    TUPLES,
    wrapped_opcode,
)
from hlo_lint.hlo.records import name_in, opcode_of, references_of
from hlo_lint.hlo.shape import TupleShape, part
from hlo_lint.rules.base import Bad, Good
from hlo_lint.rules.verifier import VerifierRule
from hlo_lint.text.phrases import counted


class BrokenAsync(VerifierRule):
    """An asynchronous operation whose parts disagree, or whose value is read too early.

    ## Why
    Between start and done the operation runs concurrently with the program. The start returns a
    handle, which only the done, an update or an instruction that passes it on may read. Start,
    updates and done share a computation and a thread, and that computation has a single instruction
    besides its parameters (`VerifyAsynchronousInstructionPairs` in
    `xla/service/hlo_verifier.cc`). [start-without-done](#start-without-done) checks that each start
    has a done.
    """

    messages = (
        "does not trace back to an async start",
        "is matched by multiple async done instructions",
        "has no matching async done",
        "Orphan async update",
        "is part of multiple chains or a cycle",
        "expected to contain only the root and parameter instructions",
        "No operand found for AsyncUpdate and AsyncDone",
        "AsyncUpdate and AsyncDone cannot have AsyncDone as operand",
        "Expect async_wrapped_computation to be",
        "instruction needs to be",
        "expects the async shape",
        "expects the operands of the previous async instruction to be fully bound",
        "expects its shape to match the async computation result shape",
        "to match the async shape at index",
    )
    mentions = ("-start", "-update", "-done", "send", "recv")
    table = """
        async-shape: CheckAsyncOpComputationShapes
          async-start, async-update: `((operands), result, …)`
            wrapped { ROOT n = f32[8]{0} negate(f32[8]{0} a) }
            s = (f32[8]{0}, f32[8]{0}, u32[]) async-start(f32[8]{0} p), calls=wrapped  // error
            ROOT d = f32[8]{0} negate(p)
        async-start-operands: ShapeVerifier::HandleAsyncStart (async-start)
          async-start: operands have the shapes in its result type
            wrapped { ROOT n = f32[8]{0} negate(f32[8]{0} a) }
            s = ((f32[9]{0}), f32[8]{0}, u32[]) async-start(f32[8]{0} p), calls=wrapped  // error
            ROOT d = f32[8]{0} async-done(s)
        async-update-shape: ShapeVerifier::HandleAsyncUpdate (async-update)
          async-update: adds operands and results to those of its operand
            wrapped { ROOT n = f32[8]{0} negate(f32[8]{0} a) }
            p = f32[8]{0} parameter(0)
            q = f32[9]{0} parameter(1)
            s = ((), f32[8]{0}, u32[]) async-start(), calls=wrapped
            u = ((f32[9]{0}), f32[8]{0}, u32[]) async-update(s, q)  // error
            ROOT d = f32[8]{0} async-done(u)
        async-update-computation: ShapeVerifier::HandleAsyncUpdate
          async-update: the computation of its operand
            wrapped { ROOT n = f32[8]{0} negate(f32[8]{0} a) }
            other { ROOT n.1 = f32[8]{0} sine(f32[8]{0} a.1) }
            s = ((f32[8]{0}), f32[8]{0}, u32[]) async-start(f32[8]{0} p), calls=wrapped
            u = ((f32[8]{0}), f32[8]{0}, u32[]) async-update(s), calls=other  // error
            ROOT d = f32[8]{0} async-done(u)
        async-done-computation: ShapeVerifier::HandleAsyncDone
          async-done: the computation of its operand
            wrapped { ROOT n = f32[8]{0} negate(f32[8]{0} a) }
            other { ROOT n.1 = f32[8]{0} sine(f32[8]{0} a.1) }
            s = ((f32[8]{0}), f32[8]{0}, u32[]) async-start(f32[8]{0} p), calls=wrapped
            ROOT d = f32[8]{0} async-done(s), calls=other  // error
        async-computation-shapes: CheckAsyncOpComputationShapes
          async-start: operands and result have the shapes of its computation
            wrapped { ROOT n = f32[8,3]{0,1} negate(f32[8,3]{0,1} a) }
            p = f32[8,3]{1,0} parameter(0)
            s = ((f32[8,3]{1,0}), f32[8,3]{1,0}, u32[]) async-start(p), calls=wrapped  // error
            ROOT d = f32[8,3]{1,0} async-done(s)
        async-done-shape: ShapeVerifier::HandleAsyncDone (async-done)
          async-done: the result of its computation
            wrapped { ROOT n = f32[8]{0} negate(f32[8]{0} a) }
            s = ((f32[8]{0}), f32[8]{0}, u32[]) async-start(f32[8]{0} p), calls=wrapped
            ROOT d = f32[9]{0} async-done(s)  // error
        start-consumer: VerifyAsynchronousInstructionPairs
          only its done reads a start
            s = (f32[8]{0}, f32[8]{0}) collective-permute-start(f32[8]{0} p),  // error
                source_target_pairs={{0,1}}
            c = (f32[8]{0}, f32[8]{0}) custom-call(s), custom_call_target="peek"
            ROOT d = f32[8]{0} collective-permute-done(s)
        done-operand: VerifyAsynchronousInstructionPairs
          the operand of a done is its start
            p = (f32[8]{0}, f32[8]{0}) custom-call(), custom_call_target="make"
            ROOT d = f32[8]{0} collective-permute-done(p)  // error
        async-consumer: VerifyAsynchronousInstructionPairs
          only updates and dones read an async-start
            wrapped { ROOT n = f32[8]{0} negate(f32[8]{0} a) }
            s = ((f32[8]{0}), f32[8]{0}, u32[]) async-start(f32[8]{0} p), calls=wrapped  // error
            c = f32[8]{0} custom-call(s), custom_call_target="peek"
            ROOT d = f32[8]{0} async-done(s)
        async-operand-count: VerifyAsynchronousInstructionPairs
          async-done has a single operand, async-update at least one
            wrapped { ROOT n = f32[8]{0} negate(f32[8]{0} a) }
            s = ((f32[8]{0}), f32[8]{0}, u32[]) async-start(f32[8]{0} p), calls=wrapped
            ROOT d = f32[8]{0} async-done(s, p)  // error
        async-chain: VerifyAsynchronousInstructionPairs
          each update is in a single chain that ends with a done
            wrapped { ROOT n = f32[8]{0} negate(f32[8]{0} a) }
            s = ((f32[8]{0}), f32[8]{0}, u32[]) async-start(f32[8]{0} p), calls=wrapped
            u = ((f32[8]{0}), f32[8]{0}, u32[]) async-update(s)
            v = ((f32[8]{0}), f32[8]{0}, u32[]) async-update(s)  // error
            d.1 = f32[8]{0} async-done(u)
            ROOT d = f32[8]{0} async-done(v)
        async-computation: HloVerifier::RunImpl
          an asynchronous computation has only parameters and a root
            wrapped {
              b = f32[8]{0} sine(f32[8]{0} a)
              ROOT n = f32[8]{0} negate(b)
            }
            s = ((f32[8]{0}), f32[8]{0}, u32[]) async-start(f32[8]{0} p), calls=wrapped  // error
            ROOT d = f32[8]{0} async-done(s)
    """
    counts_of = {
        "done-operand": (
            "all-reduce-done all-gather-done collective-permute-done copy-done send-done recv-done"
        ),
        "async-operand-count": "async-done",
    }
    subsumes = frozenset({"bad-channel"})
    examples = (
        Bad.entry("""
            ROOT s = ((f32[8]), f32[8], u32[])  // error
                custom-call-start(f32[8] p), custom_call_target="f"
        """),
        Good.entry("""
            s = (f32[8]{0}, f32[8]{0}) collective-permute-start(f32[8]{0} p),
                source_target_pairs={{0,1}}
            c = () custom-call(s, p), custom_call_target="control_dep"
            ROOT d = f32[8]{0} collective-permute-done(s)
        """),
        Good.entry("""
            wrapped { ROOT n = f32[8]{0} negate(f32[8]{0} a) }
            s = ((f32[8]{0}), f32[8]{0}, u32[]) async-start(f32[8]{0} p), calls=wrapped
            u = ((f32[8]{0}), f32[8]{0}, u32[]) async-update(s)
            ROOT d = f32[8]{0} async-done(u)
        """),
    )

    @on("async-start")
    def computation(self, scope: Scope, start: Instruction) -> Iterator[Violation]:
        """An asynchronous computation has only parameters and a root."""
        callee = scope.callee(start)
        if (
            callee is None
            # The parser puts the computation on the thread of its start.
            or (start.attribute_text("async_execution_thread") or '"main"') != '"main"'
            or "_collectives_group" in start.attributes_text
            or callee.opcodes <= _SILENT
        ):
            return
        root = -1 if callee.root is None else callee.root.number
        others = [
            number
            for number, row in enumerate(callee.rows)
            if opcode_of(row) not in ("parameter", "get-tuple-element") and number != root
        ]
        if others:
            message = (
                f"%{callee.name} has {len(others)} instructions besides its parameters and root"
            )
            yield Violation("async-computation", start, message)

    @on_computation_if(lambda opcodes: not opcodes.isdisjoint(_OF_PAIRS))
    def consumers(self, scope: Scope) -> Iterator[Violation]:
        """Only the done of a start reads it, or instructions that pass it on."""
        for start_opcode, done in DONE_OF.items():
            for start in scope.computation.with_opcode(start_opcode):
                yield from _unless_read_once(start, done)
                for user in start.users:
                    if user.opcode != done and not _passes_on(user) and not _only_orders(user):
                        message = f"expected {done} to read {start_opcode}, got {user.opcode}"
                        note = f"read by %{user.name}"
                        yield Violation("start-consumer", start, message, notes=(note,))
        for start_opcode, done in DONE_OF.items():
            for instruction in scope.computation.with_opcode(done):
                operand = instruction.producer()
                if operand is None or operand.opcode == start_opcode:
                    continue
                # VerifySingleOperand looks through loop state, but not through a tuple.
                if operand.opcode == "tuple" or not _passes_on(operand):
                    message = (
                        f"expected {start_opcode} as operand of {done}, "
                        f"but %{operand.name} is {operand.opcode}"
                    )
                    yield Violation("done-operand", instruction, message, 0)

    @on_computation_if(lambda opcodes: any(opcode.endswith(SUGAR) for opcode in opcodes))
    def flows(self, scope: Scope) -> Iterable[Violation]:
        """Start, updates and done form a single chain with the same computation."""
        return chain(_chains(scope), _readers(scope.computation))


_OF_PAIRS: Final[frozenset[str]] = frozenset({*DONE_OF, *DONE_OF.values()})


def _passes_on(instruction: Instruction) -> bool:
    if instruction.opcode in PASSES_STATE:
        return True
    return instruction.opcode == "custom-call" and instruction.custom_call_target in SHARDING


def _only_orders(user: Instruction) -> bool:
    return user.opcode == "custom-call" and user.custom_call_target == "control_dep"


_SILENT: Final = SAME_MEMORY | TUPLES | {"parameter"}
"""Opcodes of a computation that is a mere barrier."""


def _unless_read_once(start: Instruction, done: str) -> Iterator[Violation]:
    """A start has a single user (`VerifySingleUser`)."""
    opcode = start.opcode
    users = [user for user in start.users if not _only_orders(user)]
    # A transfer at the root of an asynchronous computation ends with the computation.
    is_wrapped = opcode in TRANSFERS and not start.computation.is_entry
    if start.is_root and not users and not is_wrapped:
        message = f"this {opcode} has no users, expected {done}"
        yield Violation("start-consumer", start, message)
    # start-without-done reports two dones, and wrong users are reported separately.
    passed = [user for user in users if _passes_on(user)]
    if len(users) > 1 and passed:
        message = f"{opcode} has {len(users)} users, expected 1"
        yield Violation("start-consumer", start, message, notes=(f"read by %{passed[0].name}",))


def _is_async(opcode: str, *suffixes: str) -> bool:
    """True for `async-start` and the like, and for sugared opcodes such as `add-start`."""
    return opcode.endswith(suffixes) and opcode not in _OF_PAIRS


def _chains(scope: Scope) -> Iterator[Violation]:
    computation = scope.computation
    continued: dict[str, Instruction] = {}
    starts: dict[str, Instruction] = {}
    opcodes = [opcode for opcode in computation.opcodes if opcode.endswith(SUGAR)]
    for number in sorted(chain.from_iterable(map(computation.positions, opcodes))):
        row = computation.rows[number]
        opcode = opcode_of(row)
        if _is_async(opcode, "-start", "-update"):
            yield from _state_layouts(scope, computation.at(number))
        elif _is_async(opcode, "-done"):
            done = computation.at(number)
            if mismatch := shapes_differ(
                scope, done.shape_or_none, part(done.operand_shape(0), (1,))
            ):
                message = f"the result and the start's result have different layouts: {mismatch}"
                yield Violation("async-done-shape", done, message)
        if not _is_async(opcode, "-update", "-done"):
            continue
        after = computation.at(number)
        if not references_of(row) and opcode.endswith("-update"):
            yield Violation("async-operand-count", after, f"{opcode} needs at least one operand")
        if opcode.endswith("-update") and not after.users and not after.is_root:
            message = f"%{after.name} is an orphan: no async-update or async-done reads it"
            yield Violation("async-chain", after, message)
        before = after.producer()
        if before is None:
            continue
        if _is_async(before.opcode, "-start", "-update"):
            yield from _same_computation(after, before)
            start = starts[after.name] = starts.get(before.name, before)
            yield from _binding(scope, start, after)
            first = continued.setdefault(before.name, after)
            if first is not after and "-update" in (first.opcode + after.opcode):
                message = f"%{first.name} and %{after.name} both continue %{before.name}"
                yield Violation("async-chain", after, message, 0)


def _state_layouts(scope: Scope, instruction: Instruction) -> Iterator[Violation]:
    """The state has the layouts of its operands and of its computation.

    Mirrors `CheckAsyncOpComputationShapes` and `HandleAsyncStart`.
    """
    if not scope.stage.layouts:
        return
    state, callee = instruction.shape_or_none, None
    if instruction.opcode.startswith("async-"):  # sugared opcodes call a different computation
        callee = scope.callee(instruction)
    bound = part(state, (0,))
    for number, shape in enumerate(bound.elements if isinstance(bound, TupleShape) else ()):
        pairs = [(f"parameter {number}", shape_of(parameter(callee, number)))]
        if instruction.opcode.endswith("-start"):
            pairs.append((f"operand {number}", instruction.operand_shape(number)))
        for title, expected in pairs:
            if mismatch := shapes_differ(scope, expected, shape):
                message = f"{title} and the state have different layouts: {mismatch}"
                yield Violation("async-computation-shapes", instruction, message)
                return
    result, whole = part(state, (1,)), shape_of(callee.root if callee else None)
    if isinstance(result, TupleShape) and isinstance(whole, TupleShape):
        whole = TupleShape(whole.elements[: len(result.elements)])
    if mismatch := shapes_differ(scope, whole, result):
        message = f"the computation's result and the state have different layouts: {mismatch}"
        yield Violation("async-computation-shapes", instruction, message)


def _binding(scope: Scope, start: Instruction, after: Instruction) -> Iterator[Violation]:
    """Updates bind parameters in order, and all are bound at the done."""
    if start.opcode not in ("async-start", "call-start", "fusion-start"):
        return  # other sugared opcodes call a different computation than they wrap
    callee, before = scope.callee(start), after.operand_shape(0)
    is_done = after.opcode.endswith("-done")
    state = before if is_done else after.shape_or_none
    bound, result = part(state, (0,)), part(state, (1,))
    if callee is None or callee.root is None or not isinstance(bound, TupleShape):
        return
    if not is_done and before == state:
        return  # this update binds no operand
    shapes = [shape_of(parameter(callee, number)) for number in range(len(callee.parameters))]
    check = "async-done-shape" if is_done else "async-update-shape"
    count, total = len(bound.elements), len(shapes)
    if count > total or (is_done and count < total):
        operands, parameters = counted(count, "bound operand"), counted(total, "parameter")
        message = f"{after.opcode} has {operands} for {parameters}"
        yield Violation(check, after, message)
        return
    old = part(before, (0,))
    first = len(old.elements) if isinstance(old, TupleShape) else 0
    for number in range(first, count):
        ours, theirs = bound.elements[number], shapes[number]
        if theirs is not None and not compatible(ours, theirs):
            message = f"operand {number} is bound as {brief(ours)}, its parameter is "
            yield Violation(check, after, message + brief(theirs))
            return
    whole, given = callee.root.shape_or_none, after.shape_or_none if is_done else result
    old_result = part(before, (1,))
    if whole is None or given is None or old_result is None or prefix_error(old_result, given):
        return  # another check reports that operand and result do not match
    if is_done and not compatible(given, whole):
        message = f"{after.opcode} returns {brief(given)}, its computation {brief(whole)}"
        yield Violation(check, after, message)
    elif not is_done and (
        error := prefix_error(given, whole, f"the result of {after.opcode}", "its computation's")
    ):
        yield Violation(check, after, error)


def _same_computation(after: Instruction, before: Instruction) -> Iterator[Violation]:
    """All instructions of a chain name the same computation."""
    ours, theirs = after.called_computations, before.called_computations
    if ours and theirs and ours != theirs:
        ends = after.opcode.endswith("-done")
        check = "async-done-computation" if ends else "async-update-computation"
        message = f"{after.opcode} calls %{ours[0]}, its operand %{theirs[0]}"
        yield Violation(check, after, message)


def _readers(computation: Computation) -> Iterator[Violation]:
    """Only updates and dones read an async-start or -update, as operand 0."""
    for number, row in enumerate(computation.rows):
        if not _is_async(opcode_of(row), "-start", "-update"):
            continue
        start = computation.at(number)
        is_last = start.is_root and computation.is_entry and not start.users
        if is_last and (wrapped_opcode(start.opcode) or start.opcode.startswith("async-")):
            message = f"no async-done ends this {start.opcode}"
            yield Violation("async-chain", start, message)
        for user in start.users:
            places = [
                place
                for place, name in enumerate(user.operand_names)
                if name_in(name) == start.name
            ]
            continues = user.opcode.endswith(("-update", "-done")) and places == [0]
            if not continues and not _passes_on(user):
                message = f"{user.opcode} reads this {start.opcode} as operand {places[-1]}"
                note = f"read by %{user.name}"
                yield Violation("async-consumer", start, message, notes=(note,))
