"""What tenants are told of errors names no target, address, deployment or path, whichever error it is."""

import json
import logging
from collections.abc import Iterator
from typing import Any

import pytest

import backends.llm.http.http_reply  # noqa: F401  # errors of its own
import gateway.config.targets  # noqa: F401
from contracts import errors
from contracts.errors import TollkeeperError, UpstreamError, UpstreamRejected
from contracts.serving.configuration import TargetSpec
from gateway.apis.operations import OPERATIONS
from gateway.wire.public_errors import public_error

SECRETS = ("t2", "10.0.0.7", "8000", "llm.corp.internal", "gpt-4o-prod", "/srv/models", "engine-a.sock", "secret-pool")
DETAIL = (
    "target 't2' of pool 'secret-pool' at http://llm.corp.internal:8000/v1 (10.0.0.7:8000, llm.corp.internal) "
    "failed: the deployment gpt-4o-prod in /srv/models/gpt-4o-prod behind unix:///run/engine-a.sock is gone"
)
SPEC = TargetSpec(
    id="t2", pool="secret-pool", kind="litellm", url="http://llm.corp.internal:8000/v1", model="azure/gpt-4o-prod"
)
REQUEST_ID = "01a20a1f-6181-73e6-a1bc-b3fc3752bd37"


def tree(root: type[TollkeeperError]) -> Iterator[type[TollkeeperError]]:
    yield root
    for kind in root.__subclasses__():
        yield from tree(kind)


ALL = sorted(
    {kind for kind in tree(TollkeeperError) if kind.__module__.startswith(("contracts", "backends", "gateway"))},
    key=str,
)


@pytest.mark.parametrize("kind", ALL, ids=lambda kind: kind.__name__)
@pytest.mark.parametrize("reached", [None, 3])
def test_no_error_that_a_target_was_called_for_leaks(kind, reached):
    """Every class of the tree, those of tomorrow as well, in every API's shape."""
    error = kind(DETAIL)
    error.reached_tokens = reached
    shown = public_error(
        error, model="assistant", request_id=REQUEST_ID, body=b'{"model": "assistant"}', targets=[SPEC]
    )
    assert type(shown) is kind and error.message == DETAIL  # which the operators' log has
    assert (shown.error_code, shown.status, shown.retryable) == (error.error_code, error.status, error.retryable)
    for operation in OPERATIONS:
        shape = operation.errors
        for said in (shape.body(shown), b"" if shape.event is None else shape.event(shown)):
            assert [secret for secret in SECRETS if secret.encode() in said] == [], said
    if isinstance(error, UpstreamError):
        assert "'assistant'" in shown.message and REQUEST_ID in shown.message


@pytest.mark.parametrize("kind", [one for one in ALL if one.status >= 500], ids=lambda kind: kind.__name__)
def test_no_fault_of_the_platform_names_a_place(kind):
    shown = public_error(kind("Redis at 10.0.0.7:8000 (redis://llm.corp.internal:8000) or /srv/models/x fails"))
    assert [secret for secret in SECRETS if secret in shown.message] == []


def test_our_own_words_about_the_callers_request_stay():
    error = errors.NotFound("there is no '/v1/other/path' here; see http://docs.example/x")
    assert public_error(error, model="assistant", request_id=REQUEST_ID) is error


def test_what_an_upstream_refused_keeps_its_words_about_the_request():
    said = "litellm.BadRequestError: OpenAIException - max_tokens of gpt-4o-prod is at most 16 (https://10.0.0.7/x)"
    body = json.dumps({"model": "assistant", "image": "https://pictures.example/a/b.png"}).encode()
    error = UpstreamRejected(f"{said}; https://pictures.example/a/b.png is not an image", param="max_tokens")
    shown = public_error(error, model="assistant", body=body, targets=[SPEC])
    assert shown.message == (
        "max_tokens of assistant is at most 16 ([address]); https://pictures.example/a/b.png is not an image"
    )
    assert (shown.param, shown.error_code) == ("max_tokens", "upstream_rejected")


