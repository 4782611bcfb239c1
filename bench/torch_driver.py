"""Drives an engine to the end of its work in the caller's thread and collects its output: for tests and benchmarks."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from backends.engine.torch_engine.engine import Event, TorchEngine
from contracts.engine.wire import Delta, Finished, FinishReason, Submit, TokenLogprob


@dataclass(slots=True)
class Choice:
    """One choice's assembled output."""

    token_ids: list[int] = field(default_factory=list)
    text: str = ""
    logprobs: list[TokenLogprob] = field(default_factory=list)
    times_ns: list[int] = field(default_factory=list)
    finish_reason: FinishReason | None = None


@dataclass(slots=True)
class Answer:
    """A request's output and GPU-time account."""

    choices: dict[int, Choice] = field(default_factory=dict)
    cached_tokens: int | None = None
    finished: Finished | None = None

    @property
    def token_ids(self) -> list[int]:
        """Return the first choice's tokens."""
        return self.choices[0].token_ids if self.choices else []

    @property
    def text(self) -> str:
        """Return the first choice's text."""
        return self.choices[0].text if self.choices else ""

    @property
    def account(self) -> Finished:
        """Return the account. Raises ValueError while the request runs."""
        if self.finished is None:
            raise ValueError("the request has not finished")
        return self.finished


def collect(answers: dict[bytes, Answer], events: Iterable[Event]) -> None:
    """Add events to the answers they belong to."""
    for event in events:
        answer = answers.setdefault(event.request_id, Answer())
        if isinstance(event, Finished):
            answer.finished = event
            continue
        _add(answer, event)


def run(
    engine: TorchEngine, submits: Iterable[Submit], *, after_step: Callable[[dict[bytes, Answer]], None] | None = None
) -> dict[bytes, Answer]:
    """Submit everything at once and step until nothing is left. `after_step` may submit or abort."""
    answers: dict[bytes, Answer] = {}
    for submit in submits:
        engine.submit(submit)
    while engine.has_work:
        collect(answers, engine.step())
        if after_step is not None:
            after_step(answers)
    return answers


def _add(answer: Answer, delta: Delta) -> None:
    choice = answer.choices.setdefault(delta.index, Choice())
    choice.token_ids += delta.token_ids
    choice.times_ns += delta.times_ns
    choice.text += delta.content
    choice.logprobs += delta.logprobs
    choice.finish_reason = delta.finish_reason or choice.finish_reason
    if delta.cached_tokens is not None:
        answer.cached_tokens = delta.cached_tokens
