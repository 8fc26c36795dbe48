"""Instructions that keep their name and operands but may compute a different value."""

from __future__ import annotations

from collections.abc import Iterator, Sequence, Set
from math import isnan
from operator import attrgetter
from typing import Final, NamedTuple

from hlo_lint.analysis.bypasses import bypassed
from hlo_lint.analysis.pass_pairs import ChangedComputation, PassPair
from hlo_lint.analysis.step_map.differences import only_differences
from hlo_lint.analysis.value_attributes import ACCURACY, CHOOSES, differs, is_of_user
from hlo_lint.analysis.walks import reached
from hlo_lint.hlo.constants import constant_of, number_of
from hlo_lint.hlo.ir import Instruction, Module
from hlo_lint.hlo.opcodes import BINARY, COMMUTATIVE, FIRST_INDEX, KEEPS_TYPE, SYMMETRIC, UNARY
from hlo_lint.hlo.records import (
    InstructionRecord,
    attributes_of,
    opcode_of,
    operands_of,
    references_of,
    type_of,
)
from hlo_lint.text.phrases import an, shortened

_CALLS: Final = frozenset({"call", "custom-call", "fusion"})
"""Opcodes for which only operand order is compared."""
_OF_TPU: Final = "dot_bf16_bf16_f32"
"""The default algorithm of XLA:TPU, for all types of operands."""
_SWAPPED: Final = frozenset({"all-to-all", "all-reduce", "all-gather", "reduce-scatter", "sort"})
"""Opcodes that allow a permutation of operands, if the elements of the result follow it."""
_CLAMPED: Final = FIRST_INDEX.keys() | {"gather", "scatter"}
"""Opcodes that clamp indices: several numbers may mean the same place."""
_MAX_CONE: Final = 10_000
"""The largest number of ancestors of an operand; beyond it nothing is reported."""


class MeaningChange(NamedTuple):
    """A kept instruction that may compute a different value after a pass."""

    old: Instruction
    new: Instruction
    difference: str
    """The difference: `direction from LT to GT`."""
    is_accuracy: bool
    """True if only the precision differs."""
    is_sure: bool
    """True if no other change of the pass can compensate for it."""


def meaning_changes(change: PassPair) -> Iterator[MeaningChange]:
    """The instructions whose meaning changed, while their operands and readers stayed."""
    is_told = False
    for meaning_change in _of_kept(change):
        is_told = is_told or not meaning_change.is_accuracy
        yield meaning_change
    differences = () if is_told else only_differences(change)
    for old, new, text in differences:
        yield MeaningChange(old, new, text, False, _is_sure(new) and len(differences) == 1)


def _of_kept(change: PassPair) -> Iterator[MeaningChange]:
    """The changes of instructions that keep their names."""
    names = {computation.after.name for computation in change.changed}
    for computation in change.changed:
        before = computation.before
        if CHOOSES.keys().isdisjoint(before.opcodes):
            continue
        renumbered: bool | None = None
        for number, position in computation.kept:
            if not _may_differ(before.rows[number], computation.after.rows[position]):
                continue
            old, new = before.at(number), computation.after.at(position)
            if old.opcode == "constant":
                if renumbered is None:
                    renumbered = _changed_constants(computation) > 1
                if renumbered:
                    continue  # XLA:TPU renames instructions mid-pipeline
            difference = _difference(old, new, change)
            if not difference and old.operand_names != new.operand_names:
                difference = _step_left_out(computation, old, new, change)
            if difference and _stays(computation, old, new, names):
                is_sure = _is_sure(new) and _changes_one_instruction(change)
                yield MeaningChange(old, new, difference, False, is_sure)
            elif old.operand_names == new.operand_names and (lost := _accuracy(old, new, change)):
                yield MeaningChange(old, new, lost, True, False)


def _is_sure(instruction: Instruction) -> bool:
    # A kernel may be symmetric in its operands, and ties of a sort may be fully equal elements.
    return instruction.opcode not in ("custom-call", "sort")


def _changed_constants(computation: ChangedComputation) -> int:
    rows, others = computation.before.rows, computation.after.rows
    return sum(
        opcode_of(rows[number]) == "constant" and _may_differ(rows[number], others[position])
        for number, position in computation.kept
    )


