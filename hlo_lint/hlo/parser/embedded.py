"""HLO inside another text: a log whose lines begin with a time or a rank, or a Markdown page."""

from __future__ import annotations

from collections.abc import Iterator

from hlo_lint.text.patterns import late

_TIME = (
    r"[IWEF]\d{4} \d\d:\d\d:[^\]\n]{0,300}\][ \t]?|\d{4}-\d\d-\d\d[T ]\d\d:\d\d:[^\s\]]{0,40}[ \t]+"
)
_RANK = r"\[[\w,.:/ -]{0,60}\](?:<\w+>)?:?[ \t]?"
_prefix = late(rf"(?:{_TIME}|{_RANK})*").match
_shows_other_text = late(
    rf"\n(?:(?:{_TIME}|{_RANK})+HloModule |(?:{_RANK})*(?:{_TIME})|```.*\n\s*HloModule )"
).search
"""A line that is not HLO, after its line break: `^` would be tried at each character."""
_in_computation = late(r"[ \t]*(?:(?:ROOT[ \t]+)?%?[A-Za-z_][\w.\-]*:?[ \t]*=(?!=)|\})").match
_between_computations = late(
    r"\s*$|//|\d+ [\"{]|(?:FileNames|FunctionNames|FileLocations|StackFrames)\s*$"
    r"|ENTRY\b|%?[A-Za-z_][\w.\-]*[ \t]*(?:\(.*\)[ \t]*->.*)?\{[ \t]*\r?$"
).match


def only_hlo(text: str) -> str | None:
    r"""The text with non-HLO parts replaced by blanks; None if no line shows such parts.

    >>> only_hlo("Dump:\n[rank0] HloModule m\n[rank0] ENTRY e { ROOT c = s32[] constant(0) }")
    '     \n        HloModule m\n        ENTRY e { ROOT c = s32[] constant(0) }'
    """
    if "HloModule " not in text or not _shows_other_text(f"\n{text}"):
        return None
    lines = text.split("\n")
    has_fences = any(line.startswith("```") for line in lines)
    starts = _in_fences(lines) if has_fences else _in_log(lines)
    return "\n".join(" " * start + line[start:] for line, start in zip(lines, starts, strict=True))


def _in_fences(lines: list[str]) -> Iterator[int]:
    """The offset in each line at which HLO begins; its length if it has no HLO."""
    is_open = is_hlo = False
    for line, following in zip(lines, [*lines[1:], ""], strict=True):
        if line.startswith("```"):
            is_open = not is_open
            is_hlo = is_open and following.lstrip().startswith("HloModule ")
            yield len(line)
        else:
            yield 0 if is_hlo else len(line)


def _in_log(lines: list[str]) -> Iterator[int]:
    """The offset in each line at which HLO begins; its length if it has no HLO."""
    in_module = in_computation = False
    for line in lines:
        prefix = _prefix(line)
        start = prefix.end() if prefix else 0
        rest = line[start:]
        if rest.startswith("HloModule "):
            in_module, in_computation = True, False
        elif start and not (_in_computation if in_computation else _between_computations)(rest):
            yield len(line)  # another message, between two lines of a dump
            continue
        elif in_computation:
            in_computation = not rest.startswith("}")
        elif in_module:
            in_module = _between_computations(rest) is not None
            in_computation = in_module and rest.rstrip().endswith("{")
        yield start if in_module else len(line)
