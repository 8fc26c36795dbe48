r"""The text of a `backend_config`, and the bytes that it represents.

XLA prints the bytes unquoted if they lex as a dictionary in braces (JSON or MLIR), and otherwise in
quotes with C escapes. `HloParserImpl::ParseAttributeHelper` accepts both forms for any content, so
a dictionary may be quoted too; then it is written back in quotes.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from hlo_lint.hlo.attributes.configuration import Json
from hlo_lint.hlo.parser.strings import c_escape, c_unescape
from hlo_lint.text.errors import PayloadError
from hlo_lint.text.source import decode, encode


@dataclass(frozen=True, slots=True)
class Carrier:
    """The value of a `backend_config`."""

    text: str

    @property
    def is_quoted(self) -> bool:
        """True if it is in quotes, with bytes escaped as in C."""
        return self.text.startswith('"')

    @property
    def content(self) -> bytes:
        """The bytes of the payload."""
        if not self.is_quoted:
            return encode(self.text)
        if len(self.text) < 2 or not self.text.endswith('"'):
            raise PayloadError("its quote is not closed", 0, "character")
        try:
            return c_unescape(self.text[1:-1])
        except PayloadError as error:
            raise PayloadError(error.message, (error.offset or 0) + 1, "character") from None

    def carrying(self, content: bytes) -> str:
        """The text for other bytes, with the same kind of quoting; unchanged for equal bytes."""
        if content == self.content:
            return self.text
        return f'"{c_escape(content)}"' if self.is_quoted else decode(content)


def read_json(content: bytes) -> Mapping[str, Json]:
    """Parse a JSON object."""
    try:
        value = json.loads(content)
    except RecursionError:
        raise PayloadError("its brackets are nested too deep", 0, "character") from None
    except json.JSONDecodeError as error:
        raise PayloadError(f"invalid JSON: {error.msg}", error.pos, "character") from None
    except ValueError as error:  # not UTF-8, or a number of too many digits
        raise PayloadError(f"invalid JSON: {error}") from None
    if not isinstance(value, dict):
        raise PayloadError("expected a JSON object", 0, "character")
    return value


class JsonReader:
    """Reads fields of a JSON object: a missing field has a default, a wrong type raises."""

    def __init__(self, fields: Mapping[str, object], path: str) -> None:
        self.fields = fields
        self.path = path

    def number(self, name: str, default: float = 0.0) -> float:
        """A number, as a float."""
        value = self.fields.get(name, default)
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise PayloadError(f"{self.path}.{name} is not a number")
        return float(value)

    def boolean(self, name: str) -> bool:
        """True or false; false if the field is missing."""
        value = self.fields.get(name, False)
        if not isinstance(value, bool):
            raise PayloadError(f"{self.path}.{name} is neither true nor false")
        return value

    def text(self, name: str, default: str = "") -> str:
        """A string, or the name of an enum value."""
        value = self.fields.get(name, default)
        if not isinstance(value, str):
            raise PayloadError(f"{self.path}.{name} is not a string")
        return value

    def integers(self, name: str) -> tuple[int, ...]:
        """A list of integers; empty if the field is missing."""
        path, value = f"{self.path}.{name}", self.fields.get(name, ())
        if isinstance(value, str) or not isinstance(value, Sequence):
            raise PayloadError(f"{path} is not a list")
        return tuple(_integer(item, path) for item in value)

    def object(self, name: str) -> JsonReader | None:
        """A nested object; None if the field is missing."""
        value = self.fields.get(name)
        if value is None:
            return None
        if not isinstance(value, Mapping):
            raise PayloadError(f"{self.path}.{name} is not an object")
        return JsonReader(value, f"{self.path}.{name}")


def _integer(value: object, path: str) -> int:
    if isinstance(value, str) and value.removeprefix("-").isdecimal() and len(value) < 21:
        return int(value)
    if isinstance(value, bool) or not isinstance(value, int):
        raise PayloadError(f"{path} is not a whole number")
    return value
