"""What GPU benchmarks ask of an engine: prompts of token ids, all distinct unless a row is about sharing them."""

import random
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from bench.gpu_models import words

_IDS: Final = sorted(words())


@dataclass(frozen=True, slots=True)
class Ask:
    """One request. `start_seconds` is when it may start at the earliest, from the workload's beginning."""

    tenant: str
    prompt: tuple[int, ...]
    output_tokens: int
    start_seconds: float = 0.0


@dataclass(frozen=True, slots=True)
class Workload:
    """Requests of one or several tenants; each tenant keeps at most `concurrency` of its own running."""

    name: str
    asks: tuple[Ask, ...]
    concurrency: int

    def only(self, tenant: str) -> "Workload":
        """Return one tenant's part, to be run alone."""
        return Workload(f"{self.name}.{tenant}", tuple(a for a in self.asks if a.tenant == tenant), self.concurrency)

    @property
    def tenants(self) -> list[str]:
        """Return the names of the tenants."""
        return sorted({ask.tenant for ask in self.asks})


def uniform(
    name: str, requests: int, input_tokens: int, output_tokens: int, *, seed: int, concurrency: int | None = None
) -> Workload:
    """Requests of one size, all running at once unless told otherwise."""
    source = random.Random(seed)
    asks = tuple(Ask("A", _prompt(source, input_tokens), output_tokens) for _ in range(requests))
    return Workload(name, asks, concurrency or requests)


def varied(name: str, seed: int, sizes: Sequence[tuple[int, int, int]], *, concurrency: int) -> Workload:
    """Requests of several sizes, shuffled: (how many, input tokens, output tokens) each."""
    source = random.Random(seed)
    asks = [
        Ask("A", _prompt(source, input_tokens), output_tokens)
        for count, input_tokens, output_tokens in sizes
        for _ in range(count)
    ]
    source.shuffle(asks)
    return Workload(name, tuple(asks), concurrency)


def trickling(name: str, seed: int, sizes: Sequence[int], *, rounds: int, every_seconds: float) -> Workload:
    """One request after another, at a steady pace: prompts of these sizes in turn, 48 tokens out."""
    source = random.Random(seed)
    asks = [
        Ask("A", _prompt(source, size), 48, start_seconds=place * every_seconds)
        for place, size in enumerate(size for _ in range(rounds) for size in sizes)
    ]
    return Workload(name, tuple(asks), len(asks))


def two_tenants(seed: int) -> list[Workload]:
    """Three pairs of tenants whose loads differ in what makes a naive split wrong.

    short_long: many short chats beside a few long prompts. prefix: one tenant's prompts share most of their tokens.
    bursty: one tenant sends steadily, the other all at once.
    """
    source = random.Random(seed)
    short_long = [
        *(Ask("A", _prompt(source, 128), 128) for _ in range(96)),
        *(Ask("B", _prompt(source, 6_000), 16) for _ in range(24)),
    ]
    shared = _prompt(source, 3_000)
    prefix = [
        *(Ask("A", shared + _prompt(source, 96), 64) for _ in range(96)),
        *(Ask("B", _prompt(source, 768), 64) for _ in range(48)),
    ]
    bursty = [
        *(Ask("A", _prompt(source, 256), 96, start_seconds=place * 0.03) for place in range(96)),
        *(Ask("B", _prompt(source, 1_024), 32, start_seconds=1.0) for _ in range(64)),
    ]
    return [
        Workload("short_long", tuple(short_long), 32),
        Workload("prefix", tuple(prefix), 32),
        Workload("bursty", tuple(bursty), 64),
    ]


def coalition_batches(seed: int) -> list[tuple[str, list[Ask]]]:
    """Two batches whose every subset is to be timed: five members and six, each its own tenant."""
    source = random.Random(seed)
    mixed = [(2_048, 16), (512, 32), (128, 48), (4_096, 8), (64, 48)]
    decode = [(96, 48), (96, 48), (1_536, 48), (3_072, 32), (384, 24), (6_000, 4)]
    return [
        (name, [Ask(f"m{place}", _prompt(source, size), out) for place, (size, out) in enumerate(sizes)])
        for name, sizes in (("five", mixed), ("six", decode))
    ]


def renewed(asks: Sequence[Ask], seed: int) -> list[Ask]:
    """Return the same requests with other prompts of the same lengths, so that no prefix is known from before."""
    source = random.Random(seed)
    return [Ask(a.tenant, _prompt(source, len(a.prompt)), a.output_tokens, a.start_seconds) for a in asks]


def _prompt(source: random.Random, tokens: int) -> tuple[int, ...]:
    return tuple(source.choices(_IDS, k=tokens))
