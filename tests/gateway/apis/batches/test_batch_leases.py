"""Batches and gateways: one at a time, another when that one is gone, and no finished line twice."""

import asyncio
import json
import os
import signal
import sys
from collections import Counter
from dataclasses import replace
from pathlib import Path

import openai
import pytest
import yaml
from openai.types import Batch
from sqlalchemy import String

from backends.objects.batches import BATCHES
from contracts.recording.records import RequestRecord, decode_record
from gateway.process.settings import GatewaySettings
from gateway.records.journal import Journal, unpack_entry
from tests.gateway.apis.batches.batch_kit import chat_line, create, ended, results

PRICES = [
    {
        "model": "scripted-1",
        "version": "t/1",
        "usd_per_mtok": {"input_text": "1", "output_text": "2"},
        "batch_usd_per_mtok": {"input_text": "0.5", "output_text": "1"},
    }
]


def lines_of(count):
    return [chat_line(f"r{number}", max_tokens=1) for number in range(count)]


@pytest.fixture(params=["sqlite", pytest.param("postgresql", marks=pytest.mark.service)])
def objects_url(request, tmp_path):
    if request.param == "postgresql":
        return request.getfixturevalue("postgres").create_short_lived()
    return f"sqlite:///{tmp_path}/objects.db"


@pytest.fixture
def start(start_gateway, kit, objects_url):
    """Start a gateway on the shared database."""

    async def start(lease_seconds=600.0, data=None, **script):
        config = kit.configuration(("scripted-1", [kit.scripted(**script)]))
        more = {} if data is None else {"data": data}
        gateway = await start_gateway(config, objects_url=objects_url, batch_concurrency=2, **more)
        runner = gateway.gateway.batches._runner
        runner._settings = replace(runner._settings, lease_seconds=lease_seconds, look_seconds=0.1)
        return gateway

    return start


async def test_several_gateways_share_the_batches_and_run_each_line_once(start):
    gateways = [await start(first_ms=20) for _ in range(2)]
    batches = [await create(gateways[number % 2].sdk(), lines_of(10)) for number in range(4)]
    for number, batch in enumerate(batches):
        done = await ended(gateways[(number + 1) % 2].sdk(), batch)
        assert done.status == "completed" and done.request_counts.completed == 10
    runs = Counter(record.run_id for gateway in gateways for record in gateway.requests())
    assert runs == {batch.id: 10 for batch in batches}
    for batch in batches:
        ran_at = [any(record.run_id == batch.id for record in gateway.requests()) for gateway in gateways]
        assert ran_at.count(True) == 1, "one gateway has a batch"


async def test_a_gateway_that_gives_no_sign_of_life_loses_its_batch_and_what_it_still_does_is_not_kept(
    start, eventually
):
    first = await start(lease_seconds=0.2)
    target, may_answer = first.target("scripted-1", "s1"), asyncio.Event()
    answers = target.call

    async def answers_late(call, sink):
        await may_answer.wait()
        return await answers(call, sink)

    target.call = answers_late
    batch = await create(first.sdk(), lines_of(4))
    await eventually(lambda: first.gateway.batches.state.serving == 2, 10)
    lost = first.gateway.batches._runner

    async def never() -> None:
        await asyncio.Event().wait()

    lost._look = never  # as if the process hung: leases are not renewed, and nothing is noticed
    second = await start()
    done = await ended(second.sdk(), batch)
    assert done.request_counts.completed == 4 and len(second.requests()) == 4
    may_answer.set()
    await eventually(lambda: len(first.requests()) == 2, 10)
    await eventually(lambda: not lost.state.batches, 10)
    again = await second.sdk().batches.retrieve(batch.id)
    assert again == done and len(await results(second.sdk(), done.output_file_id)) == 4


