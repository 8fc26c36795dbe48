"""The origin of a message of XLA: its component, its pass.

`messages.xz` is made by `python -m benchmarks.messages`: each file of XLA's sources with the kinds
of its messages and hashes of their fixed words. `components.toml` says what the files are.
"""

from __future__ import annotations

import lzma
import re
import sys
import tomllib
from array import array
from bisect import bisect_left, bisect_right
from collections import Counter, defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from functools import cache
from itertools import islice, pairwise
from math import log as logarithm
from pathlib import Path
from typing import Final, NamedTuple
from zlib import crc32

from hlo_lint.text.patterns import late

CATALOGUE: Final = Path(__file__).parent / "messages.xz"
GAP: Final = 1
"""Stands in a message where XLA prints a value."""
KINDS: Final = {
    "C": "a check that ends the process: as a rule a defect of XLA, or a program that this part "
    "was not written for",
    "I": "an internal error: as a rule a defect of XLA, or a program that this part does not take",
    "P": "the program, its arguments or the flags do not fit; if a pass made the instruction, "
    "it is a defect of XLA",
    "U": "the program may be right; this release does not implement it",
    "R": "memory or another resource is used up",
    "M": "an operation of MLIR is refused: as a rule the part that wrote it is at fault, "
    "for a kernel its author",
    "L": "a line of the log that ends nothing by itself",
    "K": "",
}
"""The party at fault as a rule, by kind of message."""
MAX_LOG: Final = 1 << 18
"""Characters of a log in which messages are looked for by their words: its end."""
_LEAST_WEIGHT = 12.0
"""The least weight of a match; a word in one message of 14,103 weighs 9.6."""
_HEAVY = 24.0
_LEAST_SHARE = 0.6
_LEAST_SHARE_OF_HEAVY = 0.5
_LEAST_SHARE_OF_LONG = 0.95
_LEAST_SHARE_OF_HEAVY_SHORT = 0.8
_LONG = 300
_SHORT = 6
_LEAST_RUN = 3
"""Words side by side that a match has, or all of a shorter message."""
_LONGEST_VALUE = 40
"""Words that a value in a message may have."""
_LONGEST_MESSAGE = 1000
"""Characters after the place of a message that are read as its text."""
_MOST_STARTS = 50
_MOST_NAMES = 50
"""Names of files in a log of which sources are looked up."""
_NARROW = 79
"""Characters of the narrowest line at whose end words are cut."""
_MOST_SOURCES = 3

_words = late(r"[a-z_][a-z_0-9]*").findall
# Python's own words (`got an unexpected keyword argument`) stand in messages of XLA, too.
_without_errors_of_python = late(
    r"^(?:Type|Value|Attribute|Key|Name|Index|Import|ModuleNotFound|Assertion|FileNotFound|OS|"
    r"ZeroDivision|UnboundLocal|NotImplemented|Recursion|Syntax|Permission)Error: "
    r"(?![^\n]*(?:[A-Z]+_[A-Z]+|INTERNAL|UNIMPLEMENTED|UNKNOWN|ABORTED|CANCELLED)\b)[^\n]*$",
    re.M,
).sub
_find_operation = late(r"(?:'(\w+)\.([\w.]+)' op|operation '(\w+)\.([\w.]+)')(?!\w)").search
_places = late(r"(?<![\w/.])((?:[\w.+-]+/)*)(\w[\w.-]*\.(?:cc|h|cpp|cu)):(\d+)").finditer


class Component(NamedTuple):
    """A part of XLA, or of what it calls."""

    name: str
    when: str
    """When it runs."""
    next: tuple[str, ...]
    """Commands that show more."""
    off: str = ""
    """The flag that switches it off."""
    optional: bool = False
    """True if its passes may be switched off."""
    passes: tuple[str, ...] = ()
    """The passes of files that the catalogue knows no pass of."""
    phase: str = ""
    """The phase of compilation or run time, if it runs outside the passes."""
    calls: str = ""
    """A pattern in the attributes of the calls and fusions that it compiles or runs."""
    dialects: str = ""
    """A pattern for the dialects of MLIR whose operations only it writes."""
    core_dialects: str = ""
    """A pattern for the dialects whose operations other components write, too."""