PATHS: dict[str, dict[str, Any]] = {
    "/v1/chat/completions": {"messages": [{"role": "user", "content": "hi"}]},
    "/v1/completions": {"prompt": "hi"},
    "/v1/messages": {"messages": [{"role": "user", "content": "hi"}], "max_tokens": 9},
    "/v1/responses": {"input": "hi", "store": False},
    "/v1/embeddings": {"input": "hi"},
    "/v1/rerank": {"query": "q", "documents": ["a"]},
}
REPLIES = {
    "a failure": lambda upstream: upstream.whole({"error": {"message": "shard-7 is gone"}}, status=500),
    "a limit": lambda upstream: upstream.whole(
        {"error": {"message": "shard-7"}}, status=429, headers="retry-after: 9\r\n"
    ),
    "a wrong key": lambda upstream: upstream.whole({"error": {"message": "key of shard-7"}}, status=401),
    "a wrong model": lambda upstream: upstream.whole({"error": {"message": "no shard-7"}}, status=404),
    "a redirect": lambda upstream: upstream.whole({}, status=302, headers="location: http://shard-7/\r\n"),
    "no HTTP": lambda upstream: b"shard-7",
    "no answer of its kind": lambda upstream: upstream.whole({"detail": "shard-7"}),
}


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize("reply", REPLIES)
async def test_over_http_the_caller_sees_the_model_and_the_operators_log_has_the_rest(
    start_gateway, kit, upstream, caplog, path, reply
):
    caplog.set_level(logging.INFO)
    gateway = await start_gateway(kit.configuration(("assistant", [kit.http_target(upstream.url, model="shard-7")])))
    upstream.always(REPLIES[reply](upstream), upstream.CLOSE)
    answer = await gateway.ask(gateway.request({"model": "assistant", **PATHS[path]}, path=path))
    said = answer.body.decode()
    assert answer.status >= 429 and "'assistant'" in said and answer.headers["x-request-id"] in said
    known = said.replace(answer.headers["x-request-id"], "")
    assert not any(leak in known for leak in ("u1", "shard-7", "127.0.0.1", str(upstream.port)))
    told = [one for one in caplog.records if one.getMessage() == "target failed"]
    assert told and told[-1].request_id == answer.headers["x-request-id"]
    assert told[-1].target == "u1" and told[-1].reason


async def test_an_address_that_does_not_answer_is_not_named(start_gateway, kit):
    targets = [
        kit.http_target("http://127.0.0.1:9/v1"),
        {"name": "e1", "kind": "engine", "url": "unix:///nowhere/x.sock"},
    ]
    pools = [(f"m{number}", [target]) for number, target in enumerate(targets)]
    gateway = await start_gateway(kit.configuration(*pools))
    for name, streams in (("m0", False), ("m0", True), ("m1", False), ("m1", True)):
        answer = await gateway.chat(model=name, stream=streams)
        assert answer.status >= 502 and f"'{name}'" in answer.error["message"]
        said = answer.body.decode().replace(answer.headers["x-request-id"], "")
        assert not any(leak in said for leak in ("127.0.0.1", "nowhere", "sock", "e1", "u1"))


async def test_a_stream_that_breaks_names_no_place_in_its_last_event(start_gateway, kit, upstream):
    gateway = await start_gateway(kit.configuration(("assistant", [kit.http_target(upstream.url)])))
    for path in ("/v1/chat/completions", "/v1/messages", "/v1/responses"):
        upstream.then(upstream.stream_head() + upstream.piece(upstream.chunk("so far")), upstream.CLOSE)
        body = {"model": "assistant", "stream": True, **PATHS[path]}
        said = (await gateway.ask(gateway.request(body, path=path))).body.decode()
        assert "so far" in said and "the answer had reached 2 tokens" in said and "'assistant'" in said
        assert "target" not in said.replace("tool_choice", "") and "u1" not in said
