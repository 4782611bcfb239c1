"""Reads a segment log that another process may be writing, without locks or changes."""

import os
from collections.abc import Iterator
from pathlib import Path

from backends.segment_log.segment_damage import read_losses, sum_up
from backends.segment_log.segment_frames import frames
from backends.segment_log.segment_numbers import read_marker
from backends.segment_log.segments import Entry, Position, decode_cursor, segment_path, segment_sizes
from backends.segment_log.slot_file import read_slots
from contracts.errors import ConfigurationError


class SegmentReader:
    """A log's directory at one moment. Raises ConfigurationError if it does not exist or cannot be read."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.damaged_stretches = 0  # found while reading; an entry that is being written counts as one
        self.missing = sum_up(read_losses(directory))  # as recorded by the log's owner
        try:
            if not directory.is_dir():
                raise ConfigurationError(f"{directory} is not there; name the data directory with --data")
            self._sizes = segment_sizes(directory)
            self.cursor = decode_cursor(read_slots(directory / "cursor"))
            self._markers = (read_marker(directory / "numbers"),)
        except OSError as error:
            raise ConfigurationError(f"{directory} cannot be read ({error.strerror})") from error

    @property
    def segments(self) -> int:
        """Return the number of segment files."""
        return len(self._sizes)

    @property
    def disk_bytes(self) -> int:
        """Return their total size, including released segments that are still kept."""
        return sum(self._sizes.values())

    def waiting(self) -> Iterator[Entry]:
        """Yield the entries that are not released, in order. Segments that are released meanwhile are skipped."""
        for number, size in self._sizes.items():
            if number < self.cursor.segment:
                continue
            try:
                descriptor = os.open(segment_path(self.directory, number), os.O_RDONLY)
            except FileNotFoundError:
                continue
            try:
                start = self.cursor.offset if number == self.cursor.segment else 0
                for begin, end, payload, _ in frames(descriptor, start, size, self._markers):
                    if payload is None:
                        self.damaged_stretches += 1
                    else:
                        yield Entry(Position(number, begin), Position(number, end), payload)
            finally:
                os.close(descriptor)
