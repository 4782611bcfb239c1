"""Many clients at several gateways: each asks, is served or refused, waits exactly as told, and asks again."""

import asyncio
import itertools
import random
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from bench.fleet.connection import Answer, Connection, chat_request
from bench.fleet.fleet import chat_body, key_of
from tollkeeper.replay.formats import read_trace

AZURE: Final = Path(__file__).resolve().parents[1] / "traces" / "azure_llm_2023" / "AzureLLMInferenceTrace_conv.csv"


@dataclass(frozen=True, slots=True)
class Demand:
    """How the clients behave. One stream in `drop_every` is dropped half-way.

    Half of the requests state no `max_tokens`, the others what the trace's answer has, as replay does.
    """

    clients: int
    seconds: float
    starts_within_seconds: float
    gap_ms: float
    drop_every: int = 10
    patience_seconds: float = 1.0  # before asking again where no time is told
    finish_seconds: float = 0.0  # after the time is over, for what still runs


@dataclass(slots=True)
class Try:
    """One request as its client saw it. `number` counts the tries of the same request from 0."""

    at_ns: int  # Unix
    number: int
    gateway: int
    output_tokens: int  # that the model is asked to make
    drop_after: int | None
    answer: Answer = field(default_factory=Answer)
    was_place_kept: bool = False  # by the refusal before this try


class Crowd:
    """The clients and all their tries. Each has a key of its own, and a gateway at random for every try."""

    def __init__(self, demand: Demand, ports: Sequence[int]) -> None:
        self._demand = demand
        self._ports = ports
        self._source = random.Random(4)
        self._lengths = azure_lengths()
        self._requests = itertools.count()
        self.tries: list[Try] = []
        self._asking: set[asyncio.Task[None]] = set()
        self._is_over = False
        self.began_ns = 0
        self.ended_ns = 0

    async def run(self) -> None:
        """Let all clients ask until the time is over; what runs then may finish, and is dropped if it does not."""
        self.began_ns = time.time_ns()
        clients = [asyncio.create_task(self._client(number)) for number in range(self._demand.clients)]
        done, _ = await asyncio.wait(clients, timeout=self._demand.seconds, return_when=asyncio.FIRST_EXCEPTION)
        self._is_over = True
        self.ended_ns = time.time_ns()
        for client in clients:
            if client not in self._asking:
                client.cancel()
        if self._asking and self._demand.finish_seconds:
            await asyncio.wait(set(self._asking), timeout=self._demand.finish_seconds)
        for client in clients:
            client.cancel()
        await asyncio.gather(*clients, return_exceptions=True)
        for client in done:
            client.result()  # raises what ended it: a client does not end by itself before the time is over

    async def _client(self, number: int) -> None:
        await asyncio.sleep(self._demand.starts_within_seconds * number / self._demand.clients)
        while not self._is_over:
            await self._request(number)

    async def _request(self, client: int) -> None:
        """Ask until one request is served."""
        demand = self._demand
        input_tokens, output_tokens = next(self._lengths)
        number = next(self._requests)
        drop_after = max(output_tokens // 2, 1) if number % demand.drop_every == demand.drop_every - 1 else None
        max_tokens = output_tokens if number % 2 else None
        body = chat_body(input_tokens, output_tokens, gap_ms=demand.gap_ms, max_tokens=max_tokens)
        was_place_kept = False
        for retries in itertools.count():
            gateway = self._source.randrange(len(self._ports))
            one = Try(time.time_ns(), retries, gateway, output_tokens, drop_after, was_place_kept=was_place_kept)
            self.tries.append(one)
            await self._ask(one, chat_request(key_of(client), body, retries))
            if one.answer.status == 200 or self._is_over:
                return
            was_place_kept = one.answer.is_place_kept
            wait_seconds = one.answer.wait_seconds
            await asyncio.sleep(demand.patience_seconds if wait_seconds is None else wait_seconds)

    async def _ask(self, one: Try, request: bytes) -> None:
        task = asyncio.current_task()
        assert task is not None
        connection = await Connection.open(self._ports[one.gateway])
        self._asking.add(task)
        try:
            await connection.ask(request, one.answer, one.drop_after)
        finally:
            self._asking.discard(task)
            connection.close()

    @property
    def admitted(self) -> list[Try]:
        """Return the tries that were served, wholly or in part."""
        return [one for one in self.tries if one.answer.status == 200]

    @property
    def refused(self) -> list[Try]:
        """Return the tries that were answered with an error."""
        return [one for one in self.tries if one.answer.status not in (0, 200)]

    def first_retries(self, *, with_place: bool) -> list[Try]:
        """Return the first retries that got an answer; those only for which a place was kept, where asked."""
        return [one for one in self.tries if one.number == 1 and one.answer.status and one.was_place_kept >= with_place]


def azure_lengths() -> Iterator[tuple[int, int]]:
    """Return input and output tokens of Azure's conversation trace in its order, again and again."""
    return itertools.cycle([(found.input_tokens, found.output_tokens) for found in read_trace(AZURE).requests])
