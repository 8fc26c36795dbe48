r"""How bytes are spelled in a `backend_config`.

    backend_config={opaque = "x\9C\ED…", n = 1 : i32}    MLIR: a backslash and two hex digits
    backend_config="x\234\355…"                          C: a backslash and three octal digits

MLIR spells the attributes of a typed-FFI call, `absl::CEscape` what does not look like a
dictionary in braces (`HloInstruction::BackendConfig` in `hlo_instruction.cc`).
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Final

from hlo_lint.text.errors import PayloadError
from hlo_lint.text.source import encode


def mlir_escape(data: bytes) -> str:
    r"""As `llvm::printEscapedString` spells it, without the quotes.

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
    return _unescaped(text, _is_mlir_escape, _mlir_byte)


def c_escape(data: bytes) -> str:
    r"""As `absl::CEscape` spells it, without the quotes.

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
    return _unescaped(text, _is_c_escape, _c_byte)


def _printable(byte: int) -> bool:
    return 0x20 <= byte < 0x7F


_MLIR: Final = [
    chr(byte) if _printable(byte) and byte != 0x22 else f"\\{byte:02X}" for byte in range(256)
]
_MLIR[0x5C] = r"\\"

_C: Final = [chr(byte) if _printable(byte) else f"\\{byte:03o}" for byte in range(256)]
for _byte in b"\"'\\":
    _C[_byte] = f"\\{chr(_byte)}"
_C[0x0A], _C[0x0D], _C[0x09] = r"\n", r"\r", r"\t"

_Match = Callable[[str, int], "re.Match[str] | None"]
_is_mlir_escape: Final = re.compile(r'\\(?:([0-9A-Fa-f]{2})|(["\\nt]))').match
_is_c_escape: Final = re.compile(
    r"\\(?:([0-3][0-7]{2}|[0-7]{1,2}(?![0-7]))|[xX](0*[0-9A-Fa-f]{1,2})(?![0-9A-Fa-f])"
    r"|([abfnrtv?'\"\\]))"
).match
_LETTERS: Final = dict(zip("abfnrtv", b"\a\b\f\n\r\t\v", strict=True))


def _mlir_byte(found: re.Match[str]) -> int:
    hexadecimal, letter = found.groups()
    return int(hexadecimal, 16) if hexadecimal else _letter(letter)


def _c_byte(found: re.Match[str]) -> int:
    octal, hexadecimal, letter = found.groups()
    if octal:
        return int(octal, 8)
    return int(hexadecimal, 16) if hexadecimal else _letter(letter)


def _letter(letter: str) -> int:
    return _LETTERS.get(letter, ord(letter))


def _unescaped(text: str, match: _Match, byte_of: Callable[[re.Match[str]], int]) -> bytes:
    out = bytearray()
    at = 0
    while (escape := text.find("\\", at)) >= 0:
        out += encode(text[at:escape])
        found = match(text, escape)
        if found is None:
            shown = ascii(text[escape : escape + 3])[1:-1]
            raise PayloadError(f"{shown} is not an escape", escape, "character")
        out.append(byte_of(found))
        at = found.end()
    out += encode(text[at:])
    return bytes(out)
