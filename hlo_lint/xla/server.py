"""The child process, which calls the functions that its parent requests.

`child.py` starts it, under an interpreter that may lack hlo_lint and its dependencies: this package
is loaded by its path, and the functions import jaxlib, numpy and the standard library.

A message is a JSON object, then blocks of bytes. Each follows its length, a little-endian number of
eight bytes; `blocks` of the object is the number of blocks.
"""

from __future__ import annotations

import json
import os
import struct
from collections.abc import Mapping, Sequence
from importlib import import_module
from typing import IO, TYPE_CHECKING, Any

from hlo_lint.xla.limits import begin, end_with, limit_time

if TYPE_CHECKING:
    from hlo_lint.xla.child import Answer

_DONE = 10
"""Exit status of a fork that has answered, and that another fork shall follow."""


def serve(terms: Mapping[str, Any]) -> None:
    """Answer requests on standard input until it ends."""
    requests, answers = os.fdopen(os.dup(0), "rb"), os.fdopen(os.dup(1), "wb")
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    os.dup2(2, 1)  # prints must not mix with the answers
    begin(terms)
    write_message(answers, *_answer(terms["setup"]))
    if terms["forks"] == "never" or not hasattr(os, "fork"):
        while _serve_one(requests, answers):
            pass
        return
    while True:
        server, child = os.getpid(), os.fork()
        if not child:
            status = 1
            try:
                end_with(server)
                while _serve_one(requests, answers):
                    if terms["forks"] == "each time":
                        status = _DONE
                        break
                else:
                    status = 0
            finally:
                os._exit(status)
        status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        if not status:
            return
        if status != _DONE:
            write_message(answers, {"died": status})


def ready() -> Answer:
    """The default setup: empty."""
    return None, ()


def _serve_one(requests: IO[bytes], answers: IO[bytes]) -> bool:
    """Answer the next request; False at the end of input."""
    try:
        request, blocks = read_message(requests)
    except EOFError:
        return False
    write_message(answers, *_answer(request, blocks))
    return True


def _answer(
    request: Mapping[str, Any], blocks: Sequence[bytes] = ()
) -> tuple[dict[str, Any], Sequence[bytes]]:
    """The value and the blocks that the function returns, or its error."""
    limit_time(request["seconds"])
    module, name = request["function"]
    try:
        value, results = getattr(import_module(module), name)(*blocks, **request["arguments"])
    except Exception as error:
        class_name = "ImportError" if isinstance(error, ImportError) else type(error).__name__
        return {"error": [class_name, f"{error}"]}, ()
    return {"value": value}, results


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
