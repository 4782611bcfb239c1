"""Replaces secrets and e-mail addresses inside text before it is stored."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Final, Literal, TypeVar

import msgspec

from collector.processors.attributes import REDACTED_VALUE
from collector.rows import Processed
from collector.spool import SpooledBatch
from contracts.recording.names import LOGS, METRICS, TRACES
from contracts.recording.redaction import DEFAULT_PATTERNS, EMAIL, SECRETS, Pattern, may_hold_secrets
from contracts.recording.telemetry import LogRow, MetricRow, SpanRow

What = Literal["keys", "emails"]
Row = TypeVar("Row", SpanRow, LogRow, MetricRow)
_REMEMBERED: Final = 16_384
_REMEMBERED_CHARACTERS: Final = 128


@dataclass(frozen=True, slots=True)
class Replacement:
    """A kind of pattern to replace, and its replacement text."""

    forms: tuple[Pattern, ...]
    text: str


# All kinds of credentials have the same replacement: readers of telemetry need not know the kind.
PATTERNS: Final[Mapping[What, Replacement]] = {
    "keys": Replacement(tuple(one for one in DEFAULT_PATTERNS if one.name in SECRETS), "[key]"),
    "emails": Replacement(tuple(one for one in DEFAULT_PATTERNS if one.name == EMAIL), "[email]"),
}


class TextRedaction:
    """Redacts a single text. Results for short texts are cached, because values repeat from row to row."""

    def __init__(self, what: Collection[What]) -> None:
        self._patterns = [PATTERNS[one] for one in what]
        self._remembered = lru_cache(maxsize=_REMEMBERED)(self._replaced)

    @property
    def is_empty(self) -> bool:
        """Return whether no replacement is configured."""
        return not self._patterns

    def clean(self, text: str) -> str:
        """Return the redacted text."""
        if not may_hold_secrets(text):
            return text
        return self._remembered(text) if len(text) <= _REMEMBERED_CHARACTERS else self._replaced(text)

    def _replaced(self, text: str) -> str:
        for replacement in self._patterns:
            for form in replacement.forms:
                text = _replace(form, replacement.text, text)
        return text


class Redaction:
    """Redacts values of attributes, status messages and log bodies; not names of attributes."""

    def __init__(self, what: Collection[What]) -> None:
        self._text = TextRedaction(what)

    def apply(self, processed: Processed, batch: SpooledBatch) -> None:
        """Redact all rows of a batch. Attributes are searched only if the parser marked one of them as suspect."""
        if self._text.is_empty:
            return
        for table, texts in ((TRACES, ("status_message",)), (LOGS, ("body",)), (METRICS, ())):
            rows = processed.tables.get(table.name)
            if rows is not None and (processed.is_suspect or texts):
                rows.rows[:] = [self._cleaned(row, texts, processed) for row in rows.rows]

    def _cleaned(self, row: Row, texts: tuple[str, ...], processed: Processed) -> Row:
        changes: dict[str, object] = {}
        for name in texts:
            text = getattr(row, name)
            if text and (clean := self._text.clean(text)) != text:
                changes[name] = clean
        if processed.is_suspect:
            self._clean_attributes(row, changes)
        if not changes:
            return row
        processed.notice([REDACTED_VALUE])
        return msgspec.structs.replace(row, **changes)

    def _clean_attributes(self, row: Row, changes: dict[str, object]) -> None:
        for name in ("attributes", "resource_attributes"):
            found = getattr(row, name)
            if (clean_map := self._clean_map(found)) != found:
                changes[name] = clean_map
        if isinstance(row, SpanRow):
            for name in ("event_attributes", "link_attributes"):
                several = getattr(row, name)
                if (clean_maps := list(map(self._clean_map, several))) != several:
                    changes[name] = clean_maps

    def _clean_map(self, found: dict[str, str]) -> dict[str, str]:
        return {key: self._text.clean(value) for key, value in found.items()}


def _replace(pattern: Pattern, by: str, text: str) -> str:
    return pattern.form.sub(lambda found: by if pattern.holds(found[0]) else found[0], text)