def _may_differ(old: InstructionRecord, new: InstructionRecord) -> bool:
    """True if the operation, the literal, the operands or attributes before metadata changed."""
    opcode, becomes = opcode_of(old), opcode_of(new)
    if opcode not in CHOOSES or type_of(old) != type_of(new):
        return False
    if opcode != becomes:
        return _computes_otherwise(opcode, becomes, type_of(old))
    if opcode == "constant":
        return operands_of(old) != operands_of(new)
    return references_of(old) != references_of(new) or not _has_equal_attributes(old, new)


def _computes_otherwise(opcode: str, becomes: str, type_text: str) -> bool:
    # On pred, add, maximum and or are equal; on other types, sums and maxima differ.
    one_family = any(KEEPS_TYPE & family >= {opcode, becomes} for family in (BINARY, UNARY))
    return one_family and not type_text.startswith("pred")


def _has_equal_attributes(old: InstructionRecord, new: InstructionRecord) -> bool:
    """True if attributes before the metadata are spelled alike."""
    ours, _, _ = attributes_of(old).partition(", metadata=")
    theirs, _, _ = attributes_of(new).partition(", metadata=")
    return ours == theirs


def _difference(old: Instruction, new: Instruction, change: PassPair) -> str:
    """The only difference; "" if there is no difference, or if there are several."""
    if old.opcode == "tuple" and not _ends_alone(old, change):
        return ""
    if old.opcode == "constant":
        ours, theirs = _literal(old), _literal(new)
        is_other = ours != theirs and "..." not in ours + theirs
        return (
            f"the value of the constant from {shortened(ours)} to {shortened(theirs)}"
            if is_other
            else ""
        )
    replaced = _replaced_constant(old, new)
    is_reordered = not replaced and old.operand_names != new.operand_names
    if is_reordered and (
        old.opcode in _SWAPPED or sorted(old.operand_names) != sorted(new.operand_names)
    ):
        return ""
    differences = []
    if not _has_equal_attributes(old.row, new.row):
        if old.opcode in _CALLS and not is_of_user(old):
            return ""
        differences = [
            f"{name} from {shortened(old.attributes.get(name, 'none'))} "
            f"to {shortened(new.attributes.get(name, 'none'))}"
            for name in sorted(CHOOSES[old.opcode])
            if differs(old, new, name)
        ]
        if old.called_computations != new.called_computations:
            differences.append(_called_otherwise(old, new, change))
    if old.opcode != new.opcode:
        differences.append(f"the operation from {old.opcode} to {new.opcode}")
    if replaced:
        differences.append(replaced)
    if is_reordered:
        if old.attributes.get("direction") in SYMMETRIC or old.opcode in COMMUTATIVE:
            return ""
        if old.opcode in _CALLS and not _tells_apart(old, new, change.before):
            return ""
        differences.append("the order of the operands")
    return differences[0] if len(differences) == 1 else ""


def _called_otherwise(old: Instruction, new: Instruction, change: PassPair) -> str:
    """The changed order of branches, or the changed operation of a reduction, or ""."""
    ours, theirs = old.called_computations, new.called_computations
    if old.opcode == "conditional":
        order = f"the branches from {', '.join(ours)} to {', '.join(theirs)}"
        return order if sorted(ours) == sorted(theirs) else ""
    if len(ours) != 1 or len(theirs) != 1:
        return ""
    steps = change.before.computation(ours[0]), change.after.computation(theirs[0])
    roots = [step.root for step in steps if step is not None and len(step.rows) == 3]
    if len(roots) < 2 or roots[0] is None or roots[1] is None:
        return ""  # more than one operation on two parameters
    opcode, becomes = (root.opcode for root in roots if root is not None)
    is_other = opcode != becomes and _computes_otherwise(opcode, becomes, roots[0].type_text)
    return f"the applied operation from {opcode} to {becomes}" if is_other else ""


def _tells_apart(old: Instruction, new: Instruction, module: Module) -> bool:
    """True if a call distinguishes the operands that changed places."""
    if old.opcode == "custom-call":
        return True
    names = zip(old.operand_names, new.operand_names, strict=True)
    body = module.callee(old)
    if body is None:
        return False
    moved = [number for number, (ours, theirs) in enumerate(names) if ours != theirs]
    users = [
        user
        for parameter in body.parameters
        if parameter.parameter_number in moved
        for user in parameter.users
    ]
    return any(user.opcode not in COMMUTATIVE for user in users)


