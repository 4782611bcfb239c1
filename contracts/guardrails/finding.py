"""Findings of guardrails: texts to inspect, results, and records without the matched text."""

from typing import Final, Literal

import msgspec

Action = Literal["block", "redact", "flag"]
Side = Literal["input", "output"]

DEFINITION: Final = "definition"  # the role of what tools, and schemas of answers, are defined by
IN_DEFINITION: Final = "tool_definition"  # among a verdict's kinds: where what was found stands


class Finding(msgspec.Struct, frozen=True, gc=False):
    """Something found in a text: its position, in characters of the plain text, and its kind.

    `start` and `end` of 0: the text as a whole, which cannot be redacted, so it is blocked instead. `score` is the
    detector's confidence, 0 to 1, if it reports one.
    """

    start: int
    end: int
    kind: str
    score: float | None = None
    is_remark: bool = False  # of the finder's own state, such as that nobody answered: never acted upon

    @property
    def is_of_whole(self) -> bool:
        """Return whether the finding concerns the text as a whole."""
        return self.end == 0


class Shown(msgspec.Struct, frozen=True, gc=False):
    """One text of a request or an answer, in plain form (`contracts.guardrails.plain_text`), and its speaker.

    `role`: "system", "developer", "user", "assistant", "tool", "document", "definition"; empty if it is unknown.
    `is_name`: the text is an identifier or a value for programs, not words. `is_fixed`: programs depend on the exact
    text, so nothing can be cut out of it: a finding that would be redacted blocks the request instead.
    """

    text: str
    role: str = ""
    is_name: bool = False
    is_fixed: bool = False


class About(msgspec.Struct, frozen=True, kw_only=True):
    """The request that the texts belong to. `at_ns` is Unix time; `address` and `user_agent` are the caller's."""

    request_id: bytes = b""
    tenant: str = ""
    key_id: str = ""
    requested_model: str = ""
    api: str = ""
    direction: Side = "input"
    address: str = ""
    user_agent: str = ""
    at_ns: int = 0
    wants_logprobs: bool = False
    output_limit: int | None = None  # requested maximum tokens of one choice


class Verdict(msgspec.Struct, frozen=True, gc=False):
    """What one stage found on one side of a request, and the action taken."""

    stage: str
    detector: str
    direction: Side
    action: Action
    is_dry_run: bool
    kinds: tuple[str, ...]  # each once, sorted
    count: int
    score: float | None = None  # the highest

    @property
    def text(self) -> str:
        """Return the text for records: `output/cards/redact:card=2`; a dry run's starts with `dry:`."""
        head = "dry:" if self.is_dry_run else ""
        return f"{head}{self.direction}/{self.stage}/{self.action}:{'+'.join(self.kinds)}={self.count}"


def verdict_of(
    stage: str, detector: str, direction: Side, action: Action, findings: "list[Finding]", *, is_dry_run: bool
) -> Verdict:
    """Summarise a stage's findings. There is at least one."""
    scores = [finding.score for finding in findings if finding.score is not None]
    if all(finding.is_remark for finding in findings):
        action = "flag"
    kinds = tuple(sorted({finding.kind for finding in findings}))
    return Verdict(stage, detector, direction, action, is_dry_run, kinds, len(findings), max(scores, default=None))


def joined(verdicts: "list[Verdict]") -> list[Verdict]:
    """Return one verdict for each stage and side, in the order of their first occurrence."""
    found: dict[tuple[str, Side, Action, bool], Verdict] = {}
    for one in verdicts:
        key = (one.stage, one.direction, one.action, one.is_dry_run)
        other = found.get(key)
        if other is not None:
            scores = [score for score in (one.score, other.score) if score is not None]
            one = msgspec.structs.replace(
                other,
                kinds=tuple(sorted({*one.kinds, *other.kinds})),
                count=one.count + other.count,
                score=max(scores, default=None),
            )
        found[key] = one
    return list(found.values())


class VerdictFields(msgspec.Struct, frozen=True):
    """A verdict as read back from a record."""

    stage: str
    direction: str
    action: str
    is_dry_run: bool
    kinds: tuple[str, ...]
    count: int


def read_verdict(text: str) -> VerdictFields | None:
    """Parse a text written by `Verdict.text`; `None` if it is anything else."""
    is_dry_run = text.startswith("dry:")
    place, colon, found = text.removeprefix("dry:").partition(":")
    kinds, equals, count = found.rpartition("=")
    parts = place.split("/")
    if not colon or not equals or len(parts) != 3 or not count.isdecimal():
        return None
    direction, stage, action = parts
    return VerdictFields(stage, direction, action, is_dry_run, tuple(kinds.split("+")), int(count))
