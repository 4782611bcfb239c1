"""The mixed traffic of the soak: what is sent, how often, what may be answered, and how many records it leaves."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from bench.fuzzing.answers import Answer, Fault, check_answer, ends_well, error_of
from bench.fuzzing.bodies import example_of, full_example_of
from bench.fuzzing.model_server import Ending, ModelServer, good_answer, whole
from bench.soaking.caller import Told
from gateway.apis.messages.operation import MESSAGES
from gateway.apis.rendering import OPENAI_ERRORS, ErrorShape

KEY: Final = "tk-" + "S" * 43
LIMITED_KEY: Final = "tk-" + "L" * 43
STEADY, FRAGILE, SLOW = "steady", "fragile", "slow"  # models
_SOUND: Final = "/sound"  # below it the model server never fails
_REFUSALS_A_MINUTE: Final = 20
_MUCH: Final = 10**11


@dataclass(frozen=True, slots=True)
class Kind:
    """One kind of request. `pieces`: after that many the client leaves; `None`: it reads to the end."""

    name: str
    weight: int
    data: bytes
    statuses: frozenset[int] = frozenset((200,))
    records: int = 1
    pieces: int | None = None
    errors: ErrorShape = OPENAI_ERRORS

    def check(self, told: Told | None) -> None:
        """Hold an answer to what may be answered. Raises Fault."""
        if told is None:
            if self.pieces is None:
                raise Fault("no answer came")
            return
        if told.status not in self.statuses:
            raise Fault(f"the answer is {told.status}: {told.body[:300]!r}")
        content_type = "text/event-stream" if told.is_stream else "application/json"
        answer = Answer(told.status, {"content-type": content_type}, told.body)
        check_answer(answer, (self.errors,))
        # A server that breaks off within a stream ends it with an error; no stream just ends.
        if told.status == 200 and not ends_well(answer) and error_of(answer, self.errors) is None:
            raise Fault(f"a stream ends without an end: {told.body[-300:]!r}")


class FailingServer(ModelServer):
    """A model server that fails now and then, in a manner of its own each time, but below `/sound`."""

    def __init__(self) -> None:
        super().__init__()
        self._asked = 0
        self.failures = 0

    def answer(self, path: str, body: bytes) -> tuple[Sequence[bytes], Ending]:
        """Return a good answer, or every 20th time a bad one."""
        good = good_answer(path, body)
        if path.startswith(_SOUND):
            return (good,), "stay"
        self._asked += 1
        number, is_bad = divmod(self._asked, 20)
        if is_bad:
            return (good,), "stay"
        self.failures += 1
        bad: list[tuple[Sequence[bytes], Ending]] = [
            ((whole({"error": {"message": "out of memory"}}, 500),), "stay"),
            ((whole({"error": {"message": "slow down"}}, 429, b"retry-after: 1\r\n"),), "stay"),
            ((good[: len(good) * 3 // 4],), "reset"),
            ((good[: len(good) // 2],), "close"),
            ((b"HTTP/1.1 200 OK\r\ncontent-type: text/html\r\ncontent-length: 6\r\n\r\n<html>",), "stay"),
            ((), "close"),
        ]
        return bad[number % len(bad)]


def configuration(url: str) -> dict[str, Any]:
    """Return the gateway's file. `url` is the model server's, without a path."""
    failing = {"name": "failing", "kind": "openai_http", "url": f"{url}/v1"}
    sound = {"name": "sound", "kind": "openai_http", "url": f"{url}{_SOUND}/v1"}
    script = {"tokens": 20, "gap_ms": 20}
    pools = {
        STEADY: [failing, sound],
        FRAGILE: [failing],
        SLOW: [{"name": "s1", "kind": "scripted", "settings": {"script": script}}],
    }
    who = {"tenant": "acme", "team": "core", "project": "apollo"}
    levels: list[dict[str, str]] = [{"level": "tenant"}, *({"level": one, "subject": "*"} for one in ("team", "key"))]
    limited = {"level": "key", "subject": "limited", "metric": "requests", "window": "minute"}
    money = {"input_text": "1", "output_text": "2"}
    return {
        "keys": [{"key": KEY, "id": "key_1", **who}, {"key": LIMITED_KEY, "id": "limited", **who, "tenant": "other"}],
        "pools": [{"name": name, "targets": targets} for name, targets in pools.items()],
        "models": [{"name": name, "pool": name} for name in pools],
        "prices": [{"model": name, "version": f"{name}/1", "usd_per_mtok": money} for name in pools],
        "limits": [
            {"tenant": "acme", "metric": metric, "window": "minute", "amount": _MUCH, **level}
            for level in levels
            for metric in ("requests", "tokens")
        ]
        + [{"tenant": "other", "amount": _REFUSALS_A_MINUTE, **limited}],
        "budgets": [{"tenant": "acme", "period": "month", "amount_usd": "900000", **level} for level in levels],
    }


def kinds() -> list[Kind]:
    """Return all kinds of traffic."""
    chat, failed = "/v1/chat/completions", frozenset((200, 429, 502, 503))
    tools = {name: full_example_of("chat.completions", STEADY)[name] for name in ("tools", "tool_choice")}
    said = example_of("chat.completions", STEADY)
    found = [
        Kind("chat", 8, _post(chat, said)),
        Kind("chat_stream", 8, _post(chat, said | {"stream": True})),
        Kind("tools", 2, _post(chat, said | tools)),
        Kind("tools_stream", 2, _post(chat, said | tools | {"stream": True})),
        Kind("completions", 2, _post("/v1/completions", example_of("completions", STEADY))),
        Kind("embeddings", 3, _post("/v1/embeddings", example_of("embeddings", STEADY))),
        Kind("rerank", 1, _post("/v1/rerank", example_of("rerank", STEADY))),
        Kind("slow_stream", 2, _post(chat, said | {"model": SLOW, "stream": True})),
        Kind("left_stream", 2, _post(chat, said | {"model": SLOW, "stream": True}), pieces=3),
        Kind("left_unanswered", 2, _post(chat, said | {"model": SLOW}), pieces=0),
        Kind("limited", 2, _post(chat, said, LIMITED_KEY), frozenset((200, 429))),
        Kind("fragile", 2, _post(chat, said | {"model": FRAGILE}), failed),
        Kind("fragile_stream", 2, _post(chat, said | {"model": FRAGILE, "stream": True}), failed),
        Kind("no_model", 1, _post(chat, said | {"model": "gpt-nope"}), frozenset((404,))),
        Kind("bad_field", 1, _post(chat, said | {"temperature": 9}), frozenset((400,))),
        Kind("no_json", 1, _post(chat, b'{"model": '), frozenset((400,))),
        Kind("no_key", 1, _post(chat, said, "tk-" + "N" * 43), frozenset((401, 429)), records=0),
        Kind("no_path", 1, b"GET /nope HTTP/1.1\r\nHost: localhost\r\n\r\n", frozenset((404,)), records=0),
        Kind("no_http", 1, b"\x00\x01\r\n\r\n", frozenset((400,)), records=0),
        Kind(
            "models",
            1,
            b"GET /v1/models HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer %b\r\n\r\n" % KEY.encode(),
            records=0,
        ),
    ]
    for api, path, shape in (
        ("messages", "/v1/messages", MESSAGES.errors),
        ("responses", "/v1/responses", OPENAI_ERRORS),
    ):
        asked = example_of(api, STEADY)
        found.append(Kind(api, 3, _post(path, asked), errors=shape))
        found.append(Kind(f"{api}_stream", 3, _post(path, asked | {"stream": True}), errors=shape))
    return found


def _post(path: str, body: bytes | Mapping[str, Any], key: str = KEY) -> bytes:
    data = body if isinstance(body, bytes) else json.dumps(body).encode()
    head = (
        f"POST {path} HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {key}\r\n"
        f"Content-Type: application/json\r\nContent-Length: {len(data)}\r\n\r\n"
    )
    return head.encode() + data
