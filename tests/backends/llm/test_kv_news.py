"""What a host answers to who asks for its caches: a refusal reaches the one that follows them, with its reason."""

import asyncio
import itertools
from collections.abc import Callable, Sequence
from typing import Any

from backends.llm.host.kv_news import KvNews
from contracts.engine.wire import Answer, Hello, KvBlocks

URL = "unix:///h.sock"
HELLO = Hello(version=1, engine="e", engine_kind="vllm", engine_version="1", models=[], clock_ns=0, wall_ns=0,
              tells_blocks=True)  # fmt: skip


class Follower:
    """Asks for one model as soon as the host is there, and notes what is refused."""

    def __init__(self) -> None:
        self.refused: list[tuple[str, str, str]] = []

    def on_kv_host(self, url: str, ask: Callable[[str], None]) -> None:
        ask("m")
        ask("n")

    def on_kv_events(self, url: str, packed: Sequence[bytes]) -> None: ...

    def on_kv_blocks(self, url: str, blocks: KvBlocks) -> None: ...

    def on_kv_refused(self, url: str, model: str, why: str) -> None:
        self.refused.append((url, model, why))

    def on_kv_lost(self, url: str) -> None: ...


async def test_a_refusal_names_the_model_that_was_asked_for_and_other_calls_answers_are_nobody_s() -> None:
    follower = Follower()
    sent: list[Any] = []
    news = KvNews(URL, None, follower, records_kv=False)
    news.greeted(HELLO, sent.append, itertools.count(7))
    await asyncio.sleep(0)
    assert [(call.call_id, call.model) for call in sent] == [(7, "m"), (8, "n")]
    news.answered(Answer(call_id=9, ok=False, error_message="of another call"))
    news.answered(Answer(call_id=7))
    news.answered(Answer(call_id=8, ok=False, error_message="this engine does not tell"))
    news.answered(Answer(call_id=8, ok=False, error_message="once is enough"))
    assert follower.refused == [(URL, "n", "this engine does not tell")]


async def test_what_was_asked_on_a_connection_that_is_gone_is_refused_by_nobody() -> None:
    follower = Follower()
    sent: list[Any] = []
    news = KvNews(URL, None, follower, records_kv=False)
    news.greeted(HELLO, sent.append, itertools.count(1))
    await asyncio.sleep(0)
    news.lost()
    news.answered(Answer(call_id=1, ok=False, error_message="late"))
    assert follower.refused == []
