"""Options that several commands have mean the same in each of them."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from hlo_lint.apps.cli.main import COMMANDS
from tests.commands import invoke, options
from tests.conftest import FIXTURES, ROOT
from tests.docs import COMMAND_LINE, with_options

TEXT = """HloModule {module}

ENTRY %e (p: f32[8,3]) -> f32[4,2,3] {{
  %p = f32[8,3]{{1,0}} parameter(0)
  %n = f32[8,3]{{1,0}} negate(%p)
  ROOT %r = f32[4,2,3]{{0,1,2}} reshape(%n)
}}
"""
STEPS = "before_optimizations", "0001.simplify.after_algsimp.before_dce"


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Dumps of jit_f and jit_g, twice."""
    monkeypatch.chdir(tmp_path)
    for run_name in ("a", "b"):
        (tmp_path / run_name).mkdir()
        for number, module in enumerate(("jit_f", "jit_g"), 1):
            for step in STEPS:
                name = f"module_{number:04d}.{module}.{step}.txt"
                (tmp_path / run_name / name).write_text(TEXT.format(module=module))
            debug = tmp_path / run_name / f"module_{number:04d}.{module}.debug_options"
            debug.write_text(f'xla_dump_to: "{run_name}"\n')
    return tmp_path


# --module

MODULE = {
    "check": ("a",), "fix": ("a", "--diff", "--before", "layout_normalization"),
    "report": ("a", "-o", "-"), "match": ("reshape()", "a"), "passes": ("a",),
    "diff": ("algsimp", "before_optimizations", "--in", "a"), "bisect": ("a", "b"),
    "compare": ("a", "b"), "validate": ("a",), "ranks": ("a", "b"), "payload": ("a", "r"),
    "reduce": ("a",), "repro": ("a", "-o", "repro"), "run": ("a",),
}  # fmt: skip
"""The arguments of each command that takes a dump and works on its modules."""


def test_each_command_for_modules_takes_the_name_of_one() -> None:
    assert {name for name, option in options() if "--module" in option.opts} == {*MODULE, "exec"}


@pytest.mark.parametrize("command", MODULE)
def test_a_module_that_is_not_there_is_wrong_use(command: str, folder: Path) -> None:
    refused = invoke(command, *MODULE[command], "--module", "jit_ff")
    assert refused.exit_code == 2
    where = "a, b" if command == "ranks" else "a"
    assert refused.stderr == f"Error: no module in {where} is named jit_ff: did you mean jit_f?\n"


@pytest.mark.parametrize("command", ["check", "fix", "match", "passes", "bisect", "compare"])
@pytest.mark.parametrize("name", ["jit_g", "module_0002.jit_g"])
def test_only_the_named_module_is_looked_at(command: str, name: str, folder: Path) -> None:
    both, named = (invoke(command, *MODULE[command], *more) for more in ([], ["--module", name]))
    assert "jit_f" in both.stdout
    assert "jit_g" in named.stdout
    assert "jit_f" not in named.stdout


def test_the_modules_of_a_file_have_the_names_in_its_text(folder: Path) -> None:
    Path("loose.hlo").write_text(TEXT.format(module="first"))
    assert invoke("check", "loose.hlo", "a", "--module", "first").stdout.count("-->") == 1
    assert invoke("run", "loose.hlo", "--module", "second").exit_code == 2


def test_a_dump_directory_is_run_by_the_name_of_a_module(folder: Path) -> None:
    assert "a is a directory, not a file" in invoke("run", "a").stderr
    assert invoke("run", "a", "--module", "jit_g").stdout.startswith("%r = f32[4,2,3]{0,1,2}\n")


# --color

PROFILES = str(FIXTURES / "profiles")
COLOURED = {
    "check": ("a",), "fix": ("loose.hlo", "--diff"), "diff": ("loose.hlo", "other.hlo"),
    "match": ("reshape()", "a"), "bisect": (f"{PROFILES}/all", f"{PROFILES}/without_fusion"),
    "compare": ("a", "b", "--all"),
}  # fmt: skip


def test_each_command_that_prints_colours_has_color() -> None:
    colours = re.compile(r"click\.style\(|console\(")
    having = {name for name, option in options() if "--color" in option.opts}
    folder = ROOT / "hlo_lint" / "apps" / "cli"
    for name in COMMANDS:
        source = (folder / f"{name.replace('-', '_')}.py").read_text("utf-8")
        assert (colours.search(source) is None) or name in having, name


