"""Errors between the steps of one asynchronous operation, as XLA's parser finds them.

An update and a done name the opcode, the computation and the thread of their start. XLA finds the
start through what hands the state on unchanged, and knows nothing to compare where it finds none.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

from hlo_lint.analysis.strict.tokens import attribute_text
from hlo_lint.hlo.ir import Computation, Inline, called_names
from hlo_lint.hlo.opcodes import wrapped_opcode
from hlo_lint.hlo.records import InstructionRecord, attributes_of, name_of, opcode_of, references_of

_TRANSPARENT: Final = frozenset(("copy", "opt-barrier", "while"))
"""Opcodes that hand on the state of an asynchronous operation."""
_GENERIC: Final = frozenset(("async-start", "async-update", "async-done"))


class _Start(NamedTuple):
    """The start of an asynchronous operation."""

    opcode: str
    """The wrapped opcode; empty where it is not known."""
    computation: str
    """The wrapped computation; XLA names the one that it makes for sugar."""
    thread: str


class AsyncChains:
    """The asynchronous operations of one computation, instruction by instruction."""

    def __init__(self, computations: Mapping[str, Computation]) -> None:
        """`computations` are those defined above."""
        self._computations = computations
        self._starts: dict[str, _Start] = {}
        self._elements: dict[str, Sequence[str]] = {}
        """The operands of tuples that hold the state of one."""
        self._dones: set[str] = set()

    def error(self, record: InstructionRecord, inline: Sequence[Inline]) -> str:
        """The error of an instruction; empty if there is none."""
        opcode = opcode_of(record)
        wrapped = wrapped_opcode(opcode)
        if wrapped is None and opcode not in _GENERIC:
            if self._starts:
                self._hand_on(record)
            return ""
        if opcode.endswith("-start"):
            self._starts[name_of(record)] = self._start(record, wrapped, inline)
            return ""
        reference = references_of(record)[0] if references_of(record) else ""
        if reference in self._dones:
            return f"%{reference} is a done already: it has no state to carry on"
        if opcode.endswith("-done"):
            self._dones.add(name_of(record))
        start = self._find(reference)
        if start is None:
            return ""
        self._starts[name_of(record)] = start
        return self._mismatch(record, wrapped, start)

    def _start(
        self, record: InstructionRecord, wrapped: str | None, inline: Sequence[Inline]
    ) -> _Start:
        thread = attribute_text(record, "async_execution_thread").strip('"') or "main"
        if wrapped is not None:
            return _Start(wrapped, "async_wrapped", thread)
        called = inline[0].computation if inline else None
        name = next(iter(called_names(attributes_of(record))), "")
        called = called or self._computations.get(name)
        root = called.root if called else None
        return _Start(root.opcode if root else "", called.name if called else name, thread)

    def _mismatch(self, record: InstructionRecord, wrapped: str | None, start: _Start) -> str:
        if wrapped and start.opcode and wrapped != start.opcode:
            return f"expected async wrapped opcode to be {start.opcode}, but got {wrapped}"
        called = next(iter(called_names(attributes_of(record))), "")
        if called and start.computation and called != start.computation:
            return f"expected async wrapped computation to be {start.computation}, but got {called}"
        thread = attribute_text(record, "async_execution_thread").strip('"')
        if thread and thread != start.thread:
            return f"expected async_execution_thread to be {start.thread}, but got {thread}"
        return ""

    def _hand_on(self, record: InstructionRecord) -> None:
        opcode, references = opcode_of(record), references_of(record)
        if opcode == "tuple":
            if any(self._find(reference) for reference in references):
                self._elements[name_of(record)] = references
            return
        reference = references[0] if references else ""
        if opcode == "get-tuple-element":
            reference = f"{reference}#{attribute_text(record, 'index')}"
        elif opcode not in _TRANSPARENT:
            return
        if start := self._find(reference):
            self._starts[name_of(record)] = start

    def _find(self, reference: str) -> _Start | None:
        name, _, element = reference.partition("#")
        if not element:
            return self._starts.get(name)
        elements = self._elements.get(name, ())
        if not element.isdigit() or len(element) > 9 or int(element) >= len(elements):
            return None
        return self._starts.get(elements[int(element)])
