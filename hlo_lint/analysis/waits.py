"""The waits that the logs of processes tell of: collectives that were not reached by all."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final, NamedTuple

from hlo_lint.analysis.ranks import Rank, RankedModule
from hlo_lint.analysis.scheduled_collectives import Collective
from hlo_lint.dumps.crash import MAX_LOG_BYTES
from hlo_lint.dumps.file_types import LOG_ENDINGS
from hlo_lint.text.errors import DumpError
from hlo_lint.text.source import decode
from hlo_lint.text.stored import read_stored

_MESSAGES: Final = (
    # rendezvous.cc: threads of a process, and the devices that they run.
    r"(?:has been waiting for|Termination timeout for) `(?P<what>[^`\n]+)`.*?"
    r"(?P<rest>Expected \d+ threads.*|All \d+ threads.*)",
    # hang_watchdog.cc: an execution on a GPU.
    r"\] (?P<what>.*): (?:prepare to )?(?P<rest>abort the process to avoid infinite hangs)",
    # libtpu, between slices.
    r"(?P<what>Mega[Ss]cale) (?P<rest>runtime detects a hang.*)",
    r"(?P<what>hang detected error) (?P<rest>from worker of slice_id: \d+ task_id: \d+)",
    r"(?P<what>NCCL WARN|nccl(?:Remote|System|Internal)Error|NCCL operation)(?P<rest>.*)",
    r"(?P<what>[Gg]loo)\b(?P<rest>.*(?:[Tt]imed out|timeout|Connection (?:closed|reset)).*)",
    # The coordination service: a process is lost.
    r"(?P<what>Task \S+) (?P<rest>heartbeat timeout)",
    r"(?P<what>Barrier) (?P<rest>(?:timed out|failed because).*)",
)
_MAX_LINE: Final = 4096
_patterns: Final = tuple(map(re.compile, _MESSAGES))
_find_key = re.compile(r"^(?P<kind>[a-z- ]+?) RendezvousKey\{.*?op_id=(?P<number>\d{1,18})").search


class Wait(NamedTuple):
    """A message of a log about something that did not come."""

    log: Path
    line: int
    what: str
    """The collective, the execution or the library that waits."""
    rest: str
    """The reason, as the log has it."""

    @property
    def channel(self) -> tuple[str, int] | None:
        """The kind of the collective and its number: `("all-reduce", 1)`; None if unknown."""
        key = _find_key(self.what)
        return None if key is None else (key["kind"].replace(" ", "-"), int(key["number"]))

    def __str__(self) -> str:
        return f"{self.what}: {self.rest}".strip()


def waits_of(rank: Rank) -> tuple[tuple[Path, ...], tuple[Wait, ...]]:
    """The logs in the folder of a rank and beside it, and the last wait of each kind in them."""
    folder = rank.path if rank.path.is_dir() else rank.path.parent
    logs = [path for path in sorted(folder.glob("*")) if path.name.endswith(LOG_ENDINGS)]
    logs += [path for path in [folder.parent / f"{folder.name}.log"] if path.is_file()]
    waits: list[Wait] = []
    for log in logs:
        try:
            lines = decode(read_stored(log, MAX_LOG_BYTES)).split("\n")
        except (OSError, DumpError):
            continue
        last = {}
        for number, line in enumerate(lines, 1):
            for kind, pattern in enumerate(_patterns):
                if match := pattern.search(line[:_MAX_LINE]):
                    last[kind] = Wait(log, number, match["what"].strip(), match["rest"].strip())
        waits += last.values()
    return tuple(logs), tuple(waits)


def waiting_collectives(
    wait: Wait, rank: str, modules: Sequence[RankedModule]
) -> Iterator[tuple[RankedModule, Collective]]:
    """The collectives of a rank with the kind and the number that a wait names."""
    if wait.channel is None:
        return
    kind, number = wait.channel
    for module in modules:
        for variant in module.variants:
            if rank in variant.ranks:
                for collective in variant.collectives:
                    same = collective.opcode.removesuffix("-start") == kind
                    if same and collective.instruction.integer_attribute("channel_id") == number:
                        yield module, collective
                        return
