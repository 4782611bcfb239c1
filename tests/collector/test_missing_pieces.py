"""A spool and a store that are gone at a start are reported once, with the rows that are known to be missing."""

import shutil
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest

from backends.segment_log.pieces import Pieces
from tests.collector.conftest import CollectorProcess, wait_until
from tests.collector.test_store import behind

Make = Callable[..., Any]


def has_exported(collector: CollectorProcess, rows: int) -> bool:
    return bool(collector.health()["exported"].get("requests") == rows)


@pytest.mark.drill
def test_a_missing_store_and_a_missing_spool_are_reported_once(
    migrated_store: Any, request_record: Make, batch_of: Make
) -> None:
    data = migrated_store.data
    for missing in ([], ["spool", "store"], []):
        migrated_store.start()
        migrated_store.migrate()  # a store that was made again for one that is missing
        collector = CollectorProcess(data, **behind(migrated_store)).start()
        try:
            assert [loss["piece"] for loss in collector.health()["missing_pieces"]] == [
                name for name in missing if name == "spool"
            ]
            assert sorted(loss.piece for loss in Pieces(data).losses()) == missing or not missing
            before = collector.health()["exported"].get("requests", 0)
            batch = batch_of(f"batch-{len(missing)}-{before}", *(request_record() for _ in range(3)))
            assert collector.post(batch).status_code == 200
            wait_until(partial(has_exported, collector, 3), "three rows")
            assert collector.terminate() == 0
        finally:
            collector.close()
            migrated_store.stop()
        if not missing and not Pieces(data).losses():
            shutil.rmtree(data / "store")
            shutil.rmtree(data / "spool")
    losses = {loss.piece: loss for loss in Pieces(data).losses()}
    assert set(losses) == {"spool", "store"}, "and nothing new at the start after"
    assert losses["store"].held["rows_of_requests"] == 3