async def test_a_gateway_that_stops_leaves_its_batch_to_another_at_once(start, eventually):
    first = await start(first_ms=50)
    client = first.sdk()
    batch = await create(client, lines_of(20))
    await eventually(lambda: len(first.requests()) >= 3, 10)
    await first.gateway.batches.stop(5)
    done_here = len(first.requests())
    second = await start()
    done = await ended(second.sdk(), batch)
    assert done.request_counts.completed == 20
    assert len(first.requests()) == done_here and len(second.requests()) == 20 - done_here, "no line ran twice"


async def test_a_restart_at_the_same_place_goes_on_without_waiting_for_the_lease(start, eventually, tmp_path):
    first = await start(data=tmp_path / "same", fault="stall")
    batch = await create(first.sdk(), lines_of(4))
    await eventually(lambda: first.gateway.batches.state.serving == 2, 10)
    runner = first.gateway.batches._runner
    runner._shop.work.release_all = lambda: asyncio.sleep(0)  # as if it was killed
    await first.gateway.stop()
    first.gateway.stop = lambda: asyncio.sleep(0)
    second = await start(data=tmp_path / "same")
    done = await ended(second.sdk(), batch)
    assert done.request_counts.completed == 4


@pytest.mark.parametrize("name", ["g", "g" * 300])
def test_no_two_workers_are_one_place_however_long_the_directory_s_name_is(name):
    def place(number):
        data = Path("/" + "x" * 250)
        settings = GatewaySettings(data=data, gateway_name=name, workers=2, worker=number, redis_url="redis://h")
        return settings.batch_settings.runner.place

    assert place(1) != place(2) and place(1) == place(1)
    kind = BATCHES.c.lease_owner.type
    assert isinstance(kind, String) and kind.length is not None and len(place(1)) + len("#") + 16 <= kind.length


async def test_a_batch_is_cancelled_through_another_gateway(start, eventually):
    first = await start(first_ms=100)
    batch = await create(first.sdk(), lines_of(40))
    await eventually(lambda: len(first.requests()) >= 2, 10)
    second = await start()
    assert (await second.sdk().batches.cancel(batch.id)).status == "cancelling"
    done = await ended(second.sdk(), batch)
    assert done.status == "cancelled" and done.request_counts.completed == len(first.requests())


class Process:
    """`python -m gateway` on a data directory, which can be killed and started again."""

    def __init__(self, tmp_path, port, config) -> None:
        self.data, self.port = tmp_path / "data", port
        (tmp_path / "gateway.yaml").write_text(yaml.safe_dump(config))
        inherited = {name: value for name, value in os.environ.items() if not name.startswith("TOLLKEEPER_")}
        self.environment = inherited | {
            "TOLLKEEPER_DATA": str(self.data),
            "TOLLKEEPER_GATEWAY_CONFIG": str(tmp_path / "gateway.yaml"),
            "TOLLKEEPER_GATEWAY_PORT": str(port),
            "TOLLKEEPER_BATCH_CONCURRENCY": "4",
        }
        self.log = tmp_path / "gateway.log"
        self.starts = 0
        self.child: asyncio.subprocess.Process | None = None

    async def start(self) -> None:
        self.starts += 1
        with self.log.open("ab") as log:
            self.child = await asyncio.create_subprocess_exec(
                sys.executable, "-m", "gateway", env=self.environment, stderr=log
            )
        async with asyncio.timeout(30):
            while self.log.read_text().count("gateway ready") < self.starts:
                assert self.child.returncode is None, self.log.read_text()
                await asyncio.sleep(0.02)

    async def kill(self, number: int = signal.SIGKILL) -> None:
        if self.child is not None and self.child.returncode is None:
            self.child.send_signal(number)
            await self.child.wait()

    def records(self) -> list[RequestRecord]:
        """What the journal has, once the process has ended."""
        journal = Journal(self.data / "journal", max_bytes=1 << 30)
        entries = journal.read(journal.cursor, max_entries=100_000, max_bytes=1 << 30)
        found = [decode_record(unpack_entry(entry)[1]) for entry in entries]
        journal.close()
        return [record for record in found if isinstance(record, RequestRecord)]


