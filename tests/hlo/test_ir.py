"""The data model: properties of modules, computations and instructions."""

from __future__ import annotations

import pytest

import hlo_lint
from hlo_lint.analysis.constants import constant_integers

TEXT = """\
HloModule m

body {
  ROOT p = f32[8] parameter(0)
}

ENTRY e {
  a = f32[8] parameter(0)
  ROOT f = f32[8] fusion(a), kind=kLoop, calls=body
}
"""


@pytest.mark.parametrize(
    ("former", "name"),
    [("fused", "fusion_computations"), ("unfused", "nonfusion_computations")],
)
def test_former_names_of_module_properties_warn(former: str, name: str) -> None:
    module = hlo_lint.parse(TEXT)
    with pytest.warns(DeprecationWarning, match=rf"Module\.{former} is {name}"):
        assert getattr(module, former) == getattr(module, name)


def test_former_names_of_methods_and_instruction_properties_warn() -> None:
    module = hlo_lint.parse(TEXT)
    assert module.entry is not None
    assert module.entry.root is not None
    with pytest.warns(DeprecationWarning, match=r"Module\.walk is instructions\(\)"):
        assert list(module.walk()) == list(module.instructions())
    with pytest.warns(DeprecationWarning, match="called_computations"):
        assert module.entry.root.called == module.entry.root.called_computations == ("body",)
    with pytest.warns(DeprecationWarning, match="fusion_computations"):
        assert module.entry.fused == {"body"}


@pytest.mark.parametrize(
    ("attributes", "name", "rank", "dimensions"),
    [
        (", dimensions={1,0}", "dimensions", 2, (1, 0)),
        (", dimensions={}", "dimensions", 0, ()),
        (", iota_dimension=1", "iota_dimension", 2, (1,)),
        (", iota_dimension=2", "iota_dimension", 2, None),
        (", dimensions={-1}", "dimensions", 2, None),
        (", dimensions={18446744073709551616}", "dimensions", 2, None),
        (", dimensions={x}", "dimensions", 2, None),
        (", dimensions={{0},{1}}", "dimensions", 2, None),
        ("", "dimensions", 2, None),
    ],
)
def test_dimensions_that_the_array_lacks_are_none(
    attributes: str, name: str, rank: int, dimensions: tuple[int, ...] | None
) -> None:
    module = hlo_lint.parse(f"HloModule m\n\nENTRY e {{\n  ROOT a = s32[] f(){attributes}\n}}\n")
    assert module.entry_computation.root_instruction.dimensions_attribute(name, rank) == dimensions


def test_a_concatenation_of_constants_is_along_its_dimension() -> None:
    module = hlo_lint.parse(
        "HloModule m\n\nENTRY e {\n  a = s32[2,1] constant({ {1}, {3} })\n"
        "  b = s32[2,1] constant({ {2}, {4} })\n"
        "  ROOT c = s32[2,2] concatenate(a, b), dimensions={1}\n}\n"
    )
    assert constant_integers(module.entry_computation.root_instruction) == [1, 2, 3, 4]
