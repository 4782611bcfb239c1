"""When a target has been silent for too long, by a clock that the test moves: below, at and above each timeout."""

import json

import pytest

from backends.http_client.http_connection import Connection
from backends.http_client.http_origin import Origin
from backends.http_client.http_pool import HttpPool
from backends.http_client.http_timeouts import Timeouts
from backends.llm.http.http_reply import ReplyReader
from backends.llm.http.http_settings import read_timeouts
from contracts.api.chat import ChatRequest, Message
from contracts.errors import UpstreamTimeout
from contracts.serving.configuration import TargetSpec
from tests.backends.askers import AsTold

HEAD = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"
WHOLE_HEAD = b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ntransfer-encoding: chunked\r\n\r\n"
TIMEOUTS = {"connect": 1.0, "first_token": 10.0, "between_tokens": 4.0, "total": 60.0}
SPEC = TargetSpec("u1", "p", "openai_http", url="http://a", settings={"timeouts": TIMEOUTS})


class Wire:
    """A connection's other end, in memory."""

    def __init__(self) -> None:
        self.is_aborted = self.is_paused = False

    def writelines(self, _):
        pass

    write = writelines

    def is_closing(self):
        return self.is_aborted

    def abort(self):
        self.is_aborted = True

    def pause_reading(self):
        self.is_paused = True

    def resume_reading(self):
        self.is_paused = False


class Sink:
    """Accepts what passes and keeps nothing."""

    def __getattr__(self, name):
        return lambda *_, **__: None


class Talk:
    """One exchange that began at second 100 of the clock."""

    def __init__(self, *, streamed: bool) -> None:
        self.now = 100.0
        pool = HttpPool(Origin.parse("http://a"), read_timeouts(SPEC))
        self.connection = Connection(pool, lambda: self.now)
        self.wire = Wire()
        self.connection.connection_made(self.wire)  # type: ignore[arg-type]
        request = ChatRequest(model="m", messages=[Message(role="user", content="Hi")], stream=streamed)
        reader = ReplyReader(SPEC, Sink(), request)
        self.ends: list[Exception | None] = []
        self.connection.send(b"", b"", reader, AsTold(self.ends), is_reused=False)
        self.connection.data_received(HEAD if streamed else WHOLE_HEAD)

    def says(self, data: bytes, at: float) -> None:
        self.now = 100.0 + at
        self.connection.expire(self.now)
        assert not self.ends, "it was given up before"
        self.connection.data_received(b"%x\r\n%b\r\n" % (len(data), data))

    def ends_at(self, seconds: float) -> str:
        """Return nothing more; check that it is given up at this second and not before, and return what is said of
        it.
        """
        for moment, expired in ((seconds - 0.001, False), (seconds, True)):
            self.connection.expire(100.0 + moment)
            assert bool(self.ends) == expired, moment
        assert self.wire.is_aborted
        (error,) = self.ends
        assert isinstance(error, UpstreamTimeout)
        return error.message


def chunk(**delta: object) -> bytes:
    return b"data: " + json.dumps({"choices": [{"index": 0, "delta": delta}]}).encode() + b"\n\n"


async def test_the_first_token_is_waited_for_as_long_as_its_timeout():
    assert "10 s before it replied" in Talk(streamed=True).ends_at(10.0)
    assert "10 s before it replied" in Talk(streamed=False).ends_at(10.0)


@pytest.mark.parametrize("kept_alive_by", [b": ping\n\n", chunk(role="assistant"), chunk(content="")])
async def test_what_keeps_a_stream_alive_is_no_first_token(kept_alive_by):
    talk = Talk(streamed=True)
    for second in (3.0, 6.0, 9.9):
        talk.says(kept_alive_by, at=second)
    assert "before it replied" in talk.ends_at(10.0)


@pytest.mark.parametrize(
    "token",
    [chunk(content="a"), chunk(reasoning_content="a"), chunk(tool_calls=[{"index": 0}]), chunk(audio={"id": "x"})],
)
async def test_a_token_of_any_kind_begins_the_time_between_tokens(token):
    talk = Talk(streamed=True)
    talk.says(token, at=9.999)
    assert "4 s between" in talk.ends_at(13.999)


async def test_each_token_begins_the_time_anew_and_a_keep_alive_does_not():
    talk = Talk(streamed=True)
    for second in (1.0, 4.999, 8.998):
        talk.says(chunk(content="a"), at=second)
    talk.says(b": ping\n\n", at=12.0)
    talk.says(chunk(role="assistant"), at=12.5)
    assert "4 s between" in talk.ends_at(12.998)


async def test_an_end_and_a_usage_report_are_progress_too():
    talk = Talk(streamed=True)
    talk.says(chunk(content="a"), at=1.0)
    talk.says(b'data: {"choices":[{"index":0,"delta":{},"finish_reason":"stop"}]}\n\n', at=4.0)
    talk.says(b'data: {"choices":[],"usage":{"prompt_tokens":1,"completion_tokens":1}}\n\n', at=7.0)
    talk.says(b"data: [DONE]\n\n", at=10.0)
    assert "4 s between" in talk.ends_at(14.0)


async def test_of_a_reply_that_is_no_stream_every_byte_counts():
    talk = Talk(streamed=False)
    talk.says(b"{", at=9.0)
    talk.says(b"}", at=12.0)
    assert "4 s between" in talk.ends_at(16.0)


async def test_tokens_in_time_do_not_stretch_the_total():
    talk = Talk(streamed=True)
    for second in range(3, 60, 3):
        talk.says(chunk(content="a"), at=float(second))
    assert "more than 60 s in total" in talk.ends_at(60.0)


async def test_a_target_that_is_held_back_is_not_silent_and_the_total_still_holds():
    talk = Talk(streamed=True)
    talk.says(chunk(content="a"), at=1.0)
    talk.connection.pause()
    for second in (5.0, 30.0, 59.999):
        talk.connection.expire(100.0 + second)
        assert not talk.ends
    talk.now = 150.0
    talk.connection.resume()
    assert "4 s between" in talk.ends_at(54.0)


@pytest.mark.parametrize("old", [True, False])
def test_timeouts_have_two_names_and_a_default(old):
    names = ("first_byte", "between") if old else ("first_token", "between_tokens")
    given = dict(zip(names, (7.0, 3.0), strict=True))
    found = read_timeouts(TargetSpec("u1", "p", "openai_http", settings={"timeouts": given}))
    assert (found.first_byte, found.between, found.total) == (7.0, 3.0, Timeouts().total)
    assert read_timeouts(TargetSpec("u1", "p", "openai_http")) == Timeouts()
