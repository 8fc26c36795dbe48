"""Collectives whose result is read only in part."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Set
from functools import partial
from typing import Final

from hlo_lint.analysis.walks import reached
from hlo_lint.hlo.arrays import result_array
from hlo_lint.hlo.dtypes import BITS
from hlo_lint.hlo.ir import Instruction, Module
from hlo_lint.hlo.opcodes import SAME_ELEMENTS
from hlo_lint.rules.base import Bad, FinalModule, Findings, Good, Rule
from hlo_lint.rules.findings import Finding, Severity
from hlo_lint.rules.options import Option
from hlo_lint.text.phrases import sized

_COLLECTIVES: Final = {
    "all-gather": "a permute or a broadcast of the slice would move less",
    "all-reduce": "a reduce-scatter would suffice",
    "all-to-all": "fewer devices would have to send",
    "collective-permute": "a permute of the slice would suffice",
}
_DONES: Final = {f"{opcode}-done": opcode for opcode in _COLLECTIVES}
_REDUCES: Final = frozenset({"all-reduce", "all-reduce-done"})
"""Collectives that compute a sum, whose precision the element type decides."""
_HANDS_ON: Final = SAME_ELEMENTS | {"get-tuple-element"}
_SLICES: Final = frozenset({"dynamic-slice", "slice"})
_PROGRAM = """
HloModule m, is_scheduled=true

ENTRY e {{
  p = f32[4096,1024]{{1,0}} parameter(0)
  i = s32[] parameter(1)
  z = s32[] constant(0)
  g = f32[32768,1024]{{1,0}} all-gather(p), dimensions={{0}}, \
replica_groups={{{{0,1,2,3,4,5,6,7}}}}{first}
  ROOT d = {second}
}}
"""


class CollectiveMovesUnread(Rule):
    """A collective that moves far more than is read of its result.

    ## Why
    If only slices read the result of an all-gather or an all-reduce, each device receives data that
    it discards: bytes on the wire, and memory for the whole result. XLA turns an all-reduce and a
    slice at the device's index into a reduce-scatter, and removes an all-gather whose slice is the
    operand, but only if offsets and groups match its pattern.

    Data is also wasted if all users convert the result to a type of half the bits: weights gathered
    in f32 and multiplied in bf16.
    """

    severity = Severity.WARNING
    min_bytes = Option(1 << 24, "Smallest unread part of the result, in bytes.", least=0)
    least_share = Option(0.5, "Smallest unread fraction of the result.", least=0)
    opcodes = frozenset({*_COLLECTIVES, *_DONES})
    examples = (
        Bad(
            _PROGRAM.format(
                first="  // error",
                second="f32[4096,1024]{1,0} dynamic-slice(g, i, z), "
                "dynamic_slice_sizes={4096,1024}",
            )
        ),
        Bad(_PROGRAM.format(first="  // error", second="bf16[32768,1024]{1,0} convert(g)")),
        Good(_PROGRAM.format(first="", second="f32[32768,1024]{1,0} negate(g)")),
    )

    def check(self, final: FinalModule) -> Findings:
        """Collectives of a scheduled module that move more data than their users read."""
        module = final.module
        if not final.is_final and not module.is_scheduled:
            return  # a later pass may resolve it
        for computation in module.nonfusion_computations:
            for opcode in (*_COLLECTIVES, *_DONES):
                for collective in computation.with_opcode(opcode):
                    yield from self._judge(collective, module)

    def _judge(self, collective: Instruction, module: Module) -> Findings:
        shape = result_array(collective)
        size = None if shape is None else shape.byte_size
        if shape is None or size is None or size < self.min_bytes or collective.is_root:
            return
        narrower = _read_as(collective, module) if collective.opcode not in _REDUCES else set()
        bits = [BITS.get(dtype, 0) for dtype in narrower]
        producer = collective.producer()
        # A backend converts types that its collectives cannot move.
        is_promoted = producer is not None and producer.opcode == "convert"
        if bits and not is_promoted and 0 < max(bits) <= self.least_share * BITS[shape.dtype]:
            opcode = _DONES.get(collective.opcode, collective.opcode)
            yield Finding(
                collective,
                f"this {opcode} moves {sized(size)} of {shape.dtype}, but all its users convert "
                f"them to {' and '.join(sorted(narrower))}",
                notes=("convert before the collective to move fewer bytes",),
            )
            return
        read = _bytes_read(collective, module)
        unread = None if read is None else size - read
        if unread is not None and unread >= max(self.min_bytes, self.least_share * size):
            opcode = _DONES.get(collective.opcode, collective.opcode)
            yield Finding(
                collective,
                f"this {opcode} returns {sized(size)}, of which {sized(size - unread)} are read",
                notes=(_COLLECTIVES[opcode],),
            )


_Read = tuple[Instruction, Instruction | None]
"""A value, and the fusion in which it is a parameter."""


def _read_as(value: Instruction, module: Module) -> set[str]:
    """The element types to which the users of a value convert it; empty if any does not convert."""
    types: set[str] = set()
    following = partial(_readers, module=module, hands_on=_HANDS_ON | {"transpose"})
    start: _Read = value, None
    for reader, _ in reached([start], following):
        if reader.is_root or not reader.users:
            return set()
        for user in reader.users:
            if user.opcode == "convert":
                types.add(user.type_text.partition("[")[0])
            elif user.is_root or not any(following((reader, None), [user])):
                return set()
    return types


def _bytes_read(value: Instruction, module: Module) -> int | None:
    """The number of bytes of a value that slices read; None if a user reads all of it."""
    total = 0
    following = partial(_readers, module=module, hands_on=_HANDS_ON)
    start: _Read = value, None
    for reader, _ in reached([start], following):
        if reader.is_root or not reader.users:
            return None
        for user in reader.users:
            part = result_array(user) if user.opcode in _SLICES else None
            if part is not None and part.byte_size is not None:
                total += part.byte_size
            elif not any(following((reader, None), [user])):
                return None
    return total


def _readers(
    read: _Read, users: Iterable[Instruction] = (), *, module: Module, hands_on: Set[str]
) -> Iterator[_Read]:
    """Users that pass a value on unchanged, and parameters of fusions that read it."""
    value, fusion = read
    for user in users or value.users:
        if user.opcode in hands_on:
            yield user, fusion
        body = module.callee(user) if user.opcode == "fusion" else None
        for parameter in () if body is None else body.parameters:
            number = parameter.parameter_number
            if number is not None and user.operand_names[number : number + 1] == (value.name,):
                yield parameter, user
