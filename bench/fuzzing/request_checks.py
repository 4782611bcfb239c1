"""What must hold for requests as bytes, however they are cut, broken, queued up or left."""

import json
from collections.abc import Sequence
from typing import Any, Final

from hypothesis import strategies as st

from bench.fuzzing.answers import Answer, Fault, check_answer
from bench.fuzzing.bodies import example_of
from bench.fuzzing.requests import (
    Asked,
    Splice,
    broken_chunkings,
    cut,
    cuts,
    good_requests,
    known_requests,
    spliced,
    splices,
)
from bench.fuzzing.rig import KEY, FuzzRig, Leaving

# What is another one in every answer.
_OWN: Final = frozenset(("id", "created", "created_at", "completed_at", "item_id", "request_id"))
_LEAVINGS: Final[tuple[Leaving, ...]] = ("close", "reset", "half-close")

Cut = tuple[Asked, Sequence[float]]
Queue = tuple[Sequence[Asked], Sequence[float]]
Behind = tuple[Asked, int, Sequence[Splice], Sequence[float]]
Broken = tuple[Sequence[Asked], Sequence[Splice], Sequence[float], Leaving]
Left = tuple[Asked, float, Leaving, int | None]


def cut_requests(rig: FuzzRig) -> st.SearchStrategy[Cut]:
    """Return good requests, and where they are cut."""
    return st.tuples(good_requests(rig.answered), cuts())


async def check_cut(rig: FuzzRig, example: Cut) -> None:
    """A request in pieces has the answer that it has in one."""
    asked, shares = example
    heard = [await rig.converse([asked.data]), await rig.converse(cut(asked.data, shares))]
    await rig.settle()
    found = [_only(one.answers()) for one in heard]
    for answer, one in zip(found, heard, strict=True):
        if answer.status != asked.status:
            raise Fault(f"a good request was answered with {answer.status}: {answer.body[:300]!r}")
        if one.is_closed != asked.closes:
            raise Fault(f"the connection was {'closed' if one.is_closed else 'kept'} against the request's wish")
        check_answer(answer)
        rig.record_of(answer)
    if _comparable(found[0]) != _comparable(found[1]):
        raise Fault(f"in pieces it was answered with {found[1].body[:300]!r}")


def broken_requests(rig: FuzzRig) -> st.SearchStrategy[Broken]:
    """Return one to three requests with bytes changed, cut anywhere, and how the client leaves."""
    operation, model, _ = rig.answered[0]
    one = st.one_of(good_requests(rig.answered), st.sampled_from(known_requests(operation, model)))
    return st.tuples(st.lists(one, min_size=1, max_size=3), splices(), cuts(), st.sampled_from(_LEAVINGS))


async def check_broken(rig: FuzzRig, example: Broken) -> None:
    """Whatever bytes come, each answer is a good one or a documented error, never a fault of the gateway's."""
    asked, changes, shares, leave = example
    data = spliced(b"".join(one.data for one in asked), changes)
    heard = await rig.converse(cut(data, shares), leave)
    await rig.settle()
    if leave != "close" or b"HEAD " in data:
        return
    for answer in heard.answers():
        check_answer(answer, rig.shapes)
        if answer.status >= 500 and b"/ready" not in data:
            raise Fault(f"bytes of a client were answered with {answer.status}: {answer.body[:300]!r}")
        if answer.status == 200 and b'"usage"' in answer.body:  # other answers have ids, too, and not all are recorded
            rig.record_of(answer)


def heads_behind(rig: FuzzRig) -> st.SearchStrategy[Behind]:
    """Return good requests that keep their connection, changes of the head of another like it, and where that is
    cut.
    """
    kept = good_requests(rig.answered).filter(lambda asked: not asked.closes)
    return st.tuples(kept, st.integers(1, 2), splices(), cuts())


async def check_behind(rig: FuzzRig, example: Behind) -> None:
    """A broken head behind good requests of the same head is answered as on a connection of its own."""
    asked, count, changes, shares = example
    head, blank, body = asked.data.partition(b"\r\n\r\n")
    broken = spliced(head + blank, changes) + body
    alone = await rig.converse([broken])
    behind = await rig.converse([asked.data] * count + cut(broken, shares))
    await rig.settle()
    if b"HEAD " in broken:
        return
    # Of a head that is both too long and malformed, either may be found first.
    expected = [400 if answer.status == 431 else answer.status for answer in alone.answers()]
    answers = behind.answers()
    found = [400 if answer.status == 431 else answer.status for answer in answers]
    # If bytes that cannot be read come before an answer, as one piece or by chance, they end the connection after it.
    due = [asked.status] * count + expected
    same = min(len(found), len(due))
    if not found or found[:same] != due[:same] or (len(found) != len(due) and not behind.is_closed):
        raise Fault(f"{count} good ones and a broken one were answered with {found}, the broken one alone {expected}")
    if behind.is_closed != alone.is_closed:
        raise Fault(f"alone the connection was {'closed' if alone.is_closed else 'kept'}, behind others it was not so")
    for answer in answers:
        check_answer(answer, rig.shapes)
        if answer.status >= 500 and b"/ready" not in broken:
            raise Fault(f"bytes of a client were answered with {answer.status}: {answer.body[:300]!r}")


