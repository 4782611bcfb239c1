"""Remembers verdicts on tool definitions, because agents send the same definitions with every request."""

from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass
from hashlib import blake2b
from typing import Final

import msgspec

from contracts.guardrails.finding import IN_DEFINITION, Verdict, joined
from gateway.guardrails.request_texts import RequestTexts
from gateway.guardrails.screening.screen import Screen

_DIGEST_BYTES: Final = 20
_MOST_ENTRIES: Final = 4096
_MOST_BYTES: Final = 16 * 1024 * 1024  # of definitions that were cut, all together

_entries: Final = msgspec.json.Decoder(list[msgspec.Raw]).decode


@dataclass(frozen=True, slots=True)
class JudgedDefinitions:
    """The stages' results on tool definitions. `place` is the first blocked definition. `changed` is the redacted JSON,
    if anything was redacted.
    """

    verdicts: Sequence[Verdict] = ()
    blocked: Verdict | None = None
    place: str = ""
    changed: bytes | None = None


def judge_definitions(screen: Screen, name: str, definitions: bytes) -> JudgedDefinitions:
    """Inspect the definitions in a request's field `name`, given as a JSON list. Raises MalformedBody."""
    try:
        parts = [bytes(one) for one in _entries(definitions)]
    except msgspec.ValidationError:  # it is no list
        return _judged(screen, name, definitions, name)
    judged = [_judged(screen, name, part, f"{name}[{number}]") for number, part in enumerate(parts)]
    first = next((one for one in judged if one.blocked is not None), None)
    is_changed = first is None and any(one.changed is not None for one in judged)
    gone_on = [part if one.changed is None else one.changed for part, one in zip(parts, judged, strict=True)]
    return JudgedDefinitions(
        tuple(joined([verdict for one in judged for verdict in one.verdicts])),
        None if first is None else first.blocked,
        "" if first is None else first.place,
        b"[" + b",".join(gone_on) + b"]" if is_changed else None,
    )


def _judged(screen: Screen, name: str, definition: bytes, place: str) -> JudgedDefinitions:
    texts = RequestTexts(b'{"%b":%b}' % (name.encode(), definition))
    screening = screen.check(texts.shown)
    verdicts = tuple(map(_marked, screening.verdicts))
    if screening.blocked is not None:
        return JudgedDefinitions(verdicts, _marked(screening.blocked), place)
    texts.cut(screening.cuts)
    return JudgedDefinitions(verdicts, changed=msgspec.json.encode(texts.fields[name]) if texts.is_changed else None)


def _marked(verdict: Verdict) -> Verdict:
    """Return a verdict that says where it was found."""
    return msgspec.structs.replace(verdict, kinds=tuple(sorted({*verdict.kinds, IN_DEFINITION})))


class DefinitionMemory:
    """A bounded cache of results by policies and definitions. The least recently used are evicted first."""

    def __init__(self, most_entries: int = _MOST_ENTRIES, most_bytes: int = _MOST_BYTES) -> None:
        self._most_entries = most_entries
        self._most_bytes = most_bytes
        self._bytes = 0
        self._judged: OrderedDict[bytes, JudgedDefinitions] = OrderedDict()

    def __len__(self) -> int:
        """Return the number of cached results."""
        return len(self._judged)

    def find(self, key: bytes) -> JudgedDefinitions | None:
        """Return a cached result; `None` if there is none."""
        found = self._judged.get(key)
        if found is not None:
            self._judged.move_to_end(key)
        return found

    def keep(self, key: bytes, judged: JudgedDefinitions) -> None:
        """Cache a result, unless it alone exceeds the cache's size."""
        size = len(judged.changed or b"")
        if size > self._most_bytes or key in self._judged:
            return
        self._judged[key] = judged
        self._bytes += size
        while len(self._judged) > self._most_entries or self._bytes > self._most_bytes:
            _, gone = self._judged.popitem(last=False)
            self._bytes -= len(gone.changed or b"")


def key_of(plan: str, definitions: bytes) -> bytes:
    """Return the cache key of definitions: a digest of them and of the plan's digest."""
    return blake2b(definitions, digest_size=_DIGEST_BYTES, key=plan.encode()).digest()
