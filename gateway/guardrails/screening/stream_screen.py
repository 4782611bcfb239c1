"""Runs one side's detectors on a streamed text: a possible start of a match is held back, the rest is sent."""

from collections.abc import Sequence
from functools import lru_cache
from typing import Final

from contracts.guardrails.beginnings import beginnings_of
from contracts.guardrails.finding import Finding, Verdict
from gateway.guardrails.guard_stage import GuardStage
from gateway.guardrails.screening.expression import Expression
from gateway.guardrails.screening.screen import Look, Screen
from gateway.guardrails.screening.spelling import AS_IS, IN_JSON, QUOTED, Spelling, ends_quoted, stand_in

MOST_HELD: Final = 16_384  # characters of one text
_SEEN_BEFORE: Final = 4  # characters that went out last, by which words' beginnings are told
_USUAL: Final = (
    "In 2026, the (quick) brown-fox said: no, it's 3.5% of $12,000; see https://a.example/b?c=d or_not!\n* A"
)
_ROLE: Final = "assistant"


class StreamPlan:
    """What all streams of one policy share: its screen, and the expression for all prefixes of matches."""

    def __init__(self, screen: Screen) -> None:
        """Compile the expressions. Raise ConfigurationError if one cannot be matched in a stream."""
        self.screen = screen
        self.is_empty = not screen.patterns  # nothing is looked for
        self._begins, self.first = _expressions(tuple(screen.patterns))

    def quiet_from(self, text: str, since: int) -> int:
        """Return the result of `held_from` if nothing matches completely before it; else -1."""
        start, end = self.first.first(text, since)
        return start if end == len(text) else -1

    def held_from(self, text: str, since: int) -> int:
        """Return the position from which a text could become a match; its length if there is none."""
        return self._begins.start(text, since)

    def may_find(self, text: str) -> bool:
        """Return whether anything may be found in a complete plain text."""
        candidates = self.screen.candidates
        return candidates is not None and candidates.start(text) >= 0

    def stream(self, spelling: Spelling = AS_IS) -> "StreamScreen":
        """Return the screen of a new text."""
        return StreamScreen(self, spelling)


@lru_cache(maxsize=16)  # a policy is compiled to be checked, and again to serve
def _expressions(patterns: tuple[str, ...]) -> tuple[Expression, Expression]:
    """Return the expressions for all that a match may begin with, and for that or a whole match."""
    begins = [f"(?:{found})" for one in patterns if (found := beginnings_of(one))]
    ends = rf"(?:{'|'.join(begins)})\z" if begins else r"\z"
    # One look for both: a match that ends with the text is of what may go on, whatever else it is.
    first = Expression(ends, *patterns, is_longest=True)
    for size in range(1, len(_USUAL)):  # an automaton grows as it meets texts: better here than with the first
        first.start(_USUAL[:size])
    return Expression(ends), first


