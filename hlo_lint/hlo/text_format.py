r"""Protobuf's text format as a tree with positions, without message definitions.

    config_profiles { config { backend: TRITON } run_time { nanos: 3648 } }

Many processes append to an autotuner log, and any of them may die in the middle: unreadable parts
are reported, and the rest is read. `hlo_lint.hlo.text_proto` converts texts to bytes with protobuf
itself.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final, NamedTuple

from hlo_lint.hlo.attributes.cursor import unescape
from hlo_lint.text.source import ParseError, Span, shown

MAX_DEPTH: Final = 100
"""Protobuf's own limit for nested messages; deeper messages are left out."""

# Everything is possessive, and all matched text becomes a token: time is linear.
_STRING = r""""(?:[^"\\\n]|\\[^\n])*+"|'(?:[^'\\\n]|\\[^\n])*+'"""
_token = re.compile(
    rf"""[\s,;]*+(?:
    (?P<close>[}}>\]])
  | (?P<name>[A-Za-z_]\w*+|\[[\w./%-]++\]|[0-9]++(?=\s*[:{{<]))\s*+(?:
        (?P<open>:?\s*+[{{<])
      | :\s*+(?:(?P<scalar>-?[\w.+-]++)|(?P<string>{_STRING})|(?P<list>\[))
    )
  | (?P<item_string>{_STRING})
  | (?P<item>[\w.+-]++)
  | (?P<element>[{{<])
  | \#[^\n]*+
  | (?P<junk>["'][^\n]*+|\S)
  )""",
    re.X | re.A,
)
_whole = re.compile(r"-?[0-9]{1,19}", re.A).fullmatch


@dataclass(frozen=True, slots=True)
class Message:
    """The fields between two braces, in their order.

    >>> message = read_text_proto('a: 3 b { c: "x" } b { c: "y" }')[0]
    >>> message.number("a"), [b.text("c") for b in message.messages("b")], message.text("d")
    (3, ['x', 'y'], '')
    """

    fields: tuple[TextField, ...]

    def __contains__(self, name: str) -> bool:
        return any(field.name == name for field in self.fields)

    def _values(self, name: str) -> Iterator[str | Message]:
        return (field.value for field in self.fields if field.name == name)

    def messages(self, name: str) -> tuple[Message, ...]:
        """Every message with a name."""
        return tuple(value for value in self._values(name) if isinstance(value, Message))

    def message(self, name: str) -> Message:
        """The last message with a name; empty if it is missing."""
        return (self.messages(name) or (_EMPTY,))[-1]

    def texts(self, name: str) -> tuple[str, ...]:
        """Every scalar with a name, as text."""
        return tuple(value for value in self._values(name) if isinstance(value, str))

    def text(self, name: str, default: str = "") -> str:
        """The last scalar with a name: a string without its quotes, else as spelled."""
        return (self.texts(name) or (default,))[-1]

    def numbers(self, name: str) -> tuple[int, ...]:
        """Every whole number with a name."""
        return tuple(int(text) for text in self.texts(name) if _whole(text))

    def number(self, name: str, default: int = 0) -> int:
        """The last whole number with a name; protobuf leaves out 0."""
        return (self.numbers(name) or (default,))[-1]

    def flag(self, name: str) -> bool:
        """True if a bool with a name is set."""
        return self.text(name) in ("true", "t", "1")

    def __str__(self) -> str:
        """The fields on a single line, as in protobuf's short form.

        >>> str(read_text_proto("triton {\\n  block_m: 64\\n}\\ngemm {}")[0])
        'triton { block_m: 64 } gemm { }'
        """
        return " ".join(map(str, self.fields))


class TextField(NamedTuple):
    """A field with its place in the text; a list of values gives a field for each."""

    name: str
    """`[type.googleapis.com/xla.HloInstructionProto]` for an `Any` message."""
    value: str | Message
    is_string: bool
    start: int
    end: int

    @property
    def span(self) -> Span:
        """From its name to the end of its value."""
        return Span(self.start, self.end)

    def __str__(self) -> str:
        if isinstance(self.value, Message):
            return f"{self.name} {{ {self.value} }}" if self.value.fields else f"{self.name} {{ }}"
        if not self.is_string:
            return f"{self.name}: {self.value}"
        escaped = self.value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
        return f'{self.name}: "{escaped}"'


_EMPTY = Message(())


def read_text_proto(text: str) -> tuple[Message, tuple[ParseError, ...]]:
    """The whole text as a message, and its unreadable parts."""
    problems: list[ParseError] = []
    fields = tuple(outer_fields(text, problems))
    return Message(fields), tuple(problems)


