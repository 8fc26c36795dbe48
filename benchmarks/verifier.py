"""Answers of XLA's verifier about the example of each check: `make verifier`.

    python -m benchmarks.verifier PYTHON

PYTHON is an interpreter with jax's CUDA plugin. Its compiler runs with no pass but `hlo-verifier`,
so that a text is verified as it stands: before layouts are assigned (`hlo verifier`), and with
layouts (`end-of-post-layout_assignment`). A flag that LLVM does not know ends what is accepted.
"""

from __future__ import annotations

import re
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final, NamedTuple

from hlo_lint.apps.jax.capture.targets import target_of
from hlo_lint.rules.registry import all_rules
from hlo_lint.rules.verifier import VerifierRule
from hlo_lint.xla.compiler import Ending, XlaCompiler

RESULTS = Path(__file__).parent / "VERIFIER.md"
FLAGS: Final = "--xla_enable_hlo_passes_only=hlo-verifier --xla_backend_extra_options=--end-here"
_SECONDS = 3.0
"""A compilation that takes longer is past the verifier."""

REFUSED, UNREAD, DIED = "XLA's verifier", "XLA's parser", "a check of XLA that ends its process"
ACCEPTED, OWN, OPTION = "nobody: notes alone", "nobody: XLA has no such check", "an option alone"
_ORDER = (REFUSED, UNREAD, DIED, ACCEPTED, OWN, OPTION)


class Asked(NamedTuple):
    """A check, and what XLA says of its example."""

    check: str
    place: str
    by: str
    """The verifier that refuses the example."""
    message: str


def verdict(ending: Ending) -> tuple[str, str]:
    """The verifier that refuses a text, and the message."""
    message = " ".join(ending.message.split())
    if ending.status == "refused":
        found = re.search(r"error: (.*?)(?: \^|$)", message)
        return UNREAD, found[1] if found else message
    if ending.status == "error":
        message = re.sub(r"^during context \[[^]]*\]: ", "", message)
        message = re.sub(r"^RET_CHECK failure \([^)]*?([\w.]+:\d+)\)", r"\1", message)
        return REFUSED, message.partition(" Failed after")[0]
    if ending.status == "died" and "Check failed" in ending.message:
        return DIED, re.sub(r"^.*/", "", message)
    return ACCEPTED, ""


def asked(python: Path) -> Iterator[Asked]:
    """The verdict of XLA on the example of each check."""
    target = target_of("h200").description
    with XlaCompiler(python, timeout=_SECONDS) as compiler:
        for rule in (rule for rule in all_rules() if isinstance(rule, VerifierRule)):
            for check, (place, _) in rule.demands.items():
                if check not in rule.rows:
                    yield Asked(check, place, OPTION, "")
                    continue
                text = rule.rows[check].source
                counts = (_count("replica_count", text), _count("num_partitions", text))
                by, message = verdict(compiler.compile(text, target, FLAGS, counts))
                if by == ACCEPTED and not place:
                    by = OWN
                yield Asked(check, place, by, message)


def _count(name: str, text: str) -> int:
    found = re.search(rf"\b{name}=(\d+)", text)
    return int(found[1]) if found else 1


def page(rows: Sequence[Asked], release: str) -> Iterator[str]:
    """The lines of the page."""
    counts = Counter(row.by for row in rows)
    yield "# XLA's verifier and the checks"
    yield ""
    yield (
        f"Written by `make verifier`: the example of each of the {len(rows)} checks, as XLA:GPU of "
        f"jaxlib {release} verifies it; `benchmarks/verifier.py` says how. The message is the "
        "first that XLA has of the text. What a module in the form of a proto cannot say (the type "
        "of a comparison, a channel that is 0) is known from XLA's tests alone."
    )
    yield ""
    yield "| the example is refused by | checks |"
    yield "|---|---:|"
    for by in _ORDER:
        yield f"| {by} | {counts[by]} |"
    for by in _ORDER:
        yield ""
        yield f"## {by[0].upper()}{by[1:]}: {counts[by]}"
        yield ""
        yield "| check | in `hlo_verifier.cc` | message |"
        yield "|---|---|---|"
        for row in rows:
            if row.by == by:
                message = row.message.replace("|", "\\|").replace("`", "'")[:110]
                yield f"| {row.check} | {row.place} | {message} |"


def main() -> None:
    python = Path(sys.argv[1])
    found = re.search(r"jax-([\d.]+)", str(python))
    RESULTS.write_text("\n".join(page(list(asked(python)), found[1] if found else "")) + "\n")


if __name__ == "__main__":
    main()
