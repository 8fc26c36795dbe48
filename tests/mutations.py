"""Seeded damage to texts: what transport, editors and disks do to dumps."""

from __future__ import annotations

import random
from collections.abc import Sequence

_BYTES = b'(){}[]",=%#\\/ \n\r\xff\x00a0'


def mutate(data: bytes, others: Sequence[bytes], chance: random.Random) -> bytes:
    """One to three kinds of damage, chosen by `chance`."""
    for _ in range(chance.randint(1, 3)):
        data = chance.choice(_KINDS)(data, others, chance)
    return data


def _crlf(data: bytes, others: Sequence[bytes], chance: random.Random) -> bytes:
    return data.replace(b"\n", b"\r\n")


def _cut(data: bytes, others: Sequence[bytes], chance: random.Random) -> bytes:
    at = chance.randint(0, len(data))
    return data[:at] if chance.random() < 0.7 else data[at:]


def _flip(data: bytes, others: Sequence[bytes], chance: random.Random) -> bytes:
    changed = bytearray(data)
    for _ in range(chance.randint(1, 20)):
        if changed:
            changed[chance.randrange(len(changed))] = chance.choice(_BYTES)
    return bytes(changed)


def _drop_lines(data: bytes, others: Sequence[bytes], chance: random.Random) -> bytes:
    lines = data.split(b"\n")
    for _ in range(chance.randint(1, 5)):
        if lines:
            del lines[chance.randrange(len(lines))]
    return b"\n".join(lines)


def _double_lines(data: bytes, others: Sequence[bytes], chance: random.Random) -> bytes:
    lines = data.split(b"\n")
    for _ in range(chance.randint(1, 5)):
        at = chance.randrange(len(lines))
        lines.insert(at, lines[at])
    return b"\n".join(lines)


def _join(data: bytes, others: Sequence[bytes], chance: random.Random) -> bytes:
    separator = chance.choice([b"\n// -----\n", b"// -----\n", b"\n", b"\n\n", b""])
    return data + separator + chance.choice(others)


_KINDS = (_crlf, _cut, _flip, _drop_lines, _double_lines, _join)
