"""The pins of tests/constraints.txt admit every Python; a missing plugin of pytest is named."""

from __future__ import annotations

import re
import sys
from importlib.metadata import PackageNotFoundError, distribution

import pytest
from packaging.specifiers import SpecifierSet

from tests.conftest import ROOT, completed

PINS = re.findall(r"^([\w.-]+)==(\S+)$", (ROOT / "tests/constraints.txt").read_text("utf-8"), re.M)


@pytest.mark.parametrize("python", ["3.11.0", "3.14.0"])
def test_each_pin_admits_the_oldest_and_the_newest_python(python: str) -> None:
    refusing: list[str] = []
    looked_at = 0
    for name, version in PINS:
        try:
            installed = distribution(name)
        except PackageNotFoundError:
            continue  # for another platform
        if installed.version == version:  # not so in `make test-latest`
            looked_at += 1
            needed = next(iter(installed.metadata.get_all("Requires-Python") or ()), "")
            if python not in SpecifierSet(needed):
                refusing.append(f"{name} {needed}")
    if not looked_at:
        pytest.skip("no pinned version is installed")
    assert not refusing


def test_pytest_without_its_plugin_names_the_package() -> None:
    command = [sys.executable, "-m", "pytest", "-p", "no:timeout", "tests/project/test_pins.py"]
    done = completed(command, cwd=ROOT)
    assert done.returncode == pytest.ExitCode.USAGE_ERROR
    assert done.stderr.strip().startswith("ERROR: pytest-timeout is not installed; pip install ")
