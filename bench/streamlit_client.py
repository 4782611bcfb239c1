"""A viewer of the dashboard without a browser: Streamlit's own WebSocket protocol, as its frontend speaks it."""

import time
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import Any, Final, Self
from urllib.parse import urlencode

from streamlit.proto.BackMsg_pb2 import BackMsg
from streamlit.proto.ForwardMsg_pb2 import ForwardMsg
from websockets.sync.client import ClientConnection, connect
from websockets.typing import Subprotocol

_PATIENCE_SECONDS: Final = 60.0
_MAX_MESSAGE: Final = 64 << 20
_WHOLE_RUN: Final = (ForwardMsg.FINISHED_SUCCESSFULLY, ForwardMsg.FINISHED_WITH_COMPILE_ERROR)


@dataclass(frozen=True, slots=True)
class Drawn:
    """What one run of a page sent: when its first number came and when it was done (seconds), and what it said.

    `refresh_seconds` is the shortest time after which a part of it draws itself again; `None`: none does.
    """

    first_seconds: float | None
    seconds: float
    elements: int
    bytes: int
    words: str
    refresh_seconds: float | None = None


@dataclass(slots=True)
class _Seen:
    elements: int = 0
    bytes: int = 0
    first_at: float | None = None
    words: list[str] = field(default_factory=list)
    rhythms: list[float] = field(default_factory=list)


