"""Evidence that the defect of a rule does harm. Tests ask for each piece again."""

from __future__ import annotations

from dataclasses import dataclass

_COMPILERS = {"parser": "XLA's parser", "cpu": "XLA:CPU", "gpu": "XLA:GPU", "tpu": "XLA:TPU"}


@dataclass(frozen=True, slots=True)
class RefusedByXla:
    """XLA refuses a bad example, or dies of it."""

    says: str
    by: str = "gpu 0.11.2"
    """`parser`, `cpu` (which also runs the example), `gpu` or `tpu`, and the release of jaxlib."""
    passes: str = "all"
    """The passes that run: `all`, `none`, or a value of `xla_enable_hlo_passes_only`."""
    example: int = 0
    """The number of the bad example, from 0; of a pair, the module after the pass."""

    def __str__(self) -> str:
        compiler, release = self.by.split()
        ran = {"all": "", "none": ", without its passes,"}.get(
            self.passes, f", with no pass but `{self.passes}`,"
        )
        verb = "dies of" if compiler == "cpu" else "refuses"
        examples = f"bad example {self.example + 1}: `{self.says}`" if self.says else "bad examples"
        return f"{_COMPILERS[compiler]} of jaxlib {release}{ran} {verb} {examples}."


@dataclass(frozen=True, slots=True)
class WrongValues:
    """A bad example computes wrong values.

    `hlo-lint validate` says so of a pair of modules. A single module computes what its page says
    (`tests/rules/test_values.py`).
    """

    example: int = 0
    """The number of the bad example, from 0."""

    def __str__(self) -> str:
        return f"XLA:CPU shows the wrong values of bad example {self.example + 1}."


@dataclass(frozen=True, slots=True)
class MeasuredHarm:
    """The harm was measured: on a chip, or by XLA's own analysis."""

    what: str
    """A sentence with the chip or the compiler, its release and the number."""
    found_in: str = ""
    """A path in `fixtures` in which the rule finds the defect; empty if only an example has it."""

    def __str__(self) -> str:
        return self.what + (f" `fixtures/{self.found_in}` has it." if self.found_in else "")


@dataclass(frozen=True, slots=True)
class PublicReport:
    """A public report of the defect, reproduced."""

    number: str
    """Project and number, such as `openxla/xla#46231`, or project and commit of the fix."""
    found_in: str = ""
    """A path in `fixtures` that reproduces it; empty if an example does."""

    def __str__(self) -> str:
        where = (
            f"`fixtures/{self.found_in}` reproduces it" if self.found_in else "an example has it"
        )
        return f"{self.number}: {where}."


RuleEvidence = RefusedByXla | WrongValues | MeasuredHarm | PublicReport
