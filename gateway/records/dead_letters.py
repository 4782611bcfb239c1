"""Dead letters: records that no collector accepts, stored on disk so that they neither block others nor get lost."""

import logging
from pathlib import Path

from backends.segment_log.segments import LogFull, SegmentLog
from contracts.errors import ConfigurationError

_log = logging.getLogger(__name__)


class DeadLetters:
    """A bounded log next to the journal, with entries in the journal's format. It is opened only to be written to."""

    def __init__(self, directory: Path, *, max_bytes: int) -> None:
        self._directory = directory
        self._max_bytes = max_bytes
        self.records = 0  # since this process began
        self.bytes = 0  # on disk, also from before
        if directory.is_dir():
            log = SegmentLog(directory, max_bytes=max_bytes)
            self.bytes = log.pending_bytes
            log.close()

    def add(self, payload: bytes) -> bool:
        """Store one entry. Return `False` if there is no room or the disk fails: then the entry must stay in the
        journal.
        """
        try:
            log = SegmentLog(self._directory, max_bytes=self._max_bytes)
            try:
                log.append(payload)
                self.bytes = log.pending_bytes
            finally:
                log.close()
        except (LogFull, OSError, ConfigurationError) as error:
            _log.error("record cannot be set aside", extra={"directory": str(self._directory), "reason": str(error)})
            return False
        self.records += 1
        return True
