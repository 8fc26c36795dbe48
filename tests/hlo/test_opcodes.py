"""The table of opcodes against XLA's parser, which lists the attributes that it allows."""

from __future__ import annotations

from importlib.util import module_from_spec, spec_from_file_location

import pytest

from hlo_lint.hlo.opcodes import OPCODES
from tests.conftest import FIXTURES, present
from tests.oracle.xla import XlaModule, oracles

RELEASE = "0.12.0.1"
"""The release that the table was made from."""
SPEC = present(spec_from_file_location("knows", FIXTURES / "programs" / "what_xla_knows.py"))
KNOWS = module_from_spec(SPEC)
present(SPEC.loader).exec_module(KNOWS)


def test_the_attributes_of_every_opcode_are_those_that_xla_lists() -> None:
    xla = next((oracle for oracle in oracles() if oracle.version == RELEASE), None)
    if xla is None:
        pytest.skip(f"no jaxlib {RELEASE} at hand, neither here nor in HLO_LINT_ORACLES")
    texts = [
        KNOWS.ATTRIBUTES.format(
            type=KNOWS.TYPES.get(opcode, "f32[8]{0}"),
            opcode=opcode,
            operands=", ".join(KNOWS.OPERANDS.get(opcode, ["%p"] * demands.operands[0])),
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
