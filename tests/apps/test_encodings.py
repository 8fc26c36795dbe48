"""Terminals and files of other encodings than UTF-8: the same findings, and no byte lost."""

from __future__ import annotations

import gc
import io
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from hlo_lint import lint
from hlo_lint.apps.cli.program import main
from hlo_lint.hlo.parser.module import parse_file
from tests.apps.test_cli import command, environment
from tests.texts import entry

TEXT = entry("""
  %p = f32[8,3]{1,0} parameter(0), metadata={op_name="größe/€" source_file="/é/ü.py" source_line=3}
  ROOT %r = f32[4,2,3]{0,1,2} reshape(%p), metadata={op_name="größe/€ – …"}
""")
PATCH = ("fix", "--diff", "größe.hlo", "--before", "layout_normalization")
COMMANDS = (
    ("check", "größe.hlo"), ("check", "größe.hlo", "--output-format", "github"),
    ("check", "größe.hlo", "--output-format", "sarif"), ("check", "missing–é.hlo"),
    ("explain", "reshape-moves-data"), ("diff", "größe.hlo", "other.hlo"),
    ("match", "reshape()", "größe.hlo"), ("check", "--help"),
)  # fmt: skip
ENCODINGS = ("cp1252", "latin-1", "ascii")


@pytest.fixture(autouse=True)
def _files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("größe.hlo").write_text(TEXT, "utf-8")
    Path("other.hlo").write_text(TEXT.replace("{0,1,2}", "{2,1,0}"), "utf-8")


