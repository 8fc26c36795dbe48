r"""The spelling of bytes in a `backend_config`.

    backend_config={opaque = "x\9C\ED…", n = 1 : i32}    MLIR: a backslash and two hex digits
    backend_config="x\234\355…"                          C: a backslash and three octal digits

MLIR spells the attributes of a typed-FFI call, `absl::CEscape` any text that does not look like a
dictionary in braces (`HloInstruction::BackendConfig` in `hlo_instruction.cc`).
"""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import cache, lru_cache
from typing import Final

from hlo_lint.text.errors import PayloadError
from hlo_lint.text.patterns import late
from hlo_lint.text.source import decode, encode


def mlir_escape(data: bytes) -> str:
    r"""Bytes escaped as by `llvm::printEscapedString`, without quotes.

    >>> mlir_escape(b'x\x9c\n"\\')
    'x\\9C\\0A\\22\\\\'
    """
    return "".join(map(_MLIR.__getitem__, data))


def mlir_unescape(text: str) -> bytes:
    r"""The bytes of an MLIR string without its quotes (`Token::getStringValue`).

    >>> mlir_unescape('x\\9C\\n\\"\\\\')
    b'x\x9c\n"\\'

    Raises:
        PayloadError: a backslash begins no escape.
    """
    return _unescaped(text, _MLIR_ESCAPE, _mlir_character)


def c_escape(data: bytes) -> str:
    r"""Bytes escaped as by `absl::CEscape`, without quotes.

    >>> c_escape(b"x\x9c\n'")
    "x\\234\\n\\'"
    """
    return "".join(map(_C.__getitem__, data))


def c_unescape(text: str) -> bytes:
    r"""The bytes of a C string without its quotes (`absl::CUnescape`).

    >>> c_unescape("x\\234\\n\\x41")
    b'x\x9c\nA'

    Raises:
        PayloadError: a backslash begins no escape.
    """
    return _unescaped(text, _C_ESCAPE, _c_character)


def c_unescape_all(text: str) -> bytes:
    r"""The bytes of a C string; a backslash that does not begin an escape is dropped.

    >>> c_unescape_all(r"a\q\x41")
    b'aqA'
    """
    return _unescaped(text, _C_ESCAPE, _c_character, is_strict=False)


_PRINTABLE: Final = range(0x20, 0x7F)
_MLIR: Final = [chr(byte) if byte in _PRINTABLE else f"\\{byte:02X}" for byte in range(256)]
_MLIR[0x22], _MLIR[0x5C] = r"\22", r"\\"

_C: Final = [chr(byte) if byte in _PRINTABLE else f"\\{byte:03o}" for byte in range(256)]
for _byte in b"\"'\\":
    _C[_byte] = f"\\{chr(_byte)}"
_C[0x0A], _C[0x0D], _C[0x09] = r"\n", r"\r", r"\t"

_MLIR_ESCAPE: Final = late(r'\\(?:([0-9A-Fa-f]{2}|["\\nt])|(.?))', re.S)
_C_ESCAPE: Final = late(
    r"\\(?:([0-3][0-7]{2}|[0-7]{1,2}(?![0-7])|[xX]0*[0-9A-Fa-f]{1,2}(?![0-9A-Fa-f])"
    r"|u(?![dD][89a-fA-F])[0-9A-Fa-f]{4}|U00(?:0[0-9A-Fa-f]|10)[0-9A-Fa-f]{4}|[abfnrtv?'\"\\])|(.?))",
    re.S,
)
"""An escape without its backslash, or a character that does not begin an escape."""
_LETTERS: Final = dict(zip("abfnrtv", b"\a\b\f\n\r\t\v", strict=True))


@cache
def _mlir_character(escape: str) -> str:
    return _character(int(escape, 16) if len(escape) == 2 else _letter(escape))


@lru_cache(maxsize=1 << 10)
def _c_character(escape: str) -> str:
    if escape[0] in "01234567":
        return _character(int(escape, 8))
    if escape[0] in "uU":
        return chr(int(escape[1:], 16))
    return _character(int(escape[1:], 16) if escape[0] in "xX" else _letter(escape))


def _letter(letter: str) -> int:
    return _LETTERS.get(letter, ord(letter))


def _character(byte: int) -> str:
    """The character that `encode` turns into a given byte."""
    return decode(bytes((byte,)))


def _unescaped(
    text: str, escapes: re.Pattern[str], character_of: Callable[[str], str], is_strict: bool = True
) -> bytes:
    pieces = escapes.split(text)  # text, escape, other character, text, …
    if not is_strict:
        others = zip(pieces[1::3], pieces[2::3], strict=True)
        pieces[1::3] = [character_of(escape) if escape else other for escape, other in others]
    elif any(character is not None for character in pieces[2::3]):
        offset = next(match.start() for match in escapes.finditer(text) if match[2] is not None)
        shown = ascii(text[offset : offset + 3])[1:-1]
        raise PayloadError(f"{shown} is not an escape", offset, "character")
    else:
        pieces[1::3] = map(character_of, pieces[1::3])
    del pieces[2::3]
    return encode("".join(pieces))
