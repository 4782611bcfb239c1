"""The playground and the form for SLOs: what is sent, what is shown of the answer, and what a refusal says."""

import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from uuid import UUID

import pytest
from streamlit.testing.v1 import AppTest

from dashboard.playground_run import Playground
from tests.dashboard.test_speed_pages import Fill, draw_page, fill, metrics, opened, request, words

assert callable(draw_page) and callable(fill)  # what `opened` runs, and a fixture
KEY = "tk-secret-of-the-test"


class Gateway:
    """Answers as the gateway does: models of a key, and a streamed chat."""

    def __init__(self) -> None:
        self.asked: list[dict[str, Any]] = []
        self.request_id = ""
        self.refusal: tuple[int, str] | None = None
        gateway = self

        class Handler(BaseHTTPRequestHandler):
            def log_message(self, *_: object) -> None: ...

            def _reply(self, status: int, body: bytes, kind: str = "application/json") -> None:
                self.send_response(status)
                self.send_header("content-type", kind)
                self.send_header("content-length", str(len(body)))
                self.send_header("x-request-id", gateway.request_id)
                self.end_headers()
                self.wfile.write(body)

            def do_GET(self) -> None:
                if self.headers["authorization"] != f"Bearer {KEY}":
                    return self._reply(401, b'{"error": {"message": "the key is not known"}}')
                return self._reply(200, b'{"data": [{"id": "llama"}, {"id": "assistant"}]}')

            def do_POST(self) -> None:
                body = json.loads(self.rfile.read(int(self.headers["content-length"])))
                gateway.asked.append(body)
                if gateway.refusal is not None:
                    status, message = gateway.refusal
                    return self._reply(status, json.dumps({"error": {"message": message}}).encode())
                pieces = [
                    {"choices": [{"delta": {"content": text}, "finish_reason": None}]} for text in ("Good ", "day")
                ]
                usage = {"prompt_tokens": 11, "completion_tokens": 2, "prompt_tokens_details": {"cached_tokens": 8}}
                end = [{"choices": [{"delta": {}, "finish_reason": "length"}]}, {"choices": [], "usage": usage}]
                lines = [f"data: {json.dumps(each)}\n\n" for each in [*pieces, *end]]
                return self._reply(200, "".join([*lines, "data: [DONE]\n\n"]).encode(), "text/event-stream")

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._server.server_port}"
        threading.Thread(target=self._server.serve_forever, daemon=True).start()

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()


@pytest.fixture
def gateway(monkeypatch: pytest.MonkeyPatch) -> Iterator[Gateway]:
    made = Gateway()
    monkeypatch.setenv("TOLLKEEPER_GATEWAY_URL", made.url)
    yield made
    made.close()


def sent(app: AppTest, message: str = "Hello") -> AppTest:
    app.text_input(key="playground_key").set_value(KEY).run()
    assert list(app.selectbox(key="playground_model").options) == ["llama", "assistant"]
    app.text_area(key="playground_prompt").set_value(message)
    app.number_input(key="playground_max_tokens").set_value(2)
    app.button[0].click().run()
    assert not app.exception
    return app


def test_an_answer_is_shown_with_tokens_times_and_the_cost_of_its_record(fill: Fill, gateway: Gateway) -> None:
    kept = request(19)
    gateway.request_id = str(UUID(bytes=kept.request_id))
    fill([kept])
    app = sent(opened("playground"))
    assert [one.value for one in app.text] == ["Good day"]
    assert "Open this request" in words(app) and "Cut at the maximum number of output tokens" in words(app)
    shown = metrics(app)
    assert (shown["Input tokens"], shown["Output tokens"], shown["Cost"]) == ("11", "2", "$0.00027")
    assert shown["Total time"].endswith(" ms")
    (asked,) = gateway.asked
    assert asked["messages"] == [{"role": "user", "content": "Hello"}] and asked["max_tokens"] == 2
    assert KEY not in words(app)


def test_a_cost_that_is_not_recorded_yet_is_unknown_and_not_zero(fill: Fill, gateway: Gateway) -> None:
    gateway.request_id = "01890000-0000-7000-8000-000000000001"
    fill([request(19)])
    app = sent(opened("playground"))
    assert metrics(app)["Cost"] not in ("$0.00", "0") and "appear here within seconds" in words(app)


def test_refusals_are_the_gateways_own_words(fill: Fill, gateway: Gateway) -> None:
    fill([request(19)])
    gateway.refusal = (429, "budget b1 of tenant acme is used up; it begins again on 1 December")
    app = sent(opened("playground"))
    assert any("Budget b1 of tenant acme is used up" in one.value and "429" in one.value for one in app.error)
    app.text_input(key="playground_key").set_value("tk-wrong").run()
    assert any("The key is not known" in one.value for one in app.error)
    app.text_input(key="playground_key").set_value("two words").run()
    assert any("without spaces" in one.value for one in app.error)
    app.text_input(key="playground_key").set_value(KEY).run()
    app.text_area(key="playground_prompt").set_value("  ")
    app.button[0].click().run()
    assert len(gateway.asked) == 1 and any("Write a message first" in one.value for one in app.warning)


def test_a_gateway_that_is_away_is_named(fill: Fill, gateway: Gateway) -> None:
    gateway.close()
    models, problem = Playground(gateway.url).models(KEY)
    assert models == [] and f"does not answer at {gateway.url}" in problem
    assert "does not answer" in Playground(gateway.url).ask(KEY, {}, lambda text: None).problem