class MessageSource(NamedTuple):
    """A file of XLA's sources that a message comes from."""

    path: str
    """Below the root of XLA; only the name if the file is in no catalogue."""
    component: Component
    passes: tuple[str, ...]
    """Its passes, as dumps name them."""
    callers: tuple[str, ...] = ()
    """The passes that call it, if it is of no pass; their number if they are many."""
    kind: str = ""
    """The kind of message, a letter of `KINDS`; empty if only the file is known."""
    quoted: str = ""
    """The file as the log names it; empty if it was found by the words."""


def word_hashes(text: str) -> list[int]:
    """The words of a text as 16-bit hashes, none of them 0 or `GAP`."""
    return [crc32(word.encode()) % 65534 + 2 for word in _words(text.lower())]


def failure_in(log: str) -> str:
    """The line of the first failed check in a log, and what follows it; without such, the log."""
    place = next((place for place in _places(log) if _is_failure(log, place)), None)
    return log[log.rfind("\n", 0, place.start()) + 1 :] if place else log


def find_sources(log: str) -> tuple[MessageSource, ...]:
    """The files that the messages in a log come from, the first failure first.

    A file that the log names counts; without such, messages are found by their fixed words. Empty
    if the words stand in too many components to say.

    >>> find_sources("spmd_partitioner.cc:123] Check failed: x")[0].component.name
    'the SPMD partitioner'
    """
    log = log[-MAX_LOG:]
    quoted = tuple(_quoted(log))
    if quoted:
        return quoted
    # Many parts write operations of MLIR's own dialects: the words say more.
    own, core = (tuple(_by_dialect(log, is_core=is_core)) for is_core in (False, True))
    return own or _by_words(log) or core


def _by_dialect(log: str, *, is_core: bool) -> Iterator[MessageSource]:
    """The component that writes the operation of MLIR that an error names: `'tt.load' op`."""
    if operation := _find_operation(log):
        dialect, name = filter(None, operation.groups())
        for _, component in _tables().components:
            dialects = component.core_dialects if is_core else component.dialects
            if dialects and re.fullmatch(dialects, dialect):
                yield MessageSource(f"'{dialect}.{name}'", component, (), (), "M")


def _quoted(log: str) -> Iterator[MessageSource]:
    """The sources of the files that a log names: of a failed check, else of the first names."""
    quotes = list(_places(log))
    # The lines of a log before the failure are warnings: the failed check says where it died.
    failures = [place for place in quotes if _is_failure(log, place)]
    places: dict[str, re.Match[str]] = {}
    for place in failures or quotes:
        places.setdefault(place[1] + place[2], place)
    seen: set[str] = set()
    named = 0
    for quoted, place in islice(places.items(), _MOST_NAMES):
        paths = _paths_of(quoted)
        components = {component_of(path): path for path in reversed(paths)}
        kind = ""
        if failures:
            kind = "I" if "RET_CHECK" in _before(log, place) else "C"
        if len(components) > 1:
            # Files of one name: the words choose, or each is named.
            message = log[place.end() : place.end() + _LONGEST_MESSAGE]
            chosen = _by_words(message, frozenset(paths))
            components = {source.component: source.path for source in chosen} or components
        sources = [
            _source(path, component, kind, quoted)
            for component, path in components.items()
            if component is not None and path not in seen
        ]
        seen.update(source.path for source in sources)
        yield from sources
        named += bool(sources)
        if named == _MOST_SOURCES:
            return


def _before(log: str, place: re.Match[str]) -> str:
    """The characters that may say what a place is of."""
    return log[max(0, place.start() - 60) : place.start()]


def _is_failure(log: str, place: re.Match[str]) -> bool:
    is_check = "Check failed" in log[place.end() : place.end() + 20]
    return is_check or "RET_CHECK failure (" in _before(log, place)


