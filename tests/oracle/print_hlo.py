"""Prints HLO texts as the jaxlib at hand does, in each style that its options know.

python print_hlo.py < texts.json       a JSON list of texts in, a JSON line for each one out
"""

from __future__ import annotations

import json
import sys

from jaxlib import _hlo  # type: ignore[attr-defined]

STYLES: dict[str, dict[str, bool]] = {
    "long": {}, "short": {}, "no-percent": {"print_percent": False},
    "typed-operands": {"print_operand_shape": True},
    "without metadata": {"print_metadata": False, "print_control_dependencies": False},
}  # fmt: skip


def printed(hlo: str) -> dict[str, str]:
    """The text of a module in each style."""
    module = _hlo.hlo_module_from_text(hlo)
    styles = {}
    for style, changes in STYLES.items():
        options = _hlo.HloPrintOptions()
        if style == "short":
            options = _hlo.HloPrintOptions.short_parsable()
        options.print_large_constants = True
        for name, value in changes.items():
            setattr(options, name, value)
        styles[style] = module.to_string(options)
    return styles


if __name__ == "__main__":
    for text in json.load(sys.stdin):
        print(json.dumps(printed(text)), flush=True)
