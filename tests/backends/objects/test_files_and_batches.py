"""The stores of files and batches over each database: who sees what, what fits, and who may write."""

import asyncio

import pytest

from backends.objects.batch_work import BatchWork
from backends.objects.batches import BatchStore
from backends.objects.files import FileStore
from contracts.access.owner import Owner
from contracts.errors import InvalidRequest, ObjectsUnavailable
from contracts.objects.batches import Batch, BatchUsage, Lease, LeaseLost, LineOutcome, NewLine, Payer
from contracts.objects.files import PIECE_BYTES, FileBounds, StoredFile

ACME, APOLLO, GEMINI, GLOBEX = (
    Owner("acme"),
    Owner("acme", "core/apollo"),
    Owner("acme", "core/gemini"),
    Owner("globex"),
)
WIDE = FileBounds(1 << 30, 1000)
NOW = 1_700_000_000
SECOND = 10**9


def file(name="file-1", owner=APOLLO, size=3, **more) -> StoredFile:
    return StoredFile(name, owner, "in.jsonl", "batch", size, NOW, **more)


def batch(name="batch_1", owner=APOLLO, **more) -> Batch:
    payer = Payer(b"\x00digest", "key_1")
    return Batch(name, owner, payer, "/v1/chat/completions", "file-1", NOW, NOW + 86_400, **more)


async def test_a_file_is_seen_by_its_project_and_by_keys_of_its_whole_tenant(objects):
    files = FileStore(objects)
    await files.create(file(), [b"abc"], WIDE)
    for owner, sees in ((APOLLO, True), (ACME, True), (GEMINI, False), (GLOBEX, False)):
        assert (await files.find(owner, "file-1", NOW) is not None) is sees
        assert bool(await files.list(owner, NOW, limit=10)) is sees
        assert await files.delete(owner, "file-1", NOW) is sees
        if sees:
            assert await files.piece("file-1", 0) is None
            await files.create(file(), [b"abc"], WIDE)


@pytest.mark.parametrize(("since_ns", "sees"), [(NOW * SECOND, True), ((NOW + 1) * SECOND, False), (0, True)])
async def test_an_owner_sees_nothing_from_before_it_was_created(objects, since_ns, sees):
    files, batches = FileStore(objects), BatchStore(objects)
    owner = Owner("acme", "core/apollo", since_ns)
    await files.create(file(), [b"abc"], WIDE)
    await batches.create(batch(), 10, Lease("gateway", 1))
    assert (await files.find(owner, "file-1", NOW) is not None) is sees
    assert (await batches.find(owner, "batch_1") is not None) is sees
    assert bool(await batches.list(owner, limit=10)) is sees
    assert (await batches.cancel(owner, "batch_1", NOW) is not None) is sees
    assert await files.delete(owner, "file-1", NOW) is sees


async def test_results_of_an_earlier_owners_batch_are_not_seen_though_they_are_written_later(objects):
    files, batches = FileStore(objects), BatchStore(objects)
    work = BatchWork(objects, "gateway")
    await batches.create(batch(), 10, Lease("gateway", 2**62))
    late = StoredFile("file-2", APOLLO, "out.jsonl", "batch_output", 3, NOW + 60)
    await files.begin(late)
    await files.append("file-2", 0, [b"abc"])
    await work.end("batch_1", "completed", late, None, NOW + 60)
    assert await files.find(APOLLO, "file-2", NOW + 60) is not None
    later = Owner("acme", "core/apollo", (NOW + 30) * SECOND)
    assert await files.find(later, "file-2", NOW + 60) is None and not await files.list(later, NOW + 60, limit=9)


