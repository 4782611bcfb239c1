"""One run against one gateway: waits until the keys work, measures tokens per word, plays the trace, summarises."""

import asyncio
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

from contracts.errors import ConfigurationError
from tollkeeper.replay.chat import Chat, GatewayClient, Outcome
from tollkeeper.replay.composer import AT_ONCE, Composer, Pace, chat_body
from tollkeeper.replay.lengths import LengthRule
from tollkeeper.replay.payers import Assignment, Payer
from tollkeeper.replay.player import MonotonicClock, Player
from tollkeeper.replay.prompt import PromptWriter
from tollkeeper.replay.served_model import ServedModel
from tollkeeper.replay.summary import Setting, Summary, summarise
from tollkeeper.replay.token_rate import FEW_WORDS, MANY_WORDS, TokenRate
from tollkeeper.replay.trace import Trace

_KEY_KNOWN_SECONDS: Final = 10.0  # gateways accept a new key within one second
_POLL_SECONDS: Final = 0.05
MAX_RUN_ID_LENGTH: Final = 100  # limit of the header x-tollkeeper-run-id

OnChange = Callable[[Player[Chat]], None]


@dataclass(frozen=True, slots=True)
class Run:
    """The settings of a run. `speed` divides the trace's times; `scale_lengths` multiplies its lengths."""

    run_id: str
    gateway_url: str
    model: ServedModel
    speed: float = 1.0
    scale_lengths: float = 1.0
    pace: Pace = AT_ONCE

    def __post_init__(self) -> None:
        if not 0 < self.speed <= 10_000:
            raise ConfigurationError(f"the speed must be above 0 and at most 10,000, not {self.speed:g}")
        if not 0 < len(self.run_id) <= MAX_RUN_ID_LENGTH or not _is_plain(self.run_id):
            raise ConfigurationError(
                f"a run id has 1 to {MAX_RUN_ID_LENGTH} visible ASCII characters without spaces; "
                f"this one has {len(self.run_id)} characters"
            )

    @property
    def rule(self) -> LengthRule:
        """Return the rule for the requests' lengths."""
        return LengthRule(self.scale_lengths, self.model.context_tokens)


async def replay(
    run: Run, trace: Trace, assignment: Assignment, payers: Sequence[Payer], stop: asyncio.Event, on_change: OnChange
) -> Summary:
    """Replay a trace and return a summary, also if `stop` ends it early.

    Raises ConfigurationError if the gateway cannot be reached or the model does not answer at all.
    """
    rule, scaled = run.rule, 0

    def count_scaled() -> None:
        nonlocal scaled
        scaled += 1

    client = GatewayClient(run.gateway_url, run.run_id)
    try:
        rate = await prepare(client, run.model, payers)
        writer = PromptWriter(rate, max(1, round(trace.block_tokens * run.scale_lengths)), run.run_id)
        composer = Composer(run.model, writer, rule, assignment, payers, run.pace)
        player: Player[Chat] = Player(client.send, MonotonicClock(), on_change)
        is_complete = await player.play(composer.chats(trace, run.speed, count_scaled), stop)
    finally:
        await client.close()
    setting = Setting(
        run_id=run.run_id,
        trace=trace.name,
        format=trace.format,
        model=run.model.id,
        speed=run.speed,
        scale_lengths=run.scale_lengths,
        context_tokens=run.model.context_tokens,
        scaled_to_fit=scaled,
    )
    return summarise(
        setting,
        player.outcomes,
        began_at=player.began_at,
        most_in_flight=player.most_in_flight,
        is_complete=is_complete,
    )


async def prepare(
    client: GatewayClient, model: ServedModel, payers: Sequence[Payer], patience_seconds: float = _KEY_KNOWN_SECONDS
) -> TokenRate:
    """Wait until the gateway accepts every key, and measure the model's tokens per word.

    Raises ConfigurationError if a key is not accepted in time, or if the model does not answer.
    """
    deadline = time.monotonic() + patience_seconds
    for payer in payers:
        while not await client.knows(payer.secret):
            if time.monotonic() > deadline:
                raise ConfigurationError(
                    f"the gateway does not know a key made {patience_seconds:g} s ago; "
                    "is it the gateway of this control plane?"
                )
            await asyncio.sleep(_POLL_SECONDS)
    few, many = [await _ask(client, model, payers[0], words) for words in (FEW_WORDS, MANY_WORDS)]
    return TokenRate.measured(few.input_tokens, many.input_tokens)


async def _ask(client: GatewayClient, model: ServedModel, payer: Payer, words: int) -> Outcome:
    # A separate run id, so that the run's rows are only the trace's requests.
    prompt = PromptWriter(TokenRate(), 1).write(words, words)
    chat = Chat(0, payer.place.tenant, payer.secret, chat_body(model, prompt, words, 1), 1)
    run_id = f"{client.run_id[: MAX_RUN_ID_LENGTH - 12]}-measurement"[:MAX_RUN_ID_LENGTH]
    outcome = await client.send(chat, time.monotonic(), run_id)
    if outcome.error:
        raise ConfigurationError(f"model {model.id!r} does not answer: its first request failed with {outcome.error}")
    return outcome


def _is_plain(text: str) -> bool:
    return text.isascii() and text.isprintable() and " " not in text
