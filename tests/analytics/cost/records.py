"""Requests for the tests of costs: facts as a client would count them, somewhere in a stretch of time."""

from datetime import datetime, timedelta
from uuid import uuid4

from hypothesis import strategies as st

from contracts.access.identity import Identity
from contracts.metering.usage import LEAVES, Usage
from contracts.recording.records import GpuShare, Outcome, RequestRecord

OUTCOMES: list[Outcome] = ["ok", "ok", "ok", "error", "cancelled", "rejected"]

usages = st.one_of(
    st.just(Usage()),
    st.builds(
        Usage,
        input_text=st.integers(0, 10**6),
        cache_read_text=st.none() | st.integers(0, 10**5),
        cache_write_5m=st.none() | st.integers(0, 10**5),
        output_text=st.integers(0, 10**5),
        output_reasoning=st.none() | st.integers(0, 10**5),
    ),
    st.builds(Usage, **dict.fromkeys(LEAVES, st.none() | st.integers(0, 10**5))),
)


def request(moment: datetime, **fields: object) -> RequestRecord:
    """Create a record that came at a moment."""
    values: dict[str, object] = {
        "request_id": uuid4().bytes,
        "started_at_ns": int(moment.timestamp()) * 10**9 + moment.microsecond * 1000,
        "duration_ns": 10**9,
        "who": Identity("acme"),
        "model": "llama",
        **fields,
    }
    return RequestRecord(**values)  # type: ignore[arg-type]  # the tests name fields by keyword


@st.composite
def requests(draw: st.DrawFn, start: datetime, length: timedelta) -> RequestRecord:
    """A request somewhere from an hour before a range until an hour after it."""
    hour = timedelta(hours=1)
    who = Identity(
        tenant=draw(st.sampled_from(["acme", "globex", "it's; a \\ 'tenant'"])),
        team=draw(st.sampled_from(["", "red", "blue"])),
        project=draw(st.sampled_from(["", "search"])),
        key_id=draw(st.sampled_from(["key_1", "key_2"])),
        tags=draw(st.sampled_from([{}, {"feature": "chat"}, {"feature": "sum", "stage": "x"}])),
    )
    outcome = draw(st.sampled_from(OUTCOMES))
    usage = draw(usages)
    cost = draw(st.none() | st.integers(0, 10**15))
    # Why there is no cost, as records say it or, before they did, not: then it is "unpriced" whatever the reason.
    basis = "price_card" if cost is not None else draw(st.sampled_from(["unpriced", "unpriced", "unknown_usage"]))
    if outcome == "error" and draw(st.booleans()):
        cost, basis = 0, "free"
    return request(
        start + draw(st.timedeltas(-hour, length + hour)),
        who=who,
        model=draw(st.sampled_from(["llama", "qwen", ""])),
        prompt_name=draw(st.sampled_from(["", "greet"])),
        outcome=outcome,
        usage=Usage() if outcome == "rejected" else usage,
        cost_pico_usd=None if outcome == "rejected" else cost,
        cost_basis="unpriced" if outcome == "rejected" else basis,
        unpriced_leaves=draw(st.sampled_from([[], [], ["cache_read_text"], ["output_reasoning", "input_audio"]])),
        count_method=draw(st.sampled_from(["none", "exact", "estimate"])),
        operation=draw(st.sampled_from(["chat", "chat", "embeddings"])),
        charged_pico_usd=draw(st.none() | st.integers(0, 10**15)),
        gpu=draw(st.none() | st.builds(GpuShare, prefill_ns=st.integers(0, 10**12), decode_ns=st.integers(0, 10**12))),
    )
