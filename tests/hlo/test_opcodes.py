"""The table of opcodes against XLA's parser, which lists the attributes that it allows."""

from __future__ import annotations

import pytest

from hlo_lint.hlo.opcodes import OPCODES
from tests.oracle.xla import XlaModule, oracles

RELEASE = "0.12.0.1"
"""The release that the table was made from."""
PROBE = """\
HloModule probe

%c {{
  ROOT %q = f32[] parameter(0)
}}

ENTRY %e {{
  %p = f32[8]{{0}} parameter(0)
  %s = s32[] parameter(1)
  ROOT %n = {type} {opcode}({operands}), attribute_of_nobody=1
}}
"""
TYPES = {"tuple": "()"} | dict.fromkeys(
    ("async-start", "async-update"), "((f32[8]), f32[8], s32[])"
)
OPERANDS = {"parameter": "2", "constant": "{1,2,3,4,5,6,7,8}", "conditional": "%s"}


def test_the_attributes_of_every_opcode_are_those_that_xla_lists() -> None:
    xla = next((oracle for oracle in oracles() if oracle.version == RELEASE), None)
    if xla is None:
        pytest.skip(f"no jaxlib {RELEASE} at hand, neither here nor in HLO_LINT_ORACLES")
    texts = [
        PROBE.format(
            type=TYPES.get(opcode, "f32[8]{0}"),
            opcode=opcode,
            operands=OPERANDS.get(opcode, ", ".join(["%p"] * demands.operands[0])),
        )
        for opcode, demands in OPCODES.items()
    ]
    listed = {}
    for opcode, found in zip(OPCODES, xla.read(texts), strict=True):
        assert not isinstance(found, XlaModule)
        names = found.message.partition("Allowed attributes: ")[2]
        listed[opcode] = frozenset(names.split(", "))
    ours = {opcode: demands.allowed for opcode, demands in OPCODES.items()}
    # Of a conditional XLA lists what the type of its first operand allows.
    ours["conditional"] -= {"true_computation", "false_computation"}
    assert listed == ours
