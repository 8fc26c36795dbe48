"""XLA's parser in a child process, of each release at hand."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from hlo_lint.text.errors import UsageError
from hlo_lint.xla.parser import XlaParser, XlaRefusal
from tests.conftest import present

pytestmark = pytest.mark.slow

PYTHONS = [None, *filter(None, os.environ.get("HLO_LINT_ORACLES", "").split(os.pathsep))]
GOOD = "HloModule m\n\nENTRY e {\n  ROOT a = f32[2] parameter(0)\n}\n"
ABORTS = GOOD.replace("f32[2] parameter(0)", "token[] constant(1.5)")


@pytest.fixture(scope="module", params=PYTHONS, ids=lambda path: path and Path(path).parts[-3])
def parser(request: pytest.FixtureRequest) -> Iterator[XlaParser]:
    with XlaParser(request.param) as running:
        yield running


def test_text_that_xla_reads_is_not_refused(parser: XlaParser) -> None:
    assert parser.refusal(GOOD) is None


def test_a_refusal_has_its_place(parser: XlaParser) -> None:
    refusal = parser.refusal(GOOD.replace("parameter", "parametr"))
    message = "expects opcode but sees: parametr, error: Unknown opcode: parametr"
    assert refusal == XlaRefusal(message, 4, 19)


def test_columns_are_characters(parser: XlaParser) -> None:
    refusal = present(
        parser.refusal(GOOD.replace("ROOT", '/*ää "\udcff"*/ ROOT').replace("r(0)", "r(x)"))
    )
    assert (refusal.line, refusal.column) == (4, 40)


def test_bytes_that_are_not_utf_8_are_read(parser: XlaParser) -> None:
    assert parser.refusal(GOOD.replace("(0)", '(0), metadata={op_name="\udcff"}')) is None


def test_an_empty_text_is_refused_without_a_place(parser: XlaParser) -> None:
    assert parser.refusal("") == XlaRefusal("expects name")


def test_a_text_that_ends_the_process_is_refused_and_the_next_is_read(parser: XlaParser) -> None:
    refusal = present(parser.refusal(ABORTS))
    assert refusal.message.startswith("XLA was ended by SIG")
    assert parser.refusal(GOOD) is None


def test_a_check_that_fails_says_its_reason(parser: XlaParser) -> None:
    refusal = present(parser.refusal(GOOD.replace("f32[2]", "b((f32[2]))")))
    assert "element_shape must be an array shape" in refusal.message


def test_a_text_that_takes_too_long_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HLO_LINT_XLA_SECONDS", "1.5")
    rows = "".join(f"  a{n} = f32[] parameter({n})\n" for n in range(2_000_000))
    with XlaParser() as parser:
        assert parser.refusal(GOOD) is None
        begun = time.monotonic()
        refusal = present(parser.refusal(GOOD.replace("  ROOT", rows + "  ROOT")))
        assert "was still at it after 1.5 seconds" in refusal.message
        assert time.monotonic() - begun < 10
        assert parser.refusal(GOOD) is None


def test_a_python_without_jaxlib_is_an_error(tmp_path: Path) -> None:
    bare = tmp_path / "bin" / "python"
    bare.parent.mkdir()
    bare.symlink_to(Path(sys.executable).resolve())  # no environment, so none of its packages
    with XlaParser(bare) as parser, pytest.raises(UsageError, match=r"has no jaxlib"):
        parser.refusal(GOOD)


def test_what_is_no_python_is_an_error(tmp_path: Path) -> None:
    with XlaParser(tmp_path) as parser, pytest.raises(UsageError, match="cannot be run"):
        parser.refusal(GOOD)