class StreamlitViewer:
    """One viewer: opens pages, changes filters, and draws again what refreshes itself. Use as a context manager."""

    def __init__(self, port: int, cookies: str = "", *, xsrf_token: str = "") -> None:
        """`xsrf_token` is the value of Streamlit's cookie of that name, by which its own pages prove themselves."""
        self._url = f"ws://127.0.0.1:{port}/_stcore/stream"
        self._headers = {"Cookie": cookies} if cookies else {}
        self._subprotocols: list[Subprotocol] | None = None
        if xsrf_token:
            self._headers["Origin"] = f"http://127.0.0.1:{port}"
            self._subprotocols = [Subprotocol("streamlit"), Subprotocol(xsrf_token)]
        self._socket: ClientConnection | None = None
        self._until_the_end = ExitStack()
        self._pages: dict[str, str] = {}  # hash by path; empty for the first page
        self._hash = ""
        self._query = ""
        self._widgets: dict[str, tuple[str, str]] = {}  # kind and id by label
        self._refreshes: dict[str, tuple[float, float]] = {}  # fragment: every how many seconds, when next

    def __enter__(self) -> Self:
        connecting = connect(
            self._url,
            additional_headers=self._headers,
            max_size=_MAX_MESSAGE,
            subprotocols=self._subprotocols,
            proxy=None,
        )
        self._socket = self._until_the_end.enter_context(connecting)
        return self

    def __exit__(self, *_: object) -> None:
        self._until_the_end.close()

    @property
    def paths(self) -> list[str]:
        """List the pages, known after the first run."""
        return list(self._pages)

    def open(self, path: str = "", **parameters: str) -> Drawn:
        """Open a page at an address, as a click in the navigation does."""
        self._query = urlencode(parameters)
        self._hash = self._pages.get(path, "")
        message = self._rerun()
        message.rerun_script.page_name = "" if self._hash else path
        self._widgets.clear()
        self._refreshes.clear()
        return self._send(message)

    def select(self, label: str, value: str) -> Drawn:
        """Choose a value of a select box, or of a segmented control, by its label."""
        kind, widget = self._widgets[label]
        message = self._rerun()
        state = message.rerun_script.widget_states.widgets.add()
        state.id = widget
        if kind == "button_group":
            state.string_array_value.data.append(value)
        else:
            state.string_value = value
        return self._send(message)

    def look_again(self, drawn: Drawn) -> Drawn:
        """Wait for the first part of a page that draws itself again, and return what that run sent."""
        time.sleep(max(0.0, min(due for _, due in self._refreshes.values()) - time.monotonic()))
        for again in self.refresh_due():
            drawn = again
            break
        return drawn

    def refresh_due(self) -> Iterator[Drawn]:
        """Draw again each fragment whose time has come, as the frontend does by itself."""
        for fragment, (every, due) in list(self._refreshes.items()):
            if due <= time.monotonic():
                message = self._rerun()
                message.rerun_script.fragment_id = fragment
                message.rerun_script.is_auto_rerun = True
                self._refreshes[fragment] = (every, time.monotonic() + every)
                yield self._send(message)

    def _rerun(self) -> BackMsg:
        message = BackMsg()
        rerun = message.rerun_script
        rerun.query_string = self._query
        rerun.page_script_hash = self._hash
        rerun.context_info.timezone = "UTC"
        rerun.context_info.locale = "en-US"
        rerun.context_info.url = "http://127.0.0.1/"
        return message

    def _send(self, message: BackMsg) -> Drawn:
        assert self._socket is not None, "use as a context manager"
        begin, seen = time.perf_counter(), _Seen()
        self._socket.send(message.SerializeToString())
        while True:
            data = self._socket.recv(timeout=_PATIENCE_SECONDS)
            assert isinstance(data, bytes)
            seen.bytes += len(data)
            heard = ForwardMsg.FromString(data)
            if self._hear(heard, seen):
                break
        end = time.perf_counter()
        first = None if seen.first_at is None else seen.first_at - begin
        words = "\n".join(seen.words)
        return Drawn(first, end - begin, seen.elements, seen.bytes, words, min(seen.rhythms, default=None))

    def _hear(self, heard: ForwardMsg, seen: _Seen) -> bool:
        """Record a message; return whether the run is over."""
        kind = heard.WhichOneof("type")
        if kind == "delta" and heard.delta.WhichOneof("type") == "new_element":
            self._element(heard.delta.new_element, seen)
        elif kind == "navigation":
            self._pages = {
                "" if page.is_default else page.url_pathname: page.page_script_hash
                for page in heard.navigation.app_pages
            }
            self._hash = heard.navigation.page_script_hash
        elif kind == "new_session":
            if not heard.metadata.run.fragment_ids:  # a run of the whole page, all of whose parts tell of themselves
                self._refreshes.clear()
        elif kind == "stop_auto_rerun":
            for fragment in heard.stop_auto_rerun.fragment_ids:
                self._refreshes.pop(fragment, None)
        elif kind == "auth_redirect":
            seen.words.append(f"AUTH {heard.auth_redirect.url}")
        elif kind == "page_info_changed":
            self._query = heard.page_info_changed.query_string
        elif kind == "auto_rerun":
            every = float(heard.auto_rerun.interval)
            seen.rhythms.append(every)
            self._refreshes[heard.auto_rerun.fragment_id] = (every, time.monotonic() + every)
        elif kind == "script_finished":
            finished = heard.script_finished
            return finished in _WHOLE_RUN or finished == ForwardMsg.FINISHED_FRAGMENT_RUN_SUCCESSFULLY
        return False

    def _element(self, element: Any, seen: _Seen) -> None:
        seen.elements += 1
        kind = element.WhichOneof("type")
        if kind == "metric":
            seen.first_at = seen.first_at or time.perf_counter()
            seen.words.append(f"{element.metric.label}: {element.metric.body}")
        elif kind == "markdown":
            seen.words.append(element.markdown.body)
        elif kind == "html":
            seen.words.append(element.html.body)
        elif kind == "alert":
            seen.words.append(f"{element.alert.icon} {element.alert.body}")
        elif kind in ("selectbox", "button_group"):
            widget = getattr(element, kind)
            self._widgets[widget.label] = (kind, widget.id)
        elif kind == "exception":
            seen.words.append(f"EXCEPTION {element.exception.message}")
