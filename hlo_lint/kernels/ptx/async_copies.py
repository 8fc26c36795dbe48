"""Asynchronous copies between global and shared memory, and stores that overwrite their data.

`cp.async` returns at once; its bytes land in shared memory some time before the group that it was
committed to has been waited for (PTX ISA, "Data Movement and Conversion Instructions: cp.async").
A store to the same memory before that is a race, even if the copied data is never read: a prefetch
that no iteration needs lands among the epilogue's results. Also a copy of no bytes writes: zeros.
A bulk store is the mirror: it reads shared memory until its bulk group has been waited for.

A copy is as old as the groups committed since: 0 before its own commit, and `wait_group N` leaves
those that are at most N old. Where paths meet the younger age counts. Waits and commits under a
predicate may not happen, so they change nothing; copies under one may happen.

Not looked at: loads that an mbarrier completes (`cp.async.bulk` into shared memory, and `cp.async`
followed by `cp.async.mbarrier.arrive`), copies over copies, reads of what has not arrived, what
other functions do, memory of other blocks in a cluster, and whether a barrier stands between one
thread's wait and another thread's store.
"""

from __future__ import annotations

import re
from collections import defaultdict
from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING, NamedTuple

from hlo_lint.kernels.ptx.addresses import EXTERN, Addresses, Bytes
from hlo_lint.kernels.ptx.operands import whole_constant
from hlo_lint.kernels.ptx.ranges import UNBOUNDED
from hlo_lint.text.phrases import listed
from hlo_lint.text.source import Lines, Span

if TYPE_CHECKING:
    from hlo_lint.kernels.ptx.reader import Function, Ptx, PtxInstruction

OLDEST = 64
"""Ages are not told apart beyond this; a wait that leaves as many groups leaves all of them."""
MAX_STEPS = 3_000_000
"""Copies looked at, over all instructions, before a function is given up: about two seconds."""
MAX_WALK = 500_000
"""Instructions looked at on the ways back from all stores to their barriers."""
SHOWN = 6
"""Lines named in a note."""
LEAST_OF_A_TENSOR = 16
"""Minimum bytes that a tensor's bulk store reads; the real number is in its descriptor. So
only a store to where it begins is seen, and none is suspected of what follows it."""
MAX_WIDTH = 32
"""Bytes of a store whose type says nothing: the most that one thread stores at once."""


@dataclass(frozen=True, slots=True)
class Hazard:
    """A store to shared memory that an asynchronous copy may still be using."""

    span: Span
    """The store."""
    copy: Span
    """The last such copy in the text."""
    message: str
    notes: tuple[str, ...]
    before: Span
    """The instruction before which a wait mends it: a barrier, if one leads to the store."""
    wait: str
    """The missing wait: `cp.async.wait_group 0;`."""


class Survey(NamedTuple):
    """The hazards found, and the instructions that were not analysed."""

    hazards: tuple[Hazard, ...]
    not_looked_at: tuple[str, ...]


class _Action(Enum):
    COPY = "cp.async"
    COMMIT = "commit_group"
    WAIT = "wait_group"
    STORE = "store"


@dataclass(frozen=True, slots=True)
class _Event:
    """An instruction that matters here."""

    at: int
    """Its number in the function."""
    block: int
    action: _Action
    one: PtxInstruction
    bulk: bool = False
    """It belongs to bulk groups, which are counted apart."""
    leaves: int = 0
    """Of a wait: the groups that may stay in flight, -1 if not even an uncommitted copy may."""
    operand: str = ""
    """The shared memory of a copy or store."""
    size: int | None = None


_Ages = dict[int, int]
"""The copies in flight, by number, and how many groups have been committed since each."""


class _TooMuchError(Exception):
    """More steps than `MAX_STEPS`."""


def survey(ptx: Ptx) -> Survey:
    """The hazards of every function, one for each missing wait."""
    hazards: list[Hazard] = []
    skipped: list[str] = []
    lines: Lines | None = None
    for function in ptx.functions:
        on_mbarriers = sum(_waits_on_mbarrier(one) for one in function.instructions())
        if on_mbarriers:
            skipped.append(f"{function.name}: {on_mbarriers} copies that mbarriers complete")
        flow = _Flow(function)
        if not flow.copies:
            continue
        try:
            conflicts = flow.conflicts()
        except _TooMuchError:
            skipped.append(f"{function.name}: too many copies in flight over too many instructions")
            continue
        if conflicts:
            lines = lines or Lines(ptx.text)
            hazards += flow.hazards(conflicts, lines)
        if any(one.is_a("call") for one in function.instructions()):
            skipped.append(f"{function.name}: what the functions it calls store")
    return Survey(tuple(hazards), tuple(skipped))


