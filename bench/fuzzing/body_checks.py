"""What must hold for JSON bodies that nobody should send: refused by name, or answered; never a fault of ours."""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from hypothesis import strategies as st

from bench.fuzzing.answers import Answer, Fault, check_answer, check_error
from bench.fuzzing.bodies import SECRET, Mutation, example_of, full_example_of, mutated, mutations
from bench.fuzzing.rig import KEY, FuzzRig
from gateway.apis.media import media_reply
from gateway.apis.operations import Operation


@dataclass(frozen=True, slots=True)
class BadBody:
    """A body with something in it that may be wrong."""

    operation: Operation
    data: bytes
    changes: Sequence[Mutation]


@st.composite
def bad_bodies(draw: st.DrawFn, rig: FuzzRig) -> BadBody:
    """Accept a body of any operation, plain or with every field, and change up to three places of it."""
    # The rig's server answers other media as if it were asked for a chat, which is an error of its own.
    operation = draw(st.sampled_from([one for one in rig.operations if one.reply is not media_reply]))
    make = draw(st.sampled_from((example_of, full_example_of)))
    body: dict[str, Any] = make(operation.api, draw(st.sampled_from(rig.models)))
    if draw(st.booleans()):
        body["stream"] = True
    changes = draw(mutations(body))
    return BadBody(operation, mutated(body, changes), changes)


async def check_bad_body(rig: FuzzRig, example: BadBody) -> None:
    """A body is answered or refused in its API's words, with the field's name, and without the prompt."""
    head = (
        f"POST {example.operation.paths[0]} HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {KEY}\r\n"
        f"Content-Type: application/json\r\nContent-Length: {len(example.data)}\r\n\r\n"
    )
    heard = await rig.converse([head.encode() + example.data])
    passed_on = list(rig.upstream.bodies)
    await rig.settle()
    answers = heard.answers()
    if len(answers) != 1 or heard.is_closed:
        raise Fault(f"{len(answers)} answers came, the connection was {'closed' if heard.is_closed else 'kept'}")
    check_answer(answers[0], (example.operation.errors,))
    rig.record_of(answers[0])
    if answers[0].status >= 400:
        _check_refusal(example, answers[0])
    for body in passed_on:
        if not _is_object(body):
            raise Fault(f"a target was sent what is no JSON: {body[:300]!r}")


def _check_refusal(example: BadBody, answer: Answer) -> None:
    if answer.status >= 500:
        raise Fault(f"a client's body was answered with {answer.status}: {answer.body[:300]!r}")
    if SECRET.encode() in answer.body or any(word.encode() in answer.body for word in SECRET.split()[:2]):
        raise Fault(f"a refusal repeats the prompt: {answer.body[:500]!r}")
    inner = check_error(answer.body, example.operation.errors)
    if "param" in inner and inner["code"] == "invalid_request" and inner["param"] is None and _is_object(example.data):
        raise Fault(f"a refusal names no field: {answer.body[:300]!r}")
    if len(answer.body) > 5_000:
        raise Fault(f"a refusal is {len(answer.body)} bytes long")


def _is_object(data: bytes) -> bool:
    try:
        return isinstance(json.loads(data), dict)
    except (ValueError, RecursionError):
        return False
