"""The settings file of a run."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from hlo_lint.apps.settings.settings import Settings
from hlo_lint.text.errors import ConfigError, os_errors_as
from hlo_lint.text.source import shown

OWN = "hlo_lint.toml"
PROJECT = "pyproject.toml"
SECTION = ("tool", "hlo_lint")
"""The table of settings in a pyproject.toml; in a file of our own they stand at the top."""


def load_settings(
    paths: Sequence[str | Path] = (), *, config: str | Path | None = None
) -> Settings:
    """The settings that hold for paths.

    They stand in the `hlo_lint.toml`, or the `[tool.hlo_lint]` of the `pyproject.toml`, that is
    nearest above all the paths, else above the working directory; of two in one folder the first.
    `config` names the file instead.

    Raises:
        ConfigError: for a file that cannot be read, a key that is none, a value that does not fit.
    """
    path = Path(config) if config is not None else find_file(paths)
    return Settings() if path is None else read_file(path)


def find_file(paths: Sequence[str | Path] = ()) -> Path | None:
    """The settings file for paths, or None."""
    for folder in _folders(paths):
        for name in (OWN, PROJECT):
            path = folder / name
            if os.path.isfile(path) and (name == OWN or _has_section(path)):
                return path
    return None


def read_file(path: Path) -> Settings:
    """The settings in a file.

    Raises:
        ConfigError: for a file that cannot be read, a key that is none, a value that does not fit.
    """
    import tomllib

    from hlo_lint.apps.settings.keys import read_settings
    from hlo_lint.apps.settings.toml_locations import SettingPlace, displayed

    label = shown(str(displayed(path)))
    with os_errors_as(f"{label}: cannot be read", ConfigError):
        data = path.read_bytes()
    try:
        text = data.decode("utf-8")
        document: Any = tomllib.loads(text.replace("\r\n", "\n"))
    except UnicodeDecodeError as error:
        raise ConfigError(f"{label}: it is not UTF-8, as TOML has to be: {error}") from error
    except tomllib.TOMLDecodeError as error:
        raise ConfigError(_syntax_error(label, text, str(error))) from error
    except RecursionError as error:
        raise ConfigError(f"{label}: its values are nested too deep") from error
    except ValueError as error:  # Python reads no more than 4,300 digits
        raise ConfigError(f"{label}: a number has too many digits") from error
    place = SettingPlace(path, text)
    if path.name == OWN and "tool" in document:
        raise place.at("tool").error(f"in {OWN} the keys stand at the top, in no table of tools")
    section = SECTION if path.name == PROJECT or "tool" in document else ()
    for key in section:
        document = document.get(key, {}) if isinstance(document, dict) else document
        place = place.at(key)
    if not isinstance(document, dict):
        raise place.error("has to be a table")
    place = SettingPlace(path, text, place.keys, shown_from=len(section))
    fields = read_settings(document, place)
    origins = {name: f"{label}:{place.at(name.replace('_', '-')).position.line}" for name in fields}
    return Settings(**{**fields, "file": path, "origins": origins})  # type: ignore[arg-type]


def _folders(paths: Sequence[str | Path]) -> Iterable[Path]:
    """Folders that may hold a settings file, each once, the nearest first."""
    folders: list[Path] = []
    absolute = [os.path.abspath(path) for path in paths if str(path) not in ("", "-")]
    if absolute:
        try:
            common = Path(os.path.commonpath(absolute))
        except ValueError:  # on different drives, or with a NUL character
            common = Path()
        inside = os.path.isdir(common)  # a name that is too long is not a folder either
        folders += [common, *common.parents] if inside else common.parents
    working_folder = Path.cwd()
    return dict.fromkeys([*folders, working_folder, *working_folder.parents])


def _has_section(path: Path) -> bool:
    """True if a pyproject.toml speaks of this tool."""
    try:
        data = path.read_bytes()
        if b"hlo_lint" not in data:
            return False
        import tomllib

        document = tomllib.loads(data.decode("utf-8", "replace"))
    except OSError:
        return False
    except (ValueError, RecursionError):
        return True  # reading it says what is wrong
    tool = document.get("tool")
    return isinstance(tool, dict) and "hlo_lint" in tool


def _syntax_error(label: str, text: str, message: str) -> str:
    """The parser's message, with the place first."""
    place = re.search(r" \(at (?:line (\d+), column (\d+)|end of document)\)$", message)
    if place is None:
        return f"{label}: {message}"
    line = int(place[1]) if place[1] else text.count("\n") + 1
    column = int(place[2]) if place[2] else len(text) - text.rfind("\n")
    return f"{label}:{line}:{column}: {message[: place.start()]}"
