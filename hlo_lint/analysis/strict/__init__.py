"""Strict mode: what XLA's parser refuses, and nothing else.

The measure is the parser of jaxlib 0.11.2; it is not run here. Nonsense that it reads is for rules.

| XLA's parser refuses it, strict mode reads it | because |
|---|---|
| `%x#1` for an element of a tuple (jaxlib 0.10) | jax 0.11 prints it |
| `sharding={single_device[device_id=0]}` | jax 0.12 prints it |
| `control-predecessors={%get-tuple-element.39}` of what is left out | XLA's printer left it |
| several modules in one text | each of them is checked by itself |

| XLA's parser reads it, strict mode refuses it | because |
|---|---|
| `index=1next = f32[8] negate(p)` on one line | nobody leaves out the blank |
| `f32[8]{0:T(8}`, tables of stack frames on one line | no printer writes them |

As XLA's parser does, strict mode passes over an operand that cannot be made where a comma or `)`
follows: `add(p, q, transpose(p))` is `add(p, q)`.

Where XLA's process ends (a constant of type token, `tuple` with the type of an array, mesh axes
twice, instructions nested deeper than its stack), strict mode refuses the text.
"""

from __future__ import annotations

from collections.abc import Iterator

from hlo_lint.analysis.strict.module import CheckedTexts, module_errors
from hlo_lint.hlo.ir import HloFile
from hlo_lint.text.errors import HloSyntaxError
from hlo_lint.text.source import ParseDiagnostic


def strict_problems(file: HloFile) -> Iterator[ParseDiagnostic]:
    """Every error for which a file is refused, in the order of the text."""
    checked = CheckedTexts()
    lines = file.lines
    for module in file.modules:
        errors = dict.fromkeys(module_errors(module, checked))
        for error in sorted(errors, key=lambda error: (error.start, error.end)):
            yield lines.diagnostic(error, module.start)


def check_strict(file: HloFile) -> None:
    """Refuse a file at its first error.

    Raises:
        HloSyntaxError: for what XLA's parser refuses.
    """
    for problem in strict_problems(file):
        raise HloSyntaxError(problem.message, problem.start, path=file.path, text=file.text)
