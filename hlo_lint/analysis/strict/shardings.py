"""Errors in a sharding, as XLA's parser finds them.

Mirrors `ParseSharding` and `ParseSingleSharding` in `xla/hlo/parser/hlo_parser.cc`: words come in
any order and as often as they like, and what is read is judged after the last of them. Shardings
over a named mesh have a syntax of their own, which the attribute's reader knows.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from math import prod
from typing import Final

from hlo_lint.analysis.strict.tokens import BLANK, Refused, blank_end
from hlo_lint.hlo.attributes import AttributeSyntaxError, NamedSharding, read_attribute
from hlo_lint.hlo.grammar import int64

_KINDS: Final = ("replicated", "maximal", "manual", "unknown", "unreduced")
"""In the order in which XLA asks for them: a sharding with several is of the first."""
_SUBGROUPS: Final = ("replicated", "manual", "maximal", "unreduced")

_token = re.compile(
    rf"{BLANK}(?P<token>(?:metadata|device|devices|last_tile_dims)=|<=|-?[0-9]+|\w+|[{{}}\[\](),])",
    re.A,
).match
_named = re.compile(rf"\{{{BLANK}(?:mesh|maximal_mesh|single_device)\[").match
_braces = re.compile(
    r'\{(?:[^{}"]|"(?:[^"\\]|\\.)*+"|\{(?:[^{}"]|"(?:[^"\\]|\\.)*+"|\{[^{}]*\})*+\})*+\}', re.S
).match
_is_integer = re.compile(r"-?[0-9]+").fullmatch


def sharding_errors(text: str) -> Iterator[tuple[str, int]]:
    """The first error in the value of `sharding=`: a message, and the offset in it."""
    try:
        if text not in ("{replicated}", "{manual}"):
            reader = _ShardingReader(text)
            reader.sharding()
            reader.end()
    except Refused as error:
        yield error.message, error.at


def domain_errors(text: str) -> Iterator[tuple[str, int]]:
    """The first error in the value of `domain=`; its parts come in any order."""
    parts = {part[1]: part for part in _find_parts(text)}
    kind = parts.get("kind")
    if not parts.keys() >= {"kind", "entry", "exit"} or not _is_domain(text):
        yield 'expected {kind="sharding", entry={…}, exit={…}}', 1
    elif kind and kind[2] != '"sharding"':
        yield f"unsupported domain kind: {kind[2][1:-1]}", kind.start(2)
    for name in ("entry", "exit"):
        for message, at in sharding_errors(parts[name][2]) if name in parts else ():
            yield message, parts[name].start(2) + at


_PART = r"(kind|entry|exit)=\s*(\"[^\"]*\"|\{(?:[^{}\"]|\"[^\"]*\"|\{[^{}]*\})*\})"
_find_parts = re.compile(_PART).finditer
_is_domain = re.compile(rf"\{{\s*{_PART}(?:\s*,\s*{_PART}){{2}}\s*\}}").fullmatch


class _ShardingReader:
    """A sharding, token by token."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.next = 0
        """The end of the token at hand."""
        self.advance()

    def advance(self) -> str:
        """Go to the next token; the one that was at hand."""
        last, found = getattr(self, "token", ""), _token(self.text, self.next)
        blank = blank_end(self.text, self.next)
        self.start = blank.end() if blank else self.next
        self.token, self.next = (found["token"], found.end()) if found else ("", len(self.text))
        return last

    def end(self) -> None:
        if self.token or self.start < len(self.text):
            raise Refused("expected the end of the sharding", self.start)

    def expect(self, token: str) -> None:
        if self.token != token:
            raise Refused(f"expected `{token}`", self.start)
        self.advance()

    def integer(self) -> int:
        if not _is_integer(self.token):
            raise Refused("expected an integer", self.start)
        try:
            return int64(self.advance())
        except OverflowError:
            raise Refused("a number does not fit", self.start) from None

    def integers(self) -> list[int]:
        """Integers between commas."""
        numbers = [self.integer()]
        while self.token == ",":
            self.advance()
            numbers.append(self.integer())
        return numbers

    def sharding(self) -> None:
        """One sharding, or one for each array of a tuple."""
        begin = self.start
        if _named(self.text, begin):
            return self.named(begin)
        self.expect("{")
        if self.token == "}" and begin == 0:
            self.advance()  # no shardings, for a tuple of no arrays
        elif self.token != "{":
            self.single(begin)
        else:
            self.element()
            while self.token == ",":
                self.advance()
                self.element()
            self.expect("}")
        return None

    def element(self) -> None:
        """The sharding of one array of a tuple."""
        begin = self.start
        if _named(self.text, begin):
            return self.named(begin)
        self.expect("{")
        return self.single(begin)

    def named(self, begin: int) -> None:
        """A sharding over a named mesh."""
        braces = _braces(self.text, begin)
        if braces is None:
            raise Refused("expected a sharding in braces", begin)
        try:
            sharding = read_attribute("sharding", braces[0])
        except AttributeSyntaxError as error:
            raise Refused(error.message, begin + error.offset) from None
        if isinstance(sharding, NamedSharding):
            for message, at in _axes_errors(sharding, braces[0]):
                raise Refused(message, begin + at)
        self.next = braces.end()
        self.advance()

    def single(self, begin: int) -> None:
        """The words of one sharding after its brace, and what they say together."""
        kinds: set[str] = set()
        tiles: list[int] = []
        devices: list[int] = []
        dims: list[int] = []
        order: list[int] = []
        subgroups = 0
        is_replicated_last = False
        while self.token != "}":
            at, word = self.start, self.advance()
            match word:
                case "last_tile_dim_replicate":
                    is_replicated_last = True
                case "shard_as" | "shard_like":
                    self.integer()
                case "device=":
                    devices = [self.integer()]
                case "devices=":
                    self.expect("[")
                    tiles += self.integers()
                    self.expect("]")
                    if self.token == "<=":
                        self.iota(dims, order)
                    else:
                        devices += self.integers()
                case "last_tile_dims=":
                    subgroups += self.subgroups()
                case "metadata=":
                    self.metadata(at)
                case _ if word in _KINDS:
                    kinds.add(word)
                case _:
                    raise Refused(
                        "expected devices=[…], replicated, manual, maximal device=0 or mesh[…]", at
                    )
        self.advance()
        kind = next((kind for kind in _KINDS if kind in kinds), "")
        if kind == "maximal":
            if len(devices) != 1:
                raise Refused("maximal needs one device", begin)
        elif kind:
            if devices:
                raise Refused(f"{kind} has no devices", begin)
        elif not tiles:
            raise Refused("expected one of devices=[…], replicated, manual, maximal …", begin)
        elif dims and devices:
            raise Refused("expected a list of devices or `<=[…]`, not both", begin)
        elif len(order) != len(dims):
            raise Refused(f"the order of {len(dims)} dimensions names {len(order)}", begin)
        elif not dims and len(devices) < 2:
            raise Refused("tiles have more than one device", begin)
        elif min(tiles) < 0 or (prod(dims) if dims else len(devices)) != prod(tiles):
            count = prod(dims) if dims else len(devices)
            raise Refused(f"{count} devices for {prod(tiles)} places", begin)
        elif subgroups + is_replicated_last > len(tiles) or (subgroups and is_replicated_last):
            raise Refused(f"{subgroups} kinds of subgroups for {len(tiles)} dimensions", begin)

    def iota(self, dims: list[int], order: list[int]) -> None:
        """`<=[4,2]T(1,0)` adds to the dimensions and their order."""
        self.advance()
        self.expect("[")
        dims += self.integers()
        self.expect("]")
        if len(dims) == 1:
            order.append(0)
            return
        if self.token != "T":
            raise Refused("expected `T(`, the order of several dimensions, like T(1,0)", self.start)
        self.advance()
        self.expect("(")
        at = self.start
        order += self.integers()
        self.expect(")")
        if not all(0 <= number < len(dims) for number in order):
            raise Refused("the order names a dimension that is not there", at)

    def subgroups(self) -> int:
        """The number of kinds in `last_tile_dims={…}`."""
        count = 0
        self.expect("{")
        while self.token != "}":
            if self.token not in _SUBGROUPS:
                raise Refused("expected the kinds of subgroups, like {manual}", self.start)
            self.advance()
            count += 1
            if self.token != ",":
                break
            self.advance()
        self.expect("}")
        return count

    def metadata(self, at: int) -> None:
        """`metadata={…}`, or a list of such."""
        braces = _braces(self.text, self.start)
        if braces is None:
            raise Refused("expected metadata in braces", self.start)
        try:
            read_attribute("sharding", f"{{replicated {self.text[at : braces.end()]}}}")
        except AttributeSyntaxError as error:
            raise Refused(error.message, at) from None
        self.next = braces.end()
        self.advance()


def _axes_errors(sharding: NamedSharding, text: str) -> Iterator[tuple[str, int]]:
    names = [axis.name for axis in sharding.mesh.axes]
    if len(set(names)) < len(names):
        yield "the mesh has an axis twice", 0
    for word in ("replicated=", "unreduced=", "manual="):
        if text.count(word) > 1:
            yield f"{word} is there twice", text.rfind(word)
    order = sharding.mesh.order
    if (
        "device_ids" in text
        and isinstance(order, tuple)
        and sorted(order) != list(range(len(order)))
    ):
        yield "device_ids names each device once, from 0 on", text.find("device_ids")
    seen: set[tuple[str, object]] = set()
    of_dimensions = [axis for dimension in sharding.dimensions for axis in dimension.axes]
    for axis in [*of_dimensions, *sharding.replicated, *sharding.unreduced, *sharding.manual]:
        if (axis.name, axis.part) in seen:
            yield f"the axis {axis.name} is there twice", 0
        seen.add((axis.name, axis.part))
