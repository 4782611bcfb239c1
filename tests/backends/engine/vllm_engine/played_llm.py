"""A vLLM that plays what it is given: recorded outputs, or a script. Its clock is real, its model is not."""

import asyncio
import time
from collections.abc import Callable, Coroutine, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

from backends.engine.vllm_engine.llm_client import Adapter, LlmFacts, LlmPrompt, LlmRequest, LlmVector, Sink

T = TypeVar("T")

FACTS = LlmFacts(kind="generate", context_tokens=256, vocabulary=4096, block_size=16, kv_blocks=64)


@dataclass
class Score:
    logprob: float
    rank: int | None = None


@dataclass
class Choice:
    index: int
    token_ids: Sequence[int]
    finish_reason: str | None = None
    stop_reason: int | str | None = None
    logprobs: list[dict[int, Score]] | None = None


@dataclass
class Times:
    queued_ts: float = 0.0
    scheduled_ts: float = 0.0
    first_token_ts: float = 0.0
    last_token_ts: float = 0.0


@dataclass
class Output:
    outputs: list[Choice]
    finished: bool = False
    num_cached_tokens: int | None = 0
    metrics: Times | None = None
    prompt_token_ids: Sequence[int] | None = None
    kv_transfer_params: dict[str, Any] | None = None


Played = Output | LlmVector | BaseException


def tokens(ids: Iterable[int], *, reason: str = "length", cached: int = 0) -> list[Output]:
    """Return one output for each token; the last ends the answer."""
    listed = list(ids)
    now = time.monotonic()
    return [
        Output(
            [Choice(0, [one], reason if place == len(listed) - 1 else None)],
            place == len(listed) - 1,
            cached,
            Times(now, now, now, now + place / 1000),
        )
        for place, one in enumerate(listed)
    ]


@dataclass
class PlayedLlm:
    """Plays `play(request)` to each request, one output at every turn of the loop; then nothing more is heard of it."""

    play: Callable[[LlmRequest], Sequence[Played]]
    facts: LlmFacts = FACTS
    vector: Callable[[LlmPrompt], Played] = lambda prompt: LlmVector(b"\0\0\x80?" * 4, 4)
    is_dead: bool = False
    can_sleep: bool = True
    requests: list[LlmRequest] = field(default_factory=list)
    aborted: list[tuple[str, int | None]] = field(default_factory=list)
    adapters: list[Adapter] = field(default_factory=list)
    slept: list[str] = field(default_factory=list)
    refuses_adapters: str = ""
    hears_aborts: bool = True
    is_closed: bool = False
    _playing: dict[str, tuple[Sink, list[Played]]] = field(default_factory=dict)
    _alarms: list[tuple[int, Callable[[], None]]] = field(default_factory=list)

    def add(self, request: LlmRequest, sink: Sink) -> None:
        self.requests.append(request)
        self._playing[request.name] = (sink, list(self.play(request)))

    def embed(self, name: str, prompt: LlmPrompt, sink: Sink) -> None:
        self._playing[name] = (sink, [self.vector(prompt)])

    def abort(self, name: str, choice: int | None = None, *, then: Callable[[], object] = lambda: None) -> None:
        self.aborted.append((name, choice))
        if self.hears_aborts:
            then()
        if choice is None:
            self._playing.pop(name, None)

    def run_until(self, has_news: Callable[[], bool]) -> None:
        """Play on until there is news; a step that would wait for ever is a fault of the test."""
        deadline = time.monotonic() + 5
        while not has_news() and not self.is_dead:
            assert time.monotonic() < deadline, "nothing came for five seconds"
            self._turn()

    def _turn(self) -> None:
        for name, (sink, left) in list(self._playing.items()):
            if left:
                sink(left.pop(0))
            elif name in self._playing:
                del self._playing[name]
        now = time.monotonic_ns()
        due = [alarm for alarm in self._alarms if alarm[0] <= now]
        self._alarms = [alarm for alarm in self._alarms if alarm[0] > now]
        for _, callback in due:
            callback()
        if not self._playing and self._alarms:
            time.sleep(max(0, self._alarms[0][0] - now) / 1e9)

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        return asyncio.run(work)

    def wake(self) -> None:
        pass

    def at(self, monotonic_ns: int, callback: Callable[[], None]) -> Callable[[], None]:
        alarm = (monotonic_ns, callback)
        self._alarms = sorted([*self._alarms, alarm], key=lambda one: one[0])

        def cancel() -> None:
            if alarm in self._alarms:
                self._alarms.remove(alarm)

        return cancel

    async def add_adapter(self, adapter: Adapter) -> None:
        if self.refuses_adapters:
            raise RuntimeError(self.refuses_adapters)
        self.adapters.append(adapter)

    async def remove_adapter(self, adapter: Adapter) -> None:
        self.adapters.remove(adapter)

    async def reset_prefix_cache(self) -> None:
        pass

    async def sleep(self, level: int) -> None:
        self.slept.append(f"sleep {level}")

    async def wake_up(self) -> None:
        self.slept.append("wake")

    def close(self) -> None:
        self.is_closed = True
