"""The life of a defect: the dumps it is in, the pass it came with and the pass that cured it.

A defect is told by what is said of it, and where: message, computation, instruction. Where a pass
renames or moves an instruction one defect ends and another begins that says the same of the same
kind of instruction: that is one life.
"""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from itertools import chain

from hlo_lint.engine.findings import PassRef
from hlo_lint.engine.timeline import ModuleRef, Occurrence, Timeline
from hlo_lint.hlo.ir import Instruction, Module
from hlo_lint.rules.findings import Finding

Key = tuple[int, str, str, str, int | None, int]
"""Module of the file, computation, instruction (else the text), message, operand, and which of
several that are the same so far."""

_NAMES = re.compile(r"%[\w.\-]+|(?<=[A-Za-z_)-])\.\d+")


@dataclass(eq=False)
class FindingHistory:
    """One defect in dumps that follow each other, from the first to the last."""

    key: Key
    """By which it is known at its end."""
    seen: list[Occurrence]
    """One for each dump, in the order of the run."""
    beside: list[Occurrence] = field(default_factory=list)
    """In dumps of which nothing tells which step they were written at."""

    @property
    def first(self) -> int:
        """The position of the first dump."""
        return self.seen[0].spot.position

    @property
    def last(self) -> int:
        """The position of the last dump."""
        return self.seen[-1].spot.position

    @property
    def everywhere(self) -> list[Occurrence]:
        """All sightings."""
        return self.seen + self.beside


def lives_of(sightings: Iterable[Occurrence], timeline: Timeline) -> list[FindingHistory]:
    """The defects among sightings, each with the last unbroken stretch of dumps that have it."""
    known: dict[Key, dict[int, Occurrence]] = {}
    keys: dict[tuple[int, int], Key] = {}  # one finding may stand in a hundred dumps
    again: dict[tuple[Key, int], int] = {}
    for sighting in sightings:
        same = id(sighting.finding), sighting.spot.number
        key = keys.get(same)
        if key is None:
            key = keys[same] = _key(sighting, timeline)
        position = sighting.spot.position
        seen = known.setdefault(key, {})
        if position in seen:  # the same is said twice in one dump
            number = again[key, position] = again.get((key, position), 0) + 1
            seen = known.setdefault((*key[:-1], number), {})
        seen[position] = sighting
    stretches = [life for key, seen in known.items() for life in _stretches(key, seen, timeline)]
    last: dict[Key, FindingHistory] = {}
    for life in _joined(stretches, timeline):
        older = last.pop(life.key, None)
        if older is not None:
            life.beside += older.beside
        last[life.key] = life
    return list(last.values())


def followed_back(
    findings: Iterable[Finding],
    spot: ModuleRef,
    timeline: Timeline,
    look: Callable[[Module], Iterable[Finding]],
) -> list[FindingHistory]:
    """The defects of one module, each with the unbroken stretch of dumps before it that have it.

    `look` finds them in a module, as if that were the one.
    """
    lives = [FindingHistory(_key(each, timeline), [each]) for each in _sightings(findings, spot)]
    following = lives if spot.position < timeline.length else []
    seen: tuple[Module, list[Finding]] | None = None
    for position in range(spot.position - 1, -1, -1):
        earlier = ModuleRef(position, spot.number)
        if not following or spot.number >= len(timeline.dumps[position].file.modules):
            break
        module = timeline.module(earlier)
        if seen is None or seen[0].pieces is not module.pieces:
            seen = module, list(look(module))
        following = _still_there(following, _sightings(seen[1], earlier), timeline)
    for life in lives:
        life.seen.reverse()
    return lives


def _sightings(findings: Iterable[Finding], spot: ModuleRef) -> list[Occurrence]:
    return [Occurrence(finding, spot) for finding in findings]