def queued_requests(rig: FuzzRig) -> st.SearchStrategy[Queue]:
    """Return up to eight requests whose answers are known, in one stream of bytes, and where it is cut."""
    known = [asked for operation, model, _ in rig.answered for asked in known_requests(operation, model)]
    return st.tuples(st.lists(st.sampled_from(known), min_size=1, max_size=8), cuts())


async def check_queued(rig: FuzzRig, example: Queue) -> None:
    """Requests that are sent without waiting are answered in order, up to the one that ends the connection."""
    asked, shares = example
    heard = await rig.converse(cut(b"".join(one.data for one in asked), shares))
    await rig.settle()
    last = next((place for place, one in enumerate(asked) if one.closes), None)
    wanted = [one.status for one in (asked if last is None else asked[: last + 1])]
    answers = heard.answers()
    found = [answer.status for answer in answers]
    # What cannot be read, or comes after the end, may keep what waits before it from being answered, but the first.
    may_be_short = last is not None and (last < len(asked) - 1 or asked[last].status == 400)
    if found != (wanted[: max(len(found), 1)] if may_be_short else wanted):
        raise Fault(f"the answers are {found} where {wanted} were due")
    if heard.is_closed != (last is not None):
        raise Fault(f"the connection was {'closed' if heard.is_closed else 'kept'}")
    for answer, one in zip(answers, asked, strict=False):
        check_answer(answer, rig.shapes if one.operation is None else (one.operation.errors,))
        if one.operation is not None and one.status != 405 and not one.names_no_key:
            rig.record_of(answer)


def left_requests(rig: FuzzRig) -> st.SearchStrategy[Left]:
    """Return good requests, how much of each is sent, how the client leaves, and after how much of the answer."""
    after = st.one_of(st.none(), st.integers(1, 1500))
    return st.tuples(good_requests(rig.answered), st.floats(0, 1), st.sampled_from(_LEAVINGS), after)


async def check_left(rig: FuzzRig, example: Left) -> None:
    """A client may leave at any byte of its request or of its answer: everything is given back."""
    asked, share, leave, leave_after = example
    data = asked.data if leave_after is not None else asked.data[: round(share * len(asked.data))]
    await rig.converse([data], leave, leave_after)
    await rig.settle()


async def leave_at_every_byte(rig: FuzzRig, asked: Asked) -> None:
    """Send every beginning of a request and leave, in each of the ways in turn. Raises Fault."""
    for count in range(len(asked.data)):
        await rig.converse([asked.data[:count]], _LEAVINGS[count % len(_LEAVINGS)])
    await rig.settle()


@st.composite
def badly_chunked_requests(draw: st.DrawFn, rig: FuzzRig) -> tuple[bytes, Sequence[float]]:
    """Write a request whose chunks are broken, and where it is cut."""
    operation, model, _ = draw(st.sampled_from(rig.answered))
    body = json.dumps(example_of(operation.api, model)).encode()
    head = (
        f"POST {operation.paths[0]} HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {KEY}\r\n"
        "Content-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n"
    )
    return head.encode() + draw(broken_chunkings(body)), draw(cuts())


async def check_badly_chunked(rig: FuzzRig, example: tuple[bytes, Sequence[float]]) -> None:
    """A chunk whose size is wrong is refused, and no request is begun."""
    data, shares = example
    heard = await rig.converse(cut(data, shares))
    await rig.settle()
    found = [answer.status for answer in heard.answers()]
    if found != [400] or not heard.is_closed or rig.records:
        raise Fault(f"broken chunks were answered with {found}, {len(rig.records)} requests were begun")


def _only(answers: Sequence[Answer]) -> Answer:
    if len(answers) != 1:
        raise Fault(f"{len(answers)} answers came to one request")
    return answers[0]


def _comparable(answer: Answer) -> tuple[int, str, object]:
    kind = answer.headers.get("content-type", "")
    if not answer.is_stream:
        return answer.status, kind, _without_own(answer.json())
    events = [data if data == b"[DONE]" else _without_own(json.loads(data)) for data in answer.events()]
    return answer.status, kind, events


def _without_own(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _without_own(found) for name, found in value.items() if name not in _OWN}
    return [_without_own(one) for one in value] if isinstance(value, list) else value
