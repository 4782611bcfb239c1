"""Screen a direction's texts: one combined expression first, then only the detectors that it points to."""

import re
from collections.abc import Sequence
from functools import cached_property
from typing import Final

import msgspec

from contracts.guardrails.detector import Detector
from contracts.guardrails.finding import Finding, Shown, Verdict
from contracts.guardrails.places import Places
from gateway.guardrails.screening.expression import Expression
from gateway.guardrails.stage import Stage

_NO_ANCHOR: Final = re.compile(r"\[\^|\\[^Az]")
_ANCHOR: Final = re.compile(r"[\^$]|\\[Az]")


class Screening(msgspec.Struct):
    """What was found in some texts. `cuts` are to be made, by the text's number; `blocked` stops all of them."""

    verdicts: list[Verdict]
    cuts: dict[int, list[Finding]]
    blocked: Verdict | None = None


class Look(msgspec.Struct, frozen=True):
    """What one stage found at one place that no stage before it has claimed."""

    stage: Stage[Detector]
    finding: Finding


class Screen:
    """Stages in their order, each with its detector."""

    def __init__(self, stages: Sequence[Stage[Detector]]) -> None:
        self.stages = tuple(stages)
        self._always = tuple(stage for stage in stages if not stage.detector.patterns)

    @cached_property
    def patterns(self) -> tuple[str, ...]:
        """Return all expressions in which something may be found, each once."""
        return tuple(dict.fromkeys(pattern for stage in self.stages for pattern in stage.detector.patterns))

    @cached_property
    def candidates(self) -> Expression | None:
        """Return what matches wherever a detector with expressions may find something; `None` if there is none."""
        return Expression(*self.patterns) if self.patterns else None

    def check(self, texts: Sequence[Shown]) -> Screening:
        """Look at plain texts, all of a request or an answer."""
        screening = Screening([], {})
        candidates = self.candidates
        if candidates is not None and not self._may_match(candidates, texts):
            candidates = None
        if candidates is None and not self._always:
            return screening
        found: dict[Stage[Detector], list[Finding]] = {}
        for number, shown in enumerate(texts):
            # Those with expressions look at no text in which none of these matches.
            is_candidate = candidates is not None and (len(texts) == 1 or candidates.start(shown.text) >= 0)
            for look in self.looks(shown.text, shown.role, self.stages if is_candidate else self._always):
                found.setdefault(look.stage, []).append(look.finding)
                if look.stage.acts:
                    screening.cuts.setdefault(number, []).append(look.finding)
        for stage, findings in found.items():
            verdict = stage.verdict(findings)
            screening.verdicts.append(verdict)
            is_stop = stage.spec.action == "block" or any(finding.is_of_whole for finding in findings)
            if stage.acts and is_stop and screening.blocked is None:
                screening.blocked = verdict
        return screening

    def _may_match(self, candidates: Expression, texts: Sequence[Shown]) -> bool:
        if self._is_anchored:
            return any(candidates.start(shown.text) >= 0 for shown in texts)
        # One look at all texts together costs a part of one at each.
        joined = texts[0].text if len(texts) == 1 else "\n\n".join([shown.text for shown in texts])
        return candidates.start(joined) >= 0

    @cached_property
    def _is_anchored(self) -> bool:
        """Return whether an expression asks for a text's beginning or end, which texts joined do not have each."""
        return any(_ANCHOR.search(_NO_ANCHOR.sub("", pattern)) is not None for pattern in self.patterns)

    def looks(self, text: str, role: str, stages: Sequence[Stage[Detector]] | None = None) -> list[Look]:
        """Return what the stages find in one plain text, each place by the first stage that does something about it.

        `stages` are those of them that may find something.
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
