"""The data directory as the command line sees it: one supervisor, no leftovers of a killed one."""

import os
import subprocess
import sys
from pathlib import Path

import psutil
import pytest

from contracts.errors import ConfigurationError
from tollkeeper.installation import Installation


def installation(path: Path) -> Installation:
    made = Installation(path / "data")
    made.prepare()
    return made


def test_a_second_supervisor_is_refused_with_the_pid_of_the_first(tmp_path: Path) -> None:
    first, second = installation(tmp_path), installation(tmp_path)
    with first.locked():
        with pytest.raises(ConfigurationError, match=rf"runs already on .*data \(pid {os.getpid()}\)"):
            with second.locked():
                pass
    with second.locked():
        pass  # the first has gone


def test_the_lock_of_a_killed_supervisor_is_free(tmp_path: Path) -> None:
    made = installation(tmp_path)
    code = (
        "import sys, time, pathlib; from tollkeeper.installation import Installation\n"
        "with Installation(pathlib.Path(sys.argv[1])).locked(): print('held', flush=True); time.sleep(600)"
    )
    with subprocess.Popen([sys.executable, "-c", code, str(made.data)], stdout=subprocess.PIPE, text=True) as holder:
        assert holder.stdout is not None and holder.stdout.readline() == "held\n"
        with pytest.raises(ConfigurationError, match=str(holder.pid)):
            with made.locked():
                pass
        holder.kill()
        holder.wait()
    with made.locked():
        pass


def test_a_directory_that_cannot_be_made_is_named_with_the_remedy(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(ConfigurationError, match=r"file/data is not writable .* choose another with --data"):
        Installation(tmp_path / "file" / "data").prepare()


def test_a_leftover_is_ended_only_where_it_runs_our_command(tmp_path: Path) -> None:
    made = installation(tmp_path)
    ours = (sys.executable, "-c", "import time; time.sleep(600)")
    foreign = (sys.executable, "-c", "import time; time.sleep(601)")
    with subprocess.Popen(ours) as left, subprocess.Popen(foreign) as stranger:
        try:
            (made.run / "store.pid").write_text(f"{left.pid}\n")
            (made.run / "gateway.pid").write_text(f"{stranger.pid}\n")
            (made.run / "collector.pid").write_text("nonsense\n")
            ended = made.end_leftovers({"store": ours, "gateway": ours, "collector": ours, "dashboard": ours})
            assert ended == ["store"]
            assert not psutil.pid_exists(left.pid)
            assert stranger.poll() is None
            assert not list(made.run.glob("*.pid"))
        finally:
            left.kill()
            stranger.kill()


def test_a_new_data_directory_and_an_old_one_are_their_owners_alone(tmp_path: Path) -> None:
    assert installation(tmp_path / "new" / "place").data.stat().st_mode & 0o777 == 0o700
    (tmp_path / "data").mkdir(mode=0o750)
    assert installation(tmp_path).data.stat().st_mode & 0o777 == 0o700


def test_a_supervisor_counts_as_running_until_it_stops_or_is_killed(tmp_path: Path) -> None:
    made = installation(tmp_path)
    assert not made.is_supervised()
    with made.locked():
        made.write_addresses({"gateway": "http://127.0.0.1:18080"})
        assert made.is_supervised()
    killed = subprocess.Popen([sys.executable, "-c", ""])
    killed.wait()
    (made.run / "up.lock").write_text(f"{killed.pid}\n")  # which forgets no addresses
    assert not made.is_supervised()


def test_addresses_are_found_while_written_and_forgotten_after(tmp_path: Path) -> None:
    made = installation(tmp_path)
    assert made.address_of("control") is None
    made.write_addresses({"control": "http://127.0.0.1:18081"})
    assert Installation(made.data).address_of("control") == "http://127.0.0.1:18081"
    assert made.address_of("dashboard") is None
    made.forget_addresses()
    assert made.address_of("control") is None