def _paths_of(quoted: str) -> list[str]:
    """The files of the catalogue that a quoted path may be; the path itself if there are none."""
    name = quoted.rpartition("/")[2]
    paths = [path for path in _catalogue().paths if path.rpartition("/")[2] == name]
    whole = [path for path in paths if quoted.endswith(path) or path.endswith(f"/{quoted}")]
    if "/" in quoted and not whole and paths:
        # A release with other folders: the file has moved, or has the name of another file.
        return [below_root(quoted), *paths] if component_of(below_root(quoted)) else paths
    return whole or paths or [below_root(quoted)]


def below_root(path: str) -> str:
    """`xla/service/x.cc` of `external/xla/xla/service/x.cc`"""
    _, root, rest = path.rpartition("/xla/")
    return f"xla/{rest}" if root else path


class _Catalogue(NamedTuple):
    paths: dict[str, tuple[str, ...]]
    """The files, with their passes; those that only call it begin with `+`."""
    files: Sequence[int]
    """The number of the file of each message."""
    kinds: str
    """The kind of each message."""
    hashes: array[int]
    """The words of the messages, a 0 after each."""
    starts: Sequence[int]
    """The start of each message in `hashes`, and the end of the last."""
    numbers: Mapping[int, int]
    """The number of times that each word stands in messages."""


@cache
def _catalogue() -> _Catalogue:
    head, _, body = lzma.decompress(CATALOGUE.read_bytes()).partition(b"\n\n")
    paths: dict[str, tuple[str, ...]] = {}
    files = array("H")
    kinds: list[str] = []
    for number, line in enumerate(head.decode().split("\n")):
        path, letters, *passes = line.split(" ")
        paths[path] = tuple(passes)
        kinds.append(letters)
        files.extend([number] * len(letters))
    hashes = array("H", body)
    if sys.byteorder == "big":
        hashes.byteswap()
    starts = [0, *(place + 1 for place, word in enumerate(hashes) if word == 0)]
    return _Catalogue(paths, files, "".join(kinds), hashes, starts, Counter(hashes))


def _by_words(log: str, among: Collection[str] = ()) -> tuple[MessageSource, ...]:
    """The sources of the message in a log with the most words that are rare in other messages.

    If it is of one of some files, few words are enough.
    """
    places: dict[int, list[int]] = defaultdict(list)
    words = word_hashes(_without_errors_of_python("", log))
    for number, word in enumerate(words):
        places[word].append(number)
    pairs = set(pairwise(words))
    catalogue = _catalogue()
    files = tuple(catalogue.paths)
    hashes = catalogue.hashes
    starts, numbers = catalogue.starts, catalogue.numbers
    candidates = dict.fromkeys(
        bisect_right(starts, place) - 1
        for place, pair in enumerate(pairwise(hashes))
        if pair in pairs
    )
    total = len(starts) - 1
    # A quote may be cut after a word, and a line of a terminal or with an ellipsis within a word.
    log = log.rstrip()
    within = len(log) >= _NARROW or log.endswith(("…", "..."))
    ends = {len(words), len(words) - within}

    def least_share(message: Sequence[int], weight: float, is_cut: bool) -> float:
        # A long text has parts of many messages; half of a few words, such as `couldn't find`, is
        # of any message.
        is_short = sum(word > GAP for word in message) <= _SHORT
        if len(words) >= _LONG or is_cut or (is_short and weight < _HEAVY):
            return _LEAST_SHARE_OF_LONG
        if is_short:
            return _LEAST_SHARE_OF_HEAVY_SHORT
        return _LEAST_SHARE if weight < _HEAVY else _LEAST_SHARE_OF_HEAVY

    scores: list[tuple[float, float, int]] = []
    for number in candidates:
        if among and files[catalogue.files[number]] not in among:
            continue
        message = hashes[starts[number] : starts[number + 1] - 1]
        weights = [logarithm(total / (1 + numbers[word])) if word > GAP else 0 for word in message]
        matched, end = _matched(message, places)
        weight = sum(weights[place] for place in matched)
        is_cut = len(matched) > _LEAST_RUN and end in ends
        asked = weights[: matched[-1] + 1] if is_cut else weights
        share = weight / (sum(asked) or 1)
        if (among or weight >= _LEAST_WEIGHT) and share >= least_share(message, weight, is_cut):
            scores.append((round(weight * share, 3), share, number))
    best = max(scores, default=(0.0, 0.0, 0))
    sources: dict[str, MessageSource] = {}
    for score, _, number in sorted(scores, reverse=True):
        path = files[catalogue.files[number]]
        component = component_of(path)
        if score >= best[0] * 0.95 and component is not None:
            sources.setdefault(path, _source(path, component, catalogue.kinds[number]))
    by_component: dict[Component, list[MessageSource]] = defaultdict(list)
    for source in sources.values():
        by_component[source.component].append(source)
    if len(by_component) > _MOST_SOURCES:
        return ()
    return tuple(source for of in by_component.values() for source in of[:_MOST_SOURCES])