@pytest.fixture
async def process(tmp_path, free_ports, kit):
    config = kit.configuration(("scripted-1", [kit.scripted(first_ms=30, tokens=5)]), prices=PRICES)
    made = Process(tmp_path, free_ports(1)[0], config)
    yield made
    await made.kill()


@pytest.mark.drill
async def test_kill_9_half_way_loses_no_line_and_runs_no_finished_line_twice(process, kit):
    count = 40
    await process.start()
    async with openai.AsyncOpenAI(
        base_url=f"http://127.0.0.1:{process.port}/v1", api_key=kit.KEY, max_retries=0
    ) as client:
        batch = await create(client, [chat_line(f"r{number}") for number in range(count)])
        async with asyncio.timeout(20):
            while _completed(await client.batches.retrieve(batch.id)) < count // 3:
                await asyncio.sleep(0.005)
        await process.kill()
        first = process.records()
        await process.start()
        done = await ended(client, batch, within=30)
        assert (done.status, done.request_counts.completed, done.request_counts.failed) == ("completed", count, 0)
        answers = await results(client, done.output_file_id)
    await process.kill(signal.SIGTERM)
    records = process.records()
    assert len(answers) == count and count // 3 <= len(first) < count
    # Those under way at the kill, at most as many as run at once, may be there twice: each is billed for what it used.
    again = len(records) - count
    assert 0 <= again <= 4
    served = {answer["response"]["request_id"] for answer in answers.values()}
    assert len(served & {_text(record.request_id) for record in records}) == count, "an answer without its record"
    for record in records:
        assert record.run_id == batch.id
        if _text(record.request_id) not in served and record.error_code == "lost_in_crash":
            tokens = record.usage.input_tokens * 500_000 + record.usage.output_tokens * 1_000_000
            assert (record.count_method, record.cost_pico_usd) == ("estimate", tokens)
            continue
        assert record.usage.output_tokens == 5
        assert record.cost_pico_usd == 3 * 500_000 + 5 * 1_000_000
    usage = done.usage
    assert (usage.input_tokens, usage.output_tokens) == (3 * count, 5 * count), "each line counted once"


def _completed(batch: Batch) -> int:
    return 0 if batch.request_counts is None else batch.request_counts.completed


def _text(request_id: bytes) -> str:
    text = request_id.hex()
    return "-".join((text[:8], text[8:12], text[12:16], text[16:20], text[20:]))


async def test_an_edge_gateway_that_keeps_nothing_loads_no_database():
    code = (
        "import asyncio, pathlib, sys, tempfile, yaml\n"
        "from gateway.process.app import Gateway\n"
        "from gateway.process.settings import GatewaySettings\n"
        "async def main(data):\n"
        "    (data / 'g.yaml').write_text(sys.argv[1])\n"
        "    gateway = Gateway(GatewaySettings(data=data / 'd', gateway_config=data / 'g.yaml', gateway_port=0))\n"
        "    await gateway.start()\n"
        "    await asyncio.sleep(0.3)\n"
        "    await gateway.stop()\n"
        "    return 'sqlalchemy' in sys.modules or (data / 'd' / 'objects.db').exists()\n"
        "with tempfile.TemporaryDirectory() as data:\n"
        "    sys.exit(asyncio.run(main(pathlib.Path(data))))\n"
    )
    config = {
        "keys": [{"key": "tk-" + "A" * 43, "tenant": "acme"}],
        "pools": [{"name": "p", "targets": [{"name": "s", "kind": "scripted"}]}],
        "models": [{"name": "m", "pool": "p"}],
    }
    child = await asyncio.create_subprocess_exec(sys.executable, "-c", code, json.dumps(config))
    assert await asyncio.wait_for(child.wait(), 30) == 0
