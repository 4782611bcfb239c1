"""What a worker of somebody else's vLLM measures reaches the collector as step records, under the gateway's names."""

import asyncio
import os
import signal
import subprocess
import sys
import time
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path

import pyarrow.dataset
import pytest
from pydantic import SecretStr

from backends.engine.vllm_engine.metering.frame_sender import FrameSender
from backends.engine.vllm_engine.metering.frames import Begun, Ended, Mark, MeasuredStep
from backends.engine.vllm_engine.metering.sequence_names import request_id_of
from gateway.observability.sidecar.service import SidecarService, serve
from gateway.observability.sidecar.settings import SidecarSettings
from tests.collector.conftest import RECORD_KEY, CollectorProcess, start_collector  # noqa: F401 - a fixture
from tests.conftest import poll

REQUEST = uuid.UUID("0192f0a0-0000-7000-8000-0000000000aa")


@pytest.fixture
def start_sidecar(tmp_path: Path) -> Iterator[Callable[[int], subprocess.Popen[bytes]]]:
    started: list[subprocess.Popen[bytes]] = []

    def start(collector_port: int) -> subprocess.Popen[bytes]:
        given = {
            "DATA": tmp_path / "sidecar",
            "METER_SOCKET": tmp_path / "m.sock",
            "METER_MODEL": "llama",
            "METER_REPLICA": "vllm-0",
            "METER_DEVICES": "GPU-1",
            "COLLECTOR_URL": f"http://127.0.0.1:{collector_port}",
            "RECORD_SIGNING_KEY": RECORD_KEY,
        }
        environment = {name: value for name, value in os.environ.items() if not name.startswith("TOLLKEEPER_")}
        environment |= {f"TOLLKEEPER_{name}": str(value) for name, value in given.items()}
        started.append(subprocess.Popen([sys.executable, "-m", "gateway.observability.sidecar"], env=environment))
        return started[-1]

    yield start
    for process in started:
        process.kill()
        process.wait()


def rows_of(folder: Path) -> list[dict[str, object]]:
    if not (folder / "engine_steps").exists():
        return []
    rows = pyarrow.dataset.dataset(folder / "engine_steps", format="parquet").to_table().to_pylist()
    return sorted((row for row in rows if row["kind"] == "step"), key=lambda row: row["started_at"])


@pytest.mark.service
def test_steps_of_a_worker_reach_the_collector_and_a_restart_loses_none(
    start_sidecar: Callable[[int], "subprocess.Popen[bytes]"],
    start_collector: Callable[..., CollectorProcess],  # noqa: F811 - the fixture
    tmp_path: Path,
) -> None:
    files = tmp_path / "files"
    collector = start_collector(forward_parquet=files, forward_parquet_seconds=0.2)
    worker, now = FrameSender(tmp_path / "m.sock", rank=0), time.monotonic_ns()
    worker.mark(Mark(now - 10_000_000, ""))
    names = (f"chatcmpl-{REQUEST}-0a1b2c3d", "somebody-elses")
    worker.add(
        [Begun(1, names[0], 8), Begun(2, names[1], 4, "acme")],
        [MeasuredStep(1, now - 9_000_000, 2_000_000, 1_000_000, keys=[1, 2], scheduled=[8, 4], context=[0, 0])],
        [],
    )
    assert not worker.flush(in_flight=0), "nobody listens yet: it is kept"
    sidecar = start_sidecar(collector.port)
    poll(lambda: worker.flush(in_flight=0), "the sidecar's socket")
    poll(lambda: len(rows_of(files)) == 1, "the first step")
    (row,) = rows_of(files)
    assert (row["model"], row["replica"], row["devices"]) == ("llama", "vllm-0", ["GPU-1"])
    assert row["request_ids"] == [REQUEST.bytes, request_id_of(names[1])] and row["tenants"] == ["", "acme"]
    assert row["busy_ns"] == 2_000_000 == sum(row["gpu_ns"])  # type: ignore[call-overload]
    assert (row["waiting"], row["kv_blocks_used"]) == (None, None), "nobody knows: not zero"

    step = MeasuredStep(2, now - 6_000_000, 1_000_000, keys=[1], scheduled=[1], context=[8])
    worker.add([], [step], [Ended(1, 2)])
    sidecar.send_signal(signal.SIGTERM)
    assert sidecar.wait(30) == 0 and not (tmp_path / "m.sock").exists()
    assert not worker.flush(in_flight=0), "kept while it is away"
    start_sidecar(collector.port)
    poll(lambda: worker.flush(in_flight=0), "the sidecar's socket again")
    poll(lambda: len(rows_of(files)) == 2, "the second step")
    first, second = rows_of(files)
    assert first["engine"] != second["engine"], "numbers of an engine have no holes"
    assert second["request_ids"] == [bytes(16)], "it began before this sidecar did"
    worker.close()


async def test_what_ends_the_sidecar_is_raised_and_its_socket_removed(tmp_path: Path, monkeypatch) -> None:
    socket = tmp_path / "m.sock"
    settings = SidecarSettings(
        data=tmp_path, meter_socket=socket, meter_model="llama", record_signing_key=SecretStr("k" * 32)
    )
    for broken in ("look", "_shipper"):
        service = SidecarService(settings)
        assert socket.exists()

        async def run() -> None:
            raise RuntimeError("broken")

        def look() -> None:
            raise RuntimeError("broken")

        with monkeypatch.context() as patched:
            if broken == "look":
                patched.setattr(service, "look", look)
            else:
                patched.setattr(service._shipper, "run", run)
            with pytest.raises(RuntimeError, match="broken"):
                await asyncio.wait_for(serve(service), 30)
        assert not socket.exists()


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        (f"chatcmpl-{REQUEST}", REQUEST.bytes),
        (f"cmpl-{REQUEST}-0", REQUEST.bytes),
        (f"cmpl-{REQUEST}-12-0a1b2c3d", REQUEST.bytes),
        (f"1_chatcmpl-{REQUEST}-0a1b2c3d", REQUEST.bytes),
        (REQUEST.hex, REQUEST.bytes),
    ],
)
def test_a_gateway_s_request_is_known_by_its_id_whatever_vllm_makes_of_it(name: str, expected: bytes) -> None:
    assert request_id_of(name) == expected
    assert request_id_of(f"x{name}y") != expected
