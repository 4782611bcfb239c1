"""The installation that the tests of this folder share."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.e2e.installation import PORTS, Installation
from tests.ports import find_free_ports
from tests.steady_time import Stopwatch

PATIENCE_SECONDS = 150.0


@pytest.fixture(scope="package")  # it evaluates alerts every second, so it ends with the package
def installation(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Installation]:
    home = tmp_path_factory.mktemp("installation")
    data, port_base = home / "data", find_free_ports(PORTS)[0]
    environment = {name: value for name, value in os.environ.items() if not name.startswith("TOLLKEEPER_")}
    log = (home / "up.log").open("w")
    process = subprocess.Popen(
        [sys.executable, "-m", "tollkeeper", "up", "--data", str(data), "--port-base", str(port_base)],
        stdout=log,
        stderr=subprocess.STDOUT,
        cwd=home,
        env={
            **environment,
            "PYTHONPATH": str(Path(__file__).parents[2]),
            "COLUMNS": "200",
            "TOLLKEEPER_ALERTS_INWARD": "127.0.0.0/8",  # where the tests' receivers are
            "TOLLKEEPER_ALERTS_EVALUATE_SECONDS": "1",
        },
    )
    running = Installation(process, data, port_base)
    try:
        with Stopwatch() as watch:
            while "Tollkeeper is ready" not in running.output():
                if process.poll() is not None or watch.seconds() > PATIENCE_SECONDS:
                    pytest.fail(f"`tollkeeper up` is not ready:\n{running.output()[-5000:]}")
                time.sleep(0.05)
        yield running
    finally:
        process.send_signal(signal.SIGINT)
        try:
            process.wait(timeout=40)
        except subprocess.TimeoutExpired:
            process.kill()
        log.close()
