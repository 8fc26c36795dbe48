"""Races of stores to shared memory with asynchronous copies.

`cp.async` returns at once; its bytes arrive in shared memory some time before a wait for its group
returns (PTX ISA, "Data Movement and Conversion Instructions: cp.async"). An earlier store to the
same memory is a race, even if the copied data is never read: an unused prefetch overwrites the
epilogue's results. A copy of zero bytes also writes: zeros. A bulk store is the reverse: it reads
shared memory until a wait for its bulk group.

The age of a copy is the number of groups committed since: 0 before its own commit, and `wait_group
N` leaves copies of age up to N in flight. Where paths join, the youngest age counts. Waits and
commits under a predicate may not execute, so they are ignored; copies under a predicate count.

Not analysed: loads completed by an mbarrier (`cp.async.bulk` into shared memory, and `cp.async`
followed by `cp.async.mbarrier.arrive`), copies over copies, early reads, effects of other
functions, memory of other blocks in a cluster, and barriers between a thread's wait and another
thread's store.
"""

from __future__ import annotations

import re
from collections import defaultdict
from dataclasses import dataclass
from enum import Enum
from functools import partial
from itertools import chain
from math import prod
from typing import TYPE_CHECKING, NamedTuple

from hlo_lint.kernels.ptx.addresses import EXTERN, Addresses, Bytes
from hlo_lint.kernels.ptx.ranges import UNBOUNDED
from hlo_lint.kernels.ptx.reader import whole_constant
from hlo_lint.text.source import Lines, Span

if TYPE_CHECKING:
    from hlo_lint.kernels.ptx.reader import Function, Ptx, PtxInstruction

OLDEST = 64
"""The largest age that is distinguished; a wait that leaves this many groups leaves all."""
MAX_STEPS = 3_000_000
"""The budget of steps (copies times instructions) for a function: about two seconds."""
MAX_WALK = 500_000
"""The budget of instructions for the walks back from all stores to their barriers."""
LEAST_OF_A_TENSOR = 16
"""The least number of bytes that a tensor's bulk store reads; the real number is in its descriptor.
So only a store to its start is reported."""
MAX_WIDTH = 32
"""The size of a store of unknown type, in bytes: the most that a thread stores at once."""


@dataclass(frozen=True, slots=True)
class Hazard:
    """A store to shared memory that an asynchronous copy may still be using."""

    span: Span
    message: str
    notes: tuple[str, ...]
    before: Span
    """The instruction before which a wait is missing: a barrier, if one precedes the store."""
    wait: str
    """The missing wait, such as `cp.async.wait_group 0;`."""


class _Action(Enum):
    COPY = "cp.async"
    COMMIT = "commit_group"
    WAIT = "wait_group"
    STORE = "store"


@dataclass(frozen=True, slots=True)
class _Event:
    """An instruction that copies asynchronously, commits, waits or stores."""

    position: int
    """The number of the instruction in the function."""
    block: int
    instruction: PtxInstruction
    action: _Action
    bulk: bool = False
    """True if it belongs to bulk groups, which are counted separately."""
    leaves: int = 0
    """For a wait: the number of groups left in flight; -1 if it also ends uncommitted copies."""
    operand: str = ""
    """The shared-memory operand of a copy or store."""
    size: int | None = None


_Ages = dict[int, int]
"""The age of each copy in flight: the number of groups committed since."""


class _TooMuchError(Exception):
    """The analysis exceeded `MAX_STEPS`."""


def hazards(ptx: Ptx) -> tuple[Hazard, ...]:
    """Stores to shared memory that race with asynchronous copies, grouped by missing wait."""
    races: list[Hazard] = []
    lines: Lines | None = None
    for function in ptx.functions:
        flow = _Flow(function)
        if not flow.copies:
            continue
        try:
            conflicts = flow.conflicts()
        except _TooMuchError:
            continue
        if conflicts:
            lines = lines or Lines(ptx.text)
            races += flow.hazards(conflicts, lines)
    return tuple(races)


def insert_wait(text: str, hazard: Hazard) -> tuple[int, str]:
    """The offset and the text of the missing wait: a separate line if possible."""
    start = hazard.before.start
    line = text.rfind("\n", 0, start) + 1
    indent = text[line:start]
    if indent.strip():
        return start, f"{hazard.wait} "
    end = "\r\n" if text[max(line - 2, 0) : line] == "\r\n" else "\n"
    return line, f"{indent}{hazard.wait}{end}"


