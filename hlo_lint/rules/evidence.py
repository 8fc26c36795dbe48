"""Evidence that the defect of a rule does harm. Tests ask for each piece again."""

from __future__ import annotations

from dataclasses import dataclass

NO_END = "no end"
"""The answer of XLA:CPU about a program that runs forever."""
DOUBLE_BUFFER = "--xla_gpu_enable_while_loop_unrolling=WHILE_LOOP_UNROLLING_DOUBLE_BUFFER"
_COMPILERS = {"parser": "XLA's parser", "cpu": "XLA:CPU", "gpu": "XLA:GPU"}
_COMMANDS = {
    "parser": "`hlo-lint check --strict` asks again",
    "cpu": "`python -m tests.oracle.run_hlo` asks again",
    "gpu": "`python hlo_lint/xla/pjrt.py` asks again",
}
_FLAGS = {"all": "", "none": ", with `XLA_FLAGS=--xla_disable_all_hlo_passes`"}
_COUNTERS = {
    "bytes accessed": "`hlo_module_cost_analysis` of jaxlib 0.10.2",
    "bytes at the peak": "`get_compiled_memory_stats` of XLA:CPU of jaxlib 0.10.2",
    "megabytes when serialized": "`as_serialized_hlo_module_proto` of jaxlib 0.10.2",
    "atomic instructions": "the PTX of XLA:GPU of jaxlib 0.11.2",
    "calls out of order": "the schedule of XLA:GPU of jaxlib 0.11.2",
    "findings hidden": "`hlo-lint check` without the comments",
}
"""The tool that counts, by unit."""


@dataclass(frozen=True, slots=True)
class RefusedByXla:
    """XLA refuses a bad example, or dies of it."""

    says: str
    by: str = "gpu 0.11.2"
    """`parser`, `cpu` (which also runs the example) or `gpu`, and the release of jaxlib."""
    passes: str = "all"
    """The passes that run: `all`, `none`, or a value of `xla_enable_hlo_passes_only`."""
    example: int = 0
    """The number of the bad example, from 0; of a pair, the module after the pass."""

    def __str__(self) -> str:
        compiler, release = self.by.split()
        example = f"bad example {self.example + 1}"
        verb = "dies of" if compiler == "cpu" else "refuses"
        words = f"{verb} {example}: `{self.says}`" if self.says else f"{verb} bad examples"
        if self.says == NO_END:
            words = f"never ends {example}"
        only = f", with `XLA_FLAGS=--xla_enable_hlo_passes_only={self.passes}`"
        command = _COMMANDS[compiler] + _FLAGS.get(self.passes, only)
        return f"{_COMPILERS[compiler]} of jaxlib {release} {words}. {command}."


@dataclass(frozen=True, slots=True)
class WrittenByXla:
    """XLA:GPU writes the defect into a sound program."""

    program: str
    """A path in `fixtures`."""
    flags: str = ""
    release: str = "0.11.2"

    def __str__(self) -> str:
        given = f" with `{self.flags}`" if self.flags else ""
        return (
            f"XLA:GPU of jaxlib {self.release}{given} writes it into "
            f"`fixtures/{self.program}`: `hlo-lint check --resolved` finds it in the dump."
        )


@dataclass(frozen=True, slots=True)
class WrongValues:
    """A bad example computes wrong values.

    `tests/rules/test_values.py` has the values, or `hlo-lint validate` of a pair says so.
    """

    example: int = 0
    """The number of the bad example, from 0."""
    flags: str = ""
    """Flags with which a pass of XLA:GPU 0.11.2 computes the wrong values."""
    without: str = ""
    """Passes of XLA:CPU that would repair the example, as in `xla_disable_hlo_passes`."""

    def __str__(self) -> str:
        example = f"bad example {self.example + 1}"
        if self.flags:
            return (
                f"XLA:GPU of jaxlib 0.11.2 with `{self.flags}` changes the values of {example}: "
                "`hlo-lint validate` of the dump."
            )
        if self.without:
            return f"XLA:CPU without {self.without} computes wrong values of {example}."
        return (
            f"XLA:CPU shows the wrong values of {example}: `hlo-lint validate` of a pair, or "
            "`hlo-lint run --as-compiled` of each module."
        )


@dataclass(frozen=True, slots=True)
class Counted:
    """A bad example costs more, or less, than it should, by XLA's own count."""

    unit: str
    """A key of `_COUNTERS`."""
    bad: int
    good: int
    example: int = 0
    """The number of the bad example, from 0."""
    other: int | None = 0
    """The number of the good example, from 0; None for the module before the pass."""

    def __str__(self) -> str:
        other = "before the pass" if self.other is None else f"in good example {self.other + 1}"
        return (
            f"{self.unit.capitalize()}: {self.bad} in bad example {self.example + 1}, {self.good} "
            f"{other}, by {_COUNTERS[self.unit]}."
        )


@dataclass(frozen=True, slots=True)
class MeasuredHarm:
    """The harm was measured, and a fixture or an example still has its cause."""

    what: str
    """A sentence with the chip or the compiler, its release and the number."""
    found_in: str = ""
    """A path in `fixtures` in which the rule finds the defect."""
    example: int = 0
    """Without a fixture, the number of the bad example that has it, from 0: XLA reads it."""

    def __str__(self) -> str:
        example = f"Bad example {self.example + 1}"
        place = f"`fixtures/{self.found_in}`" if self.found_in else example
        return f"{self.what} {place} has it."


@dataclass(frozen=True, slots=True)
class PublicReport:
    """A public report of the defect, reproduced."""

    number: str
    """Project and number, such as `openxla/xla#46231`, or project and commit of the fix."""
    found_in: str
    """A path in `fixtures` that reproduces it."""

    def __str__(self) -> str:
        return f"{self.number}: `fixtures/{self.found_in}` reproduces it."


RuleEvidence = RefusedByXla | WrittenByXla | WrongValues | Counted | MeasuredHarm | PublicReport