def program(
    encoding: str, words: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> tuple[int, bytes, bytes]:
    """The status, the output and the errors of the program, whose streams have an encoding."""
    streams = [io.TextIOWrapper(io.BytesIO(), encoding) for _ in range(2)]
    handlers = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    hangup = getattr(signal, "SIGHUP", signal.SIGTERM)
    handlers[hangup] = signal.getsignal(hangup)
    with monkeypatch.context() as patch:
        patch.setattr(sys, "argv", ["hlo-lint", *words])
        patch.setattr(sys, "stdout", streams[0])
        patch.setattr(sys, "stderr", streams[1])
        patch.setattr(gc, "freeze", lambda: None)  # this process goes on
        patch.setenv("COLUMNS", "80")
        with pytest.raises(SystemExit) as ended:
            main()
        for stream in streams:
            stream.flush()
    for number, handler in handlers.items():
        signal.signal(number, handler)
    output, errors = (stream.buffer.getvalue() for stream in streams)
    return int(ended.value.code or 0), output, errors


@pytest.mark.parametrize("words", COMMANDS, ids=" ".join)
def test_a_terminal_shows_what_it_cannot_spell_as_escapes(
    words: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    status, *expected = program("utf-8", words, monkeypatch)
    for encoding in ENCODINGS:
        ran = program(encoding, words, monkeypatch)
        assert ran[0] == status
        for part, utf8 in zip(ran[1:], expected, strict=True):
            escaped = utf8.decode().encode(encoding, "backslashreplace")
            # click takes ASCII for a locale that nobody has set, and writes UTF-8.
            assert part == escaped or (encoding == "ascii" and part == utf8)


@pytest.mark.parametrize("encoding", ENCODINGS)
def test_patches_are_bytes_on_any_terminal(encoding: str, monkeypatch: pytest.MonkeyPatch) -> None:
    ran = program(encoding, PATCH, monkeypatch)
    assert ran == program("utf-8", PATCH, monkeypatch)
    assert "größe/€ – …".encode() in ran[1]


@pytest.mark.parametrize("encoding", ["cp1252", "latin-1", "utf-8-sig"])
def test_a_fix_keeps_the_bytes_of_a_file(encoding: str, monkeypatch: pytest.MonkeyPatch) -> None:
    path = Path("größe.hlo")
    data = TEXT.encode(encoding, "replace")
    path.write_bytes(data)
    words = ("fix", str(path), "--before", "layout_normalization")
    assert program("ascii", words, monkeypatch)[0] == 0
    fixed = path.read_bytes()
    assert fixed != data
    assert fixed.startswith(data[: data.index(b"  ROOT")])


def test_utf_16_is_told_and_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    path = Path("größe.hlo")
    path.write_bytes(data := TEXT.encode("utf-16"))
    for name in ("check", "fix"):
        status, output, errors = program("ascii", (name, str(path)), monkeypatch)
        assert status == 1
        assert b"this is UTF-16" in output + errors
    assert path.read_bytes() == data


@pytest.mark.slow
def test_the_variable_of_python_decides() -> None:
    given = environment(PYTHONIOENCODING="ascii")  # Python reads it when it starts
    ran = subprocess.run(command("check", "größe.hlo"), env=given, capture_output=True)
    assert ran.returncode == 1
    assert b"gr\\xf6\\xdfe.hlo:5:3" in ran.stdout


@pytest.mark.parametrize(
    ("text", "name"),
    [
        (b"module @jit_f {\n  %0 = stablehlo.add %a, %a : tensor<4xf32>\n}\n", "this is StableHLO"),
        (b"{ lambda ; a:f32[4]. let b:f32[4] = sin a in (b,) }\n", "this is a jaxpr"),
        (b"ML\xefR\rStableHLO_v1.8.0\0", "this is MLIR as bytecode"),
    ],
)
def test_what_jax_prints_besides_hlo_is_named_beside_the_right_call(text: bytes, name: str) -> None:
    (problem,) = parse_file(text).modules[0].problems
    assert problem.message.startswith(name)
    assert 'as_text(dialect="hlo")' in problem.message


HLO = """HloModule jit_f, entry_computation_layout={(f32[4]{0})->f32[4]{0}}

%half (p: f32[4]) -> f32[4] {
  %p = f32[4]{0} parameter(0)
  ROOT %n = f32[4]{0} negate(%p)
}

ENTRY %main (x: f32[4]) -> f32[5] {
  %x = f32[4]{0} parameter(0)
  ROOT %f = f32[5]{0} fusion(%x), kind=kLoop, calls=%half
}
"""
TIME = "I0000 00:00:1700000000.000000     123 file.cc:45] "
MESSAGE = TIME.replace("I", "W") + "other {x} = 1\n"


@pytest.mark.parametrize(
    "text",
    [
        f"{MESSAGE}{TIME}{HLO}{MESSAGE}Traceback\n  x = {{\n",
        MESSAGE + "".join(f"{TIME}{line}\n{MESSAGE}" for line in HLO.splitlines()),
        "".join(f"[rank0] {line}\r\n" for line in HLO.splitlines()),
        "".join(f"[1,0]<stderr>:{TIME}{line}\n" for line in HLO.splitlines()),
        f"# It dies\n\n```python\nx = {{\n```\n\n```hlo\n{HLO}```\n\nAnd {{ then\n",
        f"```\nx = {{\n```\n```\n{HLO}\n{HLO}```\n",
    ],
    ids=["a log", "each line", "ranks", "MPI", "Markdown", "fences"],
)
def test_hlo_in_another_text_is_read_in_its_place(text: str, tmp_path: Path) -> None:
    file = parse_file(text)
    assert file.text == text
    for module in file.modules:
        assert (module.name, len(list(module.instructions())), module.problems) == ("jit_f", 4, ())
        (fusion,) = (each for each in module.instructions() if each.name == "f")
        span = module.span(fusion)
        assert text[span.start : span.end].lstrip().startswith("ROOT %f = f32[5]")
    path = tmp_path / "run.log"
    path.write_bytes(text.encode())
    lines = {number for number, line in enumerate(text.split("\n"), 1) if "%main" in line}
    lines |= {number for number, line in enumerate(text.split("\n"), 1) if "ROOT %f" in line}
    findings = lint(path).findings
    assert findings
    assert {finding.line for finding in findings} <= lines
