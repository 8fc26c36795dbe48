"""The stack-frame tables of a module: from `stack_frame_id` to a line of Python."""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import lru_cache
from typing import NamedTuple

from hlo_lint.hlo.attributes.cursor import unescape

_row = re.compile(r'^[ \t]*(\d+)[ \t]*(?:"((?:[^"\\]|\\.)*)"|\{([^}\n]*)\})', re.M)
_heading = re.compile(r"^(FileNames|FunctionNames|FileLocations|StackFrames)[ \t\r]*$", re.M)
_field = re.compile(r"(\w+)=\s*(\d+)")


class Frame(NamedTuple):
    """A frame of a Python stack."""

    file: str
    line: int
    function: str


class StackFrames:
    """The tables FileNames, FunctionNames, FileLocations and StackFrames of a module.

    >>> frames = read_stack_frames((
    ...     'FileNames\\n1 "model.py"', 'FunctionNames\\n1 "<module>"\\n2 "attention"',
    ...     'FileLocations\\n1 {file_name_id=1 function_name_id=1 line=9}\\n'
    ...     '2 {file_name_id=1 function_name_id=2 line=4}',
    ...     'StackFrames\\n1 {file_location_id=1 parent_frame_id=1}\\n'
    ...     '2 {file_location_id=2 parent_frame_id=2}'))
    >>> frames.stack(2)
    (Frame(file='model.py', line=4, function='attention'), \
Frame(file='model.py', line=9, function='<module>'))
    """

    def __init__(self, tables: tuple[str, ...]) -> None:
        _, *parts = _heading.split("\n".join(tables))
        texts = dict(zip(parts[::2], parts[1::2], strict=True))
        self._files = _names(texts.get("FileNames", ""))
        self._functions = _names(texts.get("FunctionNames", ""))
        self._locations = _records(texts.get("FileLocations", ""))
        self._frames = _records(texts.get("StackFrames", ""))

    def stack(self, frame_id: int) -> tuple[Frame, ...]:
        """The frames from the innermost outwards; empty for an unknown id."""
        return tuple(self.frames(frame_id))

    def frames(self, frame_id: int) -> Iterator[Frame]:
        """The frames from the innermost outwards, read on demand."""
        seen: set[int] = set()
        while frame_id in self._frames and frame_id not in seen:
            seen.add(frame_id)
            record = _fields(self._frames[frame_id])
            place = _fields(self._locations.get(record.get("file_location_id", 0), ""))
            file = self._files.get(place.get("file_name_id", 0))
            if file is not None:
                function = self._functions.get(place.get("function_name_id", 0), "")
                yield Frame(file, place.get("line", 0), function)
            # Printed parent ids are off by one: the first frame, without a parent, has 1.
            frame_id = record.get("parent_frame_id", 1) - 1


def _names(table: str) -> dict[int, str]:
    return {int(number): unescape(name) for number, name, _ in _row.findall(table)}


def _records(table: str) -> dict[int, str]:
    """The text between the braces of each row: few rows are ever read."""
    return {int(number): fields for number, _, fields in _row.findall(table)}


def _fields(record: str) -> dict[str, int]:
    return {name: int(value) for name, value in _field.findall(record)}


@lru_cache(maxsize=64)
def read_stack_frames(tables: tuple[str, ...]) -> StackFrames:
    """The tables of a module, cached; never raises."""
    return StackFrames(tables)
