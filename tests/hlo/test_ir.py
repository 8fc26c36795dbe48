"""The data model: properties of modules, computations and instructions."""

from __future__ import annotations

import pytest

import hlo_lint

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