# ---- instructions


_TYPE = re.compile(r"(?:b|u|s|f|bf)(8|16|32|64|128)(x2)?")


def access_size(instruction: PtxInstruction) -> int:
    """The number of bytes that a thread stores."""
    if instruction.is_a("stmatrix"):
        return 16  # each address is that of a row
    if instruction.is_a("mbarrier"):
        return 8
    parts = instruction.opcode.split(".")
    vector = _TYPE.fullmatch(parts[-1])
    if vector is None:
        return MAX_WIDTH
    count = next((int(part[1:]) for part in parts if re.fullmatch(r"v[248]", part)), 1)
    return count * int(vector[1]) // 8 * (2 if vector[2] else 1)


def _event(position: int, block: int, instruction: PtxInstruction) -> _Event | None:
    """The effect of an instruction on asynchronous copies; `None` if it has none."""
    opcode, operands = instruction.opcode, instruction.operands
    event = partial(_Event, position, block, instruction)
    head = opcode.split(".", 1)[0]
    if head == "cp":
        bulk = ".async.bulk" in opcode
        if instruction.is_a("cp.async.commit_group", "cp.async.bulk.commit_group"):
            return event(_Action.COMMIT, bulk)
        if instruction.is_a("cp.async.wait_group", "cp.async.bulk.wait_group"):
            first = whole_constant(operands[0]) if operands else None
            # ptxas accepts only numbers: any other operand counts as no wait.
            return event(_Action.WAIT, bulk, OLDEST if first is None else first)
        # Copies assigned to an mbarrier are no longer tracked.
        if instruction.is_a("cp.async.wait_all", "cp.async.mbarrier.arrive"):
            return event(_Action.WAIT, leaves=-1)
        size = whole_constant(operands[2]) if len(operands) > 2 else None
        if instruction.is_a("cp.async.ca", "cp.async.cg") and operands:
            return event(_Action.COPY, operand=operands[0], size=size)
        if bulk and ".global.shared::cta" in opcode and len(operands) > 1:
            size = LEAST_OF_A_TENSOR if ".tensor." in opcode else size
            return event(_Action.COPY, bulk, operand=operands[1], size=size)
        return None
    if head in {"st", "stmatrix", "atom", "red"} or instruction.is_a("mbarrier.init"):
        target = next((operand for operand in operands if operand.startswith("[")), "")
        spaces = {"global", "local", "param", "shared::cluster", "async", "const"}
        if not target or any(part.split("::param")[0] in spaces for part in opcode.split(".")):
            return None
        size = (
            whole_constant(operands[1])
            if instruction.is_a("st.bulk") and len(operands) > 1
            else access_size(instruction)
        )
        return event(_Action.STORE, operand=target, size=size)
    return None


# ---- the flow


