"""Sends each prompt to both models through the gateway, as deterministically as possible, and pairs the answers."""

import asyncio
import time
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from typing import Any, Final

import httpx

from analytics.comparison.pairs import Answer, Pair
from contracts.errors import ConfigurationError
from contracts.metering.usage import Usage
from contracts.pricing.prices import PriceBook, bill
from tollkeeper.gate.answer_stream import AnswerStream
from tollkeeper.gate.prompts import Prompt
from tollkeeper.own_gateway import trust

_TIMEOUT: Final = httpx.Timeout(600.0, connect=10.0)
_MOST_ALTERNATIVES: Final = 20
_DETERMINISTIC: Final = {"temperature": 0}
_SCORED: Final = {"logprobs": True, "top_logprobs": _MOST_ALTERNATIVES}
# Parameters to omit, step by step, if a model refuses them: not every provider returns log-probabilities.
_LADDER: Final[tuple[dict[str, Any], ...]] = ({**_DETERMINISTIC, **_SCORED}, _DETERMINISTIC, {})


class PromptSender:
    """Sends prompts to a gateway with one key, at most `at_once` concurrently."""

    def __init__(
        self, gateway: str, key: str, run_id: str, prices: PriceBook, *, max_tokens: int, at_once: int
    ) -> None:
        self._url = f"{gateway}/v1/chat/completions"
        self._headers = {
            "Authorization": f"Bearer {key}",
            "Cache-Control": "no-store",  # test the model, not a cached response
            "x-tollkeeper-run-id": run_id,
        }
        self._trust = trust(gateway) or True
        self._prices = prices
        self._max_tokens = max_tokens
        self._gate = asyncio.Semaphore(at_once)
        self._rung: dict[str, int] = {}  # by model: how many steps of parameters to omit

    async def send_all(
        self, prompts: Sequence[Prompt], incumbent: str, candidate: str, told: Callable[[int], None]
    ) -> list[Pair]:
        """Send every prompt to both models and return the pairs; `told` is called with the number of finished prompts.

        The order of the models alternates, so that neither benefits from a warm machine. Raises ConfigurationError if
        the gateway does not answer at all.
        """
        # Ignores proxy variables: gateway and key belong to this installation.
        async with httpx.AsyncClient(timeout=_TIMEOUT, trust_env=False, verify=self._trust) as client:
            done = 0

            async def both(prompt: Prompt) -> Pair:
                nonlocal done
                async with self._gate:
                    order = (incumbent, candidate) if prompt.number % 2 == 0 else (candidate, incumbent)
                    answers = {model: await self._ask(client, prompt, model) for model in order}
                done += 1
                told(done)
                return Pair(prompt.number, answers[incumbent], answers[candidate])

            return list(await asyncio.gather(*map(both, prompts)))

    async def _ask(self, client: httpx.AsyncClient, prompt: Prompt, model: str) -> Answer:
        begun = self._rung.get(model, 0)
        for rung in range(begun, len(_LADDER)):
            answer = await self._try(client, prompt, model, _LADDER[rung])
            if answer.error in _REFUSED_PARAMETER:
                continue
            if not answer.error:  # otherwise the prompt may be at fault
                self._rung[model] = max(self._rung.get(model, 0), rung)
            break
        return answer

    async def _try(self, client: httpx.AsyncClient, prompt: Prompt, model: str, drawn: dict[str, Any]) -> Answer:
        body = {
            "max_tokens": self._max_tokens,
            **prompt.more,
            **drawn,
            "model": model,
            "messages": prompt.messages,
            "stream": True,
            "stream_options": {"include_usage": True},
        }
        if "max_completion_tokens" in prompt.more:
            del body["max_tokens"]
        stream = AnswerStream(time.perf_counter)
        try:
            async with client.stream("POST", self._url, json=body, headers=self._headers) as reply:
                if reply.status_code != 200:
                    return Answer(error=_code_of(await reply.aread(), reply.status_code))
                async for line in reply.aiter_lines():
                    stream.take(line)
        except httpx.ConnectError as error:
            raise ConfigurationError(
                f"the gateway does not answer at {self._url}; start it with `tollkeeper up`, or name it with "
                "--gateway-url"
            ) from error
        except httpx.HTTPError as error:
            return Answer(error=type(error).__name__)
        return stream.answer(highest_cost(self._prices, model, stream.usage, datetime.now(UTC)))


def highest_cost(prices: PriceBook, model: str, usage: Usage, at: datetime) -> float | None:
    """Return the highest cost in USD of a model's usage at the general price cards valid at a time; `None` if unpriced.

    An answer does not name its provider and region, so the most expensive card counts, as for reservations.
    """
    cards = [card for card in prices.cards if card.model == model and not card.tenant and card.is_valid_at(at)]
    totals = [bill(usage, "chat", card).total_pico_usd for card in cards]
    known = [total for total in totals if total is not None]
    return max(known) / 1e12 if known else None


_REFUSED_PARAMETER: Final = ("unsupported_parameter", "unsupported_value", "upstream_rejected", "invalid_request")


def _code_of(body: bytes, status: int) -> str:
    try:
        error = httpx.Response(200, content=body).json()["error"]
        return str(error.get("code") or error.get("type") or f"status {status}")
    except (ValueError, LookupError, TypeError, AttributeError):
        return f"status {status}"
