"""Values that are computed from themselves, which a text can say and no graph of XLA can hold."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from hlo_lint.hlo.records import NAME, REFERENCES, InstructionRecord, name_in

Rows = tuple[InstructionRecord, ...]


def without_cycles(rows: Rows) -> tuple[Rows, tuple[int, ...]]:
    """Records of which none is computed from itself, and the positions of those that were.

    XLA's parser knows only the names above an instruction. On a cycle it is the same here: a
    reference to the instruction itself, or down the text, becomes "", which names nothing. So
    every walk over operands or users ends. References down the text that close no cycle stay.
    """
    above: set[str] = set()
    defined: set[str] = set()
    for row in rows:
        references = row[REFERENCES]
        # Not above are an element, a name below, and one that nothing has.
        if references and not above.issuperset(references):
            defined = defined or {other[NAME] for other in rows}
            if not defined.isdisjoint({name_in(name) for name in references} - above):
                return _cut(rows)
        above.add(row[NAME])
    return rows, ()


def _cut(rows: Rows) -> tuple[Rows, tuple[int, ...]]:
    """The answer of `without_cycles` where a row reads a name that does not stand above it."""
    # Of a doubled name the first row counts.
    index = {rows[at][NAME]: at for at in range(len(rows) - 1, -1, -1)}
    operands = [
        [index[name] for name in map(name_in, row[REFERENCES]) if name in index] for row in rows
    ]
    if all(at > operand for at, needed in enumerate(operands) for operand in needed):
        return rows, ()
    users: list[list[int]] = [[] for _ in rows]
    for at, needed in enumerate(operands):
        for operand in needed:
            users[operand].append(at)
    # A row that never gets its operands is on a cycle, or reads what is behind one. Those of them
    # that never get their users either are on a cycle, or between two.
    left = _never_ready(dict(enumerate(operands)), users)
    left = _never_ready({at: [user for user in users[at] if user in left] for at in left}, operands)
    # Rows that read down the text, or themselves: without these references no cycle is left.
    closing = tuple(
        at for at in sorted(left) if any(at <= read and read in left for read in operands[at])
    )
    cut = list(rows)
    for at in closing:
        references = tuple(
            "" if (operand := index.get(name_in(name), -1)) >= at and operand in left else name
            for name in rows[at][REFERENCES]
        )
        cut[at] = (*rows[at][:REFERENCES], references)
    return tuple(cut), closing


def _never_ready(needs: Mapping[int, Sequence[int]], readers: Sequence[Sequence[int]]) -> set[int]:
    """The nodes whose needs are never all met: those on a cycle, and those behind one.

    Args:
        needs: the nodes that each node waits for.
        readers: of each node those that wait for it.
    """
    waiting = {at: len(needed) for at, needed in needs.items()}
    ready = [at for at, count in waiting.items() if not count]
    while ready:
        done = ready.pop()
        del waiting[done]
        for reader in readers[done]:
            if reader in waiting:
                waiting[reader] -= 1
                if not waiting[reader]:
                    ready.append(reader)
    return set(waiting)
