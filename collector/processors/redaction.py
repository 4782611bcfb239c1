"""Secrets and addresses that stand in the midst of text: replaced before anything is stored."""

import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Final, Literal, TypeVar

import msgspec

from collector.processors.attributes import REDACTED_VALUE
from collector.rows import Processed
from collector.spool import SpooledBatch
from contracts.names import LOGS, METRICS, TRACES
from contracts.telemetry import LogRow, MetricRow, SpanRow

What = Literal["keys", "emails"]
Row = TypeVar("Row", SpanRow, LogRow, MetricRow)
_REMEMBERED: Final = 16_384
_REMEMBERED_CHARACTERS: Final = 128


@dataclass(frozen=True, slots=True)
class Pattern:
    """What to replace, by what, and bytes of which one stands in every batch that has it."""

    expression: re.Pattern[str]
    replacement: str
    needles: tuple[bytes, ...]


# API keys of providers and of ours, AWS access keys, GitHub tokens, bearer tokens, JSON web tokens.
PATTERNS: Final[Mapping[What, Pattern]] = {
    "keys": Pattern(
        re.compile(
            r"\b(?:sk|tk|pk|rk)[-_][A-Za-z0-9_-]{16,}|\bAKIA[0-9A-Z]{16}\b|\bgh[pousr]_[A-Za-z0-9]{30,}"
            r"|\b[Bb]earer\s+[A-Za-z0-9._~+/-]{16,}=*|\beyJ[A-Za-z0-9_-]{8,}+(?:\.[A-Za-z0-9_-]{8,}+\.[A-Za-z0-9_-]*)?"
        ),
        "[key]",
        (
            b"sk-",
            b"sk_",
            b"tk-",
            b"tk_",
            b"pk-",
            b"pk_",
            b"rk-",
            b"rk_",
            b"AKIA",
            b"ghp_",
            b"gho_",
            b"ghu_",
            b"ghs_",
            b"ghr_",
            b"earer",
            b"eyJ",
        ),
    ),
    "emails": Pattern(
        re.compile(r"[A-Za-z0-9._%+-]{1,64}@[A-Za-z0-9-]{1,63}(?:\.[A-Za-z0-9-]{1,63}){1,8}"), "[email]", (b"@",)
    ),
}


class Redaction:
    """Replaces in values of attributes, status messages and log bodies. Names of attributes are not looked at here."""

    def __init__(self, what: Collection[What]) -> None:
        self._patterns = [PATTERNS[one] for one in what]
        self._remembered = lru_cache(maxsize=_REMEMBERED)(self._replaced)  # values repeat from row to row

    def apply(self, processed: Processed, batch: SpooledBatch) -> None:
        """Replace in all rows of a batch; one whose bytes have no such thing costs a search over them."""
        if not any(table.name in processed.tables for table in (TRACES, LOGS, METRICS)):
            return  # packed records are not looked at
        if not any(needle in batch.payload for pattern in self._patterns for needle in pattern.needles):
            return
        for table, texts in ((TRACES, ("status_message",)), (LOGS, ("body",)), (METRICS, ())):
            rows = processed.tables.get(table.name)
            if rows is not None:
                rows.rows[:] = [self._cleaned(row, texts, processed) for row in rows.rows]

    def _cleaned(self, row: Row, texts: tuple[str, ...], processed: Processed) -> Row:
        changes: dict[str, object] = {}
        for name in texts:
            text = getattr(row, name)
            if (clean := self._clean(text)) != text:
                changes[name] = clean
        for name in ("attributes", "resource_attributes"):
            found = getattr(row, name)
            if (clean_map := self._clean_map(found)) != found:
                changes[name] = clean_map
        if isinstance(row, SpanRow):
            events = list(map(self._clean_map, row.event_attributes))
            if events != row.event_attributes:
                changes["event_attributes"] = events
        if not changes:
            return row
        processed.notice([REDACTED_VALUE])
        return msgspec.structs.replace(row, **changes)

    def _clean_map(self, found: dict[str, str]) -> dict[str, str]:
        return {key: self._clean(value) for key, value in found.items()}

    def _clean(self, text: str) -> str:
        return self._remembered(text) if len(text) <= _REMEMBERED_CHARACTERS else self._replaced(text)

    def _replaced(self, text: str) -> str:
        for pattern in self._patterns:
            text = pattern.expression.sub(lambda found, one=pattern: _replacement(one, found[0]), text)  # type: ignore[misc]
        return text


def _replacement(pattern: Pattern, text: str) -> str:
    # What begins like a web token and has no second part was passed over, so that no text is looked at twice.
    return text if text.startswith("eyJ") and "." not in text else pattern.replacement
