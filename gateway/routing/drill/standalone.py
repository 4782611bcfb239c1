"""A chat request without a client and a dispatcher, for drills and benchmarks."""

from contracts.recording.ids import uuid7
from contracts.serving.configuration import Snapshot
from gateway.apis.batches.line_exchange import LineExchange
from gateway.apis.operations import CHAT
from gateway.request.request_state import RequestState


def standalone_chat(body: bytes, started_at_ns: int, began_ns: int, snapshot: Snapshot) -> RequestState:
    """Return the state of a chat with a new id. The times are Unix and monotonic nanoseconds."""
    made, exchange = uuid7(started_at_ns), LineExchange(CHAT.paths[0], body, {})
    return RequestState(None, exchange, CHAT, made.bytes, str(made), started_at_ns, began_ns, snapshot)
