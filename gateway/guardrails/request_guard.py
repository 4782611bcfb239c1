"""One request's guardrails: the results of its plan so far, and the filter for its answer."""

from typing import Final

from contracts.errors import ContentBlocked, ContentFiltered
from contracts.guardrails.finding import About, Verdict, joined
from gateway.guardrails.answer_filter import AnswerFilter
from gateway.guardrails.guard_plan import GuardPlan

_MOST_VERDICTS: Final = 32  # on one record


class RequestGuard:
    """The state of one request's guardrails. Durations are nanoseconds; `None` if no stage had anything to do."""

    __slots__ = (
        "_before",
        "_found",
        "_told",
        "about",
        "began_ns",
        "filter",
        "has_begun_again",
        "has_changed",
        "plan",
        "spent_ns",
    )

    def __init__(self, plan: GuardPlan, about: About) -> None:
        """Accept the plan, and what is known about the request. `about` is empty if `plan` is immediate, because its
        stages inspect only texts.
        """
        self.plan = plan
        self.about = about
        self.has_changed = False  # the request: it goes on as the stages have left it
        self.began_ns = 0  # monotonic, where it spent time
        self.spent_ns: int | None = None  # on the request, before it was admitted
        self.filter: AnswerFilter | None = None
        self.has_begun_again = False
        self._before: list[Verdict] = []
        self._found: list[Verdict] = []
        self._told: list[str] = []

    @property
    def digest(self) -> str:
        """Return a digest of the stages: only requests with the same one share cached answers."""
        return self.plan.digest

    @property
    def held_ns(self) -> int | None:
        """Return the longest time that a piece of the answer was held back."""
        return None if self.filter is None else self.filter.held_ns

    @property
    def verdicts(self) -> list[str]:
        """Return the verdicts of both sides, as on records."""
        seen = {(one.stage, one.action) for one in self._found}
        found = [*[one for one in self._before if (one.stage, one.action) not in seen], *self._found]
        if self.filter is not None:
            found += self.filter.verdicts
        if not found and not self._told:
            return []
        return [*[verdict.text for verdict in joined(found)], *self._told][:_MOST_VERDICTS]

    def begin_again(self) -> None:
        """Prepare to inspect the same request in another API's format. What is found in both counts once."""
        self._before, self._found, self.has_begun_again = self._found, [], True

    def note(self, verdicts: list[Verdict]) -> None:
        """Add verdicts of stages."""
        self._found += verdicts

    def take_over(self, verdicts: list[str]) -> None:
        """Add the verdicts of a cached answer, which these stages inspected when it was generated."""
        self._told += [told for told in verdicts if "output/" in told]

    def filter_answer(self) -> AnswerFilter | None:
        """Start inspecting the answer; return `None` if no stage does."""
        if not self.plan.output.is_empty:
            self.filter = AnswerFilter(self.plan.output, self.about)
        return self.filter


def refusal(verdict: Verdict, place: str = "") -> ContentBlocked:
    """Return the error of a request that a stage blocks. It names the stage and the kind of finding, never the text
    that was found. `place` is where in the request it is.
    """
    return ContentBlocked(
        f"the guardrail stage {verdict.stage!r} refuses this request: it found "
        f"{', '.join(verdict.kinds)} ({verdict.count}){f' in {place}' if place else ''}; remove it, or ask your "
        "administrator",
        param=place or None,
    )


def cut_by(verdict: Verdict) -> ContentFiltered:
    """Return the error that ends an answer that a stage blocks."""
    return ContentFiltered(
        f"the guardrail stage {verdict.stage!r} ended this answer: it found {', '.join(verdict.kinds)}"
    )
