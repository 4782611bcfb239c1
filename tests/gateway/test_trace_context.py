"""W3C trace context: what is read is written back, what is malformed is ignored."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.records.trace_context import TraceContext

TRACE, SPAN = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"
GOOD = f"00-{TRACE}-{SPAN}-01"


@given(st.binary(min_size=16, max_size=16).filter(any), st.binary(min_size=8, max_size=8).filter(any))
def test_what_is_written_is_read_back(trace_id, span_id):
    context = TraceContext(trace_id, span_id)
    assert TraceContext.parse(context.header()) == context


@pytest.mark.parametrize("header", [GOOD, GOOD[:-1] + "0", f"cc-{TRACE}-{SPAN}-01", f"cc-{TRACE}-{SPAN}-01-more"])
def test_a_valid_header_is_read(header):
    is_sampled = header.split("-")[3] == "01"
    read = TraceContext.parse(header, "vendor=1")
    assert read == TraceContext(bytes.fromhex(TRACE), bytes.fromhex(SPAN), "vendor=1", is_sampled)


@pytest.mark.parametrize(
    ("state", "kept"), [("a=1,b=2", True), ("a" * 512, True), ("a" * 513, False), ("a=\u00e9", False)]
)
def test_a_state_is_kept_with_a_trace_alone_and_up_to_512_characters(state, kept):
    assert TraceContext.parse(GOOD, state).state == (state if kept else "")
    assert TraceContext.parse("nonsense", state) == TraceContext()


@pytest.mark.parametrize(
    "header",
    [
        "",
        "nonsense",
        GOOD.upper(),
        GOOD[:-1],
        GOOD + "-more",  # version 00 has no more fields
        GOOD + "\n",
        " " + GOOD,
        f"ff-{TRACE}-{SPAN}-01",
        f"00-{'0' * 32}-{SPAN}-01",
        f"00-{TRACE}-{'0' * 16}-01",
        f"00-{TRACE}x-{SPAN}-01",
    ],
)
def test_a_malformed_header_is_ignored(header):
    assert TraceContext.parse(header) == TraceContext()


@given(st.text())
def test_no_header_at_all_raises(header):
    TraceContext.parse(header)
