"""Index entries of rules: the facts that decide if a rule runs, known without importing it.

Most rules have no findings in most files, and importing all rules takes longer than checking a
small file. `index.py` has the entries; `make docs` writes it, and a test reports if it is stale.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from importlib import import_module
from itertools import chain
from typing import TYPE_CHECKING, Final, NamedTuple

from hlo_lint.analysis.calls import opcodes_of
from hlo_lint.analysis.kinds import kinds_of, without_channel
from hlo_lint.hlo.ir import Computation, Module, cached_analysis
from hlo_lint.hlo.records import InstructionRecord

if TYPE_CHECKING:
    from hlo_lint.rules.base import Rule


class Contents:
    """The opcodes and the text of the modules to check."""

    def __init__(self, opcodes: frozenset[str], text: str | None) -> None:
        self.opcodes = opcodes
        self._text = text
        """None if it is too large to search; without names and metadata if it is large."""
        self._known: dict[str, bool] = {}

    def may_mention(self, word: str) -> bool:
        """False if no text contains a word. Results are cached."""
        if self._text is None:
            return True
        if word not in self._known:
            self._known[word] = word in self._text
        return self._known[word]


MAX_SEARCHED: Final = 1 << 19
"""The largest text, in characters without repetitions, that is searched for words. A search of this
size takes 7 ms, a third of the time to import the rules that it excludes."""


def contents_of(modules: Iterable[Module]) -> Contents:
    """The opcodes and texts of modules."""
    distinct = {id(module.pieces): module for module in modules}.values()
    text = None
    if all(module.size <= MAX_SEARCHED for module in distinct):
        pieces = {id(piece): piece for module in distinct for piece in module.pieces}.values()
        sizes = (len(piece) if isinstance(piece, str) else piece.size for piece in pieces)
        if sum(sizes) <= MAX_SEARCHED:
            text = "\n".join(_lines(pieces))
    elif len(distinct) == 1:
        return _of_large(*distinct)
    return Contents(frozenset().union(*map(opcodes_of, distinct)), text)


@cached_analysis
def _of_large(module: Module) -> Contents:
    """The contents of a large module: its kinds of instructions are a tenth of its text."""
    # What cannot be parsed has no kinds, and may mention any word.
    if module.problems or not module.computations:
        return Contents(opcodes_of(module), None)
    words = {module.header}
    for opcode, type_text, attributes, read in chain.from_iterable(kinds_of(module).values()):
        words.update(
            (f" = {type_text} {opcode}(", without_channel(attributes), *filter(None, read))
        )
    # Kinds lack a configuration that follows metadata.
    configurations = module.text.split(", backend_config=")[1:]
    words.update(text.partition("\n")[0] for text in configurations)
    return Contents(opcodes_of(module), "\n".join(words))


def _lines(pieces: Iterable[str | Computation]) -> Iterator[str]:
    """The text of pieces, each line that dumps share once, as XLA prints it."""
    rows: dict[int, InstructionRecord] = {}
    for piece in pieces:
        if isinstance(piece, str) or piece.is_irregular:
            yield piece if isinstance(piece, str) else piece.text
        else:
            yield f"%{piece.name} {piece.signature} {{{piece.tail}"
            rows.update(zip(map(id, piece.rows), piece.rows, strict=True))
    for root, name, type_text, opcode, operands, attributes, _ in rows.values():
        yield f"{root}%{name} = {type_text} {opcode}({operands}){attributes}"


class RuleEntry(NamedTuple):
    """A rule that may not be imported yet."""

    name: str
    family: str
    module: str
    class_name: str
    enabled_by_default: bool = True
    demanded_by: str = ""
    """The pass of its precondition; empty if it has none."""
    asks: tuple[tuple[str, ...], ...] = ()
    """The parameter types of each of its checks, such as `("Module", "Stage")`."""
    opcodes: tuple[str, ...] | None = None
    """The rule is imported if the text has any of these opcodes or `mentions`. None for both if it
    applies to any text."""
    mentions: tuple[str, ...] | None = None
    messages: tuple[str, ...] = ()
    """Its messages of XLA, with that of its precondition: `thunk_emitter.cc: Unsupported`."""

    @property
    def is_own(self) -> bool:
        """True if the rule is part of hlo_lint."""
        return self.module.startswith("hlo_lint.")

    def applies(self, contents: Contents | None) -> bool:
        """True if the rule may have findings; always true for unknown contents (None)."""
        if contents is None or (self.opcodes is None and self.mentions is None):
            return True
        opcodes, words = self.opcodes or (), self.mentions or ()
        return not contents.opcodes.isdisjoint(opcodes) or any(map(contents.may_mention, words))

    def load(self) -> Rule:
        """Import the rule; returns the same object each time."""
        key = self.module, self.class_name
        if key not in _loaded:
            rule_class: type[Rule] = getattr(import_module(self.module), self.class_name)
            _loaded[key] = rule_of(rule_class)
        return _loaded[key]


_loaded: dict[tuple[str, str], Rule] = {}
"""Rules by module and class: the import system takes a lock at each question."""
_rules: dict[type[Rule], Rule] = {}


def rule_of(rule_class: type[Rule]) -> Rule:
    """The only instance of a rule class."""
    rule = _rules.get(rule_class)
    if rule is None:
        rule = _rules[rule_class] = rule_class()
    return rule


class ChosenRule(NamedTuple):
    """A rule selected to run."""

    entry: RuleEntry
    held: Rule | None = None
    """The rule, if it is already imported: with options, or of another package."""

    @property
    def rule(self) -> Rule:
        """The rule, imported on first use."""
        return self.held or self.entry.load()


class ChosenRules:
    """The rules of a run, each imported on first use."""

    def __init__(self, chosen: Sequence[ChosenRule]) -> None:
        self.chosen = chosen

    def __iter__(self) -> Iterator[Rule]:
        return (chosen.rule for chosen in self.chosen)

    def named(self, name: str) -> ChosenRule | None:
        """The selected rule of that name; None if it is not selected."""
        return next((chosen for chosen in self.chosen if chosen.entry.name == name), None)

    @classmethod
    def of(cls, rules: Iterable[Rule]) -> ChosenRules:
        """Wrap already imported rules."""
        if isinstance(rules, ChosenRules):
            return rules
        from hlo_lint.rules.base import entry_of

        return cls([ChosenRule(entry_of(type(rule)), rule) for rule in rules])