async def test_content_comes_back_piece_by_piece(objects):
    content = bytes(range(256)) * (5 * PIECE_BYTES // 256) + b"end"
    files = FileStore(objects)
    pieces = [content[start : start + PIECE_BYTES] for start in range(0, len(content), PIECE_BYTES)]
    await files.create(file(size=len(content)), pieces, WIDE)
    found = [await files.piece("file-1", number) for number in range(7)]
    assert found[6] is None and b"".join(piece for piece in found[:6] if piece is not None) == content


@pytest.mark.parametrize(("seconds", "is_there"), [(59, True), (60, False), (61, False)])
async def test_a_file_expires_below_at_and_above_its_time(objects, seconds, is_there):
    files = FileStore(objects)
    await files.create(file(expires_unix=NOW + 60), [b"abc"], WIDE)
    assert (await files.find(APOLLO, "file-1", NOW + seconds) is not None) is is_there
    assert await files.sweep(NOW + seconds) == (0 if is_there else 1)
    assert (await files.piece("file-1", 0) is not None) is is_there


async def test_a_file_that_was_left_half_written_is_not_seen_and_swept_up(objects):
    files = FileStore(objects)
    await files.begin(file())
    await files.append("file-1", 0, [b"ab"])
    assert await files.find(APOLLO, "file-1", NOW) is None
    assert await files.sweep(NOW + 3599) == 0
    assert await files.sweep(NOW + 3600) == 1 and await files.piece("file-1", 0) is None


async def test_a_file_swept_up_while_it_was_written_is_never_taken_for_kept(objects):
    files, work = FileStore(objects), BatchWork(objects, "a#1")
    await BatchStore(objects).create(batch(), 10)
    await work.claim(0, SECOND, {})
    await files.begin(file())
    assert await files.sweep(NOW + 3600) == 1
    with pytest.raises(ObjectsUnavailable, match="swept up"):
        await work.end("batch_1", "completed", file(), None, NOW)
    assert list(await work.held()) == ["batch_1"], "its end is written once its file is there"


@pytest.mark.parametrize(("size", "fits"), [(6, True), (7, True), (8, False)])
async def test_a_tenant_s_room_is_counted_over_its_projects_below_at_and_above(objects, size, fits):
    files, bounds = FileStore(objects), FileBounds(max_bytes=10, max_count=10)
    await files.create(file("file-1", GEMINI), [b"abc"], bounds)
    await files.create(file("file-2", GLOBEX, size=10), [b"x" * 10], bounds)
    if fits:
        await files.create(file("file-3", size=size), [b"x" * size], bounds)
    else:
        with pytest.raises(InvalidRequest, match="keeps 3 bytes in files, and at most 10"):
            await files.create(file("file-3", size=size), [b"x" * size], bounds)
        assert await files.find(APOLLO, "file-3", NOW) is None


async def test_uploads_at_one_moment_do_not_pass_the_bound_together(objects):
    files, bounds = FileStore(objects), FileBounds(max_bytes=1 << 20, max_count=3)
    many = [files.create(file(f"file-{number}"), [b"abc"], bounds) for number in range(8)]
    outcomes = await asyncio.gather(*many, return_exceptions=True)
    assert sum(outcome is None for outcome in outcomes) == 3
    assert {type(outcome) for outcome in outcomes} == {type(None), InvalidRequest}


async def test_a_tenant_has_so_many_batches_under_way_and_no_more(objects):
    store = BatchStore(objects)
    await store.create(batch("batch_1"), 2)
    await store.create(batch("batch_2", GEMINI), 2)
    await store.create(batch("batch_3", GLOBEX), 2)
    with pytest.raises(InvalidRequest, match="has 2 batches that have not ended, and at most 2"):
        await store.create(batch("batch_4"), 2)
    await store.cancel(APOLLO, "batch_1", NOW)
    with pytest.raises(InvalidRequest):  # it is on its way to its end
        await store.create(batch("batch_4"), 2)


async def test_a_batch_comes_back_as_it_was_made(objects):
    made = batch(metadata={"a": "é"}, tags="job=night", output_expires_after_seconds=3600)
    await BatchStore(objects).create(made, 10)
    assert await BatchStore(objects).find(ACME, made.id) == made
    assert await BatchStore(objects).find(GLOBEX, made.id) is None
    assert await BatchStore(objects).cancel(GLOBEX, made.id, NOW) is None


@pytest.mark.parametrize(("late", "taken"), [(-1, False), (0, True), (1, True)])
async def test_a_lease_is_taken_over_at_its_end_and_not_before(objects, late, taken):
    await BatchStore(objects).create(batch(), 10)
    first, second = BatchWork(objects, "a#1"), BatchWork(objects, "b#1")
    assert await first.claim(NOW * SECOND, NOW * SECOND + 30 * SECOND, {}) is not None
    assert (await second.claim(NOW * SECOND + 30 * SECOND + late, (NOW + 60) * SECOND, {}) is not None) is taken
    assert bool(await first.held()) is not taken


async def test_who_made_a_batch_begins_with_it_and_others_may_later(objects):
    first, second = BatchWork(objects, "a#1"), BatchWork(objects, "b#1")
    await BatchStore(objects).create(batch(), 10, Lease("a#1", 30 * SECOND))
    assert await second.claim(29 * SECOND, 60 * SECOND, {}) is None
    assert await first.claim(29 * SECOND, 60 * SECOND, {}) is not None
    await BatchStore(objects).create(batch("batch_2"), 10, Lease("a#1", 30 * SECOND))
    assert await second.claim(30 * SECOND, 60 * SECOND, {}) is not None, "who made it is gone, or has enough to do"


async def test_who_has_lost_a_batch_writes_nothing_for_it(objects):
    await BatchStore(objects).create(batch(), 10)
    first, second = BatchWork(objects, "a#1"), BatchWork(objects, "a#2")
    await first.claim(0, SECOND, {})
    await first.add_lines("batch_1", [NewLine(1, "x", b"{}"), NewLine(2, "y", b"{}")])
    await first.begin("batch_1", 2, "m", NOW)
    await second.take_over_former()
    assert await second.claim(0, SECOND, {}) is not None, "the place is the same, the process another"
    outcome = LineOutcome(1, b"{}", is_failed=False, usage=BatchUsage(1, 0, 2, 0))
    for write in (
        first.finish("batch_1", [outcome]),
        first.add_lines("batch_1", [NewLine(3, "z", b"{}")]),
        first.decide("batch_1", "completed", (), NOW),
        first.end("batch_1", "completed", None, None, NOW),
        first.forget_lines("batch_1"),
    ):
        with pytest.raises(LeaseLost):
            await write
    await first.release("batch_1")
    await first.renew(["batch_1"], 10 * SECOND)
    assert list(await second.held()) == ["batch_1"] and await first.held() == {}
    assert [line.number for line in await second.next_lines("batch_1", 0, 10)] == [1, 2]


async def test_a_line_s_first_outcome_stays_and_is_counted_once(objects):
    await BatchStore(objects).create(batch(), 10)
    work = BatchWork(objects, "a#1")
    await work.claim(0, SECOND, {})
    await work.add_lines("batch_1", [NewLine(1, "x", b"{}"), NewLine(4, "y", b"{}")])
    await work.begin("batch_1", 2, "m", NOW)
    for result in (b"first", b"second"):
        await work.finish("batch_1", [LineOutcome(1, result, is_failed=False, usage=BatchUsage(1, 2, 3, 4))])
    await work.finish("batch_1", [LineOutcome(4, b"bad", is_failed=True)])
    found = (await work.held())["batch_1"]
    assert (found.completed, found.failed, found.waiting, found.usage) == (1, 1, 0, BatchUsage(1, 2, 3, 4))
    assert await work.results("batch_1", 0, 10, is_failed=False) == [(1, b"first")]
    assert await work.results("batch_1", 0, 10, is_failed=True) == [(4, b"bad")]
    assert await work.next_lines("batch_1", 0, 10) == []


@pytest.mark.parametrize(("max_bytes", "sizes"), [(0, [1, 1, 1]), (5, [1, 1, 1]), (6, [2, 1]), (8, [2, 1]), (9, [3])])
async def test_results_are_read_few_at_once_where_they_are_large(objects, max_bytes, sizes):
    await BatchStore(objects).create(batch(), 10)
    work = BatchWork(objects, "a#1")
    await work.claim(0, SECOND, {})
    await work.add_lines("batch_1", [NewLine(number, str(number), b"{}") for number in (1, 2, 4)])
    await work.finish("batch_1", [LineOutcome(number, b"abc", is_failed=False) for number in (1, 2, 4)])
    found = 0
    read: list[int] = []
    while some := await work.results("batch_1", found, 10, is_failed=False, max_bytes=max_bytes):
        found = some[-1][0]
        read.append(len(some))
    assert read == sizes


async def test_the_tenant_with_the_fewest_batches_here_is_next(objects):
    store, work = BatchStore(objects), BatchWork(objects, "a#1")
    for number in range(3):
        await store.create(batch(f"batch_{number}"), 10)
    await store.create(batch("batch_9", GLOBEX), 10)
    running: dict[str, str] = {}
    for _ in range(4):
        found = await work.claim(0, SECOND, running)
        assert found is not None
        running[found.id] = found.owner.tenant
    assert list(running) == ["batch_0", "batch_9", "batch_1", "batch_2"]
    assert await work.claim(2 * SECOND, 3 * SECOND, running) is None, "what runs here is not taken again"
