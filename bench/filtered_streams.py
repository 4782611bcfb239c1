"""Streams that a guardrail must end: the bytes of an upstream, cut at random, and what a client must see of them."""

import json
from collections.abc import Iterator
from dataclasses import dataclass
from random import Random
from typing import Any, Final

APIS: Final = ("/v1/chat/completions", "/v1/completions", "/v1/messages", "/v1/responses")
# Both block "blue moon". The second may match more of what follows, so it is only found once something else does.
MODELS: Final = ("by-word", "by-expression")
MATCH: Final = "blue moon"
POLICIES: Final = [
    {
        "name": "words",
        "routes": ["by-word"],
        "stages": [
            {
                "name": "words",
                "detector": "deny",
                "direction": "output",
                "action": "block",
                "settings": {"keywords": [MATCH]},
            }
        ],
    },
    {
        "name": "expressions",
        "routes": ["by-expression"],
        "stages": [
            {
                "name": "expressions",
                "detector": "deny",
                "direction": "output",
                "action": "block",
                "settings": {"expressions": {"moon": "blue moo(?:n| rising)+"}},
            }
        ],
    },
]
_BEFORE: Final = ("", "Once in a ", "It was late, and the moon was blue. A ", "blue blue ", "Grüße: 月 ")
_AFTER: Final = ("", "", "", " rises", " rises over the hill, and everything is quiet.", "\n\n")
_OTHER: Final = "Nothing to see here."
_ENDS: Final = {
    "/v1/chat/completions": "content_filter",
    "/v1/completions": "content_filter",
    "/v1/messages": "refusal",
    "/v1/responses": "content_filter",
}


@dataclass(frozen=True)
class Case:
    """One request, the pieces in which its upstream answers, and where its text must end.

    A number among the pieces is a pause in seconds.
    """

    api: str
    model: str
    choices: int
    filtered: int  # the choice with the match
    before: str
    pieces: tuple[bytes | float, ...]

    @property
    def body(self) -> dict[str, Any]:
        """Return the request."""
        asked: dict[str, Any] = {"model": self.model, "stream": True}
        messages = [{"role": "user", "content": "say it"}]
        if self.api == "/v1/chat/completions":
            return asked | {"messages": messages, "n": self.choices}
        if self.api == "/v1/completions":
            return asked | {"prompt": "say it", "n": self.choices, "max_tokens": 500}
        if self.api == "/v1/messages":
            return asked | {"messages": messages, "max_tokens": 500}
        return asked | {"input": "say it", "store": False}


def draw_case(source: Random) -> Case:
    """Draw one case."""
    api = source.choice(APIS)
    has_choices = api in ("/v1/chat/completions", "/v1/completions")
    choices = source.choice((1, 1, 1, 2, 3)) if has_choices else 1
    filtered = source.randrange(choices)
    before = source.choice(_BEFORE)
    texts = [before + MATCH + source.choice(_AFTER) if index == filtered else _OTHER for index in range(choices)]
    events = list(_events(source, texts, is_chat=api != "/v1/completions"))
    pieces = tuple(_pieces(source, events))
    return Case(api, source.choice(MODELS), choices, filtered, before, pieces)


def _events(source: Random, texts: list[str], *, is_chat: bool) -> Iterator[bytes]:
    """Yield a stream's events: each choice's text in pieces, in turns or one after the other, and its end."""
    lines = [list(_chunks(source, index, text, is_chat=is_chat)) for index, text in enumerate(texts)]
    takes_turns = source.random() < 0.7
    while any(lines):
        waiting = [line for line in lines if line]
        yield _event((source.choice(waiting) if takes_turns else waiting[0]).pop(0))
    if source.random() < 0.8:
        yield _event({"id": "x", "choices": [], "usage": {"prompt_tokens": 3, "completion_tokens": 9}})
    yield b"data: [DONE]\n\n"


def _chunks(source: Random, index: int, text: str, *, is_chat: bool) -> Iterator[dict[str, Any]]:
    cuts = sorted({source.randrange(1, len(text)) for _ in range(source.randrange(0, 9))})
    parts = [text[start:end] for start, end in zip([0, *cuts], [*cuts, len(text)], strict=True)]
    if is_chat and source.random() < 0.5:
        yield _chunk(index, {"delta": {"role": "assistant", "content": ""}})
    ends_apart = source.random() < 0.7
    for number, part in enumerate(parts, start=1):
        finish = "stop" if number == len(parts) and not ends_apart else None
        yield _chunk(index, {"delta": {"content": part}} if is_chat else {"text": part}, finish)
    if ends_apart:
        yield _chunk(index, {"delta": {}} if is_chat else {"text": ""}, "stop")