class _Frame(NamedTuple):
    """An open message or list."""

    name: str
    start: int
    closing: str
    fields: list[TextField]
    """A list shares the fields of its message."""


_CLOSING: Final = {"{": "}", "<": ">"}


def outer_fields(text: str, problems: list[ParseError]) -> Iterator[TextField]:
    """The outermost fields, on demand: a long log need not be held as a whole."""
    reader = _TextProtoReader(text, problems)
    for token in _token.finditer(text):
        reader.take(token)
        if len(reader.stack) == 1 and len(reader.root) > 1:
            yield from reader.root[:-1]
            del reader.root[:-1]  # the last may be a string that the next string continues
    reader.finish()
    yield from reader.root


class _TextProtoReader:
    def __init__(self, text: str, problems: list[ParseError]) -> None:
        self.text = text
        self.problems = problems
        self.root: list[TextField] = []
        self.stack = [_Frame("", 0, "", self.root)]
        self.names: dict[str, str] = {}

    def take(self, token: re.Match[str]) -> None:
        group, start = token.lastgroup, token.start("name")
        # Names are interned: a log has `run_time` a hundred thousand times.
        name = self.names.setdefault(token["name"], token["name"])
        if group in ("scalar", "string"):
            self.add_scalar(name, token[group], start, token.end())
        elif group == "open":
            self.open(name, start, token["open"][-1])
        elif group == "close":
            self.close(token["close"], token.start("close"))
        elif group == "list":
            self.stack.append(_Frame(name, start, "]", self.stack[-1].fields))
        elif group is not None:
            self.take_unnamed(group, token)

    def take_unnamed(self, group: str, token: re.Match[str]) -> None:
        """Take a token without a name: an item of a list, or the rest of a string."""
        top = self.stack[-1]
        start, end = token.span(group)
        last = top.fields[-1] if top.fields else None
        if (
            group == "item_string"
            and last is not None
            and last.is_string
            and isinstance(last.value, str)
            and not self.text[last.end : start].strip()
        ):
            value = last.value + unescape(token[group][1:-1])
            top.fields[-1] = TextField(last.name, value, True, last.start, end)
        elif top.closing == "]" and group == "element":
            self.open(top.name, start, token[group])
        elif top.closing == "]" and group in ("item", "item_string"):
            self.add_scalar(top.name, token[group], start, end)
        else:
            self.left_out(start, end)

    def add_scalar(self, name: str, text: str, start: int, end: int) -> None:
        """Add a string if the text is quoted, else a number or a word."""
        is_string = text[0] in "\"'"
        value = unescape(text[1:-1]) if is_string else text
        self.stack[-1].fields.append(TextField(name, value, is_string, start, end))

    def open(self, name: str, start: int, opening: str) -> None:
        if len(self.stack) == MAX_DEPTH + 1:
            message = f"messages nest deeper than {MAX_DEPTH}"
            self.problems.append(ParseError(message, start, start + 1))
        self.stack.append(_Frame(name, start, _CLOSING[opening], []))

    def close(self, closing: str, offset: int) -> None:
        if closing != "]" and len(self.stack) > 2 and self.stack[-1].closing == "]":
            self.left_out(offset, offset)  # an unclosed list ends with its message
            self.stack.pop()
        top = self.stack[-1]
        if top.closing != closing:
            self.left_out(offset, offset + 1)
            return
        self.stack.pop()
        if closing != "]":
            self.add(top, offset + 1)

    def add(self, frame: _Frame, end: int) -> None:
        if len(self.stack) <= MAX_DEPTH:
            value = Message(tuple(frame.fields))
            self.stack[-1].fields.append(TextField(frame.name, value, False, frame.start, end))

    def left_out(self, start: int, end: int) -> None:
        """Report text that is not a field; neighbours on a line are reported together."""
        last = self.problems[-1] if self.problems else None
        if last is not None and last.message.startswith("expected a field"):
            between = self.text[last.end : start] if start - last.end < 200 else "\n"
            if "\n" not in between:
                self.problems[-1] = ParseError(last.message, last.start, end)
                return
        stands = shown(self.text[start : start + 20].partition("\n")[0])
        self.problems.append(ParseError(f"expected a field, found `{stands}`", start, end))

    def finish(self) -> None:
        """Close messages and lists that the text leaves open."""
        while len(self.stack) > 1:
            frame = self.stack.pop()
            # An element of a list begins with its bracket, not with the name.
            named = self.text.startswith(frame.name, frame.start)
            end = frame.start + (len(frame.name) if named else 1)
            self.problems.append(ParseError(f"{frame.name} is never closed", frame.start, end))
            if frame.closing != "]":
                self.add(frame, len(self.text))
