"""What `strict=True` refuses: all that XLA's parser refuses, and nonsense that it reads.

The measure is the parser of jaxlib 0.11.2, as it answers on thousands of texts; it is never run
here. Each refusal names a place and says what to do about it.

| XLA's parser refuses it, strict mode reads it | because |
|---|---|
| `%x#1` for an element of a tuple (jaxlib 0.10) | jax 0.11 prints it |
| `control-predecessors={%get-tuple-element.39}` of what is left out | XLA's printer left it |
| several modules in one text | each of them is checked by itself |

| XLA's parser reads it, strict mode refuses it | |
|---|---|
| `add(f32[] %a, f32[], %b)`, `negate(%p,)` | XLA drops the operand without a name |
| `f32[2,3]{1,1}`, `{2,0}`, `{1,-1}`, tiles of size 0, memory space -1 | a layout is an order |
| `f32[4294967296,4294967296,4294967296]` | its size has no 64 bits |
| `f32[5]{0} add(%p, %p)` of `f32[4]`, dimensions that are not there | XLA refuses it where the \
type is left out |
| an element that a tuple does not have, or has with another type | XLA reads foreign memory |
| the signature or `entry_computation_layout` against the parameters | XLA does not look at them |
| calls and fusions with more or fewer operands than parameters | |
| `all-reduce-done` and the like of what starts nothing | |
| aliases, donors, constraints, shardings and stack frames of what is not there | |
| devices twice in replica groups, axes twice in a sharding, `replica_count=0` | |
| literals that do not fit: `s64[] constant(9223372036854775808)`, `f8e4m3fn[] constant(inf)` | \
XLA rounds, wraps or drops |
| values without commas between them, brackets that do not match in `backend_config` | |

| XLA's process ends, strict mode refuses | |
|---|---|
| a parameter left out, `tuple` with the type of an array, `token[2]`, a constant of type token | |
| `replica-id` that is no `u32[]`, `recv-done` of what is no tuple, `infeed` of type `()` | |
| `parameter_replication` on what is no parameter, negative tiles | |
| `transpose_a=YES`, mesh axes or device ids twice | |
| instructions or types nested deeper than its stack | |
"""

from __future__ import annotations

from collections.abc import Iterator

from hlo_lint.analysis.strict.module import Seen, module_troubles
from hlo_lint.hlo.ir import HloFile
from hlo_lint.text.errors import HloSyntaxError
from hlo_lint.text.source import ParseDiagnostic


def strict_problems(file: HloFile) -> Iterator[ParseDiagnostic]:
    """Everything for which a file is refused, in the order of the text."""
    seen = Seen()
    lines = file.lines
    for module in file.modules:
        found = dict.fromkeys(module_troubles(module, seen))
        for error in sorted(found, key=lambda error: (error.start, error.end)):
            yield lines.diagnostic(error, module.start)


def check_strict(file: HloFile) -> None:
    """Refuse a file at the first place that is wrong.

    Raises:
        HloSyntaxError: there.
    """
    for problem in strict_problems(file):
        raise HloSyntaxError(problem.message, problem.start, path=file.path, text=file.text)
