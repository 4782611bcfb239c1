"""Runs a load test against one gateway: steps at different rates until the knee is found."""

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

from contracts.errors import ConfigurationError
from tollkeeper.loadtest.arrivals import poisson
from tollkeeper.loadtest.knee import Knee, Search, find_knee
from tollkeeper.loadtest.objective import Objective
from tollkeeper.loadtest.step import Step, judge
from tollkeeper.replay.chat import Chat, GatewayClient
from tollkeeper.replay.composer import Composer
from tollkeeper.replay.payers import Assignment, Payer
from tollkeeper.replay.player import MonotonicClock, Player
from tollkeeper.replay.prompt import PromptWriter
from tollkeeper.replay.session import Run, prepare
from tollkeeper.replay.token_rate import TokenRate
from tollkeeper.replay.trace import Trace

_FEWEST_REQUESTS: Final = 20  # minimum number of requests per step; a step at a low rate lasts longer


@dataclass(frozen=True, slots=True)
class Load:
    """The load to send: requests with these lengths (cyclic), for `seconds` per step."""

    lengths: Trace
    seconds: float = 10.0

    def __post_init__(self) -> None:
        if not 0.1 <= self.seconds <= 3600:
            raise ConfigurationError(f"a step lasts 0.1 to 3,600 seconds, not {self.seconds:g}")

    def seconds_at(self, rate: float) -> float:
        """Return a step's duration at this rate: longer than `seconds` if it would have fewer than twenty requests."""
        return max(self.seconds, _FEWEST_REQUESTS / rate)


class Sweep:
    """Measures rates for the search of the knee. Each step's run id is the run's id with the step's number."""

    def __init__(
        self,
        run: Run,
        load: Load,
        objective: Objective,
        payers: Sequence[Payer],
        on_step: Callable[[Step], None] = lambda step: None,
    ) -> None:
        self._run = run
        self._load = load
        self._objective = objective
        self._payers = payers
        self._assignment = Assignment(tuple(payer.place for payer in payers))
        self._on_step = on_step
        self._steps = 0

    async def find(self, search: Search, stop: asyncio.Event) -> Knee[Step]:
        """Find the knee; `stop` ends the search with the steps done so far.

        Raises ConfigurationError if the gateway cannot be reached or the model does not answer.
        """
        client = GatewayClient(self._run.gateway_url, self._run.run_id)
        try:
            rate = await prepare(client, self._run.model, self._payers)
            return await find_knee(search, lambda per_second: self._measure(client, rate, per_second, stop))
        finally:
            await client.close()

    async def _measure(
        self, client: GatewayClient, tokens: TokenRate, per_second: float, stop: asyncio.Event
    ) -> Step | None:
        self._steps += 1
        seconds = self._load.seconds_at(per_second)
        trace = poisson(per_second, seconds, self._load.lengths.requests, self._load.lengths.block_tokens)
        client.run_id = step_run_id(self._run.run_id, self._steps)
        # The step's id is the seed of its prompts, so that no step benefits from the previous one's prefix cache.
        writer = PromptWriter(tokens, trace.block_tokens, client.run_id)
        composer = Composer(self._run.model, writer, self._run.rule, self._assignment, self._payers, self._run.pace)
        player: Player[Chat] = Player(client.send, MonotonicClock())
        await player.play(composer.chats(trace, speed=1.0), stop, drain_seconds=self._patience_seconds())
        if stop.is_set():
            return None
        step = judge(client.run_id, per_second, seconds, player.outcomes, self._objective)
        self._on_step(step)
        return step

    def _patience_seconds(self) -> float:
        # After this time an unfinished answer has missed the objective anyway.
        longest = max(self._run.rule.apply(request).output_tokens for request in self._load.lengths.requests)
        return (self._objective.ttft_ms + self._objective.itl_ms * longest) / 1000 + 1.0


def step_run_id(run_id: str, number: int) -> str:
    """Return the run id of a step's requests."""
    return f"{run_id}-{number:02d}"