def _chunk(index: int, said: dict[str, Any], finish: str | None = None) -> dict[str, Any]:
    return {"id": "x", "model": "m", "choices": [{"index": index, **said, "finish_reason": finish}]}


def _event(data: dict[str, Any]) -> bytes:
    return b"data: %b\n\n" % json.dumps(data, ensure_ascii=False).encode()


def _pieces(source: Random, events: list[bytes]) -> Iterator[bytes | float]:
    """Yield a reply's bytes as they are written: in one, by event, or cut anywhere."""
    head = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"
    framed = [b"%x\r\n%b\r\n" % (len(event), event) for event in events] + [b"0\r\n\r\n"]
    way = source.choice(("burst", "events", "anywhere"))
    whole = head + b"".join(framed)
    if way == "burst":
        yield whole
    elif way == "events":
        pauses = source.random() < 0.8
        for part in (head, *framed):
            yield part
            if pauses:
                yield 0.001
    else:
        cuts = sorted({source.randrange(1, len(whole)) for _ in range(source.randrange(1, 12))})
        for start, end in zip([0, *cuts], [*cuts, len(whole)], strict=True):
            yield whole[start:end]
            if source.random() < 0.7:
                yield source.choice((0.0, 0.001, 0.003))


def fault_of(case: Case, body: bytes) -> str:
    """Return what is wrong with a client's stream; nothing if it ended as it must."""
    events = [event for event in body.decode().split("\n\n") if event]
    try:
        if case.api == "/v1/messages":
            return _fault_of_message(case, events)
        if case.api == "/v1/responses":
            return _fault_of_response(case, events)
        return _fault_of_choices(case, events)
    except (ValueError, KeyError, IndexError, TypeError) as error:
        return f"{type(error).__name__}: {error}"


def _fault_of_choices(case: Case, events: list[str]) -> str:
    if not events or events.pop() != "data: [DONE]":
        return "no [DONE] at the end"
    said: dict[int, str] = dict.fromkeys(range(case.choices), "")
    ends: dict[int, list[str]] = {index: [] for index in range(case.choices)}
    ended_by: set[int] = set()
    for event in map(_data, events):
        if "error" in event:
            return f"error {event['error']}"
        for choice in event["choices"]:
            index = choice["index"]
            said[index] += (choice["delta"].get("content") if "delta" in choice else choice["text"]) or ""
            if choice["finish_reason"]:
                ends[index].append(choice["finish_reason"])
                if event.get("tollkeeper", {}).get("ended_by", {}).get("code") == "content_filter":
                    ended_by.add(index)
    if said[case.filtered] != case.before:
        return f"text {said[case.filtered]!r}"
    if ends[case.filtered] != ["content_filter"] or case.filtered not in ended_by:
        return f"ends {ends}, of which tollkeeper.ended_by has {sorted(ended_by)}"
    for index in set(ends) - {case.filtered}:
        is_whole = ends[index] == ["stop"] and said[index] == _OTHER
        if not is_whole and not (ends[index] == ["content_filter"] and _OTHER.startswith(said[index])):
            return f"choice {index} ends {ends[index]} after {said[index]!r}"
    return ""


def _fault_of_message(case: Case, events: list[str]) -> str:
    told = [_data(event) for event in events]
    kinds = [one["type"] for one in told]
    if kinds[-2:] != ["message_delta", "message_stop"] or "error" in kinds:
        return f"ends {kinds[-3:]}"
    if kinds.count("content_block_start") != kinds.count("content_block_stop"):
        return "a block is left open"
    text = "".join(one["delta"].get("text", "") for one in told if one["type"] == "content_block_delta")
    if text != case.before:
        return f"text {text!r}"
    end = told[-2]
    if end["delta"]["stop_reason"] != _ENDS[case.api]:
        return f"stop_reason {end['delta']['stop_reason']}"
    return "" if end["tollkeeper"]["ended_by"]["code"] == "content_filter" else "another tollkeeper.ended_by"


def _fault_of_response(case: Case, events: list[str]) -> str:
    told = [_data(event) for event in events]
    last = told[-1]
    if last["type"] != "response.incomplete":
        return f"ends {last['type']}"
    response = last["response"]
    if response["incomplete_details"] != {"reason": _ENDS[case.api]} or response["status"] != "incomplete":
        return f"incomplete_details {response['incomplete_details']}"
    text = "".join(one["delta"] for one in told if one["type"] == "response.output_text.delta")
    if text != case.before:
        return f"text {text!r}"
    return "" if response["tollkeeper"]["ended_by"]["code"] == "content_filter" else "another tollkeeper.ended_by"


def _data(event: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(event[event.index("data: ") + len("data: ") :])
    return found
