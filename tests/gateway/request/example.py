"""A record of which others differ in what varies from chat to chat."""

from contracts.access.identity import Identity
from contracts.recording.records import RequestRecord

EXAMPLE = RequestRecord(
    request_id=bytes(16),
    started_at_ns=1,
    duration_ns=2,
    who=Identity(tenant="acme", team="core"),
    api="chat.completions",
    requested_model="m",
    provider="p",
    count_method="reported",
    cost_basis="price_card",
    price_version="card/1",
)
