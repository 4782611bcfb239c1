"""What `tests/warm_start.py` starts is the test run's own child: with its environment, output, signals and status."""

import os
import signal
import subprocess
from pathlib import Path

import pytest

from tests import warm_start

MODULE = "tests.repository.told"


def test_what_is_run_says_what_python_m_says(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    env = {**os.environ, "TOLD": "of here"}
    done = warm_start.run(MODULE, "7", "x y", env=env)
    assert done.returncode == 7
    assert done.stdout.splitlines() == ["__main__", f"{os.getpid()}", str(tmp_path), "of here", "7 x y"]
    assert done.stderr == "ends with 7\n"
    assert warm_start.run(MODULE, "0", env=dict(os.environ)).stdout.splitlines()[3] == "", "and nothing of another"


def test_what_is_started_is_signalled_waited_for_and_killed_as_any_process() -> None:
    with Path(os.devnull).open("wb") as nowhere:
        for number in (signal.SIGTERM, signal.SIGKILL):
            process = warm_start.start(MODULE, ["sleep"], env=os.environ, stdout=nowhere, stderr=nowhere)
            assert process.poll() is None
            with pytest.raises(subprocess.TimeoutExpired):
                process.wait(0.05)
            process.send_signal(number)
            assert process.wait(30) == process.poll() == process.returncode == -number
            process.kill()  # nobody is there any more, and no other gets it
