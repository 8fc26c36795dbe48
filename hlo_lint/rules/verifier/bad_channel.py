"""Channels of transfers."""

from __future__ import annotations

from collections.abc import Iterator

from hlo_lint.analysis.calls import opcodes_of, with_opcodes
from hlo_lint.analysis.device_groups import all_communicating
from hlo_lint.analysis.verifier.checks import on_computation_if, on_module
from hlo_lint.analysis.verifier.scope import Scope, Violation
from hlo_lint.hlo.ir import Instruction, Module
from hlo_lint.hlo.opcodes import TRANSFERS
from hlo_lint.rules.base import Good, Stage
from hlo_lint.rules.verifier import VerifierRule


class BadChannel(VerifierRule):
    """A transfer that disagrees with its done, or with a host transfer on the same channel.

    ## Why
    The runtime matches both ends of a transfer by channel id (`VerifyChannels` in
    `xla/service/hlo_verifier.cc`).
    """

    messages = (
        "Expected to have the same channel id, actual channel ids are",
        "Host-transfer send/recv instructions that use the same channel must be identical",
    )
    opcodes = frozenset({"recv", "send"})
    table = """
        channel-mismatch: VerifyChannels
          a transfer and its done have the same channel
            t = token[] after-all()
            s = (f32[8]{0}, u32[], token[]) send(f32[8]{0} p, t), channel_id=1
            ROOT d = token[] send-done(s), channel_id=2  // error
        host-channel: VerifyChannels
          host transfers on the same channel are identical
            t = token[] after-all()
            s = (f32[8]{0}, u32[], token[]) send(f32[8]{0} p, t), channel_id=1,
                is_host_transfer=true
            d = token[] send-done(s), channel_id=1, is_host_transfer=true
            s.1 = (f32[9]{0}, u32[], token[]) send(f32[9]{0} q, t), channel_id=1,  // error
                is_host_transfer=true
            ROOT d.1 = token[] send-done(s.1), channel_id=1, is_host_transfer=true
    """
    examples = (
        Good.entry("""
            t = token[] after-all()
            s = (f32[8]{0}, u32[], token[]) send(f32[8]{0} p, t), channel_id=1,
                is_host_transfer=true
            ROOT d = token[] send-done(s), channel_id=1, is_host_transfer=true
        """),
    )

    @on_computation_if(lambda opcodes: not opcodes.isdisjoint(TRANSFERS))
    def pairs(self, scope: Scope) -> Iterator[Violation]:
        """A send or recv and its done have the same channel and the same is_host_transfer."""
        for start in with_opcodes(scope.computation, TRANSFERS):
            channel = start.integer_attribute("channel_id")
            if channel is None:
                continue
            users = start.users
            if len(users) != 1 and not start.is_root:
                message = f"this {start.opcode} has {len(users)} users, expected 1"
                yield Violation("channel-mismatch", start, message)
            for done in users:
                if done.opcode == f"{start.opcode}-done":
                    yield from _pair_mismatch(start, done, channel)

    @on_module
    def host_transfers(self, module: Module, stage: Stage) -> Iterator[Violation]:
        """Host transfers on the same channel are identical."""
        first: dict[int, Instruction] = {}
        transfers = TRANSFERS & opcodes_of(module)
        for instruction in all_communicating(module) if transfers else ():
            is_of_host = "is_host_transfer=true" in instruction.attributes_text
            channel = instruction.integer_attribute("channel_id")
            # A done has the channel of its transfer, but a different shape.
            if instruction.opcode not in TRANSFERS or not is_of_host or channel is None:
                continue
            same = first.setdefault(channel, instruction)
            if _identity(same) != _identity(instruction):
                message = (
                    f"this {instruction.opcode} to the host shares channel {channel} "
                    f"with %{same.name}, but differs from it"
                )
                yield Violation("host-channel", instruction, message)


def _pair_mismatch(start: Instruction, done: Instruction, channel: int) -> Iterator[Violation]:
    done_channel = done.integer_attribute("channel_id")
    if done_channel is not None and done_channel != channel:
        message = (
            f"{done.opcode} is on channel {done_channel}, its {start.opcode} on channel {channel}"
        )
        yield Violation("channel-mismatch", done, message, 0)
    ours, theirs = (part.attribute_text("is_host_transfer") == "true" for part in (start, done))
    if ours != theirs:
        message = f"only one of {start.opcode} and {done.opcode} has is_host_transfer=true"
        yield Violation("channel-mismatch", done, message, 0)


def _identity(instruction: Instruction) -> tuple[object, ...]:
    attributes = instruction.attributes
    attributes.pop("metadata", None)
    attributes.pop("control-predecessors", None)
    return instruction.opcode, instruction.type_text, tuple(attributes.items())
