"""A store that moves to another while it is written to: nothing lost, nothing twice, the rollups too."""

import random
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from backends.store.batch_claims import BatchClaims
from backends.store.client import StoreClient
from backends.store.columns import arrow_batch
from backends.store.digests import TableDigest
from backends.store.location import FollowingStore, StoreLocation
from backends.store.move import move_store
from backends.store.store_locks import StoreLocks
from backends.store.tables import COPY_PREFIX, list_tables
from backends.store.transfer import CopyDiffers, load_table
from contracts.access.identity import Identity
from contracts.errors import ConfigurationError, StoreUnavailable
from contracts.metering.gaps import pack_gaps
from contracts.metering.usage import Usage
from contracts.recording.ids import uuid7
from contracts.recording.names import REQUESTS
from contracts.recording.records import RequestRecord

PATIENCE_SECONDS = 120.0


def batch_of(rows: int, tenant: str = "acme") -> Any:
    now = time.time_ns()
    return arrow_batch(
        REQUESTS,
        [
            RequestRecord(
                request_id=uuid7(now).bytes,
                started_at_ns=now - random.randrange(3600) * 10**9,
                duration_ns=10**9,
                who=Identity(tenant, user="ada"),
                model="tiny",
                replica="one",
                gaps=pack_gaps([1, 2, 3]),
                usage=Usage(input_text=12, output_text=4),
                cost_pico_usd=1_000_000,
                ttft_ns=80_000_000,
            )
            for _ in range(rows)
        ],
    )


class Writer:
    """Writes batches as an exporter does: turn by turn, to where the store is now."""

    def __init__(self, turns: StoreLocks, store: FollowingStore) -> None:
        self.rows = 0
        self.failures: list[BaseException] = []
        self._turns, self._store = turns, store
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def _run(self) -> None:
        try:
            while not self._stopping.is_set():
                token, batch = str(uuid7(time.time_ns())), batch_of(20)
                with self._turns.turn() as settle:
                    for _ in range(2):  # as after a release that was lost: the second time nothing is stored
                        self._store.insert_arrow("requests", batch, deduplication_token=token)
                    settle()
                self.rows += 20
        except BaseException as error:
            self.failures.append(error)

    def wait_for(self, rows: int) -> None:
        deadline = time.monotonic() + PATIENCE_SECONDS
        while self.rows < rows:
            assert not self.failures and time.monotonic() < deadline, self.failures
            time.sleep(0.01)

    def stop(self) -> None:
        self._stopping.set()
        self._thread.join(PATIENCE_SECONDS)
        assert not self.failures, self.failures


def count(client: StoreClient, sql: str) -> int:
    (row,) = client.query(sql)
    return int(str(next(iter(row.values()))))


@pytest.fixture
def pair(empty_store: Any, other_store: Any) -> Iterator[tuple[StoreClient, StoreClient]]:
    source, target = empty_store.client(), other_store.client()
    yield source, target
    source.close()
    target.close()


@pytest.mark.drill
def test_a_store_moves_under_load_without_losing_or_doubling_a_row(
    pair: tuple[StoreClient, StoreClient], tmp_path: Path
) -> None:
    source, target = pair
    turns, location = StoreLocks(tmp_path), StoreLocation(tmp_path)
    claims = BatchClaims(source)
    assert claims.claim({"b1": 7, "b2": 5}) == {"b1", "b2"} and claims.claim({"b1": 3}) == set()
    writer = Writer(turns, FollowingStore(source.address, location))
    try:
        writer.wait_for(40)
        said: list[str] = []
        report = move_store(source, target, turns, location, said.append)
        left = count(source, "SELECT count() FROM requests")
        writer.wait_for(writer.rows + 20)
    finally:
        writer.stop()
    assert count(source, "SELECT count() FROM requests") == left, "the old store is written to after the move"
    assert left == report.rows["requests"] + report.arrived_rows
    assert count(target, "SELECT count() FROM requests") == writer.rows > left
    assert count(target, "SELECT uniqExact(request_id) FROM requests") == writer.rows
    for rollup in ("requests_minute", "requests_hour", "requests_day"):
        assert count(target, f"SELECT sum(requests) FROM {rollup}") == writer.rows, rollup
    for client in pair:
        assert not count(client, f"SELECT count() FROM system.tables WHERE startsWith(name, '{COPY_PREFIX}')")
    assert BatchClaims(target).claim({"b1": 3, "b2": 5}) == {"b2"}, "the copy gives batches to other owners"
    assert any(line.startswith("requests: ") for line in said)
    # A collector that starts again as it was configured goes on where the store is.
    assert location.current(source.address).url == target.address.url


def test_a_store_with_rows_is_not_moved_into(pair: tuple[StoreClient, StoreClient], tmp_path: Path) -> None:
    source, target = pair
    target.insert_arrow("requests", batch_of(1), deduplication_token="there")
    with pytest.raises(ConfigurationError, match="rows in .* already"):
        move_store(source, target, StoreLocks(tmp_path), StoreLocation(tmp_path), print)
    assert location_of(tmp_path, source) == source.address
    damaged = next(table for table in list_tables(source) if table.name == "attempts")
    with pytest.raises(CopyDiffers, match="the copy of attempts has 0 rows"):
        load_table(target, damaged, iter((b"",)), TableDigest(1, 7))
    assert count(target, "SELECT count() FROM attempts") == 0


def location_of(data: Path, client: StoreClient) -> Any:
    return StoreLocation(data).current(client.address)


def test_a_batch_in_doubt_stops_a_command_until_it_is_settled(tmp_path: Path) -> None:
    turns = StoreLocks(tmp_path)
    with turns.held(), pytest.raises(StoreUnavailable, match="does not end"):
        with StoreLocks(tmp_path).held(patience_seconds=0):
            pass
    with turns.turn():
        pass  # ended by a signal: nobody has said that the batch is settled
    with pytest.raises(ConfigurationError, match="in the middle of a batch"):
        with turns.held():
            pass
    with turns.turn() as settle:
        settle()
    with turns.held():
        pass


def test_commands_that_copy_do_not_meet(tmp_path: Path) -> None:
    with StoreLocks(tmp_path).alone():
        with pytest.raises(ConfigurationError, match="another command"), StoreLocks(tmp_path).alone():
            pass
    with StoreLocks(tmp_path).alone():
        pass


def test_turns_wait_for_a_command_and_a_command_for_turns(tmp_path: Path) -> None:
    turns = StoreLocks(tmp_path)
    order: list[str] = []

    def write(begun: Callable[[], None]) -> None:
        begun()
        with turns.turn() as settle:
            order.append("turn")
            settle()

    started = threading.Event()
    thread = threading.Thread(target=write, args=(started.set,))
    with turns.held():
        thread.start()
        assert started.wait(PATIENCE_SECONDS)
        order.append("held")
    thread.join(PATIENCE_SECONDS)
    assert order == ["held", "turn"]


def test_a_location_that_cannot_be_read_says_what_to_do(tmp_path: Path, empty_store: Any) -> None:
    (tmp_path / "store-moved.json").write_text("{")
    with pytest.raises(ConfigurationError, match="set TOLLKEEPER_STORE_URL"):
        StoreLocation(tmp_path).current(empty_store.address())
