"""Screen a direction's texts: one combined expression first, then only the detectors that it points to."""

import re
from collections.abc import Sequence
from functools import lru_cache
from typing import Final

import msgspec

from contracts.guardrails.detector import Detector
from contracts.guardrails.finding import Finding, Shown, Verdict
from contracts.guardrails.places import Places
from gateway.guardrails.guard_stage import GuardStage
from gateway.guardrails.screening.expression import Expression

_NO_ANCHOR: Final = re.compile(r"\[\^|\\[^Az]")
_ANCHOR: Final = re.compile(r"[\^$]|\\[Az]")


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
    """Ordered stages, each with its detector. Expressions are compiled when they are needed."""

    __slots__ = ("_always", "_candidates", "_is_anchored", "_ways", "patterns", "stages")

    def __init__(self, stages: Sequence[GuardStage[Detector]]) -> None:
        self.stages = tuple(stages)
        self.patterns = tuple(dict.fromkeys([one for stage in stages for one in stage.detector.patterns]))
        self._always = tuple([stage for stage in stages if not stage.detector.patterns])
        self._candidates: Expression | None = None
        self._is_anchored: bool | None = None
        # Of each stage, what matches wherever it may find something; `None`: it looks at every text.
        self._ways: list[Expression | None] = []

    @property
    def candidates(self) -> Expression | None:
        """Return an expression for every place where a detector with expressions may find something; `None` if there is
        none.
        """
        if self._candidates is None and self.patterns:
            self._candidates = Expression(*self.patterns)
        return self._candidates

    def check(self, texts: Sequence[Shown]) -> Screening:
        """Inspect plain texts, all of a request or an answer."""
        screening = Screening([], {})
        candidates = self.candidates
        if candidates is not None and not self._may_match(candidates, texts):
            candidates = None
        if candidates is None and not self._always:
            return screening
        found: dict[GuardStage[Detector], list[Finding]] = {}
        for number, shown in enumerate(texts):
            is_candidate = candidates is not None and (len(texts) == 1 or candidates.start(shown.text) >= 0)
            stages = self._led_to(shown.text) if is_candidate else self._always
            for look in self.looks(shown.text, shown.role, stages):
                finding = look.finding
                if shown.is_fixed and not finding.is_of_whole:
                    finding = msgspec.structs.replace(finding, start=0, end=0)
                found.setdefault(look.stage, []).append(finding)
                if look.stage.acts:
                    screening.cuts.setdefault(number, []).append(finding)
        for stage, findings in found.items():
            _judge(screening, stage, findings)
        return screening

    def _led_to(self, text: str) -> list[GuardStage[Detector]]:
        """Return the stages that may find something in a text: one with expressions only if one of them matches."""
        if not self._ways:
            patterns = [tuple(stage.detector.patterns) for stage in self.stages]
            self._ways = [_expression_of(those) if those else None for those in patterns]
        return [
            stage for stage, way in zip(self.stages, self._ways, strict=True) if way is None or way.start(text) >= 0
        ]

    def _may_match(self, candidates: Expression, texts: Sequence[Shown]) -> bool:
        if self._is_anchored is None:
            self._is_anchored = any([_ANCHOR.search(_NO_ANCHOR.sub("", one)) is not None for one in self.patterns])
        if self._is_anchored:  # of texts joined not each has a beginning and an end
            return any([candidates.start(shown.text) >= 0 for shown in texts])
        # One look at all texts together costs a part of one at each.
        joined = texts[0].text if len(texts) == 1 else "\n\n".join([shown.text for shown in texts])
        return candidates.start(joined) >= 0

    def looks(self, text: str, role: str, stages: Sequence[GuardStage[Detector]] | None = None) -> list[Look]:
        """Return the stages' findings in one plain text, each place by the first stage that acts on it.

        `stages` are those that may find something.
        """
        found: list[Look] = []
        claimed = Places()
        for stage in self.stages if stages is None else stages:
            for finding in stage.detector.find(text, role):
                if claimed.is_free(finding.start, finding.end):
                    found.append(Look(stage, finding))
                    if stage.acts and not finding.is_of_whole:
                        claimed.take(finding.start, finding.end)
        return found


@lru_cache(maxsize=256)  # a screen is made for each request where a stage is
def _expression_of(patterns: tuple[str, ...]) -> Expression:
    return Expression(*patterns)


def _judge(screening: Screening, stage: GuardStage[Detector], findings: list[Finding]) -> None:
    """Add a stage's verdict; the first of those that block is the one that holds."""
    verdict = stage.verdict(findings)
    screening.verdicts.append(verdict)
    if not stage.acts or screening.blocked is not None:
        return
    if stage.spec.action == "block" or any([finding.is_of_whole for finding in findings]):
        screening.blocked = verdict
