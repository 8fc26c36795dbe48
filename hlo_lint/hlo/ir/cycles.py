"""Values that are computed from themselves: a text may contain such cycles, XLA's graphs cannot."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from hlo_lint.hlo.records import NAME, REFERENCES, InstructionRecord, name_in

Rows = tuple[InstructionRecord, ...]


def without_cycles(rows: Rows) -> tuple[Rows, tuple[int, ...]]:
    """Remove the references that close a cycle; return the records and the changed positions.

    XLA's parser knows only the names above an instruction. On a cycle it is the same here: a
    reference to the instruction itself, or to an instruction below, becomes "", which is undefined.
    So every walk over operands or users ends. Other references to instructions below are kept.
    """
    above: set[str] = set()
    defined: set[str] = set()
    for row in rows:
        references = row[REFERENCES]
        # Not above: an element, a name below, or an undefined name.
        if references and not above.issuperset(references):
            defined = defined or {record[NAME] for record in rows}
            if not defined.isdisjoint({name_in(name) for name in references} - above):
                return _cut(rows)
        above.add(row[NAME])
    return rows, ()


def _cut(rows: Rows) -> tuple[Rows, tuple[int, ...]]:
    """`without_cycles` for rows with a reference to a name below."""
    # If a name repeats, the first row counts.
    index = {row[NAME]: number for number, row in reversed([*enumerate(rows)])}
    operands = [
        [index[name] for name in map(name_in, row[REFERENCES]) if name in index] for row in rows
    ]
    if all(number > operand for number, needed in enumerate(operands) for operand in needed):
        return rows, ()
    users: list[list[int]] = [[] for _ in rows]
    for number, needed in enumerate(operands):
        for operand in needed:
            users[operand].append(number)
    # A row that never gets its operands is on a cycle, or after a cycle. Such rows that never get
    # their users either are on a cycle, or between two cycles.
    left = _never_ready(dict(enumerate(operands)), users)
    users_left = {number: [user for user in users[number] if user in left] for number in left}
    left = _never_ready(users_left, operands)
    # Rows that read rows below, or themselves: without these references no cycle is left.
    closing = tuple(
        number
        for number in sorted(left)
        if any(number <= read and read in left for read in operands[number])
    )
    cut = list(rows)
    for number in closing:
        references = tuple(
            "" if (operand := index.get(name_in(name), -1)) >= number and operand in left else name
            for name in rows[number][REFERENCES]
        )
        cut[number] = (*rows[number][:REFERENCES], references)
    return tuple(cut), closing


def _never_ready(needs: Mapping[int, Sequence[int]], readers: Sequence[Sequence[int]]) -> set[int]:
    """The nodes that wait forever: nodes on a cycle, and nodes after a cycle.

    Args:
        needs: the nodes that each node waits for.
        readers: the nodes that wait for each node.
    """
    waiting = {number: len(needed) for number, needed in needs.items()}
    ready = [number for number, count in waiting.items() if not count]
    while ready:
        done = ready.pop()
        del waiting[done]
        for reader in readers[done]:
            if reader in waiting:
                waiting[reader] -= 1
                if not waiting[reader]:
                    ready.append(reader)
    return set(waiting)
