"""Screens the texts of a request or an answer: one combined expression first, then only the detectors whose expressions
match.
"""

import re
from collections.abc import Sequence
from functools import lru_cache
from typing import Final

import msgspec

from contracts.errors import ConfigurationError
from contracts.guardrails.detector import Detector
from contracts.guardrails.finding import Finding, Shown, Verdict
from contracts.guardrails.places import Places
from contracts.guardrails.plain_text import plain_text
from gateway.guardrails.guard_stage import GuardStage
from gateway.guardrails.screening.expression import Expression, ExpressionSet

_NO_ANCHOR: Final = re.compile(r"\[\^|\\[^Az]")
_ANCHOR: Final = re.compile(r"[\^$]|\\[Az]")
_ESCAPES: Final = ((b"\\n", b"\n"), (b'\\"', b'"'), (b"\\t", b"\t"), (b"\\r", b"\r"), (b"\\/", b"/"))
_MOST_SEARCHED: Final = 16 * 1024  # bytes of JSON in which detectors search: of a longer one, in each text

# A stage, and which of its detector's patterns match, if that is known.
Led = tuple[GuardStage[Detector], Sequence[int] | None]


class Screening(msgspec.Struct):
    """The result for some texts. `cuts` are redactions, by the text's index; `blocked` stops all of them."""

    verdicts: list[Verdict]
    cuts: dict[int, list[Finding]]
    blocked: Verdict | None = None


class Look(msgspec.Struct, frozen=True):
    """A finding of one stage at a place that no earlier stage has claimed."""

    stage: GuardStage[Detector]
    finding: Finding


class Screen:
    """Ordered stages, each with its detector. Expressions are compiled at first use."""

    __slots__ = ("_always", "_candidates", "_has_set", "_is_anchored", "_owners", "_set", "patterns", "stages")

    def __init__(self, stages: Sequence[GuardStage[Detector]]) -> None:
        self.stages = tuple(stages)
        self.patterns = tuple(dict.fromkeys([one for stage in stages for one in stage.detector.patterns]))
        self._always: list[Led] = [(stage, None) for stage in stages if not stage.detector.patterns]
        self._candidates: Expression | None = None
        self._is_anchored: bool | None = None
        self._has_set = False  # whether `_set` and `_owners` are made
        self._set: ExpressionSet | None = None  # of all patterns; `None`: they take too much memory together
        self._owners: list[list[tuple[int, int]]] = []  # by pattern: the stages that have it, and which of theirs it is

    @property
    def candidates(self) -> Expression | None:
        """Return one expression that matches wherever a detector with expressions may find something; `None` if no
        detector has expressions.
        """
        if self._candidates is None and self.patterns:
            self._candidates = _expression_of(self.patterns)
        return self._candidates

    def check(self, texts: Sequence[Shown]) -> Screening:
        """Inspect the plain texts of a request or of an answer."""
        screening = Screening([], {})
        candidates = self.candidates
        if candidates is not None and not self._may_match(candidates, texts):
            candidates = None
        if candidates is None and not self._always:
            return screening
        found: dict[GuardStage[Detector], list[Finding]] = {}
        for number, shown in enumerate(texts):
            is_candidate = candidates is not None and (len(texts) == 1 or candidates.start(shown.text) >= 0)
            led = self._led_to(shown.text) if is_candidate else self._always
            for look in _looks(shown.text, shown.role, led) if led else ():
                finding = look.finding
                if shown.is_fixed and not finding.is_of_whole:
                    finding = msgspec.structs.replace(finding, start=0, end=0)
                found.setdefault(look.stage, []).append(finding)
                if look.stage.acts:
                    screening.cuts.setdefault(number, []).append(finding)
        for stage, findings in found.items():
            _judge(screening, stage, findings)
        return screening

    def finds_nothing_in(self, body: bytes, behind: bytes = b"") -> bool:
        """Return whether it is certain that no stage finds anything in the texts of a JSON body, or in those from
        offset `behind` on. If a search cannot decide it, for example because of rare escapes, the result is False.
        """
        if not self.stages:
            return True
        candidates = self.candidates
        if candidates is None or self._always or self._has_anchors():
            return False
        if b"\\" in body or not body.isascii():
            plain = _plain(body)
            if plain is None:
                return False
            body = plain
        since = max(body.find(behind), 0)
        if candidates.match(body, since, len(body))[0][0] < 0:
            return True
        # What detectors search for does not go beyond a text's quotes.
        return len(body) - since <= _MOST_SEARCHED and not self.looks(body[since:].decode(), "")

    def _led_to(self, text: str) -> list[Led]:
        """Return the stages that may find something in a text: one with expressions only if one of them matches."""
        if not self._has_set:
            self._make_set()
        if self._set is None:
            return [(stage, None) for stage in self.stages]
        matching: dict[int, list[int]] = {}  # by stage
        for pattern in self._set.matching(text):
            for number, own in self._owners[pattern]:
                matching.setdefault(number, []).append(own)
        if not self._always:
            return [(self.stages[number], matching[number]) for number in sorted(matching)]
        return [
            (stage, matching.get(number))
            for number, stage in enumerate(self.stages)
            if number in matching or not stage.detector.patterns
        ]

    def _make_set(self) -> None:
        candidates = self.candidates
        owners: dict[str, list[tuple[int, int]]] = {pattern: [] for pattern in self.patterns}
        for number, stage in enumerate(self.stages):
            for own, pattern in enumerate(stage.detector.patterns):
                owners[pattern].append((number, own))
        self._owners = list(owners.values())
        self._set = None if candidates is None else _set_of(self.patterns, candidates)
        self._has_set = True

    def _has_anchors(self) -> bool:
        """Return whether an expression depends on where a text begins or ends."""
        if self._is_anchored is None:
            self._is_anchored = any([_ANCHOR.search(_NO_ANCHOR.sub("", one)) is not None for one in self.patterns])
        return self._is_anchored

    def _may_match(self, candidates: Expression, texts: Sequence[Shown]) -> bool:
        if self._has_anchors():  # of texts joined not each has a beginning and an end
            return any([candidates.start(shown.text) >= 0 for shown in texts])
        # One look at all texts together costs a part of one at each.
        joined = texts[0].text if len(texts) == 1 else "\n\n".join([shown.text for shown in texts])
        return candidates.start(joined) >= 0

    def looks(self, text: str, role: str) -> list[Look]:
        """Return the stages' findings in one plain text. A place where several stages find something belongs to the
        first stage that acts on it.
        """
        return _looks(text, role, self._led_to(text))


