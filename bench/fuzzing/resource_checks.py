"""What must hold for what applications keep, files, batches, responses, whatever is asked of it."""

import json
from dataclasses import dataclass
from typing import Final
from urllib.parse import quote

from hypothesis import strategies as st

from bench.fuzzing.answers import Fault, check_answer, check_error
from bench.fuzzing.bodies import SECRET, mutated, mutations
from bench.fuzzing.requests import Splice, spliced, splices
from bench.fuzzing.rig import KEY, SCRIPTED, FuzzRig

_PATHS: Final = (
    *("/v1/files", "/v1/files/{}", "/v1/files/{}/content", "/v1/batches", "/v1/batches/{}", "/v1/batches/{}/cancel"),
    *("/v1/responses/{}", "/v1/responses/{}/input_items", "/v1/responses/{}/cancel", "/v1/models/{}", "/v1/models"),
    "/v1/messages/count_tokens",
)
_IDS: Final = ("file-", "batch_", "resp_", "", "file-1", "batch_1", "resp_1", "..", "%00", "%2e%2e%2f", "1%27--")
_QUERIES: Final = ("limit", "after", "before", "order", "purpose", "include", "include[]", "stream", "starting_after")
_BATCH: Final = {"input_file_id": "file-1", "endpoint": "/v1/chat/completions", "completion_window": "24h"}
_PROMPT: Final = {"model": SCRIPTED, "messages": [{"role": "user", "content": SECRET}], "metadata": {"a": "b"}}
_PART: Final = '--b\r\nContent-Disposition: form-data; name="{}"\r\n\r\n{}\r\n'
_LINE: Final = {"custom_id": "1", "method": "POST", "url": "/v1/chat/completions", "body": _PROMPT}
_FORM: Final = (
    _PART.format("purpose", "batch")
    + _PART.format('file"; filename="a.jsonl', json.dumps(_LINE))
    + _PART.format("expires_after[seconds]", "7200")
    + "--b--\r\n"
).encode()


@dataclass(frozen=True, slots=True)
class Request:
    """A request of a resource."""

    method: str
    path: str
    query: str
    kind: str
    body: bytes


@st.composite
def resource_requests(draw: st.DrawFn, rig: FuzzRig) -> Request:
    """Write a request with anything in its path, its query and its body."""
    odd = st.text(st.characters(codec="utf-8"), max_size=6).map(quote)
    path = draw(st.sampled_from(_PATHS)).replace("{}", draw(st.one_of(st.sampled_from(_IDS), odd)))
    value = st.one_of(st.sampled_from(("0", "1", "-1", "9" * 30, "true", "asc", "%00", "%ff", "")), odd)
    pairs = draw(st.lists(st.tuples(st.sampled_from(_QUERIES), value), max_size=3))
    query = "&".join(f"{name}={found}" for name, found in pairs) + draw(st.sampled_from(("", "", "&", "&=", "%")))
    method = draw(st.sampled_from(("GET", "POST", "POST", "POST", "DELETE")))
    kind, body = draw(st.sampled_from((("application/json", b""), ("application/json", b"{}"), ("", b"x"))))
    if method == "POST" and path == "/v1/files":
        kind, body = draw(_forms())
    elif method == "POST":
        plain = _BATCH if "batches" in path else _PROMPT
        kind, body = "application/json", mutated(plain, draw(mutations(plain)))
    return Request(method, path, query, kind, body)


@st.composite
def _forms(draw: st.DrawFn) -> tuple[str, bytes]:
    changes: list[Splice] = draw(st.one_of(st.just([]), splices()))
    boundary = draw(st.sampled_from(("b", "b", "b", '"b"', "c", "", "b" * 80, "\xe9", "b; charset=x", "b; b")))
    return f"multipart/form-data; boundary={boundary}", spliced(_FORM, changes)


async def check_resource(rig: FuzzRig, example: Request) -> None:
    """A resource answers, or refuses in its API's words; nothing asked of it is a fault of the gateway's."""
    target = example.path + ("?" + example.query if example.query else "")
    head = (
        f"{example.method} {target} HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {KEY}\r\n"
        f"Content-Type: {example.kind}\r\nContent-Length: {len(example.body)}\r\n\r\n"
    )
    heard = await rig.converse([head.encode("latin-1") + example.body])
    await rig.settle()
    answers = heard.answers()
    if len(answers) != 1:
        raise Fault(f"{len(answers)} answers came to one request")
    shape = rig.gateway._endpoints.shape_at(example.path)
    check_answer(answers[0], (shape,), is_passed_on=True)
    if answers[0].status >= 400:
        check_error(answers[0].body, shape)
        if SECRET.encode() in answers[0].body:
            raise Fault(f"a refusal repeats the prompt: {answers[0].body[:500]!r}")
    if answers[0].status >= 500:
        raise Fault(f"a client's request was answered with {answers[0].status}: {answers[0].body[:300]!r}")
