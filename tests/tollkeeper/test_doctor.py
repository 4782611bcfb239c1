"""The doctor's report: its shape, and that it finds what is wrong."""

import os
import shutil
import socket
from datetime import UTC, datetime, timedelta
from ipaddress import ip_network
from pathlib import Path
from secrets import token_urlsafe
from types import SimpleNamespace

import pytest

from analytics.alerts.dispatcher import Dispatcher
from backends.channels.base import ChannelSettings
from backends.channels.table import open_senders
from backends.control.alert_log import write_delivery
from backends.control.alert_rules import create_channel
from backends.control.changes import Author
from backends.control.database import ControlDatabase
from backends.control.sealer import Sealer
from contracts.control import AlertChannel
from tests.receivers import HttpReceiver
from tollkeeper import doctor
from tollkeeper.doctor import Check, Report, examine
from tollkeeper.ports import Ports


def by_name(report: Report) -> dict[str, Check]:
    return {check.name: check for check in report.checks}


def quick_environment() -> dict[str, str]:
    # A store by URL, so that the engine is not started for every test.
    return {"TOLLKEEPER_STORE_URL": "http://127.0.0.1:1", "PATH": os.environ["PATH"]}


def test_the_report_for_machines_has_the_promised_shape(tmp_path: Path) -> None:
    report = examine(tmp_path, Ports.from_base(24000), quick_environment()).as_json()
    assert set(report) == {"ok", "checks"}
    checks = report["checks"]
    assert isinstance(checks, list)
    assert {frozenset(check) for check in checks} == {frozenset({"name", "status", "detail", "remedy"})}
    assert {"python", "packages", "ports", "data directory", "disk", "store engine", "redis", "postgresql", "gpu"} <= {
        check["name"] for check in checks
    }
    assert all(check["remedy"] for check in checks if check["status"] == "fail")


def test_the_embedded_engine_is_really_started(tmp_path: Path) -> None:
    environment = {name: value for name, value in os.environ.items() if name != "TOLLKEEPER_STORE_URL"}
    engine = by_name(examine(tmp_path, Ports.from_base(24000), environment))["store engine"]
    assert engine.status == "ok"
    assert "ClickHouse 2" in engine.detail


def test_the_embedded_stores_own_address_needs_the_embedded_engine(tmp_path: Path) -> None:
    environment = {**os.environ, "TOLLKEEPER_STORE_URL": "http://127.0.0.1:24007"}
    engine = by_name(examine(tmp_path, Ports.from_base(24000), environment))["store engine"]
    assert engine.status == "ok" and "ClickHouse 2" in engine.detail


def test_a_held_port_fails_and_is_named(tmp_path: Path) -> None:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen()
        port = int(listener.getsockname()[1])
        report = examine(tmp_path, Ports(gateway=port), quick_environment())
    held = [check for check in report.checks if check.name == "ports" and str(port) in check.detail]
    assert [check.status for check in held] == ["fail"]
    assert "held by this process" in held[0].detail
    assert not report.ok


def test_a_directory_below_a_file_fails_with_the_remedy(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    check = by_name(examine(tmp_path / "file" / "data", Ports.from_base(24000), quick_environment()))["data directory"]
    assert (check.status, check.remedy) == ("fail", "choose another with --data or TOLLKEEPER_DATA")


@pytest.mark.parametrize(("free_gib", "status"), [(0.99, "fail"), (1, "warn"), (4.99, "warn"), (5, "ok")])
def test_disk_space_is_judged_at_its_thresholds(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, free_gib: float, status: str
) -> None:
    monkeypatch.setattr(shutil, "disk_usage", lambda _: SimpleNamespace(free=int(free_gib * 1024**3)))
    assert doctor._check_disk(tmp_path).status == status


def test_another_version_is_a_warning_and_a_missing_package_a_failure(tmp_path: Path) -> None:
    constraints = tmp_path / "base.txt"
    constraints.write_text("# pinned\nmsgspec==0.0.1\nno-such-distribution==1.0\n")
    checks = list(doctor._check_packages(constraints))
    # The unknown one is nothing we need, so its absence is no fault.
    assert [check.status for check in checks] == ["warn"]
    assert "msgspec" in checks[0].detail and "known to work: 0.0.1" in checks[0].detail


def test_a_local_build_of_the_pinned_version_is_that_version(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    constraints = tmp_path / "base.txt"
    constraints.write_text("torch==2.13.0\n")
    monkeypatch.setattr("importlib.metadata.version", lambda _: "2.13.0+cpu")
    assert [check.status for check in doctor._check_packages(constraints)] == ["ok"]


def test_a_report_is_ok_with_warnings_and_not_with_a_failure() -> None:
    warning, failure = Check("gpu", "warn", "none"), Check("disk", "fail", "full", "free some")
    assert Report((warning,)).ok
    assert not Report((warning, failure)).ok


async def test_a_channel_that_refuses_is_named_until_a_notice_arrives(tmp_path: Path, migrated_sqlite: Path) -> None:
    shutil.copy(migrated_sqlite, tmp_path / "control.db")

    def channels() -> list[Check]:
        report = examine(tmp_path, Ports.from_base(24000), quick_environment())
        return [check for check in report.checks if check.name == "alert channels"]

    assert channels() == []
    database = ControlDatabase(f"sqlite:///{tmp_path / 'control.db'}")
    clock = datetime(2026, 11, 2, 12, 0, tzinfo=UTC)
    sealer = Sealer(token_urlsafe(32))
    settings = ChannelSettings(timeout_seconds=10, inward=(ip_network("127.0.0.0/8"),))

    async def sends_to(receiver: HttpReceiver, minutes: int) -> None:
        at = clock + timedelta(minutes=minutes)
        with database.session() as session:
            if minutes == 0:
                create_channel(session, Author("test", at), "ops", "", "slack", receiver.url, sealer)
            body = {"event": "test", "at": at.isoformat(), "alerts": [], "ids": [f"tst_{minutes}"]}
            channel = session.get(AlertChannel, "ops")
            assert channel is not None
            write_delivery(session, channel, "test", body, at)
        async with open_senders(settings) as senders:
            await Dispatcher(database, senders, lambda: at, sealer).send_due()

    async with HttpReceiver(statuses=[404, 200]) as receiver:
        await sends_to(receiver, 0)
        (refused,) = channels()
        assert refused.status == "warn" and "ops (slack)" in refused.detail and "answered 404" in refused.detail
        assert "secret" not in refused.detail and "tollkeeper alerts test ops" in refused.remedy
        await sends_to(receiver, 1)
        assert channels() == []
    database.close()
