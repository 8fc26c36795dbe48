"""Attributes of instructions that a pass lost."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from hlo_lint.analysis.pass_pairs import PassPair
from hlo_lint.hlo.ir import Instruction
from hlo_lint.hlo.records import InstructionRecord, attributes_of, opcode_of
from hlo_lint.rules.base import Bad, Findings, Good, Rule
from hlo_lint.rules.findings import Finding, Severity

_KEPT: Final = (
    "api_version",
    "async_execution_thread",
    "backend_config",
    "custom_call_has_side_effect",
    "operand_layout_constraints",
    "sharding",
)
_MANUAL: Final = "manual}"
"""A part of a sharding whose devices the program tells apart itself."""
_EFFECTS: Final = frozenset({"custom-call", "infeed", "outfeed", "recv", "send"})
"""Opcodes whose metadata is the only trace of the program line that has the side effect."""
_WORDS: Final = (*(f"{name}=" for name in _KEPT), "frontend_attributes=")
"""Cheap to look for, and in every instruction that has one of the attributes."""
_LICENSED: Final = ("annotat", "partition", "sdy", "shard", "spmd")
"""Parts of the names of passes that turn shardings and annotations into something else."""
_PROGRAM = """
HloModule m

ENTRY e {{
  p = f32[8]{{0}} parameter(0)
  k = f32[8]{{0}} {opcode}(p)
  ROOT c = f32[8]{{0}} custom-call(k), custom_call_target="t"{rest}
}}
"""
_FUSION = """
HloModule m

f {{
  a = f32[8]{{0}} parameter(0)
  ROOT s = f32[8]{{0}} negate(a)
}}

ENTRY e {{
  p = f32[8]{{0}} parameter(0)
  ROOT c = f32[8]{{0}} fusion(p), kind={kind}, calls=f{rest}
}}
"""
_ATTRIBUTES = ', frontend_attributes={_xla_stream="1"}, backend_config="b"'
_BEFORE = "module_0001.m.0001.simplification.after_pipeline-start.before_algsimp.txt"
_AFTER = "module_0001.m.0002.simplification.after_algsimp.before_pipeline-end.txt"


class AttributeLost(Rule):
    """An instruction that a pass kept, without an attribute that it had.

    ## Why
    A pass that replaces an instruction by a clone, or gives it other operands, has to carry over
    what is not part of the computation: `backend_config`, `frontend_attributes`, `sharding` and
    which of its devices are manual, the thread, the layouts and the interface of a call, that a
    custom call has side effects. What is lost there is not missed until much later: a stream that
    is not used, a transfer that counts in all iterations, an array that is replicated, a call that
    is removed as dead. Of instructions with side effects, lost metadata is reported for
    information: nothing says any more which line of the program it was.

    An instruction is the same if name and opcode are, or if opcode, operands and type are and the
    names tell no other; a fusion of another kind is another one. Passes that partition, or turn
    annotations into something else, are left alone.
    """

    severity = Severity.WARNING
    examples = (
        Bad(
            _PROGRAM.format(opcode="copy", rest="  // error"),
            file=_AFTER,
            beside={_BEFORE: _PROGRAM.format(opcode="negate", rest=_ATTRIBUTES)},
        ),
        Good(
            _PROGRAM.format(opcode="copy", rest=_ATTRIBUTES),
            file=_AFTER,
            beside={_BEFORE: _PROGRAM.format(opcode="negate", rest=_ATTRIBUTES)},
        ),
        Good(
            _FUSION.format(kind="kLoop", rest=""),
            file=_AFTER,
            beside={_BEFORE: _FUSION.format(kind="kCustom", rest=', backend_config="b"')},
        ),
    )

    def check(self, change: PassPair) -> Findings:
        """Each instruction that lost something."""
        if any(part in change.pass_name for part in _LICENSED):
            return
        for computation in change.changed:
            for old, new in computation.kept_instructions(_may_lose):
                if not _may_have_lost(old, new) or _kind(old) != _kind(new):
                    continue
                lost = _lost(old, new)
                if lost:
                    yield Finding(new, f"{change.pass_name} lost {', '.join(lost)}", _notes(old))
                elif _loses_metadata(old, new):
                    message = f"{change.pass_name} lost the metadata"
                    yield Finding(new, message, severity=Severity.INFO)


def _may_lose(record: InstructionRecord) -> bool:
    attributes = attributes_of(record)
    return opcode_of(record) in _EFFECTS or any(map(attributes.__contains__, _WORDS))


def _may_have_lost(old: Instruction, new: Instruction) -> bool:
    """True if a text is gone that stood for something: most lines that a pass changes keep all."""
    ours, theirs = old.attributes_text, new.attributes_text
    if any(f", {name}=" in ours and f", {name}=" not in theirs for name in (*_KEPT, "metadata")):
        return True
    if _MANUAL in ours and _MANUAL not in theirs:
        return True
    at = ours.find(", frontend_attributes=")
    return at >= 0 and ours[at : ours.find("}", at) + 1] not in theirs


def _kind(instruction: Instruction) -> str | None:
    """The kind of a fusion: the configuration is that of the emitter that the kind names."""
    return instruction.attributes.get("kind") if instruction.opcode == "fusion" else None


def _lost(old: Instruction, new: Instruction) -> list[str]:
    ours, theirs = old.attributes, new.attributes
    lost: list[str] = [name for name in _KEPT if name in ours and name not in theirs]
    if old.opcode == "bitcast" and "sharding" in lost:
        lost.remove("sharding")  # made after the partitioner, of what was annotated for it
    if _MANUAL in ours.get("sharding", "") and _MANUAL not in theirs.get("sharding", _MANUAL):
        lost.append("the manual devices of the sharding")
    if "frontend_attributes" in ours:
        there = _frontend_names(new)
        lost += [f"the frontend attribute {name}" for name in sorted(_frontend_names(old) - there)]
    return lost


def _frontend_names(instruction: Instruction) -> set[str]:
    value = instruction.attribute_or_none("frontend_attributes")
    return {str(name) for name in value} if isinstance(value, Mapping) else set()


def _loses_metadata(old: Instruction, new: Instruction) -> bool:
    return (
        old.opcode in _EFFECTS
        and "op_name=" in old.attributes.get("metadata", "")
        and "metadata" not in new.attributes
    )


def _notes(old: Instruction) -> tuple[str, ...]:
    return (f"before it, the instruction was %{old.name}, {old.opcode}",)
