"""Functions that tests call in a child."""

from __future__ import annotations

import os
import sys
import time
from typing import Any

from hlo_lint.xla.child import Answer


def about() -> Answer:
    return {"process": os.getpid(), "parent": os.getppid()}, ()


def echo(*blocks: bytes, words: Any) -> Answer:
    return words, blocks


def chatter(*, text: str) -> Answer:
    print(text, flush=True)
    os.write(2, f"{text}\n".encode())
    return None, ()


def refuse(*, text: str) -> Answer:
    raise ValueError(text)


def die(*, number: int) -> Answer:
    os.write(2, b"F0000 00:00:1.5   12 pass.cc:12] Check failed: a == b\n")
    os.kill(os.getpid(), number)
    time.sleep(60)
    return None, ()


def sleep(*, seconds: float) -> Answer:
    time.sleep(seconds)
    return None, ()


def allocate(*, size: int) -> Answer:
    return len(bytearray(size)), ()


def die_of_memory() -> Answer:
    os.write(2, b"terminate called after throwing an instance of 'std::bad_alloc'\n")
    sys.stderr.flush()
    os.abort()
