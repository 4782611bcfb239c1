"""Renders LiteLLM's output as OpenAI's JSON, whose bytes the gateway forwards."""

import base64
import struct
from collections.abc import Mapping
from typing import Any, Final

import msgspec

_encoder: Final = msgspec.json.Encoder()
# Fields of LiteLLM, or duplicates.
_NOT_OPENAIS: Final = ("provider_specific_fields", "audio_transcription_usage")


class Rendering:
    """Renders one answer, with the same id, time and model in all chunks. `is_text`: for the older completions API."""

    def __init__(self, model: str, *, is_text: bool) -> None:
        self._model = model
        self._is_text = is_text
        self._id = ""
        self._created = 0
        self._served = ""
        self._tier: dict[str, str] = {}

    def event(self, chunk: Mapping[str, Any], served: str) -> bytes | None:
        """Return a chunk as a server-sent event; `None` if it is empty. `served` is the model that answers."""
        self._name(chunk, served)
        choices = [self._streamed(choice) for choice in chunk.get("choices") or ()]
        if not any(choice["finish_reason"] or choice.get("delta") or choice.get("text") for choice in choices):
            return None
        return self._sent(choices)

    def usage_event(self, usage: Mapping[str, Any]) -> bytes:
        """Return the event with the usage, a stream's last."""
        return self._sent([], usage=usage)

    def whole(self, reply: Mapping[str, Any], served: str, usage: Mapping[str, Any] | None) -> bytes:
        """Return a whole answer as JSON."""
        self._name(reply, served)
        choices = [self._complete(choice) for choice in reply.get("choices") or ()]
        kind = "text_completion" if self._is_text else "chat.completion"
        return _encoder.encode(self._body(kind, choices, {} if usage is None else {"usage": usage}))

    def _name(self, found: Mapping[str, Any], served: str) -> None:
        self._id = self._id or str(found.get("id") or "")
        self._created = self._created or int(found.get("created") or 0)
        self._served = self._served or served
        tier = found.get("service_tier")
        if isinstance(tier, str) and tier:
            self._tier = {"service_tier": tier}

    def _sent(self, choices: list[dict[str, Any]], **more: Any) -> bytes:
        kind = "text_completion" if self._is_text else "chat.completion.chunk"
        return b"data: " + _encoder.encode(self._body(kind, choices, more)) + b"\n\n"

    def _body(self, kind: str, choices: list[dict[str, Any]], more: Mapping[str, Any]) -> dict[str, Any]:
        model = self._served or self._model
        return {
            "id": self._id,
            "object": kind,
            "created": self._created,
            "model": model,
            "choices": choices,
            **self._tier,
            **more,
        }

    def _streamed(self, choice: Mapping[str, Any]) -> dict[str, Any]:
        delta = _plain(choice.get("delta") or {})
        return self._choice(choice, {"text": delta.get("content") or ""} if self._is_text else {"delta": delta})

    def _complete(self, choice: Mapping[str, Any]) -> dict[str, Any]:
        message = _plain(choice.get("message") or {})
        if self._is_text:
            return self._choice(choice, {"text": message.get("content") or ""})
        message.setdefault("content", None)
        for call in message.get("tool_calls") or ():
            call.pop("index", None)  # a stream's
        return self._choice(choice, {"message": message})

    def _choice(self, choice: Mapping[str, Any], content: dict[str, Any]) -> dict[str, Any]:
        return {
            "index": choice.get("index") or 0,
            **content,
            "logprobs": choice.get("logprobs"),
            "finish_reason": choice.get("finish_reason"),
        }


def embeddings(reply: Mapping[str, Any], usage: Mapping[str, Any] | None, *, as_base64: bool) -> bytes:
    """Return embeddings as JSON, with vectors as numbers, or as base64 of float32, which OpenAI's SDKs request."""
    data = [
        {"object": "embedding", "index": number, "embedding": _vector(entry["embedding"], as_base64=as_base64)}
        for number, entry in enumerate(reply.get("data") or ())
    ]
    body = {"object": "list", "data": data, "model": reply.get("model") or ""}
    return _encoder.encode(body if usage is None else {**body, "usage": usage})


def reranking(reply: Mapping[str, Any], model: str) -> bytes:
    """Return a rerank reply as JSON in Cohere's format, with the total tokens as usage if the provider counts them."""
    meta = reply.get("meta") or {}
    body = {"id": reply.get("id") or "", "model": model, "results": reply.get("results"), "meta": meta}
    total = (meta.get("billed_units") or {}).get("total_tokens")
    return _encoder.encode({**body, "usage": {"total_tokens": total}} if isinstance(total, int) else body)


def _vector(vector: Any, *, as_base64: bool) -> Any:
    if as_base64 and isinstance(vector, list):
        return base64.b64encode(struct.pack(f"<{len(vector)}f", *vector)).decode()
    return vector


def _plain(found: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in found.items() if name not in _NOT_OPENAIS and value not in (None, [])}
