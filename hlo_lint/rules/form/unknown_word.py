"""Words that no release of XLA knows: opcodes, element types, attribute names."""

from __future__ import annotations

from collections.abc import Iterable
from functools import cache, lru_cache
from typing import Final

from hlo_lint.hlo.attributes.splitting import split_attributes
from hlo_lint.hlo.dtypes import ELEMENT_TYPES
from hlo_lint.hlo.ir import Computation, Instruction, cached_analysis
from hlo_lint.hlo.kinds import ATTRIBUTES, reading_of, types_of
from hlo_lint.hlo.opcodes import OPCODES, SUGAR, wrapped_opcode
from hlo_lint.hlo.records import attributes_before_metadata, attributes_of, type_of
from hlo_lint.rules.base import Bad, Finding, Findings, Good, RefusedByXla, Rule
from hlo_lint.text.errors import nearest
from hlo_lint.text.patterns import late

_FORMER_OPCODES: Final = frozenset(
    "cross-replica-sum generate-token host-compute trace all-reduce-scatter".split()
)
"""Opcodes that XLA has removed (`hlo_opcode.h`)."""
_OPCODES: Final = _FORMER_OPCODES | OPCODES.keys()
_ALLOWED: Final = frozenset().union(*(opcode.allowed for opcode in OPCODES.values()))
_TYPES: Final = frozenset(ELEMENT_TYPES) | {"token", "opaque"}

_LIKE: Final = 0.66
"""Least similarity of a word that is suggested: `f32` for `f33`, not `padding` for `plan`."""

_find_types = late(r"([A-Za-z]\w*)\[").findall
_find_names = late(r", ?([A-Za-z_][\w.\-]*)=").findall


class UnknownWord(Rule):
    """An opcode, an element type or an attribute that no release of XLA has.

    ## Why
    XLA's parser rejects the text for a misspelt word: `Unknown opcode: rehsape`. Other rules skip
    such an instruction: they do not know its meaning, and see no call in `to_aply=%sum`.

    ## Where
    Known words are those of jaxlib 0.11.2 and those that only older or newer releases print. Dumps
    that a compiler wrote are skipped: they may be from a future release. Each unknown word is
    reported once per computation. `hlo-lint check --strict` runs XLA's own parser, which knows only
    the words of its release.
    """

    subsumes = frozenset({"verifier", "malformed-text"})
    handwritten_only = True
    skip_fusion_bodies = False
    evidence = (RefusedByXla("Unknown opcode: rehsape", by="parser 0.12.0.1"),)
    examples = (
        Bad.entry("ROOT r = f32[24]{0} rehsape(f32[8,3]{1,0} p)  // error"),
        Bad.entry("""
            p = f23[8]{0} parameter(0)  // error
            ROOT n = f32[8]{0} negate(p)
        """),
        Bad.entry("""
            sum { ROOT c = f32[] add(f32[] a, f32[] b) }
            z = f32[] constant(0)
            ROOT r = f32[] reduce(f32[8]{0} p, z), dimensions={0}, to_aply=sum  // error
        """),
        Good.entry("""
            s = ((f32[8,3]{1,0}), f32[24]{0}, s32[]) reshape-start(f32[8,3]{1,0} p)
            ROOT d = f32[24]{0} reshape-done(s)
        """),
    )

    def check(self, computation: Computation) -> Findings:
        """A finding for each unknown word of a computation, at the first instruction with it."""
        for opcode in sorted(computation.opcodes - _OPCODES):
            if wrapped_opcode(opcode) is None:
                yield _finding(computation.with_opcode(opcode)[0], "opcode", opcode, _near(opcode))
        if any(map(_unknown_types, types_of(computation))):
            yield from _types(computation)
        words = set(_unknown_names(computation))
        for instruction in computation.instructions if words else ():
            attributes = attributes_before_metadata(instruction.attributes_text)
            for word in sorted(words & _unknown_attributes(attributes)):
                yield _finding(instruction, "attribute", word, _attributes())
                words.discard(word)


def _types(computation: Computation) -> Findings:
    texts = dict.fromkeys(map(type_of, computation.rows))
    words = {word: text for text in reversed(texts) for word in _unknown_types(text)}
    for word, text in words.items():
        number = next(index for index, row in enumerate(computation.rows) if type_of(row) == text)
        yield _finding(computation.at(number), "element type", word, ELEMENT_TYPES)


@cached_analysis
def _unknown_names(computation: Computation) -> frozenset[str]:
    """The unknown attribute names of a computation."""
    if not any(map(attributes_of, computation.rows)):
        return frozenset()
    texts = {kind[ATTRIBUTES] for kind in reading_of(computation).kinds}
    if _ALLOWED.issuperset(_find_names("\n".join(texts))):
        return frozenset()
    return frozenset().union(*map(_unknown_attributes, texts))


@lru_cache(maxsize=1 << 12)
def _unknown_attributes(attributes: str) -> frozenset[str]:
    names = frozenset(_find_names(attributes)) - _ALLOWED
    if names := names and names - _attributes():
        return names & split_attributes(attributes).keys()  # strings may contain such words
    return names


@cache
def _attributes() -> frozenset[str]:
    """The names of all attributes."""
    from hlo_lint.hlo.attributes.reading import ATTRIBUTE_NAMES

    return ATTRIBUTE_NAMES | _ALLOWED


@lru_cache(maxsize=1 << 12)
def _unknown_types(text: str) -> tuple[str, ...]:
    return tuple(word for word in _find_types(text) if word not in _TYPES)


def _near(word: str) -> Iterable[str]:
    """The known opcodes, also with the asynchronous suffix of an unknown opcode like `ad-start`."""
    _, dash, suffix = word.rpartition("-")
    sugar = dash + suffix if dash + suffix in SUGAR else ""
    return OPCODES.keys() | {opcode + sugar for opcode in OPCODES if wrapped_opcode(opcode + sugar)}


def _finding(instruction: Instruction, noun: str, word: str, words: Iterable[str]) -> Finding:
    near = nearest(word, words, "no release of XLA has it", cutoff=_LIKE)
    return Finding(instruction, f"unknown {noun}: {word}", notes=(near,), word=word)