def insert_wait(text: str, hazard: Hazard) -> tuple[int, str]:
    """The offset and the text of the missing wait: a line of its own if possible."""
    start = hazard.before.start
    line = text.rfind("\n", 0, start) + 1
    indent = text[line:start]
    if indent.strip():
        return start, f"{hazard.wait} "
    end = "\r\n" if text[max(line - 2, 0) : line] == "\r\n" else "\n"
    return line, f"{indent}{hazard.wait}{end}"


# ---- instructions


def _waits_on_mbarrier(one: PtxInstruction) -> bool:
    is_load = one.is_a("cp.async.bulk") and "mbarrier::complete_tx::bytes" in one.opcode
    return is_load or one.is_a("cp.async.mbarrier.arrive")


_TYPE = re.compile(r"(?:b|u|s|f|bf)(8|16|32|64|128)(x2)?")


def access_size(one: PtxInstruction) -> int:
    """The bytes that one thread stores."""
    if one.is_a("stmatrix"):
        return 16  # each address is a row's
    if one.is_a("mbarrier"):
        return 8
    parts = one.opcode.split(".")
    vector = _TYPE.fullmatch(parts[-1])
    if vector is None:
        return MAX_WIDTH
    count = next((int(part[1:]) for part in parts if re.fullmatch(r"v[248]", part)), 1)
    return count * int(vector[1]) // 8 * (2 if vector[2] else 1)


def _event(at: int, block: int, one: PtxInstruction) -> _Event | None:
    """The effect of an instruction on asynchronous copies; `None` if it has none."""
    opcode = one.opcode
    operands = one.operands
    head = opcode.split(".", 1)[0]
    if head == "cp":
        bulk = ".async.bulk" in opcode
        first = whole_constant(operands[0]) if operands else None
        if one.is_a("cp.async.commit_group", "cp.async.bulk.commit_group"):
            return _Event(at, block, _Action.COMMIT, one, bulk)
        if one.is_a("cp.async.wait_group", "cp.async.bulk.wait_group"):
            # ptxas takes numbers only: it waits for nothing.
            return _Event(at, block, _Action.WAIT, one, bulk, OLDEST if first is None else first)
        # What is handed to an mbarrier is no longer followed.
        if one.is_a("cp.async.wait_all", "cp.async.mbarrier.arrive"):
            return _Event(at, block, _Action.WAIT, one, leaves=-1)
        if one.is_a("cp.async.ca", "cp.async.cg") and operands:
            size = whole_constant(operands[2]) if len(operands) > 2 else None
            return _Event(at, block, _Action.COPY, one, False, 0, operands[0], size)
        if bulk and ".global.shared::cta" in opcode and len(operands) > 1:
            size = whole_constant(operands[2]) if len(operands) > 2 else None
            if ".tensor." in opcode:
                size = LEAST_OF_A_TENSOR
            return _Event(at, block, _Action.COPY, one, True, 0, operands[1], size)
        return None
    if head in {"st", "stmatrix", "atom", "red"} or one.is_a("mbarrier.init"):
        target = next((operand for operand in operands if operand.startswith("[")), "")
        spaces = {"global", "local", "param", "shared::cluster", "async", "const"}
        if not target or any(part.split("::param")[0] in spaces for part in opcode.split(".")):
            return None
        size = (
            whole_constant(operands[1])
            if one.is_a("st.bulk") and len(operands) > 1
            else access_size(one)
        )
        return _Event(at, block, _Action.STORE, one, False, 0, target, size)
    return None


def _names_shared(one: PtxInstruction) -> bool:
    return one.is_a("stmatrix", "mbarrier") or any(
        part in {"shared", "shared::cta"} for part in one.opcode.split(".")
    )


# ---- the flow