class _Flow:
    """Data-flow analysis of the copies in flight in a function."""

    def __init__(self, function: Function) -> None:
        self._function = function
        self._steps = 0
        self._walk_left = MAX_WALK
        self._events: list[list[_Event]] = []
        self._firsts: list[int] = []
        """The number of the first instruction of each block."""
        position = 0
        for index, block in enumerate(function.blocks):
            self._firsts.append(position)
            events = []
            for instruction in block.instructions:
                event = _event(position, index, instruction)
                position += 1
                if event is not None:
                    events.append(event)
            self._events.append(events)
        copies = [event for event in chain(*self._events) if event.action is _Action.COPY]
        self.copies = {copy.position: copy for copy in copies}
        # Compilers fill the lanes that a masked copy skips by a store under the opposite guard.
        self._masked = {(copy.block, copy.operand, copy.instruction.guard) for copy in copies}
        self._bytes: dict[int, Bytes] = {}
        if copies:
            stores = [event for event in chain(*self._events) if event.action is _Action.STORE]
            self._look_up([*copies, *stores])

    def _look_up(self, accesses: list[_Event]) -> None:
        addresses = Addresses(
            self._function, [(event.position, event.operand) for event in accesses]
        )
        for event in accesses:
            bytes_ = addresses.bytes(event.position, event.operand, event.size)
            instruction = event.instruction
            named = (
                event.action is _Action.COPY
                or instruction.is_a("stmatrix", "mbarrier")
                or not {"shared", "shared::cta"}.isdisjoint(instruction.opcode.split("."))
            )
            if named or bytes_.base is not None:
                self._bytes[event.position] = bytes_

    def _step(self, ages: _Ages, event: _Event) -> None:
        self._steps += 1 + len(ages)
        if self._steps > MAX_STEPS:
            raise _TooMuchError
        # wait_group N ends copies of an age above N (PTX ISA, cp.async.wait_group). Bulk copies
        # have separate groups.
        if event.action is _Action.COPY:
            ages[event.position] = 0
        # A guarded wait or commit may not execute, so it changes no age.
        elif event.instruction.guard or event.action is _Action.STORE:
            return
        elif event.action is _Action.COMMIT:
            for position, age in ages.items():
                if self.copies[position].bulk == event.bulk:
                    ages[position] = min(age + 1, OLDEST)
        elif event.action is _Action.WAIT:
            done = [
                position
                for position, age in ages.items()
                if self.copies[position].bulk == event.bulk
                and (event.leaves < 0 or event.leaves < min(age, OLDEST))
            ]
            for position in done:
                del ages[position]

    def _entries(self) -> list[_Ages | None]:
        """The ages of copies in flight at the start of each block; `None` if unreachable."""
        blocks = self._function.blocks
        entries: list[_Ages | None] = [None] * len(blocks)
        entries[0] = {}
        queue = [0]
        while queue:
            index = queue.pop()
            ages = dict(entries[index] or {})
            for event in self._events[index]:
                self._step(ages, event)
            for successor in blocks[index].successors:
                entry = entries[successor]
                if entry is None:
                    entries[successor] = dict(ages)
                    queue.append(successor)
                    continue
                self._steps += len(ages)
                # The youngest copy stays in flight longest, so the join keeps the youngest age.
                # Ages only decrease, so the iteration ends.
                younger = {
                    position: age
                    for position, age in ages.items()
                    if age < entry.get(position, OLDEST + 1)
                }
                if younger:
                    entry.update(younger)
                    queue.append(successor)
        return entries

    def conflicts(self) -> dict[_Event, _Ages]:
        """The stores that may touch memory of copies in flight, with those copies."""
        touching: dict[_Event, _Ages] = {}
        for index, entry in enumerate(self._entries()):
            if entry is None:
                continue
            ages = dict(entry)
            for event in self._events[index]:
                if event.action is _Action.STORE and ages:
                    touched = self._touched(event, ages)
                    if touched:
                        touching[event] = touched
                self._step(ages, event)
        return touching

    def _touched(self, store: _Event, ages: _Ages) -> _Ages:
        stored = self._bytes.get(store.position)
        if stored is None or self._fills_a_masked_copy(store):
            return {}
        return {
            position: age
            for position, age in ages.items()
            if stored.may_overlap(self._bytes[position])
        }

    def _fills_a_masked_copy(self, store: _Event) -> bool:
        """True if a store replaces a masked copy: `@%p cp.async [%r1]; @!%p st.shared [%r1], 1.0`.

        It is as safe as the copy would be, and copies over copies are not analysed.
        """
        guard = store.instruction.guard
        opposite = guard[1:] if guard.startswith("!") else f"!{guard}"
        return bool(guard) and (store.block, store.operand, opposite) in self._masked

    # ---- hazards

    def hazards(self, conflicts: dict[_Event, _Ages], lines: Lines) -> list[Hazard]:
        """The hazards of conflicting stores, one per missing wait."""
        predecessors: dict[int, list[int]] = defaultdict(list)
        for index, block in enumerate(self._function.blocks):
            for successor in block.successors:
                predecessors[successor].append(index)
        conflicting = {store.position for store in conflicts}
        waits: dict[tuple[int, bool], _MissingWait] = {}
        for store, ages in conflicts.items():
            for bulk in (False, True):
                mine = {
                    position: age
                    for position, age in ages.items()
                    if self.copies[position].bulk == bulk
                }
                if mine:
                    wait = self._missing_wait(store, mine, conflicting, predecessors, bulk)
                    former = waits.setdefault((wait.position, bulk), wait)
                    if wait.uncommitted:
                        waits[wait.position, bulk] = former._replace(uncommitted=True)
        return [self._hazard(wait, bulk, lines) for (_, bulk), wait in sorted(waits.items())]

    def _missing_wait(
        self,
        store: _Event,
        ages: _Ages,
        conflicting: set[int],
        predecessors: dict[int, list[int]],
        bulk: bool,
    ) -> _MissingWait:
        """The wait that protects a store and other conflicting stores before it.

        It belongs before the barrier of the first conflicting store, if there is a barrier.
        """
        blocks, threads = self._function.blocks, prod(self._function.threads)
        uncommitted = any(age == 0 for age in ages.values())
        # Walk back from the store while the block has a single predecessor. A wait before the
        # barrier of the first conflicting store covers all threads; without a barrier, the wait is
        # placed at the store.
        copies = tuple(self.copies[position] for position in sorted(ages))
        best = _MissingWait(store, copies, store.position, store.instruction, False, uncommitted)
        seeks_barrier = True
        index, end = store.block, store.position
        seen = {index}
        while True:
            first = self._firsts[index]
            for position in range(end - 1, first - 1, -1):
                instruction = blocks[index].instructions[position - first]
                self._walk_left -= 1
                if position in ages or self._walk_left < 0:
                    return best  # the copy starts here, or the budget is spent
                if instruction.is_a(
                    "cp.async.bulk.commit_group" if bulk else "cp.async.commit_group"
                ):
                    uncommitted = True
                is_store = position in conflicting
                if is_store or (seeks_barrier and _is_barrier(instruction, threads)):
                    place = position, instruction, not is_store, uncommitted
                    best = _MissingWait(store, copies, *place)
                    seeks_barrier = is_store
            leading = predecessors[index]
            if index == 0 or len(leading) != 1 or leading[0] in seen:
                return best
            index = leading[0]
            seen.add(index)
            end = self._firsts[index] + len(blocks[index].instructions)

    def _hazard(self, missing: _MissingWait, bulk: bool, lines: Lines) -> Hazard:
        def named(instruction: PtxInstruction) -> str:
            return f"{instruction.opcode} on line {lines.position(instruction.span.start).line}"

        store, copies = missing.store, missing.copies
        wait = "cp.async.bulk.wait_group.read 0;" if bulk else "cp.async.wait_group 0;"
        if missing.uncommitted:
            wait = f"cp.async.bulk.commit_group; {wait}" if bulk else "cp.async.wait_all;"
        use = "overwrite data that" if bulk else "write memory that"
        doing = "reading" if bulk else "writing"
        message = (
            f"{named(store.instruction)} may {use} {named(copies[-1].instruction)} is still "
            f"{doing}: `{wait.removesuffix(';')}` is missing between them"
        )
        copied = _spelled([self._bytes[copy.position] for copy in copies])
        touched = _spelled([self._bytes[store.position]])
        where = (
            f"the wait belongs before {named(missing.instruction)}: "
            "a thread waits only for its own copies, the barrier for the other threads"
            if missing.is_barrier
            else "no barrier precedes this store: a wait covers only this thread's copies, "
            "those of other threads need a barrier after it"
        )
        notes = f"the store touches {touched}, the copies in flight {copied}", where
        return Hazard(store.instruction.span, message, notes, missing.instruction.span, wait)


