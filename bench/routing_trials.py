"""Workloads made to break a router: each is at the root of a known collapse, and none is like the trace that is kept.

Loads are shares of what ten replicas of 9,000 tokens a second compute together; arrivals are Poisson. Blocks have 512
tokens. Keys are drawn from the seed, so that no two workloads share any.
"""

import random
from collections.abc import Callable, Mapping
from typing import Final, NamedTuple

from bench.replica_simulator import Fault, Request
from bench.routing_workloads import BLOCK_TOKENS

_CAPACITY: Final = 90_000.0  # tokens a second, of all replicas
_NANO: Final = 1_000_000_000
_OUTPUT: Final = 200

Blocks = tuple[int, ...]
Prompts = Callable[[float, int], Blocks]  # of a moment (seconds) and a request's number


class _Keys:
    """Draws keys of blocks that nobody else has."""

    def __init__(self, seed: str) -> None:
        self.source = random.Random(seed)

    def new(self, blocks: int) -> Blocks:
        draw = self.source.getrandbits
        return tuple([draw(60) for _ in range(blocks)])

    def own(self, least: int = 1, most: int = 8) -> Blocks:
        """Return what only one prompt has."""
        return self.new(self.source.randint(least, most))


def _arriving(keys: _Keys, prompts: Prompts, per_second: float, seconds: float) -> list[Request]:
    requests: list[Request] = []
    at = 0.0
    while (at := at + keys.source.expovariate(per_second)) < seconds:
        blocks = prompts(at, len(requests))
        tokens = len(blocks) * BLOCK_TOKENS - keys.source.randrange(BLOCK_TOKENS // 2)
        requests.append(Request(round(at * _NANO), tokens, keys.source.randint(_OUTPUT // 4, 2 * _OUTPUT), blocks))
    return requests


def one_first_block(seconds: float, load: float = 0.75) -> list[Request]:
    """All prompts begin with the same block, and have nothing else in common."""
    keys = _Keys("one first block")
    head = keys.new(1)
    mean = 16.5 * BLOCK_TOKENS
    return _arriving(keys, lambda at, number: head + keys.own(1, 32), load * _CAPACITY / mean, seconds)


def all_distinct(seconds: float, load: float = 0.8) -> list[Request]:
    """No prompt has anything of another; a few are thirty times as long as most."""
    keys = _Keys("all distinct")

    def prompt(at: float, number: int) -> Blocks:
        return keys.own(120, 240) if keys.source.random() < 0.05 else keys.own(1, 12)

    mean = (0.05 * 180 + 0.95 * 6.5) * BLOCK_TOKENS
    return _arriving(keys, prompt, load * _CAPACITY / mean, seconds)


def one_giant(seconds: float, load: float = 0.9) -> list[Request]:
    """Nine of ten requests are one tenant's, with one long prompt before each; two hundred tenants have the others."""
    keys = _Keys("one giant")
    giant, others = keys.new(80), [keys.new(12) for _ in range(200)]

    def prompt(at: float, number: int) -> Blocks:
        head = giant if keys.source.random() < 0.9 else keys.source.choice(others)
        return head + keys.own(2, 10)

    return _arriving(keys, prompt, load * _CAPACITY / (6.5 * BLOCK_TOKENS), seconds)


def two_in_turn(seconds: float, load: float = 0.9, turn_seconds: float = 20.0) -> list[Request]:
    """Two long prompts take turns at being what everybody asks with."""
    keys = _Keys("two in turn")
    heads = keys.new(120), keys.new(120)

    def prompt(at: float, number: int) -> Blocks:
        return heads[int(at / turn_seconds) % 2] + keys.own(1, 8)

    return _arriving(keys, prompt, load * _CAPACITY / (4.5 * BLOCK_TOKENS), seconds)


def shifting(seconds: float, load: float = 0.7) -> list[Request]:
    """Prompts begin with one of three hundred, by Zipf's law; every minute others are the popular ones."""
    keys = _Keys("shifting")
    heads = [keys.new(keys.source.randint(8, 60)) for _ in range(300)]
    weights = [1 / rank for rank in range(1, len(heads) + 1)]
    order: list[Blocks] = heads
    since = 0

    def prompt(at: float, number: int) -> Blocks:
        nonlocal order, since
        if int(at / 60) > since:
            since = int(at / 60)
            order = keys.source.sample(heads, len(heads))
        return keys.source.choices(order, weights)[0] + keys.own(1, 8)

    return _arriving(keys, prompt, load * _CAPACITY / (8 * BLOCK_TOKENS), seconds)


def scanning(seconds: float, load: float = 1.0) -> list[Request]:
    """Documents are asked about in one order, again and again, and are more than all caches hold: LRU's worst case."""
    keys = _Keys("scanning")
    documents = [keys.new(100) for _ in range(700)]  # 36 million tokens, of caches for 30

    def prompt(at: float, number: int) -> Blocks:
        return documents[number % len(documents)] + keys.own(1, 2)

    return _arriving(keys, prompt, load * _CAPACITY / (60 * BLOCK_TOKENS), seconds)


def conversations(seconds: float, load: float = 0.7) -> list[Request]:
    """Eight system prompts, below them tenants, below them conversations that grow: a tree, all of it in use."""
    keys = _Keys("conversations")
    systems = [keys.new(6) for _ in range(8)]
    tenants = [keys.source.choice(systems) + keys.new(10) for _ in range(60)]
    open_now = [keys.source.choice(tenants) + keys.own() for _ in range(400)]

    def prompt(at: float, number: int) -> Blocks:
        place = keys.source.randrange(len(open_now))
        said = open_now[place] = open_now[place] + keys.own(1, 6)
        if len(said) > 120:
            open_now[place] = keys.source.choice(tenants) + keys.own()
        return said

    return _arriving(keys, prompt, load * _CAPACITY / (10 * BLOCK_TOKENS), seconds)


def overloaded(seconds: float) -> list[Request]:
    """More comes for half of the time than can be computed, of one prefix and of many, and then less."""
    first = [*shifting(seconds / 2, 1.4)]
    rest = one_first_block(seconds / 2, 0.3)
    half = round(seconds / 2 * _NANO)
    return first + [Request(one.at_ns + half, one.tokens, one.output_tokens, one.blocks, one.session) for one in rest]


def churn(seconds: float, replicas: int, every: float = 40.0, dead: float = 25.0) -> list[Fault]:
    """Let replicas die in turn, each for a while, so that caches are lost all the time."""
    faults: list[Fault] = []
    at, place = every / 2, 0
    while at + dead < seconds:
        faults.append(Fault(at, at + dead, is_dead=True, place=place % replicas))
        at, place = at + every, place + 3
    return faults


class Trial(NamedTuple):
    """A workload of the given number of seconds, and what befalls the replicas meanwhile."""

    requests: Callable[[float], list[Request]]
    faults: Callable[[float, int], list[Fault]] = lambda seconds, replicas: []


TRIALS: Final[Mapping[str, Trial]] = {
    "one_first_block": Trial(one_first_block),
    "all_distinct": Trial(all_distinct),
    "one_giant": Trial(one_giant),
    "two_in_turn": Trial(two_in_turn),
    "shifting": Trial(shifting),
    "scanning": Trial(scanning),
    "conversations": Trial(conversations),
    "overloaded": Trial(overloaded),
    "churn": Trial(conversations, churn),
}
