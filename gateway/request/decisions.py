"""What a record says of how its request was routed: one JSON object, to which each who decides adds a part."""

import msgspec

from gateway.request.request_state import RequestState


def add_decision(life: RequestState, part: str, decision: object) -> None:
    """Add a part to a request's decision. A part is added once; the last of the same name is what readers see."""
    said = msgspec.json.encode({part: decision}).decode()
    before = life.route_decision
    life.route_decision = f"{before[:-1]},{said[1:]}" if before else said
