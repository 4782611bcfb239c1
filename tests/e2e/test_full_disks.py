"""A disk that fills up under a whole installation: every process says so, and all goes on when there is room again."""

import json
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from backends.store.client import StoreClient
from backends.telemetry.otlp import CONTENT_TYPE, LOGS_PATH
from bench.crashing.service import Service
from tests.collector.conftest import RECORD_KEY, make_request_record, packed_batch, wait_until
from tests.conftest import StoreProcess
from tests.ports import find_free_ports

pytestmark = pytest.mark.drill

DISK_BYTES = 512 << 20


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    place = tmp_path / "disk"
    place.mkdir()
    if subprocess.run(
        ["mount", "-t", "tmpfs", "-o", f"size={DISK_BYTES}", "none", place], capture_output=True
    ).returncode:
        pytest.skip("only root may mount a file system")
    yield place
    subprocess.run(["umount", "--lazy", place], check=True)


@pytest.fixture
def fill(small_disk: Path) -> Callable[[], Path]:
    def use_up() -> Path:
        filler = small_disk / "filler"
        with filler.open("wb", buffering=0) as file:
            for size in (1 << 20, 1 << 12):
                try:
                    while file.write(bytes(size)):
                        pass
                except OSError:
                    continue
        return filler

    return use_up


def page(url: str) -> tuple[int, dict[str, Any]]:
    try:
        with urllib.request.urlopen(url, timeout=10) as reply:
            return reply.status, json.loads(reply.read())
    except urllib.error.HTTPError as error:
        with error:
            return error.code, json.loads(error.read())


def test_a_full_disk_is_told_by_every_process_and_all_go_on_when_there_is_room(
    small_disk: Path, fill: Callable[[], Path]
) -> None:
    data = small_disk / "data"
    store = StoreProcess(data)
    store.log = small_disk.parent / "store.log"  # on a disk that has room for it
    gateway, control, analytics, collector, health, grpc = find_free_ports(6)
    environment = {
        **{name: value for name, value in store.environment.items() if name.startswith("TOLLKEEPER_")},
        "TOLLKEEPER_GATEWAY_PORT": str(gateway),
        "TOLLKEEPER_CONTROL_PORT": str(control),
        "TOLLKEEPER_ANALYTICS_PORT": str(analytics),
        "TOLLKEEPER_COLLECTOR_PORT": str(collector),
        "TOLLKEEPER_COLLECTOR_HEALTH_PORT": str(health),
        "TOLLKEEPER_OTLP_GRPC_PORT": str(grpc),
        "TOLLKEEPER_RECORD_SIGNING_KEY": RECORD_KEY,
        "TOLLKEEPER_COLLECTOR_URL": f"http://127.0.0.1:{collector}",
    }
    ready = {
        "collector": f"http://127.0.0.1:{health}/ready",
        "gateway.control": f"http://127.0.0.1:{control}/ready",
        "analytics": f"http://127.0.0.1:{analytics}/ready",
        "gateway": f"http://127.0.0.1:{gateway}/ready",
    }
    services: list[Service] = []
    try:
        store.start()
        migrating = subprocess.run(
            [sys.executable, "-m", "migrations"],
            env={**store.environment, **environment},
            capture_output=True,
            check=False,
        )
        assert migrating.returncode == 0, migrating.stderr
        for name, url in ready.items():
            service = Service(name, name, small_disk.parent, url, environment)
            services.append(service)
            service.start()
        for name, url in ready.items():
            status, told = page(url)
            assert status == 200, (name, told)
            assert "full" not in {disk["state"] for disk in told["disks"]}, (name, told)
        filler = fill()
        found = {name: page(url) for name, url in ready.items()}
        for name, (_, told) in found.items():
            assert "disks" in told, (name, told)
            assert [disk["state"] for disk in told["disks"]] == ["full"], (name, told)
            assert {disk["setting"] for disk in told["disks"]} <= {"TOLLKEEPER_DATA", "TOLLKEEPER_STORE_URL"}
            assert str(small_disk) not in json.dumps(told), name
        assert {name: status for name, (status, _) in found.items() if name != "gateway"} == {
            "collector": 503,
            "gateway.control": 503,
            "analytics": 200,
        }
        reader = store.client("reader")
        assert reader.query("SELECT 7 AS seven") == [{"seven": 7}], "an answer of a store whose disk is full"
        assert reader.query_columns("SELECT 7 AS seven") == {"seven": [7]}
        assert list(reader.query_frame("SELECT 7 AS seven").seven) == [7]
        reader.close()
        assert found["collector"][1]["status"] == "disk_full"
        assert found["gateway.control"][1]["status"] == "disk_full"
        gateway_says = found["gateway"][1]
        assert "disk_full" in [*gateway_says["problems"], *gateway_says["degraded"]]
        while (answer := post(collector, body := new_batch())).status_code == 200:
            pass  # what is left of the last pages
        assert answer.status_code == 429
        assert "TOLLKEEPER_DATA" in answer.text
        assert str(small_disk) not in answer.text
        wait_until(
            lambda: "disk full holds=store setting=TOLLKEEPER_DATA" in store.log.read_text(), "the store's line", 60
        )
        filler.unlink()
        for name, url in ready.items():
            wait_until(lambda: page(url)[0] == 200, f"{name} to be ready again", 30)  # noqa: B023
        assert post(collector, body).status_code == 200
        wait_until(lambda: page(ready["collector"])[1]["spool_bytes"] == 0, "the export", 60)
        wait_until(lambda: "disk has room again" in store.log.read_text(), "the store's other line", 60)
        client: StoreClient = store.client()
        (row,) = client.query("SELECT count() AS n, uniqExact(request_id) AS ids FROM requests")
        assert row["n"] == row["ids"]
        assert row["n"]
        client.close()
    finally:
        for service in services:
            service.end()
        store.kill()


def post(port: int, body: bytes) -> httpx.Response:
    headers = {"Content-Type": CONTENT_TYPE}
    return httpx.post(f"http://127.0.0.1:{port}{LOGS_PATH}", content=body, headers=headers, trust_env=False)


def new_batch() -> bytes:
    return packed_batch(f"batch {time.time_ns()}", *[make_request_record() for _ in range(50)])