def _step_left_out(
    computation: ChangedComputation, old: Instruction, new: Instruction, change: PassPair
) -> str:
    """The operation that an instruction now bypasses to read its operand, or ""."""
    if not _has_equal_attributes(old.row, new.row):
        return ""
    if old.opcode == "tuple" and not _ends_alone(old, change):
        return ""
    bypass = bypassed(old, new, change.before)
    is_entry = computation.before is change.before.entry
    if bypass is None or not (is_entry or _is_only(change)):
        return ""
    number, step = bypass
    if step.opcode == "custom-call" and "offload" in change.pass_name:
        return ""
    if not _is_read_as_before(old, computation.unchanged):
        return ""
    source = new.operand_names[number]
    if source in step.operand_names or step.opcode == "convert":
        return f"operand {number}: it reads past %{step.name}, {an(step.opcode)}"
    return f"operand {number} from %{step.name} to %{source}, which is a different value"


def _is_only(change: PassPair) -> bool:
    """True if the pass changed the only computation."""
    return len(change.changed) == len(change.removed) == len(change.added) == 1


def _ends_alone(state: Instruction, change: PassPair) -> bool:
    """True if a tuple is the entry's result, or has unchanged readers in the only computation."""
    if state.is_root and state.computation is change.before.entry:
        return True
    unchanged = change.changed[0].unchanged if _is_only(change) else frozenset[str]()
    return bool(unchanged) and _is_read_as_before(state, unchanged)


def _is_read_as_before(value: Instruction, unchanged: Set[str]) -> bool:
    """True if all readers of a value, up to the root, are unchanged: a change is visible."""
    cone = enumerate(reached([value], attrgetter("users")))
    return all(
        reader is value or (reader.name in unchanged and number <= _MAX_CONE)
        for number, reader in cone
    )


def _replaced_constant(old: Instruction, new: Instruction) -> str:
    """The change of the only operand that became a different constant, or ""."""
    if len(old.operand_names) != len(new.operand_names) or old.opcode in _CLAMPED:
        return ""
    names = zip(old.operand_names, new.operand_names, strict=True)
    places = [number for number, (ours, theirs) in enumerate(names) if ours != theirs]
    if len(places) != 1:
        return ""
    ours = constant_of(old.producer(places[0]))
    old_number = number_of(ours)
    if old_number is None:
        return ""
    theirs = constant_of(new.producer(places[0]))
    new_number = number_of(theirs)
    # A nan is not equal to itself, but any two nans are the same value.
    if new_number is None or old_number == new_number or (isnan(old_number) and isnan(new_number)):
        return ""
    return f"operand {places[0]} from the constant {_literal(ours)} to {_literal(theirs)}"


def _literal(constant: Instruction | None) -> str:
    return "" if constant is None else "".join(constant.operands_text.split())


def _stays(
    computation: ChangedComputation, old: Instruction, new: Instruction, others: Set[str]
) -> bool:
    """True if the operands are computed as before, and the readers are unchanged.

    `others` are the changed computations: an operand that calls any of them may have changed.
    """
    kept = computation.unchanged
    readers = [user for user in old.users if user.name in computation.after.index]
    if len(readers) != len(old.users) or len(old.users) != len(new.users):
        return False
    if not (old.users or old.is_root) or not all(reader.name in kept for reader in readers):
        return False
    if any(not others.isdisjoint(user.called_computations) for user in (old, *readers)):
        return False
    names = () if old.opcode == "constant" else new.operand_names
    if _replaced_constant(old, new):
        names = tuple(name for name in names if name in old.operand_names)

    def read(name: str) -> Sequence[str]:
        operand = computation.before.instruction(name)
        if operand is None or operand.opcode in ("constant", "parameter"):
            return ()
        return [reference.partition("#")[0] for reference in operand.operand_names]

    for number, name in enumerate(reached([name.partition("#")[0] for name in names], read)):
        operand = computation.before.instruction(name)
        if operand is None or name not in kept or number >= _MAX_CONE:
            return False
        if not others.isdisjoint(operand.called_computations):
            return False
    return True


def _changes_one_instruction(change: PassPair) -> bool:
    only = change.changed[0]
    return _is_only(change) and len(only.removed) == len(only.added) == 1


def _accuracy(old: Instruction, new: Instruction, change: PassPair) -> str:
    for name in ACCURACY.get(old.opcode, ()):
        ours, theirs = old.attributes.get(name), new.attributes.get(name)
        if ours == _OF_TPU and theirs is None and change.after.has_tiles:
            continue
        if ours is not None and ours != theirs:
            return f"{name} from {ours} to {theirs or 'the default'}"
    return ""
