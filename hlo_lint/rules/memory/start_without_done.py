"""Pairs of asynchronous operations: every start has its done."""

from __future__ import annotations

from hlo_lint.analysis.async_chains import AsyncChain, async_chains, dones, has_async
from hlo_lint.analysis.calls import instructions_of
from hlo_lint.analysis.sequential_calls import sequential_calls
from hlo_lint.hlo.ir import Instruction, Module
from hlo_lint.hlo.opcodes import FORWARDS, TRANSFERS, TUPLES, without_sugar
from hlo_lint.rules.base import Bad, FinalModule, Finding, Findings, Good, Rule, Severity
from hlo_lint.rules.evidence import RefusedByXla

_UNKNOWN = ("parameter", "while", "call", "conditional", "custom-call")
"""Opcodes whose result may be that of a start in another computation."""


class StartWithoutDone(Rule):
    """An asynchronous start without a done, or a done without a start.

    ## Why
    After its done, the result of an asynchronous operation may be used and its memory is free.
    Without a done, the program may end, or reuse the memory, while a copy or a collective is still
    running. XLA's verifier requires a done of the same operation after each start
    (`xla/service/hlo_verifier.cc`), but it does not run on texts written by a tool or a person, or
    after the last pass. The verifier's rules check operands and types; this rule follows starts
    into loops, calls and tuples.
    """

    mentions = ("-start", "-update", "-done", "send", "recv")
    subsumes = frozenset({"broken-async", "bad-collective", "bad-copy", "bad-send-recv"})
    evidence = (RefusedByXla("The copy-start instruction requires one consumer"),)
    examples = (
        Bad.entry("""
            HloModule m, is_scheduled=true
            s = (f32[8]{0}, f32[8]{0}, u32[]) copy-start(f32[8]{0} p)  // error
            ROOT r = f32[8]{0} negate(p)
        """),
        Bad.entry("""
            HloModule m, is_scheduled=true
            p = f32[8]{0} parameter(0)
            s = (f32[8]{0}, f32[8]{0}) collective-permute-start(p), source_target_pairs={{0,1}}
            ROOT r = f32[8]{0} all-gather-done(s)  // error
        """),
        Bad.entry("""
            s = (f32[8]{0}, f32[8]{0}, u32[]) copy-start(f32[8]{0} p)
            d = f32[8]{0} copy-done(s)
            d.1 = f32[8]{0} copy-done(s)  // error
            ROOT r = f32[8]{0} add(d, d.1)
        """),
        Good.entry("""
            HloModule carried, is_scheduled=true
            body {
              q = ((f32[8]{0}, f32[8]{0}, u32[])) parameter(0)
              s = (f32[8]{0}, f32[8]{0}, u32[]) get-tuple-element(q), index=0
              d = f32[8]{0} copy-done(s)
              s.1 = (f32[8]{0}, f32[8]{0}, u32[]) copy-start(d)
              ROOT t = ((f32[8]{0}, f32[8]{0}, u32[])) tuple(s.1)
            }
            condition {
              q.1 = ((f32[8]{0}, f32[8]{0}, u32[])) parameter(0)
              ROOT c = pred[] custom-call(q.1), custom_call_target="goes_on"
            }
            s.2 = (f32[8]{0}, f32[8]{0}, u32[]) copy-start(f32[8]{0} p)
            t.1 = ((f32[8]{0}, f32[8]{0}, u32[])) tuple(s.2)
            w = ((f32[8]{0}, f32[8]{0}, u32[])) while(t.1), condition=condition, body=body
            s.3 = (f32[8]{0}, f32[8]{0}, u32[]) get-tuple-element(w), index=0
            ROOT d.1 = f32[8]{0} copy-done(s.3)
        """),
    )

    def is_applicable(self, module: Module) -> bool:
        """True if the module has a start or a done."""
        return has_async(module)

    def check(self, final: FinalModule) -> Findings:
        """Starts without a done, dones without a start, and pairs that do not fit."""
        module = final.module
        started = async_chains(module)
        wrapped = {
            name
            for start in instructions_of(module, "async-start")
            for name in start.called_computations
        }
        for chain in started:
            # A transfer in an asynchronous computation is done with the computation.
            grouped = chain.start.opcode in TRANSFERS and not chain.dones
            if not (grouped and chain.start.computation.name in wrapped):
                yield from _starts(chain, module)
        waited = {done for chain in started for done in chain.dones}
        for computation in sequential_calls(module).computations:
            for done in dones(computation):
                if done not in waited:
                    yield from _lone(done)


def _starts(chain: AsyncChain, module: Module) -> Findings:
    start = chain.start
    if not chain.dones and not chain.escapes:
        if chain.is_carried:
            message = f"a loop carries this {start.opcode}, but no done ever reads it"
            yield Finding(start, message, severity=Severity.WARNING)
        else:
            users = ", ".join(f"%{user.name}" for user in start.users) or "none"
            yield Finding(start, f"this {start.opcode} has no done", notes=(f"users: {users}",))
    for done in chain.dones:
        if not _is_of(done, chain, module):
            yield Finding(
                done,
                f"this {done.opcode} waits for %{start.name}, which is a different operation: "
                f"{start.opcode}",
                notes=(f"%{start.name} = {start.type_text} {start.opcode}",),
                operand=0,
            )
    in_computation = [
        done
        for done in chain.dones
        if done.computation is start.computation and not chain.is_carried
    ]
    for done in in_computation[1:]:
        yield Finding(
            done,
            f"this {done.opcode} waits for %{start.name}, "
            f"which already has a done, %{in_computation[0].name}",
            operand=0,
        )
    for done in in_computation[:1]:
        if module.is_scheduled and done.number < start.number:
            yield Finding(
                done,
                f"this {done.opcode} is scheduled before its start, %{start.name}",
                notes=(f"the done is instruction {done.number}, its start {start.number}",),
                operand=0,
            )


def _is_of(done: Instruction, chain: AsyncChain, module: Module) -> bool:
    """True if XLA accepts a done for a start."""
    start = chain.start
    ours, theirs = without_sugar(done.opcode), without_sugar(start.opcode)
    if ours == theirs:
        return True
    if theirs == "async":  # a done may be printed with the opcode of the wrapped operation
        callee = module.callee(start)
        root = None if callee is None else callee.root
        return root is None or root.opcode == ours
    # A partially pipelined loop may carry a send in the place of a recv.
    return chain.is_carried and {ours, theirs} <= TRANSFERS


def _lone(done: Instruction) -> Findings:
    """A done whose operand comes from no start, as far as the text shows."""
    start: Instruction | None = done
    name = ""
    while start is not None and (operand := start.operand(0)) is not None:
        start, name = operand.instruction, operand.name
        if start is not None and start.opcode not in FORWARDS | TUPLES:
            break
    if start is None:
        yield Finding(done, f"this {done.opcode} waits for %{name}, which is not defined")
    elif start is done:
        yield Finding(done, f"this {done.opcode} has no operand: expected a start")
    elif start.opcode not in _UNKNOWN or (
        start.opcode == "parameter" and start.computation.is_entry
    ):
        yield Finding(
            done,
            f"this {done.opcode} waits for %{start.name}, which is not a start but {start.opcode}",
            operand=0,
        )
