"""Comments to hlo-lint in a text: the findings that it allows, the stage that it states.

    %r = f32[4,2]{0,1} reshape(%p)  // hlo-lint: allow reshape-moves-data -- a test of the fix
    // hlo-lint: allow needless-transpose, layout -- alone on its line: for the next statement
    // hlo-lint: allow-begin speed -- between here and there
    // hlo-lint: allow-end speed
    // hlo-lint: allow-file bad-sharding -- everywhere in this file
    // hlo-lint: stage gpu post-layout

`/* … */` works as well. Text in a string is not a comment: a program chooses its operation names.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from hlo_lint.analysis.stage import Stage, parse_stage
from hlo_lint.dumps.pass_dump import PassDump
from hlo_lint.hlo.ir import HloFile
from hlo_lint.text.edits import Region
from hlo_lint.text.errors import UsageError, nearest
from hlo_lint.text.patterns import late
from hlo_lint.text.source import DIRECTIVE, Span

USAGE = "`hlo-lint: allow RULE -- REASON`"
STAGE_VERB = "stage"
VERBS = ("allow", "allow-begin", "allow-end", "allow-file", STAGE_VERB)

_tokens = late(  # a token that never closes takes the rest, as searching again is quadratic
    r"\"(?:[^\"\\]|\\.)*+(?:\"|\Z)|'(?:[^'\\\n]|\\.)*+(?:'|$)|//[^\r\n]*+|/\*.*?(?:\*/|\Z)"
    r"|^#(?![(\d])[^\r\n]*+",
    re.S | re.M,
).finditer
_begins = late(r"(?://|/\*)\s*+hlo-lint:").match
_dashes = late(r"(?<!\S)--(?!\S)").search
_is_name = late(r"[a-z][a-z0-9\-]*").fullmatch


class TextRange(NamedTuple):
    """A stretch of a file, in characters and in lines."""

    span: Span
    region: Region


class _Directive(NamedTuple):
    """The directive in a comment; the span of its names is relative to the comment."""

    verb: str
    names: Span
    reason: str


class LineRange(NamedTuple):
    """Lines of a file, counted from 1, both ends included."""

    first: int
    last: int


EVERYWHERE = LineRange(1, 1 << 62)


@dataclass(frozen=True, slots=True)
class Comment:
    """A comment with the mark `hlo-lint:`."""

    path: str
    module: str
    """The name of the module that contains or follows it."""
    at: TextRange
    excerpt: str
    """The line it begins on."""
    removal: TextRange
    """The text to remove with it: its whole line if it is alone, else the blanks before it."""
    verb: str
    names: tuple[str, ...]
    """Rules and families, as spelled."""
    names_at: TextRange
    reason: str
    trouble: str = ""
    """The error in the comment, which then allows no finding; empty without error."""
    lines: LineRange | None = None
    """The lines that it covers; None before no statement, and for the end of a region."""
    regions: Mapping[str, tuple[LineRange, Comment]] = field(default_factory=dict, hash=False)
    """For an `allow-begin`, the lines of each region by name, and the comment that ends it."""

    def lines_of(self, name: str) -> LineRange | None:
        """The lines that it covers for a name."""
        return self.regions[name][0] if name in self.regions else self.lines


@dataclass(frozen=True, slots=True)
class CheckedFile:
    """A file that was checked, with its comments."""

    path: str
    modules: tuple[str, ...]
    """The names of its modules; an empty name for a file that is not HLO."""
    lone: bool
    """True if the file was named by the user, so that other files may be missing."""
    comments: tuple[Comment, ...] = ()


def checked_file(dump: PassDump, *, lone: bool) -> CheckedFile:
    """The record of a checked dump, with its comments."""
    path = str(dump.path)
    comments = read_comments(dump.file, path) if dump.may_have_directives else ()
    return CheckedFile(path, tuple(module.name for module in dump.file.modules), lone, comments)


def read_comments(file: HloFile, path: str) -> tuple[Comment, ...]:
    """The comments of a file with the mark, in the order of the text."""
    text = file.text
    if DIRECTIVE not in text:
        return ()
    directives = [
        (token, parsed)
        for token in _tokens(text)
        if DIRECTIVE in token[0] and (parsed := _read(token[0])) is not None
    ]
    if not directives:
        return ()
    text_lines = _TextLines(file)
    comments = [_comment(file, path, token, parsed, text_lines) for token, parsed in directives]
    return tuple(_with_regions(comments))


def stage_in(file: HloFile) -> Stage | None:
    """The stage that the first readable stage comment of a file states."""
    text = file.text
    if f"{DIRECTIVE} {STAGE_VERB}" not in text:
        return None
    for token in _tokens(text):
        directive = _read(token[0]) if DIRECTIVE in token[0] else None
        if directive is not None and directive.verb == STAGE_VERB:
            try:
                return parse_stage(token[0][slice(*directive.names)])
            except UsageError:
                continue  # unused-allowance reports it
    return None


def lost_comments(old: str, new: str) -> list[str]:
    """The marked comments of an old text that its replacement lacks.

    Empty if the old text has only comments: their removal is intended.
    """
    if DIRECTIVE not in old or not _bare(old).strip():
        return []
    kept = [token[0] for token in _tokens(old) if _read(token[0])]
    return [comment for comment in kept if comment not in new]


def length_without_comments(text: str) -> int:
    """The length of a text without trailing comments and blanks."""
    return len(_bare(text).rstrip())


def without(comment: Comment, names: Collection[str]) -> tuple[TextRange, str]:
    """The edit that removes names from a comment: the range and the new text."""
    left = [name for name in comment.names if name not in names]
    if not left:
        return comment.removal, ""
    return comment.names_at, ", ".join(left)


def _comment(
    file: HloFile, path: str, token: re.Match[str], directive: _Directive, lines: _TextLines
) -> Comment:
    text, span = lines.text, Span(*token.span())
    place = _stretch(file, *span)
    first, last = place.region.start.line, place.region.end.line
    begin = text.rfind("\n", 0, span.start) + 1
    stop = text.find("\n", span.end)
    stop = len(text) if stop < 0 else stop + 1
    alone = not (text[begin : span.start] + text[span.end : stop]).strip()
    before = text[begin : span.start]
    removal = (begin, stop) if alone else (begin + len(before.rstrip()), span.end)
    verb, reason = directive.verb, directive.reason
    named = span.start + directive.names.start, span.start + directive.names.end
    words = [text[slice(*named)]] if verb == STAGE_VERB else text[slice(*named)].split(",")
    names = tuple(dict.fromkeys(name.strip() for name in words))
    aim: LineRange | None = None
    if verb == "allow":
        own = lines.are_bare(begin, stop)
        aim = lines.after(last) if own else lines.around(first, last)
    elif verb == "allow-file":
        aim = EVERYWHERE
    return Comment(
        path,
        file.module_at(span.start).name,
        place,
        lines.excerpt(first),
        _stretch(file, *removal),
        verb,
        names,
        _stretch(file, *named),
        reason,
        _trouble(verb, names, reason),
        aim,
    )


def _read(comment: str) -> _Directive | None:
    """The directive in a token; None for tokens other than marked comments."""
    begin = _begins(comment)
    if begin is None:
        return None
    end = len(comment)
    if comment[1] == "*":
        if not comment.endswith("*/"):
            return None
        end -= 2
    dashes = _dashes(comment, begin.end(), end)
    reason = comment[dashes.end() : end] if dashes else ""
    words = comment[begin.end() : dashes.start() if dashes else end]
    verb, names = [*words.rstrip().split(None, 1), "", ""][:2]
    start = begin.end() + words.rindex(names) if names else end
    return _Directive(verb, Span(start, start + len(names)), " ".join(reason.split()))


def _stretch(file: HloFile, start: int, end: int) -> TextRange:
    span = Span(start, end)
    return TextRange(span, Region.of(span, file.lines))


def _trouble(verb: str, names: Sequence[str], reason: str) -> str:
    if verb not in VERBS:
        problem = f"`{verb}` is not a directive" if verb else "this comment has no directive"
        return f"{problem}: {nearest(verb, VERBS, f'write {USAGE}')}"
    if verb == STAGE_VERB:
        try:
            parse_stage(names[0])
        except UsageError as error:
            return str(error)
        return ""
    if not any(names):
        return f"this comment names no rule: write {USAGE}"
    for name in names:
        if not _is_name(name):
            return (
                f"`{name}` is not the name of a rule: names are separated by commas, then -- REASON"
            )
    if verb != "allow-end" and not reason:
        return f"this comment gives no reason, so it allows nothing: write {USAGE}"
    return ""


def _with_regions(comments: Sequence[Comment]) -> Iterator[Comment]:
    """The comments, with the begin and the end of each region paired."""
    ends: dict[int, dict[str, Comment]] = {}
    loose: dict[int, list[str]] = {}
    open_at: dict[str, list[int]] = {}
    for number, comment in enumerate(comments):
        if comment.trouble:
            continue
        for name in comment.names:
            if comment.verb == "allow-begin":
                open_at.setdefault(name, []).append(number)
            # An end closes the innermost region of its name, as a bracket does.
            elif comment.verb == "allow-end" and open_at.get(name):
                ends.setdefault(open_at[name].pop(), {})[name] = comment
            elif comment.verb == "allow-end":
                loose.setdefault(number, []).append(name)
    for number, comment in enumerate(comments):
        if number in loose:
            names = ", ".join(loose[number])
            yield replace(comment, trouble=f"no `allow-begin {names}` comes before this end")
        elif comment.verb == "allow-begin" and not comment.trouble:
            closing = ends.get(number, {})
            missing = ", ".join(name for name in comment.names if name not in closing)
            regions = {
                name: (LineRange(comment.at.region.start.line, end.at.region.end.line), end)
                for name, end in closing.items()
            }
            trouble = f"no `allow-end {missing}` ends this region" if missing else ""
            yield replace(comment, regions=regions, trouble=trouble)
        else:
            yield comment


def _bare(text: str) -> str:
    """A text with its comments replaced by blanks."""
    pieces, position = [], 0
    for token in _tokens(text):
        if token[0][0] in "/#":
            pieces += [text[position : token.start()], re.sub(r"[^\n]", " ", token[0])]
            position = token.end()
    return "".join([*pieces, text[position:]])


class _TextLines:
    """The lines of each statement: header, computation head, instruction, or unreadable text.

    In a text that is not HLO each line that is not blank is a statement.
    """

    def __init__(self, file: HloFile) -> None:
        self.text = text = file.text
        self._lines = lines = file.lines
        self._bare: dict[tuple[int, int], bool] = {}
        self._excerpts: dict[int, str] = {}
        statements: set[LineRange] = set()
        for begin, end in _stretches(file):
            written = _bare(text[begin:end])
            if not written.strip():
                continue
            start = begin + len(written) - len(written.lstrip())
            stop = begin + len(written.rstrip())
            statements.add(LineRange(lines.position(start).line, lines.position(stop - 1).line))
        self._sorted = sorted(statements)
        self._smallest: dict[int, LineRange] = {}
        for statement in sorted(statements, key=lambda statement: statement.first - statement.last):
            self._smallest.update(
                dict.fromkeys(range(statement.first, statement.last + 1), statement)
            )

    def are_bare(self, begin: int, end: int) -> bool:
        """True if lines hold only comments; cached, as a long line may hold thousands."""
        if (begin, end) not in self._bare:
            self._bare[begin, end] = not _bare(self.text[begin:end]).strip()
        return self._bare[begin, end]

    def excerpt(self, number: int) -> str:
        """The text of a line, shared by all comments on it."""
        return self._excerpts.setdefault(number, self._lines.line(number))

    def around(self, first: int, last: int) -> LineRange:
        """The lines of a comment joined with the smallest statement on them."""
        statement = self._smallest.get(first) or self._smallest.get(last) or LineRange(first, last)
        return LineRange(min(first, statement.first), max(last, statement.last))

    def after(self, line: int) -> LineRange | None:
        """The next statement that begins after a line, else the statement around it."""
        innermost = self._smallest.get(line)
        index = bisect_left(self._sorted, LineRange(line + 1, 0))
        if index == len(self._sorted):
            return innermost
        first = self._sorted[index].first
        if innermost is not None and innermost.last < first:
            return innermost
        return self._sorted[bisect_left(self._sorted, LineRange(first + 1, 0)) - 1]


def _stretches(file: HloFile) -> Iterator[tuple[int, int]]:
    if not any(module.header or module.computations for module in file.modules):
        start = 0
        for line in _bare(file.text).split("\n"):
            if line.strip():
                yield start, start + len(line)
            start += len(line) + 1
        return
    for module in file.modules:
        if module.header:
            begin = file.text.find(module.header, module.start)
            yield begin, begin + len(module.header)
        for number, computation in enumerate(module.computations):
            base = module.start + module.offset(number)
            inner = [(base + start, base + end) for start, end in computation.spans]
            yield base, inner[0][0] if inner else base + len(computation.text)
            yield from inner
        yield from (problem.span for problem in module.problems)
