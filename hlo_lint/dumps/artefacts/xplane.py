"""Profiles of XLA: the planes of an `*.xplane.pb`, as `jax.profiler.trace` writes it.

    XSpace         { planes = 1; errors = 2; hostnames = 4; … }
    XPlane         { name = 2; lines = 3; event_metadata = 4; stat_metadata = 5; stats = 6; }
    XEventMetadata { id = 1; name = 2; stats = 5; … }
    XStat          { metadata_id = 1; … bytes_value = 6; }

The plane `/host:metadata` contains the programs that ran, each an HloProto, as the stat `Hlo Proto`
of an event's metadata.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, NamedTuple

from hlo_lint.hlo.wire import MAX_FIELDS_OF_FILE, Field, Reader, bytes_of, int_of, text_of
from hlo_lint.text.errors import PayloadError

_METADATA_PLANE: Final = "/host:metadata"
_HLO_PROTO: Final = "Hlo Proto"


class Plane(NamedTuple):
    """A plane of a profile: a device, the host, or the programs."""

    reader: Reader
    field: Field
    name: str

    def parts(self, number: int) -> Iterator[Field]:
        """Its fields with a number."""
        return self.reader.numbered(number, self.field)

    def metadata(self, number: int) -> Iterator[Field]:
        """The values of a map from ids: of events, 4; of stats, 5."""
        for entry in self.parts(number):
            yield from self.reader.numbered(2, entry)


def planes(data: bytes) -> Iterator[Plane]:
    """The planes of a profile.

    Raises:
        PayloadError: the bytes are not an XSpace.
    """
    reader = Reader(data, MAX_FIELDS_OF_FILE)
    for field in reader.numbered(1):
        yield Plane(reader, field, metadata_name(reader, field))


def programs(data: bytes) -> list[bytes]:
    """The programs that ran, each a serialized HloProto.

    Raises:
        PayloadError: the bytes are not an XSpace, or no program is in it.
    """
    protos: list[bytes] = []
    for plane in planes(data):
        if plane.name != _METADATA_PLANE:
            continue
        reader = plane.reader
        stats = [stat for stat in plane.metadata(5) if metadata_name(reader, stat) == _HLO_PROTO]
        is_hlo = {metadata_id(reader, stat) for stat in stats}
        for event in plane.metadata(4):
            for stat in reader.numbered(5, event):
                if metadata_id(reader, stat) in is_hlo:
                    protos += map(bytes_of, reader.numbered(6, stat))
    if not protos:
        raise PayloadError("no program is in this profile (ProfileOptions.enable_hlo_proto)")
    return protos


def metadata_id(reader: Reader, message: Field) -> int:
    """The id of metadata, or a statistic's reference to its metadata."""
    return next(map(int_of, reader.numbered(1, message)), 0)


def metadata_name(reader: Reader, message: Field) -> str:
    """The name of a plane, a line or metadata; empty if it is missing."""
    return next(map(text_of, reader.numbered(2, message)), "")