class StreamScreen:
    """The screen of one streamed text. `take` and `flush` return what may be sent; once `blocked` is set, nothing more
    may be sent.
    """

    __slots__ = ("_before", "_first", "_found", "_held", "_is_quoted", "_plan", "_spelling", "blocked")

    def __init__(self, plan: StreamPlan, spelling: Spelling) -> None:
        self._plan = plan
        self._first = plan.first.match
        self._spelling = spelling
        self._before = ""  # plain
        self._held = ""  # as it is written
        self._found: dict[GuardStage[object], list[Finding]] = {}
        self._is_quoted = False  # in JSON: what went out ends within a string
        self.blocked: Verdict | None = None

    @property
    def is_holding(self) -> bool:
        """Return whether any text is held back."""
        return bool(self._held)

    @property
    def verdicts(self) -> list[Verdict]:
        """Return the verdicts so far, one for each stage."""
        return [stage.verdict(found) for stage, found in self._found.items()]

    def take(self, text: str) -> str:
        """Accept a piece of text; return what may be sent now."""
        if self.blocked is not None:
            return ""
        text = self._held + text
        spelling, before = self._spelling, self._before
        base = len(before)
        if spelling is AS_IS and text.isascii() and len(text) <= MOST_HELD:
            window = before + text
            data = window.encode()
            size = len(data)
            if size == len(window):
                hold, end = self._first(data, base, size)[0]
                if end == size:  # nothing is complete before what may go on
                    self._before = window[max(hold - _SEEN_BEFORE, 0) : hold]
                    hold -= base
                    self._held = text[hold:]
                    return text[:hold]
        whole = text if spelling is AS_IS else text[: spelling.unfinished(text)]
        window = before + spelling.plain(whole)
        hold = self._plan.quiet_from(window, base) if len(text) <= MOST_HELD else -1
        if hold > base:
            return self._go(text, whole, window, base, hold)
        if hold < 0:
            hold = self._plan.held_from(window, base)
        if hold == base:
            if len(text) <= MOST_HELD:
                self._held = text
                return ""
            if self._outgrows(window, base):
                return ""
            hold = self._plan.held_from(window, base + max(1, (len(window) - base) // 2))
        return self._release(text, whole, window, base, hold)

    def flush(self) -> str:
        """Return the held-back rest, because no more text follows."""
        if self.blocked is not None or not self._held:
            return ""
        text = self._held
        window = self._before + self._spelling.plain(text)
        return self._release(text, text, window, len(self._before), len(window))

    def pause(self) -> str:
        """Return a copy of the held-back text, because something else is sent between. The text stays held back,
        because more may follow; it is returned again later, unless it is redacted meanwhile.
        """
        before, held, is_quoted = self._before, self._held, self._is_quoted
        out = self.flush()
        if out == held and self.blocked is None:
            self._before, self._held, self._is_quoted = before, held, is_quoted
        return out

    @property
    def held(self) -> str:
        """Return the held-back text in its original form."""
        return self._held

    def _outgrows(self, window: str, base: int) -> bool:
        """Block a text with a finding that does not end within the maximum held-back length."""
        for look in self._plan.screen.looks(window, _ROLE):
            if look.stage.acts and look.finding.end > base:
                self.blocked = look.stage.verdict([look.finding])
                self._found.setdefault(look.stage, []).append(look.finding)
                self._held = ""
                return True
        return False

    def _release(self, text: str, whole: str, window: str, base: int, hold: int) -> str:
        """Return the text before `hold`, after the stages have inspected it; the rest is held back."""
        candidates = self._plan.screen.candidates
        first = -1 if candidates is None else candidates.start(window, base)
        looks: Sequence[Look] = ()
        if 0 <= first < hold:
            looks, hold = self._looks(window, base, hold)
        if looks:
            return self._carry_out(looks, text, whole, window, base, hold)
        return self._go(text, whole, window, base, hold)

    def _go(self, text: str, whole: str, window: str, base: int, hold: int) -> str:
        """Return the text before `hold` unchanged; the rest is held back."""
        cut = hold - base
        if hold == len(window):
            cut = len(whole)
        elif cut and not (self._spelling is AS_IS and whole.isascii()):
            cut = self._spelling.span(whole, 0, cut)[1]
        out, self._held = text[:cut], text[cut:]
        self._pass(out, window, hold)
        return out

    def _looks(self, window: str, base: int, hold: int) -> tuple[Sequence[Look], int]:
        """Return the findings before `hold`, which moves to the start of a finding that extends beyond it."""
        found = self._plan.screen.looks(window, _ROLE)
        for look in found:
            if base <= look.finding.start < hold < look.finding.end:
                hold = self._begin_of(look.finding, window, base)
        return [look for look in found if base < look.finding.end <= hold], hold

    def _begin_of(self, finding: Finding, window: str, base: int) -> int:
        """Return the start of the match of a finding, which also depends on the text before it."""
        candidates = self._plan.screen.candidates
        assert candidates is not None
        begins = [start for start, _ in candidates.spans(window) if start <= finding.start]
        return max([base, *begins])

    def _carry_out(self, looks: Sequence[Look], text: str, whole: str, window: str, base: int, hold: int) -> str:
        """Return the text before `hold` without redactions, up to where a stage blocks."""
        out: list[str] = []
        done = 0
        looks = sorted(looks, key=lambda one: one.finding.start)
        spans = self._spelling.spans(
            whole, [(max(look.finding.start - base, 0), look.finding.end - base) for look in looks]
        )
        for look, (start, end) in zip(looks, spans, strict=True):
            finding, stage = look.finding, look.stage
            self._found.setdefault(stage, []).append(finding)
            if not stage.acts:
                continue
            start = max(start, done)
            before = text[done:start]
            self._pass_quotes(before)
            out.append(before)
            if stage.spec.action == "block" or not self._may_cut(text[start:end]):
                self.blocked = stage.verdict(self._found[stage])
                self._held = ""
                return "".join(out)
            done, replacement = self._replaced(text, end, finding.kind)
            out.append(replacement)
        cut = self._spelling.span(whole, 0, hold - base)[1] if hold > base else 0
        cut = max(len(whole) if hold == len(window) else cut, done)
        rest, self._held = text[done:cut], text[cut:]
        self._pass(rest, window, hold)
        return "".join([*out, rest])

    def _replaced(self, text: str, end: int, kind: str) -> tuple[int, str]:
        """Return where the text continues, and the replacement of a finding that ends at `end`. JSON stays valid."""
        return stand_in(text, end, kind, is_quoted=self._spelling is not IN_JSON or self._is_quoted)

    def _may_cut(self, cut: str) -> bool:
        """Return whether this may be redacted: not if a JSON string would lose an end."""
        return self._spelling is not IN_JSON or all(found[1] is None for found in QUOTED.finditer(cut))

    def _pass(self, out: str, window: str, hold: int) -> None:
        self._pass_quotes(out)
        self._before = window[max(hold - _SEEN_BEFORE, 0) : hold]

    def _pass_quotes(self, out: str) -> None:
        if self._spelling is IN_JSON:
            self._is_quoted = ends_quoted(out, is_quoted=self._is_quoted)
