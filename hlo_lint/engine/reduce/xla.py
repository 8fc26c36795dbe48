"""XLA asked about texts: is one read, and how does its compilation end?"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from hlo_lint.analysis.strict import strict_problems
from hlo_lint.engine.reduce.interest import InterestVerdict, skeleton
from hlo_lint.hlo.children import LOGS_ERRORS, ResourceLimits
from hlo_lint.hlo.parser.module import parse_file
from hlo_lint.hlo.xla_log import fatal_messages
from hlo_lint.text.errors import UsageError
from hlo_lint.text.source import encode
from hlo_lint.xla.child import Pool

SERVER = Path(__file__).with_name("xla_server.py")
ONLY_PASSES = "xla_enable_hlo_passes_only"
"""The flag with which XLA runs the passes of a list, and no other."""

_place = re.compile(r"\b([\w./]*?[\w]+\.(?:cc|h)):\d+")
_path = re.compile(r"/[\w./\-]+")
_unknown = re.compile(r"Unknown flags? in XLA_FLAGS: ([^\n]*)")


@dataclass(frozen=True)
class Ending:
    """The end of one compilation."""

    status: str
    """`ok`, `refused` by the parser, `error`, `died`, `timeout`."""
    message: str
    log: str = field(default="", compare=False, repr=False)
    """XLA's log, where the process did not die."""

    @property
    def crashed(self) -> bool:
        """True if XLA did not compile a module that its parser read."""
        return self.status in ("error", "died", "timeout")

    @property
    def is_check(self) -> bool:
        """True if a check in XLA's code failed, and the message says where."""
        return self.crashed and _place.search(self.message) is not None

    @property
    def kind(self) -> str:
        """The same for endings of one cause: XLA's line of code, or the message without names."""
        place = _place.search(self.message)
        if place is None:
            # Beyond a name the message repeats the instruction, which is being reduced.
            first = re.split(r"[\n%]", self.message, maxsplit=1)[0]
            return f"{self.status}: {skeleton(_path.sub('', first))}"
        stem = place[1].rpartition("/")[2]
        line = place[0].rpartition(":")[2]
        return f"{self.status}: {stem}:{line}"


class XlaServers(AbstractContextManager["XlaServers"]):
    """Child processes that read or compile texts, one for each thread that asks at a time."""

    def __init__(
        self, python: Path | None = None, *, compiles: bool = False, timeout: float = 60.0
    ) -> None:
        self._command = [str(python or sys.executable), "-P", str(SERVER)]
        if compiles:
            self._command.append("compile")
        self._timeout = timeout
        self._memory = ResourceLimits.by_default(seconds=timeout).bytes
        self._servers = Pool(lambda: _Server(self._command))

    def __exit__(self, *_: object) -> None:
        self._servers.close()

    def ask(
        self,
        text: str,
        target_config: str = "",
        flags: str = "",
        devices: tuple[int, int] = (1, 1),
    ) -> Ending:
        """The end of reading a text, and of compiling it where a target is given.

        `devices` are the numbers of replicas and of partitions: those of a header do not count.

        Raises:
            UsageError: where there is no jaxlib, or no compiler for GPUs.
        """
        data = encode(text)
        request = {
            "size": len(data),
            "timeout": self._timeout,
            "memory": self._memory,
            "target_config": target_config,
            "flags": flags,
            "devices": devices,
        }
        with self._servers.one() as server:
            if target_config and not server.has_plugin:
                raise UsageError(
                    f"{self._command[0]} has no GPU compiler: install hlo-lint[gpu-compiler] "
                    "there (Linux), or give --jax RELEASE"
                )
            answer = server.ask(request, data)
        message = answer["message"].strip()
        if answer["status"] == "died":
            fatal = fatal_messages(message)
            lines = message.splitlines() or [""]
            message = fatal[0] if fatal else answer.get("signal") or lines[-1]
            if unknown := _unknown.search(answer["message"]):
                raise UsageError(f"this XLA does not know the flags {unknown[1]}")
        return Ending(answer["status"], message, answer.get("log", ""))


class _Server:
    """One child process."""

    def __init__(self, command: list[str]) -> None:
        environment = {key: value for key, value in os.environ.items() if key != "XLA_FLAGS"}
        self._child = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env={**environment, **LOGS_ERRORS, "JAX_SKIP_CUDA_CONSTRAINTS_CHECK": "1"},
        )
        state = self._line()
        if state.get("status") != "ready":
            self.close()
            raise UsageError(f"{command[0]} has no jaxlib: {state.get('message', 'it ended')}")
        self.has_plugin = bool(state["plugin"])

    def ask(self, request: dict[str, Any], data: bytes) -> dict[str, Any]:
        assert self._child.stdin is not None
        self._child.stdin.write(json.dumps(request).encode() + b"\n" + data)
        self._child.stdin.flush()
        return self._line()

    def close(self) -> None:
        self._child.kill()
        self._child.communicate()

    def _line(self) -> dict[str, Any]:
        assert self._child.stdout is not None
        line = self._child.stdout.readline()
        return json.loads(line) if line else {"status": "died", "message": "the server ended"}


class Guard:
    """True of texts that XLA's parser reads; where jaxlib is absent, of those strict mode reads."""

    def __init__(self, servers: XlaServers | None) -> None:
        self._servers = servers

    def __call__(self, text: str) -> bool:
        """True if the text is read."""
        if self._servers is not None:
            return self._servers.ask(text).status == "ok"
        return next(strict_problems(parse_file(text)), None) is None


@dataclass(frozen=True)
class CrashTest:
    """A compilation by XLA that ends as that of the input does."""

    servers: XlaServers
    target_config: str
    flags: str
    kind: str = ""
    """The kind of the ending to look for; empty if `message` says it."""
    message: str = ""
    """A pattern of the message."""

    @property
    def key(self) -> str:
        """The kind of the ending, and the flags."""
        return f"{self.kind} {self.message} {self.flags}"

    def ending(self, text: str) -> Ending:
        """The end of the compilation of a text."""
        return self.servers.ask(text, self.target_config, self.flags)

    def __call__(self, text: str) -> InterestVerdict:
        """The verdict on a text."""
        ending = self.ending(text)
        if not ending.crashed:
            return InterestVerdict(False)
        if self.message:
            return InterestVerdict(re.search(self.message, ending.message) is not None)
        return InterestVerdict(ending.kind == self.kind)
