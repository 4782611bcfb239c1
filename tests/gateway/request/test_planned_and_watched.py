"""Plans of tenants whose content is kept and whose requests are audited: what is kept is what all stages would keep."""

import pytest

from contracts.recording.records import ContentRecord
from tests.gateway.request.pair import counters
from tests.gateway.test_request_audit import entries

KEPT = {"tenants": [{"id": "acme", "keeps_content": True, "audits_requests": True}]}


def kept(running):
    records = [record for record in running.records() if isinstance(record, ContentRecord)]
    return sorted((record.tenant, record.model, record.prompt, record.completion) for record in records)


def audited(running):
    """Return what the audit has of each request, but for what differs from one run to the next."""
    own = ("seq", "prev", "at_ns", "request", "response_hash")  # an answer carries the request's id; so does its hash
    return [{name: value for name, value in entry.items() if name not in own} for entry in entries(running)]


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])
async def test_what_is_said_by_a_plan_is_kept_and_audited_alike(pair, upstream, eventually, stream):
    both = await pair(**KEPT)
    if stream:
        events = [upstream.chunk("I am ada@example.org"), upstream.chunk(finish="stop")]
        upstream.always(upstream.streamed(*events, upstream.event(b"[DONE]")))
    else:
        upstream.always(upstream.whole(upstream.completion("I am ada@example.org", prompt=17, output=9)))
    for number in range(3):
        asked = [{"role": "user", "content": f"Call +49 170 1234567 about {number}"}]
        assert (await both.ask(messages=asked, stream=stream)).status == 200
    assert both.taken == [True] * 3
    if not stream:  # the pair does not compare times, of which streams have more
        both.compare_books()
    charged = [[one.charged_pico_usd for one in each.requests()] for each in (both.short, both.long)]
    assert charged[0] == charged[1] and counters(both.short) == counters(both.long)
    await eventually(lambda: len(kept(both.short)) == len(kept(both.long)) == 4)
    assert kept(both.short) == kept(both.long)
    told = "".join(prompt + said for _, _, prompt, said in kept(both.short))
    assert (told.count("[phone]"), told.count("[email]")) == (3, 3)
    ours, theirs = audited(both.short), audited(both.long)
    assert len(ours) == len(theirs) == 4
    for one, other in zip(ours, theirs, strict=True):
        assert one.pop("prompt_hash") and other.pop("prompt_hash")  # keyed: each installation has a secret of its own
        assert one == other


async def test_a_plan_whose_requests_are_seen_is_learned_from(pair, upstream):
    both = await pair(**KEPT)
    upstream.always(upstream.whole(upstream.completion("Hello", prompt=17, output=9)))
    for _ in range(20):
        await both.ask()
    assert all(both.taken)
    both.compare_books()
