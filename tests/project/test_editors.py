"""The settings in `editors/README.md`, in the editors themselves, where these are installed."""

from __future__ import annotations

import os
import re
import shutil
import tomllib
from pathlib import Path

import pytest

pytest.importorskip("pygls", reason="the language server needs hlo-lint[lsp]")

from tests.conftest import CRASH, ROOT, completed, program, written

pytestmark = pytest.mark.slow

PAGE = (ROOT / "editors" / "README.md").read_text("utf-8")
DUMP = next(CRASH.glob("*.after_autotuner.*"))
LINE = DUMP.read_text().partition("%reshape.15 = ")[0].count("\n") + 1


def block(kind: str, nth: int = 0) -> str:
    found: list[str] = re.findall(rf"^```{kind}\n(.*?)^```$", PAGE, re.M | re.S)
    return found[nth]


def environment(folder: Path) -> dict[str, str]:
    """One in which `hlo-lint` is the program of this checkout."""
    return {
        "PATH": f"{program(folder / 'hlo-lint').parent}:{os.environ['PATH']}",
        "PYTHONPATH": str(ROOT),
        "HOME": str(folder),
        "TERM": "dumb",
    }


@pytest.mark.skipif(shutil.which("nvim") is None, reason="Neovim is not installed")
def test_neovim_shows_a_finding_and_follows_a_name(tmp_path: Path) -> None:
    version = completed(["nvim", "--version"]).stdout
    major, minor = map(int, re.findall(r"v(\d+)\.(\d+)", version)[0])
    settings = written(tmp_path / "init.lua", block("lua", 0 if (major, minor) >= (0, 11) else 1))
    script = tmp_path / "look.lua"
    script.write_text(f"""
        vim.wait(20000, function() return #vim.diagnostic.get(0) > 0 end)
        local found = vim.diagnostic.get(0)[1]
        io.stdout:write(vim.bo.filetype, " ", found.lnum + 1, " ", found.code, "\\n")
        vim.api.nvim_win_set_cursor(0, {{ {LINE}, 55 }})
        vim.lsp.buf.definition()
        vim.wait(20000, function() return vim.api.nvim_win_get_cursor(0)[1] ~= {LINE} end)
        io.stdout:write(vim.api.nvim_get_current_line(), "\\n")
        vim.cmd("qa!")
    """)
    copy = Path(shutil.copy(DUMP, tmp_path))
    ran = completed(
        ["nvim", "--headless", "-u", str(settings), str(copy), "-c", f"luafile {script}"],
        env=environment(tmp_path),
        timeout=120,
    )
    first, second, *_ = ran.stdout.split("\n")
    assert first == f"hlo {LINE} reshape-moves-data"
    assert second.startswith("  %get-tuple-element = ")


def _has_eglot() -> bool:
    if shutil.which("emacs") is None:
        return False
    look = "(progn (package-initialize) (kill-emacs (if (require 'eglot nil t) 0 1)))"
    return completed(["emacs", "--batch", "--eval", look]).returncode == 0


@pytest.mark.skipif(not _has_eglot(), reason="Emacs with eglot is not installed")
def test_emacs_shows_a_finding_and_follows_a_name(tmp_path: Path) -> None:
    settings = tmp_path / "settings.el"
    # Emacs starts no server for a batch run from a hook: it is started below.
    settings.write_text(block("elisp").replace("(add-hook 'hlo-mode-hook 'eglot-ensure)\n", ""))
    copy = Path(shutil.copy(DUMP, tmp_path))
    script = tmp_path / "look.el"
    script.write_text(f"""
        (package-initialize)
        (require 'eglot)
        (load "{settings}")
        (setq eglot-sync-connect 20)
        (find-file "{copy}")
        (apply #'eglot (eglot--guess-contact))
        (dotimes (_ 100)
          (unless (flymake-diagnostics)
            (flymake-start)
            (accept-process-output nil 0.2)))
        (let ((found (car (flymake-diagnostics))))
          (princ (format "%s %s %s\\n" major-mode
                         (line-number-at-pos (flymake-diagnostic-beg found))
                         (flymake-diagnostic-text found))))
        (goto-char (point-min))
        (search-forward "reshape(%get-tu")
        (call-interactively 'xref-find-definitions)
        (princ (thing-at-point 'line))
        (eglot-shutdown (eglot-current-server))
    """)
    ran = completed(["emacs", "--batch", "-l", str(script)], env=environment(tmp_path), timeout=120)
    assert re.search(rf"^hlo-mode {LINE} .*this reshape moves bytes", ran.stdout, re.M), ran.stderr
    assert re.search("^  %get-tuple-element = ", ran.stdout, re.M)


def test_the_settings_of_helix_are_toml_and_start_the_server() -> None:
    settings = tomllib.loads(block("toml"))
    (language,) = settings["language"]
    (server,) = language["language-servers"]
    command = settings["language-server"][server]
    assert [command["command"], *command["args"]] == ["hlo-lint", "server"]
