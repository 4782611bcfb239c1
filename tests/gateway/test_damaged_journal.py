"""A sector of the journal is lost with the process: the records beside it are kept, and what is missing is named."""

import asyncio
import json
import os
import urllib.request

import pytest

from bench.fleet.fleet import total_budget
from bench.fleet.gateway import GatewayProcess
from gateway.records.journal import Journal
from tests.gateway.journal_road import road

__all__ = ["road"]  # fixtures

SECTOR = 4096
REQUESTS = 60


@pytest.fixture
async def start(tmp_path):
    started = []

    async def begin(config):
        gateway = GatewayProcess("gw", tmp_path, config)
        started.append(gateway)
        await gateway.start()
        return gateway

    yield begin
    for gateway in started:
        gateway.kill()


async def chats(kit, port: int, count: int) -> None:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    for _ in range(count):
        writer.write(kit.request(stream=False))
        head = await asyncio.wait_for(reader.readuntil(b"\r\n\r\n"), 20)
        assert head.startswith(b"HTTP/1.1 200")
        length = next(line for line in head.lower().split(b"\r\n") if line.startswith(b"content-length"))
        await reader.readexactly(int(length.split(b":")[1]))
    writer.close()


def unwritten(data) -> tuple[int, list[int]]:
    """Zero a sector in the middle of the journal; return how many entries were there, and which it overlaps."""
    journal = Journal(data / "journal", max_bytes=1 << 30)
    entries = journal.read(journal.cursor, max_entries=10**6, max_bytes=1 << 30)
    journal.close()
    path = max((data / "journal").glob("*.segment"), key=lambda path: path.stat().st_size)
    at = path.stat().st_size // 2 // SECTOR * SECTOR
    with path.open("r+b") as file:
        file.seek(at)
        file.write(bytes(SECTOR))
    overlap = [
        number
        for number, entry in enumerate(entries)
        if entry.start.segment == int(path.stem) and entry.start.offset < at + SECTOR and entry.end.offset > at
    ]
    return len(entries), overlap


async def test_a_zeroed_sector_costs_the_records_in_it_and_the_operator_is_told(start, kit, tmp_path):
    gateway = await start(kit.configuration(("scripted-1", [kit.scripted(tokens=3)])))
    await chats(kit, gateway.port, REQUESTS)
    gateway.kill()
    before, lost = unwritten(tmp_path / "gw")
    assert before == REQUESTS and 1 < len(lost) < 20
    await gateway.start()
    health = await gateway.health()
    assert health["status"] == "ready" and "journal_damaged" in health["degraded"]
    missing = health["journal_missing"]
    assert (missing["entries"], missing["uncounted_losses"]) == (len(lost), 0)
    assert missing["from"] < missing["to"]
    with urllib.request.urlopen(f"http://127.0.0.1:{gateway.port}/metrics", timeout=10) as reply:
        assert f"tollkeeper_journal_missing_entries {len(lost)}" in reply.read().decode()
    gateway.kill()
    assert len(gateway.records()) == REQUESTS - len(lost)
    await gateway.start()  # what is known of it outlives the process
    assert (await gateway.health())["journal_missing"]["entries"] == len(lost)
    gateway.kill()
    assert f"{len(lost)} entries (numbers {lost[0] + 1} to {lost[-1] + 1})" in gateway.log()
    assert len(list((tmp_path / "gw" / "journal" / "damaged").glob("*.segment"))) == 1


async def test_a_gateway_whose_whole_journal_is_zeros_ships_on(road):
    road.write(20)
    road.journal.close()
    for path in road.directory.glob("*.segment"):
        path.write_bytes(bytes(path.stat().st_size))
    shipper = road.restart()
    assert road.journal.missing.entries == 20
    assert await shipper._ship_all()
    assert road.journal.pending_bytes == 0
    road.write(2)
    assert await shipper._ship_all()
    assert road.numbers == [21, 22]


async def test_a_damaged_sector_of_budget_totals_is_named(start, kit, tmp_path):
    config = kit.configuration(("scripted-1", [kit.scripted(tokens=3)]))
    config["budgets"] = [total_budget("b", "acme", "10")]
    gateway = await start(config)
    await chats(kit, gateway.port, 3)
    await gateway.stop()
    for path in (tmp_path / "gw" / "budgets").glob("*.segment"):
        path.write_bytes(os.urandom(path.stat().st_size))
    await gateway.start()
    health = await gateway.health()
    assert "budget_totals_damaged" in health["degraded"] and health["budget_totals_missing"]["entries"]
    json.dumps(health)


async def test_a_batch_under_way_whose_records_are_damaged_ends_and_the_rest_arrives(road):
    road.write(3)
    road.collector.then("reset")
    assert not await road.shipper()._ship_all()
    road.journal.close()
    for path in road.directory.glob("*.segment"):
        path.write_bytes(os.urandom(path.stat().st_size))
    shipper = road.restart()
    road.write(2)
    assert await shipper._ship_all()
    assert road.numbers[-2:] == [4, 5] and road.journal.pending_bytes == 0
    assert road.journal.missing.entries == 3
