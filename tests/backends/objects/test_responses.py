"""The store of kept responses: chains, whose they are, how long they stay."""

import pytest

from backends.objects.responses import ResponseStore
from contracts.access.owner import Owner
from contracts.errors import InvalidRequest
from contracts.objects.responses import MAX_HISTORY_RESPONSES, StoredResponse

ACME = Owner("acme", "core/apollo")


@pytest.fixture
def store(objects):
    return ResponseStore(objects)


def response(name, previous=None, *, owner=ACME, created=0, expires=100, body=b"{}"):
    return StoredResponse(
        id=name, owner=owner, created_ns=created, expires_ns=expires, previous_id=previous, body=body, items=b"[]"
    )


async def names(store, last, owner=ACME, now=0, max_bytes=1000):
    found = await store.history(last, owner, now, max_bytes)
    return None if found is None else [one.id for one in found.responses]


async def test_what_is_kept_is_found_unchanged(store):
    await store.add(response("a", body=b'{"x":"\\u0000"}'))
    assert await store.find("a", ACME, 0) == response("a", body=b'{"x":"\\u0000"}')
    assert await store.find("b", ACME, 0) is None


@pytest.mark.parametrize(("max_bytes", "is_kept"), [(7, False), (8, True), (9, True)])
async def test_a_tenant_keeps_so_many_bytes_at_most(objects, max_bytes, is_kept):
    store = ResponseStore(objects, max_bytes)
    await store.add(response("a"))
    await store.add(response("other", owner=Owner("other", "")))
    if is_kept:
        await store.add(response("b"))
    else:
        with pytest.raises(InvalidRequest, match="keeps 4 bytes of responses, and at most 7 are kept") as refused:
            await store.add(response("b"))
        assert refused.value.error_code == "response_storage_full"
    assert (await store.find("b", ACME, 0) is not None) == is_kept


async def test_a_history_begins_with_the_oldest(store):
    for name, previous in (("a", None), ("b", "a"), ("c", "b"), ("fork", "a")):
        await store.add(response(name, previous))
    assert await names(store, "c") == ["a", "b", "c"]
    assert await names(store, "fork") == ["a", "fork"]
    assert await names(store, "x") is None


async def test_a_history_with_a_gap_says_what_is_missing(store):
    for name, previous in (("a", None), ("b", "a"), ("c", "b")):
        await store.add(response(name, previous))
    assert await store.delete("a", ACME, 0)
    found = await store.history("c", ACME, 0, 1000)
    assert found.missing == "a" and [one.id for one in found.responses] == ["b", "c"]


@pytest.mark.parametrize(("max_bytes", "is_read"), [(7, False), (8, True), (9, True)])
async def test_a_history_is_read_up_to_its_limit(store, max_bytes, is_read):
    await store.add(response("a"))
    await store.add(response("b", "a"))
    found = await store.history("b", ACME, 0, max_bytes)
    assert found.size_bytes == 8 and bool(found.responses) == is_read and not found.is_long


@pytest.mark.parametrize(("more", "is_long"), [(-1, False), (0, False), (1, True)])
async def test_a_history_has_so_many_responses_at_most(store, monkeypatch, more, is_long):
    monkeypatch.setattr("backends.objects.responses.MAX_HISTORY_RESPONSES", 5)
    last = None
    for number in range(5 + more):
        await store.add(response(f"r{number}", last))
        last = f"r{number}"
    found = await store.history(last, ACME, 0, 1000)
    assert found.is_long == is_long and MAX_HISTORY_RESPONSES == 1000


@pytest.mark.parametrize(
    ("owner", "is_seen"),
    [
        (ACME, True),
        (Owner("acme", "other/apollo"), False),
        (Owner("acme"), True),
        (Owner("acme", "core/"), True),
        (Owner("acme", "cor/"), False),
        (Owner("acme", "c_re/"), False),
        (Owner("acme", "other/"), False),
        (Owner("rival", "core/"), False),
        (Owner("acme", "core/gemini"), False),
        (Owner("rival", "core/apollo"), False),
        (Owner("rival"), False),
    ],
)
async def test_only_its_tenant_and_project_see_a_response(store, owner, is_seen):
    await store.add(response("a"))
    assert (await store.find("a", owner, 0) is not None) == is_seen
    assert (await names(store, "a", owner) is not None) == is_seen
    assert await store.delete("a", owner, 0) == is_seen


async def test_a_response_lasts_until_it_expires_and_not_a_moment_longer(store):
    await store.add(response("a"))
    assert await store.find("a", ACME, 99) is not None
    assert await store.find("a", ACME, 100) is None and await names(store, "a", now=100) is None
    assert not await store.delete("a", ACME, 100)
    assert await store.sweep(99, 10) == 0
    assert await store.sweep(100, 10) == 1


async def test_what_is_continued_lasts_as_long_as_what_continues_it(store):
    await store.add(response("a"))
    await store.add(response("other"))
    await store.add(response("b", "a", created=50, expires=150))
    assert await names(store, "b", now=149) == ["a", "b"]
    assert await store.sweep(149, 10) == 1 and await store.find("other", ACME, 0) is None


async def test_a_shorter_time_to_keep_takes_nothing_from_what_is_kept_longer(store):
    await store.add(response("a", expires=500))
    await store.add(response("b", "a", created=50, expires=150))
    assert (await store.find("a", ACME, 400)) is not None


async def test_expired_responses_are_deleted_in_small_steps(store):
    for number in range(5):
        await store.add(response(f"r{number}"))
    assert [await store.sweep(100, 2) for _ in range(4)] == [2, 2, 1, 0]