@pytest.mark.parametrize("command", COLOURED)
def test_colours_are_printed_as_color_says(
    command: str, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    Path("loose.hlo").write_text(TEXT.format(module="m"))
    Path("other.hlo").write_text(TEXT.format(module="m").replace("negate", "sine"))

    def is_coloured(*more: str) -> bool:
        ran = invoke(command, *COLOURED[command], *more)
        assert ran.exit_code < 2, ran.output
        return "\x1b[" in ran.output

    monkeypatch.delenv("FORCE_COLOR", raising=False)
    assert is_coloured("--color", "always")
    assert not is_coloured()
    monkeypatch.setenv("FORCE_COLOR", "1")
    assert is_coloured()
    assert not is_coloured("--color", "never")


# --output-format

JSON = {
    "check": ("a",), "exec": (), "capture": (), "validate": ("a",),
    "diff": ("algsimp", "before_optimizations", "--in", "a"), "match": ("reshape()", "a"),
    "passes": ("a",), "bisect": ("a", "b"), "compare": ("a", "b"), "ranks": ("a", "b"), "rules": (),
}  # fmt: skip
"""The arguments of each command that prints JSON; none for those that run a program."""


def test_json_is_a_format_of_the_output_and_no_flag() -> None:
    assert not [name for name, option in options() if "--json" in option.opts]
    assert {name for name, option in options() if "--output-format" in option.opts} == {*JSON}


@pytest.mark.parametrize("command", sorted(JSON.keys() - {"exec", "capture"}))
def test_json_is_what_is_printed(command: str, folder: Path) -> None:
    ran = invoke(command, *JSON[command], "--output-format", "json")
    assert ran.exit_code < 2
    json.loads(ran.stdout)


# --inputs


NEAR_A_HUNDRED = """\
  %h = f32[8,3]{1,0} broadcast(f32[] constant(100)), dimensions={}
  %o = f32[8,3]{1,0} broadcast(f32[] constant(1)), dimensions={}
  %a = f32[8,3]{1,0} abs(f32[8,3]{1,0} subtract(%p, %h))
  %t = pred[8,3]{1,0} compare(%a, %o), direction=LT
  %s = f32[8,3]{1,0} select(%t, %h, %p)
  %n = f32[8,3]{1,0} negate(%s)
"""


@pytest.fixture
def near(folder: Path) -> Path:
    """A dump in which a pass changes values near 100, and inputs of such values."""
    np = pytest.importorskip("numpy")
    text = TEXT.format(module="jit_f")
    negation = next(line for line in text.splitlines(keepends=True) if "negate" in line)
    later = folder / "a" / f"module_0001.jit_f.{STEPS[1]}.txt"
    later.write_text(text.replace(negation, NEAR_A_HUNDRED))
    np.savez(folder / "near.npz", p=np.full((8, 3), 100.5, np.float32))
    np.savez(folder / "other.npz", q=np.zeros(3, np.float32))
    np.savez(folder / "shape.npz", p=np.zeros(3, np.float32))
    return folder


def test_each_command_that_runs_a_module_takes_inputs() -> None:
    asked = {name for name, option in options() if "--inputs" in option.opts}
    assert asked == {"compare", "reduce", "repro", "run", "validate"}


@pytest.mark.slow
def test_a_change_that_only_some_inputs_show_is_found_with_them(near: Path) -> None:
    asked = ("validate", "a", "--module", "jit_f")
    assert invoke(*asked).exit_code == 0
    changed = invoke(*asked, "--inputs", "near.npz")
    assert changed.exit_code == 1
    assert "is -100 and was -100.5" in changed.stdout
    assert "name it with --module" in invoke("validate", "a", "--inputs", "near.npz").stderr


@pytest.mark.slow
@pytest.mark.parametrize("command", ["run", "validate"])
@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("other", "no parameter is named q: there is p"),
        ("shape", "p has the shape (3,), the parameter f32[8,3]{1,0}"),
        ("absent", "not a .npz file of arrays"),
    ],
)
def test_inputs_that_do_not_fit_are_refused(command: str, name: str, says: str, near: Path) -> None:
    refused = invoke(command, "a", "--module", "jit_f", "--inputs", f"{name}.npz")
    assert refused.exit_code == 2
    assert says in refused.stderr


# All of them

SPELLED_ALIKE = re.compile(r" \(repeatable\)\.$")


def test_an_option_of_several_commands_means_the_same_in_each() -> None:
    """The same help, placeholder and type; some commands take more than one value."""
    kinds: dict[str, dict[tuple[object, ...], list[str]]] = {}
    for name, option in options():
        text = SPELLED_ALIKE.sub(".", option.help or "")
        flags = option.is_flag, tuple(option.secondary_opts), option.count
        kind = (text, option.metavar, type(option.type), flags, tuple(option.opts))
        for spelling in option.opts:
            kinds.setdefault(spelling, {}).setdefault(kind, []).append(name)
    assert not {spelling: found for spelling, found in kinds.items() if len(found) > 1}


def test_the_tables_of_options_are_those_of_the_commands() -> None:
    text = COMMAND_LINE.read_text("utf-8")
    assert text == with_options(text), "run `make docs`"
