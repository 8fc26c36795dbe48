from __future__ import annotations

import pytest

import hlo_lint
from hlo_lint.hlo.constants import constant_integers
from tests.texts import entry


@pytest.mark.parametrize(
    ("attributes", "name", "rank", "dimensions"),
    [
        (", dimensions={1,0}", "dimensions", 2, (1, 0)), (", dimensions={}", "dimensions", 0, ()),
        (", iota_dimension=1", "iota_dimension", 2, (1,)),
        (", iota_dimension=2", "iota_dimension", 2, None),
        (", dimensions={-1}", "dimensions", 2, None),
        (", dimensions={18446744073709551616}", "dimensions", 2, None),
        (", dimensions={x}", "dimensions", 2, None),
        (", dimensions={{0},{1}}", "dimensions", 2, None), ("", "dimensions", 2, None),
    ],
)  # fmt: skip
def test_dimensions_that_the_array_lacks_are_none(
    attributes: str, name: str, rank: int, dimensions: tuple[int, ...] | None
) -> None:
    module = hlo_lint.parse(f"HloModule m\n\nENTRY e {{\n  ROOT a = s32[] f(){attributes}\n}}\n")
    assert module.entry_computation.root_instruction.dimensions_attribute(name, rank) == dimensions


def test_a_concatenation_of_constants_is_along_its_dimension() -> None:
    text = entry("""
  a = s32[2,1] constant({ {1}, {3} })
  b = s32[2,1] constant({ {2}, {4} })
  ROOT c = s32[2,2] concatenate(a, b), dimensions={1}
""")
    root = hlo_lint.parse(text).entry_computation.root_instruction
    assert constant_integers(root) == [1, 2, 3, 4]


def test_a_search_for_users_and_the_table_of_all_agree() -> None:
    rows = [f"  v{n} = f32[] add(v{n - 1}, v{max(0, n - 9)})" for n in range(1, 400)]
    text = "\n".join(["HloModule m", "ENTRY e {", "  v0 = f32[] parameter(0)", *rows, "}", ""])
    entry = hlo_lint.parse(text).entry_computation
    names = ("v0", "v7", "v200", "v399")
    searched = [[user.name for user in entry[name].users] for name in names]
    table = entry.users
    assert searched == [[entry.at(number).name for number in table.get(name, ())] for name in names]


def test_a_name_in_metadata_is_no_callee() -> None:
    text = entry('  ROOT n = f32[] call(), to_apply=f, metadata={op_name="jit(g)/to_apply=h"}')
    root = hlo_lint.parse(text).entry_computation.root_instruction
    assert root.called_computations == ("f",)
