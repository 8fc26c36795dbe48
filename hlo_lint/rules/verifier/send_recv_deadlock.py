"""Deadlocks of transfers."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import Final

from hlo_lint.analysis.device_groups import TRANSFER_PAIRS, transfer_pairs
from hlo_lint.analysis.verifier.checks import on_module
from hlo_lint.analysis.verifier.scope import Violation
from hlo_lint.analysis.walks import chain, reached
from hlo_lint.hlo.ir import Computation, Instruction, Module, cached_analysis
from hlo_lint.hlo.opcodes import COMMUNICATES, RUNS_SCHEDULE, TRANSFERS
from hlo_lint.hlo.records import opcode_of
from hlo_lint.rules.base import Bad, Good, Stage
from hlo_lint.rules.verifier import VerifierRule


def _spelled(text: str) -> str:
    """The text with `pairs={{0,1}}` spelled out as the frontend attribute that it stands for."""
    attribute = r'frontend_attributes={_xla_send_recv_source_target_pairs="\1"}'
    return re.sub(r"pairs=(\{.*\})", attribute, text)


class SendRecvDeadlock(VerifierRule):
    """A schedule in which devices wait for each other forever.

    ## Why
    A send waits for its recv. No other collective may start between the two: some devices would be
    in the collective, others still in the transfer (`VerifyNoCollectiveDeadlocks` in
    `xla/service/hlo_verifier.cc`). XLA's check misses all-reduce, reduce-scatter and starts of
    asynchronous collectives; the rule reports them too.
    """

    messages = (
        "Deadlock detected. Last checked instructions",
        "Expected send and recv instructions to have the same source-target pairs",
        "Introducing the following instruction will cause a deadlock",
        "Expected send and recv instructions to have unique source and target pairs",
    )
    opcodes = frozenset({"recv", "send"})
    table = _spelled("""
        send-recv-cycle: VerifyNoCollectiveDeadlocks
          pairs of transfers have no cycle and no repeated device
            HloModule m, is_scheduled=true
            t = token[] after-all()
            s = (s8[], u32[], token[]) send(s8[] p, t), channel_id=1, pairs={{0,1},{1,0}}  // error
            sd = token[] send-done(s), channel_id=1
            r = (s8[], u32[], token[]) recv(t), channel_id=1, pairs={{0,1},{1,0}}  // error
            ROOT d = (s8[], token[]) recv-done(r), channel_id=1
        send-recv-order: VerifyNoCollectiveDeadlocks
          a send is followed by its recv, a recv by its send
            HloModule m, is_scheduled=true
            t = token[] after-all()
            r = (f32[8]{0}, u32[], token[]) recv(t), channel_id=1, pairs={{0,1}}
            r.1 = (f32[8]{0}, u32[], token[]) recv(t), channel_id=2, pairs={{0,1}}  // error
            s = (f32[8]{0}, u32[], token[]) send(f32[8]{0} p, t), channel_id=1, pairs={{0,1}}
            sd = token[] send-done(s), channel_id=1
            d.1 = (f32[8]{0}, token[]) recv-done(r.1), channel_id=2
            ROOT d = (f32[8]{0}, token[]) recv-done(r), channel_id=1
        collective-between-send-and-recv: VerifyNoCollectiveDeadlocks
          no collective between a send and its recv
            HloModule m, is_scheduled=true
            t = token[] after-all()
            s = (f32[8]{0}, u32[], token[]) send(f32[8]{0} p, t), channel_id=1, pairs={{0,1}}
            g = f32[16]{0} all-gather(p), dimensions={0}, replica_groups={{0,1}}  // error
            sd = token[] send-done(s), channel_id=1
            r = (f32[8]{0}, u32[], token[]) recv(t), channel_id=1, pairs={{0,1}}
            ROOT d = (f32[8]{0}, token[]) recv-done(r), channel_id=1
        send-recv-pending: VerifyNoCollectiveDeadlocks
          no transfer is pending at the end
            HloModule m, is_scheduled=true
            t = token[] after-all()
            s = (f32[], u32[], token[]) send(f32[] p, t), channel_id=1, pairs={{0,1}}  // error
            ROOT sd = token[] send-done(s), channel_id=1
        send-recv-pairs: VerifyNoCollectiveDeadlocks
          on XLA:GPU, transfers between devices state their pairs
            // hlo-lint: stage gpu scheduled verify_no_collective_deadlocks=true
            HloModule m, is_scheduled=true
            t = token[] after-all()
            s = (f32[8]{0}, u32[], token[]) send(f32[8]{0} p, t), channel_id=1  // error
            ROOT sd = token[] send-done(s), channel_id=1
        collective-start-between-send-and-recv:
          no all-reduce, reduce-scatter or start between a send and its recv
            HloModule m, is_scheduled=true
            t = token[] after-all()
            s = (f32[8]{0}, u32[], token[]) send(f32[8]{0} p, t), channel_id=1, pairs={{0,1}}
            g = (f32[8]{0}, f32[16]{0}) all-gather-start(p), dimensions={0},  // error
                replica_groups={{0,1}}
            h = f32[16]{0} all-gather-done(g)
            sd = token[] send-done(s), channel_id=1
            r = (f32[8]{0}, u32[], token[]) recv(t), channel_id=1, pairs={{0,1}}
            ROOT d = (f32[8]{0}, token[]) recv-done(r), channel_id=1
    """)
    examples = (
        Good.entry(
            _spelled("""
            HloModule m, is_scheduled=true
            body {
              t = token[] after-all()
              s = (f32[8], u32[], token[]) send(f32[8] x, t), channel_id=1, pairs={{0,1}}
              sd = token[] send-done(s), channel_id=1
              r = (f32[8], u32[], token[]) recv(sd), channel_id=2, pairs={{1,2}}
              d = (f32[8], token[]) recv-done(r), channel_id=2
              ROOT g = f32[8] get-tuple-element(d), index=0
            }
            on { ROOT c = pred[] custom-call(f32[8] x), custom_call_target="goes_on" }
            t = token[] after-all()
            r = (f32[8], u32[], token[]) recv(t), channel_id=1, pairs={{0,1}}
            d = (f32[8], token[]) recv-done(r), channel_id=1
            w = f32[8] while(f32[8] p), condition=on, body=body
            s = (f32[8], u32[], token[]) send(w, t), channel_id=2, pairs={{1,2}}
            ROOT sd = token[] send-done(s), channel_id=2
            """)
        ),
        Bad.entry(
            _spelled("""
            HloModule m, is_scheduled=true
            t = token[] after-all()
            s = (f32[8], u32[], token[]) send(f32[8] p, t), channel_id=1, pairs={{0,1}}
            sd = token[] send-done(s), channel_id=1
            r = (f32[8], u32[], token[]) recv(t), channel_id=1, pairs={{1,2}}  // error
            ROOT d = (f32[8], token[]) recv-done(r), channel_id=1
            """)
        ),
        Good.entry(
            _spelled("""
            HloModule m, is_scheduled=true
            t = token[] after-all()
            s = (f32[8], u32[], token[]) send(f32[8] p, t), channel_id=1, pairs={{0,1}}
            sd = token[] send-done(s), channel_id=1
            r = (f32[8], u32[], token[]) recv(t), channel_id=1, pairs={{0,1}}
            ROOT d = (f32[8], token[]) recv-done(r), channel_id=1
            g = f32[16] all-gather(p), dimensions={0}, replica_groups={{0,1}}
            """)
        ),
    )

    @on_module
    def deadlocks(self, module: Module, stage: Stage) -> Iterable[Violation]:
        """No other collective starts between a send and its recv."""
        binds = module.is_scheduled and stage.deadlocks is not False
        if not binds or not any(TRANSFERS & part.opcodes for part in module.computations):
            return ()
        if module.entry is None:
            return ()
        transfers = tuple(_executed(module, module.entry))
        if stage.deadlocks:
            # XLA does not check a module in which a transfer lacks its pairs.
            for transfer in transfers:
                is_transfer = transfer.opcode in TRANSFERS and not _is_of_host(transfer)
                if is_transfer and TRANSFER_PAIRS not in transfer.attributes_text:
                    message = f"{transfer.opcode} does not have the attribute {TRANSFER_PAIRS}"
                    return (Violation("send-recv-pairs", transfer, message),)
        return _pending(transfers)


_GROUPED: Final = frozenset(("parameter", "send", "recv", "tuple"))
"""The opcodes of an asynchronous computation that groups transfers, which start together."""


def _executed(module: Module, entry: Computation) -> Iterator[Instruction]:
    """The communicating instructions in execution order; a callee counts at its first call."""

    def inside(caller: Instruction) -> Iterator[Instruction]:
        names = () if caller.opcode in COMMUNICATES else caller.called_computations
        for callee in filter(None, map(module.computation, reversed(names))):
            yield from () if callee.opcodes <= _GROUPED else reversed(_relevant(callee))

    executed = reached(reversed(_relevant(entry)), inside)
    return (instruction for instruction in executed if instruction.opcode in COMMUNICATES)


@cached_analysis
def _relevant(computation: Computation) -> tuple[Instruction, ...]:
    """The instructions that communicate or call other computations."""
    opcodes = COMMUNICATES | RUNS_SCHEDULE
    if opcodes.isdisjoint(computation.opcodes):
        return ()
    rows = enumerate(computation.rows)
    return tuple(computation.at(number) for number, row in rows if opcode_of(row) in opcodes)


def _is_of_host(transfer: Instruction) -> bool:
    return "is_host_transfer=true" in transfer.attributes_text


def _pending(transfers: Iterable[Instruction]) -> Iterator[Violation]:
    """Violations in the order of transfers: each send must match a recv with the same pairs."""
    pending: list[tuple[Instruction, tuple[tuple[int, int], ...]]] = []
    for transfer in transfers:
        if transfer.opcode not in ("send", "recv"):
            if pending and not transfer.opcode.endswith("-done"):
                first = pending[0][0]
                message = (
                    f"{transfer.opcode} starts while {first.opcode} %{first.name} is unmatched"
                )
                # XLA's check misses these: it mistakes a reducer for a called computation.
                is_overlooked = transfer.opcode.startswith(("all-reduce", "reduce-scatter"))
                check = "collective-between-send-and-recv"
                if is_overlooked or transfer.opcode.endswith("-start"):
                    check = "collective-start-between-send-and-recv"
                yield Violation(check, transfer, message)
            continue
        pairs = transfer_pairs(transfer)
        if not pairs:
            pending.clear()
            if not _is_of_host(transfer):
                return  # the devices are unknown
            continue
        repeated = any(len({pair[place] for pair in pairs}) < len(pairs) for place in (0, 1))
        if _has_cycle(pairs) or repeated:
            message = (
                f"the source-target pairs of {transfer.opcode} have a cycle or a repeated device"
            )
            yield Violation("send-recv-cycle", transfer, message)
        matches = (
            place
            for place, (earlier, its_pairs) in enumerate(pending)
            if earlier.opcode != transfer.opcode and its_pairs == pairs
        )
        match = next(matches, None)
        if match is None:
            pending.append((transfer, pairs))
        else:
            del pending[match]
    if len(pending) > 1 and len({transfer.opcode for transfer, _ in pending}) == 1:
        (first, _), (second, _) = pending[:2]
        wanted = "recv" if first.opcode == "send" else "send"
        message = f"expected {wanted} after {first.opcode} %{first.name}"
        yield Violation("send-recv-order", second, message)
    if pending:
        last = pending[-1][0]
        message = f"no match for this {last.opcode}: its devices wait forever"
        yield Violation("send-recv-pending", last, message)


def _has_cycle(pairs: tuple[tuple[int, int], ...]) -> bool:
    after = dict(pairs)
    return any(begin in chain(after[begin], after.get) for begin in after)
