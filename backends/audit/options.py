"""Options of an audit log: retention, and the sink for copies."""

from dataclasses import dataclass
from pathlib import Path
from typing import Final

from backends.audit.sink import Sink, open_sink

ROOT: Final = "audit"  # in the data directory; each chain has a folder in it


@dataclass(frozen=True, slots=True)
class AuditOptions:
    """Settings of the audit log. `sink`: s3://BUCKET/PREFIX, a directory, or empty for none. `keep_days` 0: forever."""

    sink: str = ""
    sink_days: int = 400
    s3_endpoint: str = ""
    keep_days: int = 0

    def open_sink(self) -> Sink | None:
        """Return the sink; `None` if none is configured. Blocks. Raises ConfigurationError, Unavailable."""
        return open_sink(self.sink, self.sink_days, self.s3_endpoint) if self.sink else None


def audit_root(data: Path) -> Path:
    """Return the directory of an installation's chains."""
    return data / ROOT