class _Flow:
    """Copies in flight over the blocks of one function."""

    def __init__(self, function: Function) -> None:
        self._function = function
        self._steps = 0
        self._walk_left = MAX_WALK
        self._events: list[list[_Event]] = []
        self._firsts: list[int] = []
        """The number of the first instruction of each block."""
        self.copies: dict[int, _Event] = {}
        stores: list[_Event] = []
        at = 0
        for index, block in enumerate(function.blocks):
            self._firsts.append(at)
            events = []
            for one in block.instructions:
                event = _event(at, index, one)
                at += 1
                if event is not None:
                    events.append(event)
                    if event.action is _Action.COPY:
                        self.copies[event.at] = event
                    elif event.action is _Action.STORE:
                        stores.append(event)
            self._events.append(events)
        # Compilers fill the lanes that a masked copy leaves out by a store under the opposite
        # guard.
        self._masked = {(copy.block, copy.operand, copy.one.guard) for copy in self.copies.values()}
        self._bytes: dict[int, Bytes] = {}
        if self.copies:
            self._look_up([*self.copies.values(), *stores])

    def _look_up(self, accesses: list[_Event]) -> None:
        addresses = Addresses(self._function, [(event.at, event.operand) for event in accesses])
        for event in accesses:
            bytes_ = addresses.bytes(event.at, event.operand, event.size)
            named = event.action is _Action.COPY or _names_shared(event.one)
            if named or bytes_.base is not None:
                self._bytes[event.at] = bytes_

    def _step(self, ages: _Ages, event: _Event) -> None:
        self._steps += 1 + len(ages)
        if self._steps > MAX_STEPS:
            raise _TooMuchError
        # The age of a copy counts the groups committed since: wait_group N ends those older than N
        # (PTX ISA, cp.async.wait_group). Bulk copies have groups of their own.
        if event.action is _Action.COPY:
            ages[event.at] = 0
        # A guarded wait may not run, and a guarded commit may not either: neither ends anything.
        elif event.one.guard or event.action is _Action.STORE:
            return
        elif event.action is _Action.COMMIT:
            for at, age in ages.items():
                if self.copies[at].bulk == event.bulk:
                    ages[at] = min(age + 1, OLDEST)
        elif event.action is _Action.WAIT:
            done = [
                at
                for at, age in ages.items()
                if self.copies[at].bulk == event.bulk
                and (event.leaves < 0 or event.leaves < min(age, OLDEST))
            ]
            for at in done:
                del ages[at]

    def _entries(self) -> list[_Ages | None]:
        """The copies in flight at the start of each block; `None` for unreachable blocks."""
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
                # A copy that is younger on one of the ways is in flight for longer: the join keeps
                # the youngest age. Ages only fall, so this ends.
                younger = {at: age for at, age in ages.items() if age < entry.get(at, OLDEST + 1)}
                if younger:
                    entry.update(younger)
                    queue.append(successor)
        return entries

    def conflicts(self) -> dict[_Event, _Ages]:
        """The stores that may touch what copies in flight use, with those copies."""
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
        stored = self._bytes.get(store.at)
        if stored is None or self._fills_a_masked_copy(store):
            return {}
        return {at: age for at, age in ages.items() if stored.may_overlap(self._bytes[at])}

    def _fills_a_masked_copy(self, store: _Event) -> bool:
        """True if this stands in for a copy: `@%p cp.async [%r1]; @!%p st.shared [%r1], 1.0`.

        It is safe where the copy would be, and copies over copies are not looked at.
        """
        guard = store.one.guard
        opposite = guard[1:] if guard.startswith("!") else f"!{guard}"
        return bool(guard) and (store.block, store.operand, opposite) in self._masked

    # ---- what to say

    def hazards(self, conflicts: dict[_Event, _Ages], lines: Lines) -> list[Hazard]:
        """One for each missing wait."""
        predecessors: dict[int, list[int]] = defaultdict(list)
        for index, block in enumerate(self._function.blocks):
            for successor in block.successors:
                predecessors[successor].append(index)
        numbers = {event.at: event for event in conflicts}
        groups: dict[tuple[int, bool], list[_Event]] = defaultdict(list)
        places: dict[tuple[int, bool], _MissingWait] = {}
        for store, ages in conflicts.items():
            for bulk in (False, True):
                mine = {at: age for at, age in ages.items() if self.copies[at].bulk == bulk}
                if not mine:
                    continue
                place = self._place(store, mine, numbers, predecessors, bulk)
                key = place.at, bulk
                groups[key].append(store)
                hazard = places.get(key)
                places[key] = place._replace(
                    uncommitted=place.uncommitted or (hazard is not None and hazard.uncommitted)
                )
        return [
            self._hazard(stores, bulk, places[at, bulk], conflicts, lines)
            for (at, bulk), stores in sorted(groups.items())
        ]

    def _place(
        self,
        store: _Event,
        ages: _Ages,
        conflicting: dict[int, _Event],
        predecessors: dict[int, list[int]],
        bulk: bool,
    ) -> _MissingWait:
        """The place where a wait repairs it, with all that it repairs on the way to the store.

        That is the barrier before the first store that conflicts, if one is there.
        """
        blocks = self._function.blocks
        threads = 1
        for dim in self._function.threads:
            threads *= dim
        uncommitted = any(age == 0 for age in ages.values())
        # Walk back from the store as long as there is one way. A wait before the barrier in front
        # of the first conflicting store is seen by all threads; without a barrier it stands at the
        # store.
        best = _MissingWait(store.at, store.one, False, uncommitted)
        seeks_barrier = True
        index, at = store.block, store.at
        seen = {index}
        while True:
            first = self._firsts[index]
            for position in range(at - 1, first - 1, -1):
                one = blocks[index].instructions[position - first]
                self._walk_left -= 1
                if position in ages or self._walk_left < 0:
                    return best  # in flight only from here on, or a nearer place has to do
                if one.is_a("cp.async.bulk.commit_group" if bulk else "cp.async.commit_group"):
                    uncommitted = True
                if position in conflicting:
                    best = _MissingWait(position, one, False, uncommitted)
                    seeks_barrier = True
                elif seeks_barrier and _is_barrier(one, threads):
                    best = _MissingWait(position, one, True, uncommitted)
                    seeks_barrier = False
            leading = predecessors[index]
            if index == 0 or len(leading) != 1 or leading[0] in seen:
                return best
            index = leading[0]
            seen.add(index)
            at = self._firsts[index] + len(blocks[index].instructions)

    def _hazard(
        self,
        stores: list[_Event],
        bulk: bool,
        place: _MissingWait,
        conflicts: dict[_Event, _Ages],
        lines: Lines,
    ) -> Hazard:
        def line(one: PtxInstruction) -> int:
            return lines.position(one.span.start).line

        store = stores[0]
        copies = [
            self.copies[at] for at in sorted(conflicts[store]) if self.copies[at].bulk == bulk
        ]
        copy = copies[-1]
        wait = "cp.async.bulk.wait_group.read 0;" if bulk else "cp.async.wait_group 0;"
        if place.uncommitted:
            wait = f"cp.async.bulk.commit_group; {wait}" if bulk else "cp.async.wait_all;"
        use = "overwrite what" if bulk else "write where"
        doing = "reading" if bulk else "writing"
        message = (
            f"{store.one.opcode} on line {line(store.one)} may {use} {copy.one.opcode} "
            f"on line {line(copy.one)} is still {doing}: no `{wait.removesuffix(';')}` "
            "stands between them"
        )
        notes = [
            f"the store touches {_spelled([self._bytes[store.at]])}, "
            f"the copies in flight {_spelled([self._bytes[one.at] for one in copies])}"
        ]
        if len(copies) > 1:
            places = _lines([line(one.one) for one in copies])
            notes.append(f"{len(copies)} copies may be in flight: {places}")
        if len(stores) > 1:
            places = _lines([line(one.one) for one in stores])
            notes.append(f"{len(stores)} stores that the same wait protects: {places}")
        if place.is_barrier:
            notes.append(
                f"the wait belongs before {place.one.opcode} on line {line(place.one)}: "
                "a thread waits for its own copies only, the barrier for the other threads"
            )
        else:
            notes.append(
                "no barrier leads to this store: a wait covers this thread's copies, "
                "those of other threads need a barrier after it"
            )
        return Hazard(store.one.span, copy.one.span, message, tuple(notes), place.one.span, wait)


class _MissingWait(NamedTuple):
    """The place of the missing wait."""

    at: int
    one: PtxInstruction
    is_barrier: bool
    uncommitted: bool
    """Some copies have not been committed there, so a wait for groups would miss them."""


def _is_barrier(one: PtxInstruction, threads: int) -> bool:
    if one.guard or not one.is_a("bar", "barrier"):
        return False
    parts = one.opcode.split(".")
    if "warp" in parts:
        return threads <= 32
    return "cluster" not in parts and ("sync" in parts or "red" in parts)


def _lines(numbers: list[int]) -> str:
    return f"lines {listed(numbers, SHOWN)}"


def _spelled(ranges: list[Bytes]) -> str:
    """Bytes as a person would say them."""
    bases = {one.base for one in ranges}
    start, end = min(one.start for one in ranges), max(one.end for one in ranges)
    if len(bases) > 1 or None in bases:
        return "shared memory at an address that is not known"
    (base,) = bases
    variable = "dynamic shared memory" if base == EXTERN else str(base)
    if start <= -UNBOUNDED:
        return f"{variable} at an offset that is not known"
    if end >= UNBOUNDED:
        return f"{variable} from byte {start} on"
    return f"bytes {start} to {end - 1} of {variable}"