def _still_there(
    lives: list[FindingHistory], found: list[Occurrence], timeline: Timeline
) -> list[FindingHistory]:
    """The lives that one more dump has: by name, else by what is said of a thing of the kind."""
    named: dict[Key, deque[Occurrence]] = {}
    for each in found:
        named.setdefault(_key(each, timeline), deque()).append(each)
    there, renamed = [], []
    for life in lives:
        same = named.get(_key(life.seen[-1], timeline))
        if same:
            life.seen.append(same.popleft())
            there.append(life)
        else:
            renamed.append(life)
    alike: dict[tuple[str, str, str], deque[Occurrence]] = {}
    for each in chain.from_iterable(named.values()):
        alike.setdefault(nameless(each), deque()).append(each)
    for life in renamed:
        others = alike.get(nameless(life.seen[-1]))
        if others:
            life.seen.append(others.popleft())
            there.append(life)
    return there


def introduction(
    timeline: Timeline, position: int, *, unless_established: bool = False
) -> PassRef | None:
    """The pass after which a defect is there for the first time; None where that is not known.

    What the first dump has may be older, unless other passes see to it that it is not there
    (`unless_established`); what a pipeline begins with came from outside the dumps at hand.
    """
    if position >= timeline.length or (position == 0 and not unless_established):
        return None
    dump = timeline.dumps[position]
    name = dump.name
    if name is None or name.step is None or name.after == "pipeline-start":
        return None
    return PassRef(name.after, name.pipeline, name.step, str(dump.path))


def cure(timeline: Timeline, position: int) -> PassRef | None:
    """The pass after which a defect is gone that a dump still has; None at the end of the run.

    The name of the pass is empty where it left no dump of its own.
    """
    if position + 1 >= timeline.length:
        return None
    dump = timeline.dumps[position + 1]
    name = dump.name
    if name is None:
        return PassRef("", "", None, str(dump.path))
    known = name.step is not None and name.after != "pipeline-start"
    return PassRef(name.after if known else "", name.pipeline, name.step, str(dump.path))


def _key(sighting: Occurrence, timeline: Timeline) -> Key:
    finding, spot = sighting
    at = finding.at
    if isinstance(at, Instruction):
        where, what = at.computation.name, at.name
    else:
        where, what = "", timeline.dumps[spot.position].file.text[at.start : at.end]
    return spot.number, where, what, finding.message, finding.operand, 0


def _stretches(key: Key, seen: dict[int, Occurrence], timeline: Timeline) -> list[FindingHistory]:
    """The unbroken stretches of one key; a dump beside the run is one where there is no other."""
    found: list[FindingHistory] = []
    for position in sorted(seen):
        if position >= timeline.length:
            if found:
                found[-1].beside.append(seen[position])
            else:
                found.append(FindingHistory(key, [seen[position]]))
        elif found and found[-1].last == position - 1:
            found[-1].seen.append(seen[position])
        else:
            found.append(FindingHistory(key, [seen[position]]))
    return found


def _joined(stretches: list[FindingHistory], timeline: Timeline) -> list[FindingHistory]:
    """The same, with stretches made one where one ends as another begins that says the same."""
    joined: list[FindingHistory] = []
    ended: dict[int, list[FindingHistory]] = {}
    waiting: dict[int, dict[tuple[str, str, str], deque[FindingHistory]]] = {}
    for life in sorted(stretches, key=lambda life: life.first):
        before = life.first - 1
        if before in ended and life.first < timeline.length:
            if before not in waiting:  # all that ended there are known: they began earlier
                waiting[before] = {}
                for each in ended[before]:
                    same = waiting[before].setdefault(nameless(each.seen[-1]), deque())
                    same.append(each)
            older = waiting[before].get(nameless(life.seen[0]))
            if older:
                earlier = older.popleft()
                earlier.key = life.key
                earlier.seen += life.seen
                earlier.beside += life.beside
                ended.setdefault(earlier.last, []).append(earlier)
                continue
        joined.append(life)
        ended.setdefault(life.last, []).append(life)
    return joined


def nameless(sighting: Occurrence) -> tuple[str, str, str]:
    """What is said, and of what, whatever it is called."""
    finding = sighting.finding
    at = finding.at
    opcode, shape = (at.opcode, at.type_text) if isinstance(at, Instruction) else ("", "")
    return _NAMES.sub("", finding.message), opcode, shape
