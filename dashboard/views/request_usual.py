"""One sentence that compares a request's time to first token with other requests at its target."""

from typing import Final

from analytics.explorer.single_request import SingleRequest
from analytics.explorer.usual import AnsweredBy, usual_times
from dashboard.panels import note
from dashboard.states import escaped
from dashboard.visit import Visit

_FEW: Final = 5  # minimum number of requests for a comparison


def draw_usual(visit: Visit, request: SingleRequest) -> None:
    """Draw how the request's TTFT compares with others of its tenant at the same target."""
    model, replica = request.labels["model"], request.labels["replica"]
    if request.ttft_ns is None or not replica:
        return
    asked = AnsweredBy(request.request_id, request.started_at_ns, model, replica)
    usual = visit.read(usual_times, request.tenant, visit.viewer.team, asked)
    at = f"{escaped(model)} at {escaped(replica)}"
    write = visit.formats
    if usual.day_count < _FEW or usual.day_p50_ns is None or usual.day_p95_ns is None:
        note(f"{write.counted(usual.day_count, 'request')} to {at} in the day before: too few for a comparison.")
        return
    word = "within the usual range" if request.ttft_ns <= usual.day_p95_ns else "slower than usual"
    said = (
        f"Time to first token {write.duration(request.ttft_ns)} is {word} for {at}: "
        f"p50 {write.duration(usual.day_p50_ns)}, p95 {write.duration(usual.day_p95_ns)} "
        f"of {write.counted(usual.day_count, 'request')} of {escaped(request.tenant)} in the day before."
    )
    if usual.near_count and usual.near_p50_ns is not None:
        said += (
            f" Within five minutes of it: {write.counted(usual.near_count, 'other request')}, "
            f"p50 {write.duration(usual.near_p50_ns)}."
        )
    note(said)