class _MissingWait(NamedTuple):
    """A store that races with copies, and the instruction before which a wait is missing."""

    store: _Event
    copies: tuple[_Event, ...]
    position: int
    instruction: PtxInstruction
    is_barrier: bool
    uncommitted: bool
    """True if some copies are uncommitted there, so a wait for groups would miss them."""


def _is_barrier(instruction: PtxInstruction, threads: int) -> bool:
    if instruction.guard or not instruction.is_a("bar", "barrier"):
        return False
    parts = instruction.opcode.split(".")
    if "warp" in parts:
        return threads <= 32
    return "cluster" not in parts and ("sync" in parts or "red" in parts)


def _spelled(ranges: list[Bytes]) -> str:
    """The union of byte ranges in words."""
    bases = {range_.base for range_ in ranges}
    start = min(range_.start for range_ in ranges)
    end = max(range_.end for range_ in ranges)
    if len(bases) > 1 or None in bases:
        return "shared memory at an address that is not known"
    (base,) = bases
    variable = "dynamic shared memory" if base == EXTERN else str(base)
    if start <= -UNBOUNDED:
        return f"{variable} at an offset that is not known"
    if end >= UNBOUNDED:
        return f"{variable} from byte {start} on"
    return f"bytes {start} to {end - 1} of {variable}"
