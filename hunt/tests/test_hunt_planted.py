"""Twenty wrong rewrites, each put between two dumps: found, named, and reduced to a few lines."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final

import pytest

from hlo_lint_hunt.campaign import reduced
from hlo_lint_hunt.generate import generate
from hlo_lint_hunt.judge import FOUND, BugFinding, Judge, JudgeVerdict

if TYPE_CHECKING:
    from hlo_lint_hunt.judge import Arrays

MOST_INSTRUCTIONS: Final = 6
MOST_MODULES: Final = 400

_value = r"%[\w.\-]+"


def _first(pattern: str, new: str | Callable[[re.Match[str]], str]) -> Callable[[str], str]:
    return lambda text: re.sub(pattern, new, text, count=1)


def _shifted(match: re.Match[str]) -> str:
    return f"slice={{[{int(match[1]) - 1}:{int(match[2]) - 1}"


PLANTS: Final[dict[str, tuple[str, Callable[[str], str]]]] = {
    "add": ("algsimp", _first(r" add\((?=%v)", " subtract(")),
    "multiply": ("algsimp", _first(r" multiply\((?=%v)", " add(")),
    "maximum": ("algsimp", _first(r" maximum\((?=%v)", " minimum(")),
    "and": ("algsimp", _first(r" and\((?=%v)", " or(")),
    "xor": ("algsimp", _first(r" xor\((?=%v)", " or(")),
    "shift": ("algsimp", _first("shift-right-arithmetic", "shift-right-logical")),
    "remainder": ("algsimp", _first(r" remainder\(", " divide(")),
    "popcnt": ("constant_folding", _first(r" popcnt\(", " count-leading-zeros(")),
    "not": ("algsimp", _first(r" not\(", " negate(")),
    "abs": ("algsimp", _first(r" abs\(", " negate(")),
    "less": ("comparison-expander", _first("direction=LE(?! *\n *})", "direction=LT")),
    "select": (
        "simplify-conditional",
        _first(rf" select\(({_value}), ({_value}), ({_value})\)", r" select(\1, \3, \2)"),
    ),
    "clamp": ("algsimp", _first(rf" clamp\(({_value}), ({_value}), ", r" clamp(\1, \1, ")),
    "reverse": ("transpose-folding", _first(rf" reverse\(({_value})\).*", r" copy(\1)")),
    "pad": ("algsimp", _first(r"padding=1_0(?=_)", "padding=0_1")),
    "slice": ("reshape-mover", _first(r"(?<= )slice={\[([1-9]\d*):(\d+)", _shifted)),
    "concatenate": (
        "cse",
        _first(rf" concatenate\(({_value}), ({_value})\)", r" concatenate(\2, \1)"),
    ),
    "update": (
        "dynamic-slice-simplifier",
        _first(rf" dynamic-update-slice\(({_value}),.*\)", r" copy(\1)"),
    ),
    "sort": (
        "simplify-sorts",
        _first(r"(pred\[\] compare\(%?p0[\d.]*, %?p1[\d.]*\), direction=)LT", r"\1GT"),
    ),
    "gather": ("gather_simplifier", _first(r"start_index_map=\{0,1\}", "start_index_map={1,0}")),
}


class PlantedJudge(Judge):
    """The judge of a pass that makes one wrong rewrite."""

    def __init__(self, name: str) -> None:
        super().__init__(passes=[PLANTS[name][0]])
        self._pass, self._rewrite = PLANTS[name]

    def bug(self, text: str, inputs: Sequence[Arrays], folder: Path) -> BugFinding | str | None:
        stem = folder / "module_0001.hunted."
        names = ("before_optimizations", f"0001.simplification.after_{self._pass}.before_dce")
        for name, content in zip(names, (text, self._rewrite(text)), strict=True):
            stem.with_name(f"{stem.name}{name}.txt").write_text(content, "utf-8")
        return self.by_steps(folder, inputs[0])


def _modules(name: str) -> Iterator[str]:
    """Modules that hold what the plant rewrites."""
    for seed in range(MOST_MODULES):
        text = generate(seed).text
        if PLANTS[name][1](text) != text:
            yield text


CHOSEN: Final = PLANTS if "HLO_LINT_PLANTS" in os.environ else ("add", "reverse")
"""All of them take two minutes: HLO_LINT_PLANTS=all."""


@pytest.mark.slow
@pytest.mark.parametrize("name", CHOSEN)
def test_a_planted_bug_is_found_named_and_reduced(name: str) -> None:
    pass_name, _ = PLANTS[name]
    with PlantedJudge(name) as judge:
        verdicts = ((text, judge(text).finding) for text in _modules(name))
        text, finding = next((text, found) for text, found in verdicts if found is not None)
        reduction = reduced(text, judge, finding)
    assert finding.kind == "values"
    assert finding.pass_name == pass_name
    entry = reduction.text[reduction.text.index("ENTRY") :]
    assert entry.count(" = ") <= MOST_INSTRUCTIONS, reduction.text
    assert pass_name in JudgeVerdict(FOUND, (), finding, reduced=reduction.text).cause
