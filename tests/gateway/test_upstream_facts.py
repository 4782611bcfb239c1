"""A failed request's record names what the model's server answered, and repeats nothing that the caller sent."""

import pytest

PROMPT = "The launch code of the orchard is 7741-Alpha"


@pytest.mark.parametrize("streamed", [False, True])
@pytest.mark.parametrize(
    ("status", "message", "kept"),
    [
        (500, "The server had an error while processing your request.", "same"),
        (503, "overloaded at http://10.0.0.7:8000/v1/chat", "overloaded at [address]"),
        (500, f"assert failed on {PROMPT}!", "assert failed on [...]!"),
        (500, 'cannot tokenize "orchard"', "cannot tokenize [...]"),
        (400, f"{PROMPT} is not allowed", ""),
    ],
)
async def test_a_record_names_the_upstreams_answer(start_gateway, kit, upstream, status, message, kept, streamed):
    upstream.always(upstream.whole({"error": {"message": message, "type": "server_error"}}, status))
    gateway = await start_gateway(kit.configuration(("mock", [kit.http_target(upstream.url)])))
    await gateway.chat(model="mock", stream=streamed, messages=[{"role": "user", "content": PROMPT}])
    [record] = gateway.requests()
    assert (record.outcome, record.upstream_status, record.upstream_error) == ("error", status, "server_error")
    assert record.upstream_message == (message if kept == "same" else kept)
    assert "orchard" not in record.upstream_message


async def test_each_failed_attempt_has_its_own_status(start_gateway, kit, new_upstream):
    bad, good = await new_upstream(), await new_upstream()
    bad.always(bad.whole({"error": {"message": "x" * 900, "type": "bad type with spaces"}}, 503))
    good.always(good.whole(good.completion()))
    targets = [kit.http_target(each.url, name) for name, each in (("first", bad), ("second", good))]
    gateway = await start_gateway(kit.configuration(("mock", targets)))
    assert (await gateway.chat(model="mock")).status == 200
    [record] = gateway.requests()
    first, second = gateway.attempts()
    assert (record.outcome, record.upstream_status, record.upstream_message) == ("ok", None, "")
    assert (first.upstream_status, first.upstream_error, len(first.upstream_message)) == (503, "", 200)
    assert second.upstream_status is None


async def test_a_server_that_says_nothing_has_no_status(start_gateway, kit, upstream):
    upstream.always(upstream.CLOSE)
    gateway = await start_gateway(kit.configuration(("mock", [kit.http_target(upstream.url)])))
    await gateway.chat(model="mock")
    [record] = gateway.requests()
    assert (record.outcome, record.upstream_status, record.upstream_error) == ("error", None, "")


async def test_an_open_circuit_says_after_which_status(start_gateway, kit, upstream):
    upstream.always(upstream.whole({"error": {"message": "down"}}, 500))
    gateway = await start_gateway(kit.configuration(("mock", [kit.http_target(upstream.url)])))
    for _ in range(5):
        await gateway.chat(model="mock")
    [change] = gateway.gateway.health()["target_changes"]
    assert change["why"] == "5 failures in a row, the last upstream_error, upstream status 500"
