"""Lower sends and receives between devices: a receive gets the operand of its channel's send."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from hlo_lint.analysis.device_groups import transfer_pairs
from hlo_lint.analysis.walks import reached
from hlo_lint.engine.values.lowering.graph import NotLowered, assembled, bare, leaf_nodes
from hlo_lint.hlo.ir import Instruction, Operand
from hlo_lint.hlo.shape import Shape, TupleShape

if TYPE_CHECKING:
    from hlo_lint.engine.values.lowering.lower import Lowering, Values

_OPCODES: Final = frozenset({"recv", "recv-done", "send", "send-done"})


def operands_of(instruction: Instruction) -> Sequence[Operand]:
    """The operands of an instruction, and the received operand of a `recv` where it is known."""
    sent = _received(instruction) if instruction.opcode == "recv" else None
    return instruction.operands if sent is None else (*instruction.operands, sent)


def _received(recv: Instruction) -> Operand | None:
    """The operand of the only send in the computation with the channel and pairs of a `recv`.

    None for a transfer with the host, and where the send depends on the receive.
    """
    pairs = transfer_pairs(recv)
    if not pairs:
        return None
    sends = [
        send
        for send in recv.computation.with_opcode("send")
        if send.attributes.get("channel_id") == recv.attributes.get("channel_id")
        and transfer_pairs(send) == pairs
    ]
    if len(sends) != 1 or not sends[0].operands:
        return None
    operand = sends[0].operands[0]
    source = operand.instruction
    if source is None or recv in reached([source], lambda instruction: instruction.producers):
        return None
    return operand


def is_transfer(instruction: Instruction, operands: list[Values]) -> bool:
    """True for part of a transfer between devices; for a `recv` only with a known sender."""
    if instruction.opcode not in _OPCODES or "is_host_transfer=true" in instruction.attributes_text:
        return False
    return instruction.opcode != "recv" or len(operands) == 2


def transferred(
    lowering: Lowering, instruction: Instruction, operands: list[Values], shape: Shape
) -> Values:
    """The results of a send, a receive, or their done operations, on each device."""
    from hlo_lint.engine.values.lowering.collectives import permuted

    values = operands[0]
    if instruction.opcode == "send-done":
        return [None] * lowering.devices
    if instruction.opcode == "recv-done":
        return [(value[0] if isinstance(value, tuple) else value, None) for value in values]
    if not isinstance(shape, TupleShape) or len(shape.elements) != 3:
        raise NotLowered(f"%{instruction.name} is not a tuple of data, context and token")
    if instruction.opcode == "recv":
        rows = [list(leaf_nodes(value)) for value in operands[1]]
        if [node.shape for node in rows[0]] != list(bare(shape.elements[0])):
            raise NotLowered(f"%{instruction.name} and its send differ in their shapes")
        results = permuted(lowering, instruction, rows, transfer_pairs(instruction))
        values = [assembled(shape.elements[0], iter(row)) for row in results]
    contexts = lowering.contexts((shape, *shape.elements))
    return [(value, *contexts) for value in values]
