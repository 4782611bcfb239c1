"""Losses by disk damage on the way to the store, as gateways and collectors recorded them."""

from pathlib import Path
from typing import Final

from backends.segment_log.segment_damage import FOLDER, read_losses
from backends.store.checks.finding import Finding

_LOGS: Final = ("journal*", "journal*/dead-letters", "spool*", "budgets*")


def missing_entries(data: Path) -> list[Finding]:
    """Return the losses of the journals, spools and budget totals in a data directory."""
    findings = []
    for pattern in _LOGS:
        for directory in sorted(data.glob(pattern)):
            for loss in read_losses(directory):
                kept = f"; the segment is kept as {FOLDER}/{loss.kept_as}" if loss.kept_as else ""
                findings.append(Finding("entries_missing", str(directory.relative_to(data)), f"{loss.line()}{kept}"))
    return findings