def _looks(text: str, role: str, led: Sequence[Led]) -> list[Look]:
    found: list[Look] = []
    claimed = Places()
    for stage, matching in led:
        for finding in stage.detector.find(text, role, matching):
            if claimed.is_free(finding.start, finding.end):
                found.append(Look(stage, finding))
                if stage.acts and not finding.is_of_whole:
                    claimed.take(finding.start, finding.end)
    return found


def _plain(body: bytes) -> bytes | None:
    """Return JSON with its escapes resolved, in its plain form: the plain form of each text in it is a part of that.

    `None` if it has other escapes than those of line ends, tabs, quotes and slashes, or is not UTF-8.
    """
    if b"\\\\" in body or b"\\u" in body:
        return None
    for escape, character in _ESCAPES:
        body = body.replace(escape, character)
    if b"\\" in body:
        return None
    try:
        return body if body.isascii() else plain_text(body.decode()).encode()
    except UnicodeDecodeError:
        return None


@lru_cache(maxsize=64)  # a screen is made for each request where a stage is
def _set_of(patterns: tuple[str, ...], any_of: Expression) -> ExpressionSet | None:
    try:
        return ExpressionSet(patterns, any_of)
    except ConfigurationError:
        return None


@lru_cache(maxsize=64)
def _expression_of(patterns: tuple[str, ...]) -> Expression:
    return Expression(*patterns)


def _judge(screening: Screening, stage: GuardStage[Detector], findings: list[Finding]) -> None:
    """Add a stage's verdict. Of several blocking verdicts the first one applies."""
    verdict = stage.verdict(findings)
    screening.verdicts.append(verdict)
    if not stage.acts or screening.blocked is not None:
        return
    if stage.spec.action == "block" or any([finding.is_of_whole for finding in findings]):
        screening.blocked = verdict
