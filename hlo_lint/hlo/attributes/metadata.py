"""Attributes that the front end writes: `metadata`, `frontend_attributes`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from hlo_lint.hlo.attributes.cursor import AttributeSyntaxError, Cursor, reads

_INT32_END = 1 << 31


@dataclass(frozen=True, slots=True)
class OpMetadata:
    """The origin of an instruction in the program; fields that are not printed have their defaults.

    >>> read_metadata('{op_name="jit(f)/add" stack_frame_id=3}').op_name
    'jit(f)/add'
    """

    op_type: str = ""
    op_name: str = ""
    """The path through transformations and name scopes: `jit(step)/jvp(Model)/add`."""
    source_file: str = ""
    source_line: int = 0
    source_end_line: int = 0
    source_column: int = 0
    source_end_column: int = 0
    stack_frame_id: int = 0
    """A row of the module's StackFrames table; 0 if there is none."""
    scheduling_name: str = ""
    deduplicated_name: str = ""
    metadata_payload: str = ""
    preserve_layout: bool = False
    profile_type: tuple[int, ...] = ()
    """Numbers of `ProfileType` in `xla_data.proto`."""


_TYPES: dict[str, type] = {name: type(getattr(OpMetadata(), name)) for name in OpMetadata.__slots__}
"""The type of each field, which is that of its default."""
_WANTED = {str: "a string", int: "an integer", bool: "true or false", tuple: "a list of integers"}
_FIELD_WANTED = "expected `field=value` in metadata"


def metadata_at(cursor: Cursor) -> OpMetadata:
    """Read fields in braces; fields of later releases, which are unknown, are skipped."""
    cursor.demand("{", message="expected braces")
    values: dict[str, str | int | bool | tuple[int, ...]] = {}
    while not cursor.take("}"):
        cursor.take(",")
        begin = cursor.at
        name = cursor.word(_FIELD_WANTED)
        cursor.demand("=", message=_FIELD_WANTED)
        value_type = _TYPES.get(name)
        if value_type is None:
            if cursor.next == "{":
                cursor.braces(_FIELD_WANTED)
            else:
                cursor.scalar(_FIELD_WANTED)
            continue
        try:
            values[name] = _value(cursor, value_type)
        except AttributeSyntaxError:
            cursor.refuse(f"{name} is {_WANTED[value_type]}", begin)
    return OpMetadata(**values)  # type: ignore[arg-type]  # checked field by field above


read_metadata = reads("expected braces")(metadata_at)
"""The value of `metadata={…}`."""


def _value(cursor: Cursor, value_type: type) -> str | int | bool | tuple[int, ...]:
    if value_type is str:
        return cursor.string()
    if value_type is bool:
        return cursor.boolean()
    if value_type is tuple:
        return cursor.listed(cursor.integer)
    number = cursor.integer()
    if not -_INT32_END <= number < _INT32_END:
        cursor.refuse()
    return number


@reads('expected `name="text"`')
def read_frontend_attributes(cursor: Cursor) -> Mapping[str, str]:
    """The value of `frontend_attributes={name="text",…}`; a value in braces is kept as text."""

    def pair(_message: str) -> tuple[str, str]:
        name = cursor.word()
        cursor.demand("=")
        return name, cursor.braces() if cursor.next == "{" else cursor.scalar()

    return dict(cursor.listed(pair))
