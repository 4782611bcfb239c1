"""A sector of the spool is lost: the batches beside it are stored, and what is missing is named."""

from collections.abc import Callable
from typing import Any

from backends.segment_log.segments import SegmentLog
from collector.spool import Spool

SECTOR = 4096
BATCHES = 40
Make = Callable[..., Any]


def test_a_zeroed_sector_costs_the_batches_in_it_and_the_operator_is_told(
    start_collector: Make, batch_of: Make, request_record: Make, tmp_path: Any
) -> None:
    collector = start_collector()  # without a store
    for number in range(BATCHES):
        assert collector.post(batch_of(f"b{number}", request_record(), request_record())).status_code == 200
    collector.kill()
    spool = tmp_path / "data" / "spool"
    (path,) = spool.glob("*.segment")
    log = SegmentLog(spool, max_bytes=1 << 30)
    overlapping = {
        entry.start.offset
        for entry in log.read(log.cursor, max_entries=BATCHES, max_bytes=1 << 30)
        if entry.start.offset < 2 * SECTOR and entry.end.offset > SECTOR
    }
    log.close()
    with path.open("r+b") as file:
        file.seek(SECTOR)
        file.write(bytes(SECTOR))
    collector.start()
    health = collector.health()
    assert health["status"] in ("spool_damaged", "store_unreachable")
    assert health["missing"]["entries"] == len(overlapping) > 1 and health["missing"]["uncounted_losses"] == 0
    page = collector.client.get(f"http://127.0.0.1:{collector.health_port}/metrics").text
    assert f"tollkeeper_collector_spool_missing_entries {len(overlapping)}.0" in page
    # A sender that was answered may send again: what is lost is taken, and only that.
    collector.kill()
    assert f"{len(overlapping)} entries (numbers" in collector.log.read_text()
    kept = Spool(SegmentLog(spool, max_bytes=1 << 30))
    assert len(kept.read(kept.cursor, max_bytes=1 << 30)) == BATCHES - len(overlapping)
    kept.close()
    assert (spool / "damaged" / path.name).exists()