def _matched(message: Sequence[int], places: Mapping[int, Sequence[int]]) -> tuple[list[int], int]:
    """The words of a message that stand in a log, in order and side by side where no value is
    printed between them, and their end: the best of the places where it may begin."""
    best: list[int] = []
    end = 0
    starts = {
        start
        for first, second in pairwise(message)
        if first > GAP
        for start in places.get(first, ())[-_MOST_STARTS:]
        if _first(places.get(second, ()), start + 1, start + 2) is not None
    }
    for start in sorted(starts)[-_MOST_STARTS:]:
        matched: list[int] = []
        cursor, gap = start, True
        for place, word in enumerate(message):
            if word == GAP:
                gap = True
                continue
            spot = _first(places.get(word, ()), cursor, cursor + (_LONGEST_VALUE if gap else 1))
            if spot is not None:
                matched.append(place)
                cursor, gap = spot + 1, False
        last = cursor
        # Before the first pair of words may stand single words between values.
        cursor = start
        for place in reversed(range(matched[0] if matched else 0)):
            spot = _first(places.get(message[place], ()), cursor - _LONGEST_VALUE, cursor)
            if spot is not None:
                matched.insert(0, place)
                cursor = spot
        # A lone word beside values proves nothing: in a long text it may stand by chance.
        held = {*matched}
        longest = max(
            (
                next(length for length in range(1, len(message) + 1) if place + length not in held)
                for place in matched
            ),
            default=0,
        )
        if longest >= min(_LEAST_RUN, len(message)) and len(matched) > len(best):
            best, end = matched, last
    return best, end


def _first(places: Sequence[int], low: int, high: int) -> int | None:
    """The first of sorted places in a range."""
    index = bisect_left(places, low)
    return places[index] if index < len(places) and places[index] < high else None


class _Tables(NamedTuple):
    components: tuple[tuple[re.Pattern[str], Component], ...]
    passes: dict[str, tuple[str, ...]]


@cache
def _tables() -> _Tables:
    data = tomllib.loads((Path(__file__).parent / "components.toml").read_text("utf-8"))
    components: list[tuple[re.Pattern[str], Component]] = []
    for entry in data["component"]:
        files = re.compile("|".join(entry.pop("files")))
        lists = {key: tuple(value) for key, value in entry.items() if isinstance(value, list)}
        components.append((files, Component(**entry | lists)))
    passes = {stem: tuple(names.split()) for stem, names in data["passes"].items()}
    return _Tables(tuple(components), passes)


@cache
def component_of(path: str) -> Component | None:
    """The component of a file: the first in the table with a pattern in its path."""
    components = _tables().components
    return next((component for files, component in components if files.search(path)), None)


def _source(path: str, component: Component, kind: str, quoted: str = "") -> MessageSource:
    callers = tuple(name[1:] for name in _catalogue().paths.get(path, ()) if name.startswith("+"))
    passes = passes_of(path) or (() if callers else component.passes)
    return MessageSource(path, component, passes, callers, kind, quoted)


def passes_of(path: str) -> tuple[str, ...]:
    """The passes of a file, as dumps name them; empty if it is of no pass."""
    names = _catalogue().paths.get(path, ())
    return tuple(name for name in names if not name.startswith("+")) or listed_passes(path)


def listed_passes(path: str) -> tuple[str, ...]:
    """The passes of a file in the table of those that no library names."""
    return _tables().passes.get(path.rpartition("/")[2].partition(".")[0], ())
