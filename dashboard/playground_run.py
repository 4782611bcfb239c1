"""Sends one prompt to the gateway as an application does: with an API key, streamed. Measures the times."""

import json
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Final

import httpx

_CONNECT_SECONDS: Final = 5.0
_READ_SECONDS: Final = 120.0
_MAX_ERROR: Final = 500


@dataclass(frozen=True, slots=True)
class PlaygroundResult:
    """The result of a prompt. `problem`: the error message if it failed; counts are `None` if not reported."""

    request_id: str = ""
    text: str = ""
    finish_reason: str = ""
    status: int = 0
    first_token_ms: float | None = None
    total_ms: float | None = None
    input_tokens: int | None = None
    output_tokens: int | None = None
    cached_tokens: int | None = None
    problem: str = ""


class Playground:
    """Calls one gateway. Thread-safe; stores neither keys nor prompts."""

    def __init__(self, url: str, transport: httpx.BaseTransport | None = None) -> None:
        timeout = httpx.Timeout(_READ_SECONDS, connect=_CONNECT_SECONDS)
        self._client = httpx.Client(base_url=url, timeout=timeout, trust_env=False, transport=transport)
        self._url = url

    def models(self, key: str) -> tuple[list[str], str]:
        """Return the names of the models and routes that a key may use, and an error message ("" if there is none)."""
        try:
            reply = self._client.get("/v1/models", headers=_headers(key))
            if not reply.is_success:
                return [], _message(reply.status_code, reply.content)
            return [str(one["id"]) for one in reply.json()["data"]], ""
        except (httpx.HTTPError, httpx.InvalidURL):
            return [], self._away()
        except (ValueError, LookupError, TypeError):
            return [], f"{self._url} answers, but not as a gateway"

    def ask(self, key: str, body: dict[str, Any], show: Callable[[str], None]) -> PlaygroundResult:
        """Send a chat and return the result; `show` is called with the text received so far. Never raises."""
        begun = time.perf_counter()
        wanted = {**body, "stream": True, "stream_options": {"include_usage": True}}
        try:
            with self._client.stream("POST", "/v1/chat/completions", json=wanted, headers=_headers(key)) as reply:
                request_id = reply.headers.get("x-request-id", "")
                if not reply.is_success:
                    message = _message(reply.status_code, reply.read())
                    return PlaygroundResult(request_id, status=reply.status_code, problem=message)
                return _read(reply, request_id, begun, show)
        except (httpx.HTTPError, httpx.InvalidURL):
            return PlaygroundResult(problem=self._away())
        except (ValueError, LookupError, TypeError):
            return PlaygroundResult(problem=f"{self._url} answers, but not as a gateway")

    def _away(self) -> str:
        return f"the gateway does not answer at {self._url}; set TOLLKEEPER_GATEWAY_URL to its URL"


def _read(reply: httpx.Response, request_id: str, begun: float, show: Callable[[str], None]) -> PlaygroundResult:
    text, finish_reason, problem = "", "", ""
    first: float | None = None
    usage: dict[str, Any] = {}
    for chunk in _chunks(reply):
        if "error" in chunk:
            problem = str(chunk["error"].get("message", ""))[:_MAX_ERROR]
            continue
        usage = chunk.get("usage") or usage
        for choice in chunk.get("choices") or []:
            delta = choice.get("delta") or {}
            finish_reason = choice.get("finish_reason") or finish_reason
            if piece := delta.get("content") or "":
                first = time.perf_counter() if first is None else first
                text += piece
                show(text)
    ended = time.perf_counter()
    details = usage.get("prompt_tokens_details") or {}
    return PlaygroundResult(
        request_id,
        text,
        finish_reason,
        reply.status_code,
        None if first is None else (first - begun) * 1000,
        (ended - begun) * 1000,
        usage.get("prompt_tokens"),
        usage.get("completion_tokens"),
        details.get("cached_tokens"),
        problem,
    )


def _chunks(reply: httpx.Response) -> Iterator[dict[str, Any]]:
    for line in reply.iter_lines():
        data = line.removeprefix("data:").strip()
        if line.startswith("data:") and data != "[DONE]":
            yield json.loads(data)


def _headers(key: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {key}"}


def _message(status: int, body: bytes) -> str:
    try:
        return str(json.loads(body)["error"]["message"])[:_MAX_ERROR]
    except (ValueError, LookupError, TypeError):
        return f"the gateway answered {status}"
