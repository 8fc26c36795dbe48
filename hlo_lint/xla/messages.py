"""The protocol between a child process and its parent: a JSON object, then blocks of bytes.

Each of them follows its length, a little-endian number of eight bytes; the object is in UTF-8, and
its `blocks` is their number.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Mapping, Sequence
from typing import IO, Any


def write_message(pipe: IO[bytes], head: Mapping[str, Any], blocks: Sequence[bytes] = ()) -> None:
    """Write an object, and blocks after it."""
    text = json.dumps({**head, "blocks": len(blocks)}).encode()
    for part in (text, *blocks):
        pipe.write(struct.pack("<Q", len(part)))
        pipe.write(part)
    pipe.flush()


def read_message(pipe: IO[bytes]) -> tuple[dict[str, Any], list[bytes]]:
    """The object and the blocks that `write_message` wrote.

    Raises:
        EOFError: the other side has ended.
    """
    head = json.loads(_block(pipe))
    return head, [_block(pipe) for _ in range(head.pop("blocks"))]


def _block(pipe: IO[bytes]) -> bytes:
    (length,) = struct.unpack("<Q", _exactly(pipe, 8))
    return _exactly(pipe, length)


def _exactly(pipe: IO[bytes], count: int) -> bytes:
    data = pipe.read(count)
    if len(data) < count:
        raise EOFError
    return data
