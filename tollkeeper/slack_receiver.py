"""A local replacement for Slack's incoming webhooks: the demo prints the messages that a channel would get."""

import json
import threading
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Final, Self

_MAX_BODY_BYTES: Final = 65_536
_HOST: Final = "127.0.0.1"


class SlackReceiver:
    """A context manager that listens on a free loopback port, stores messages and passes them to `on_message`.

    `on_message` is called in the receiver's thread.
    """

    def __init__(self, on_message: Callable[[str], None] = lambda text: None) -> None:
        self.messages: list[str] = []
        self._on_message = on_message
        self._server: ThreadingHTTPServer | None = None

    def __enter__(self) -> Self:
        receiver = self

        class Hook(BaseHTTPRequestHandler):
            timeout = 10  # timeout in seconds: a silent client must not delay the end

            def do_POST(self) -> None:
                length = self.headers.get("content-length", "")
                text = _text_of(self.rfile.read(int(length))) if _is_length(length) else None
                if text is not None:
                    receiver._take(text)
                self.send_response(400 if text is None else 200)
                self.send_header("content-length", "0")
                self.end_headers()

            def log_message(self, *_: object) -> None:
                """Suppress the HTTP log."""

        self._server = ThreadingHTTPServer((_HOST, 0), Hook)
        self._server.daemon_threads = True
        threading.Thread(target=self._server.serve_forever, name="slack-receiver", daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        if self._server is not None:
            self._server.shutdown()
            self._server.server_close()
            self._server = None

    @property
    def url(self) -> str:
        """Return the webhook's URL. Valid only within the `with` block."""
        assert self._server is not None
        return f"http://{_HOST}:{self._server.server_port}/services/T0/B0/demonstration"

    def _take(self, text: str) -> None:
        self.messages.append(text)
        self._on_message(text)


def _is_length(text: str) -> bool:
    return text.isascii() and text.isdecimal() and int(text) <= _MAX_BODY_BYTES


def _text_of(body: bytes) -> str | None:
    """Return a message's text; `None` if the body is not a valid Slack message."""
    try:
        message = json.loads(body)
    except ValueError:
        return None
    text = message.get("text") if isinstance(message, dict) else None
    return text if isinstance(text, str) else None
