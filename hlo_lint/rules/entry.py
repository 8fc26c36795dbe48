"""Entries of the index of rules: all that decides if a rule runs, known before it is imported.

Most rules have nothing to look at in most files, and to import all takes longer than to check a
small file. `index.py` holds the entries; `make docs` writes it, and a test says when it is stale.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from importlib import import_module
from typing import TYPE_CHECKING, Final, NamedTuple, overload

from hlo_lint.analysis.calls import opcodes_of
from hlo_lint.hlo.ir import Module

if TYPE_CHECKING:
    from hlo_lint.rules.base import Rule


class Contents:
    """The opcodes and the texts that are going to be checked."""

    def __init__(self, opcodes: frozenset[str], text: str | None) -> None:
        self.opcodes = opcodes
        self._text = text
        """None if it is too large to be searched."""
        self._known: dict[str, bool] = {}

    def may_mention(self, word: str) -> bool:
        """False if no text has a word; each is looked for once, whichever rules ask."""
        if self._text is None:
            return True
        if word not in self._known:
            self._known[word] = word in self._text
        return self._known[word]


MAX_SEARCHED: Final = 1 << 19
"""Characters up to which words decide which rules run, what dumps share counted once: to search
them takes 7 ms, a third of what it takes to import the rules that have nothing there."""


def contents_of(modules: Iterable[Module]) -> Contents:
    """The opcodes and texts of modules."""
    distinct = {id(module.pieces): module for module in modules}.values()
    text = None
    if all(module.size <= MAX_SEARCHED for module in distinct):
        pieces = {id(piece): piece for module in distinct for piece in module.pieces}.values()
        sizes = (len(piece) if isinstance(piece, str) else piece.size for piece in pieces)
        if sum(sizes) <= MAX_SEARCHED:  # before a text is put together from its lines
            text = "\n".join(piece if isinstance(piece, str) else piece.text for piece in pieces)
    return Contents(frozenset().union(*map(opcodes_of, distinct)), text)


class RuleEntry(NamedTuple):
    """A rule that may not be imported yet."""

    name: str
    family: str
    module: str
    class_name: str
    """The name of its class."""
    enabled_by_default: bool = True
    demanded_by: str = ""
    """The pass of its precondition."""
    asks: tuple[tuple[str, ...], ...] = ()
    """The types that each of its checks asks for: `("Module", "Stage")`."""
    opcodes: tuple[str, ...] | None = None
    """It is imported where the text has one of these opcodes, or one of the words; None for both
    if nothing is known."""
    mentions: tuple[str, ...] | None = None

    @property
    def is_own(self) -> bool:
        """True if the rule is not of another package."""
        return self.module.startswith("hlo_lint.")

    def applies(self, contents: Contents | None) -> bool:
        """True if the rule may find something; None are contents of which nothing is known."""
        if contents is None or (self.opcodes is None and self.mentions is None):
            return True
        opcodes, words = self.opcodes or (), self.mentions or ()
        return not contents.opcodes.isdisjoint(opcodes) or any(map(contents.may_mention, words))

    def load(self) -> Rule:
        """The rule, imported: always the same object."""
        rule_class: type[Rule] = getattr(import_module(self.module), self.class_name)
        return rule_of(rule_class)


_rules: dict[type[Rule], Rule] = {}


def rule_of(rule_class: type[Rule]) -> Rule:
    """The one object of a class of rules."""
    rule = _rules.get(rule_class)
    if rule is None:
        rule = _rules[rule_class] = rule_class()
    return rule


class ChosenRule(NamedTuple):
    """A rule that is going to run."""

    entry: RuleEntry
    held: Rule | None = None
    """The rule, if it was imported already: with options, or of another package."""

    @property
    def rule(self) -> Rule:
        """The rule, imported now if nothing has needed it before."""
        return self.held or self.entry.load()


class ChosenRules(Sequence["Rule"]):
    """The rules of a run, each imported when it is first asked for."""

    def __init__(self, chosen: Sequence[ChosenRule]) -> None:
        self.chosen = chosen

    @overload
    def __getitem__(self, at: int) -> Rule: ...

    @overload
    def __getitem__(self, at: slice) -> Sequence[Rule]: ...

    def __getitem__(self, at: int | slice) -> Rule | Sequence[Rule]:
        if isinstance(at, slice):
            return ChosenRules(self.chosen[at])
        return self.chosen[at].rule

    def __len__(self) -> int:
        return len(self.chosen)

    def __iter__(self) -> Iterator[Rule]:
        return (chosen.rule for chosen in self.chosen)

    def named(self, name: str) -> ChosenRule | None:
        """The rule of that name, if it is one of them."""
        return next((chosen for chosen in self.chosen if chosen.entry.name == name), None)

    @classmethod
    def of(cls, rules: Sequence[Rule]) -> ChosenRules:
        """Rules that are there already."""
        if isinstance(rules, ChosenRules):
            return rules
        from hlo_lint.rules.base import entry_of

        return cls([ChosenRule(entry_of(type(rule)), rule) for rule in rules])
