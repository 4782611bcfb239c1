"""The audit's verification over HTTP: sound, changed, and what who is bound to a tenant is told of it."""

import threading
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from fastapi.testclient import TestClient
from sqlalchemy import text

from backends.audit.chain import AuditChain
from backends.audit.options import audit_root
from backends.audit.signing import AuditKeys, AuditSigner
from backends.control.audit_checks import AuditFindings, check_audit
from backends.control.database import ControlDatabase
from backends.secrets.secret_files import SecretFiles
from gateway.control.audit_verification import AuditVerifier
from tests.gateway.control.conftest import AsRole
from tests.steady_time import poll_within

pytestmark = [
    pytest.mark.parametrize("control_database_url", ["sqlite"], indirect=True),
    pytest.mark.usefixtures("control_database_url"),
]


def said(client: TestClient, max_age_seconds: int = 1) -> Any:
    reply = client.get("/v1/audit/verification", params={"max_age_seconds": max_age_seconds})
    assert reply.status_code == 200, reply.text
    return reply.json()


def place(told: Any, name: str) -> Any:
    return next(each for each in told["places"] if each["place"] == name)


def test_a_sound_log_is_said_to_be_up_to_its_last_entry_and_checkpoint(owner: TestClient) -> None:
    last = owner.get("/v1/audit", params={"limit": 1}).json()["data"][0]["id"]

    def is_vouched_for() -> bool:
        told = said(owner)
        changes, chain = place(told, "control database"), place(told, "control")
        return bool(changes["confirmed_upto"] == last and chain["signed_upto"] == chain["last"] > 0)

    assert poll_within(is_vouched_for, 15), said(owner)
    told = said(owner, 600)
    assert (told["is_sound"], told["problem"]) == (True, "")
    changes = place(told, "control database")
    assert (changes["entries"], changes["last"], changes["fault"]) == (last, last, None)
    assert place(told, "control")["checkpoints"] > 0


def test_an_entry_that_was_changed_is_named(owner: TestClient, control_database: ControlDatabase) -> None:
    with control_database.session() as session:
        for name in session.scalars(text("SELECT name FROM sqlite_master WHERE type = 'trigger'")).all():
            session.execute(text(f"DROP TRIGGER {name}"))
        session.execute(text("UPDATE audit SET actor = 'nobody' WHERE id = 2"))
    told = said(owner)
    assert told["is_sound"] is False
    fault = place(told, "control database")["fault"]
    assert fault["entry"] == 2 and "changed" in fault["what"]


def test_who_is_bound_to_a_tenant_is_told_of_changes_alone(owner: TestClient, as_role: AsRole, tmp_path: Path) -> None:
    signer = AuditSigner.of(SecretFiles(tmp_path / "secrets"))
    AuditChain(audit_root(tmp_path) / "gateway", "gateway", signer).close()
    assert poll_within(lambda: len(said(owner)["places"]) == 3, 15)
    for client, places in ((owner, 3), (as_role("finance"), 3), (as_role("finance", "acme"), 2)):
        told = said(client, 600)
        assert len(told["places"]) == places and told["is_sound"] is True
    assert {each["place"] for each in said(as_role("admin", "acme"), 600)["places"]} == {"control", "control database"}


def test_a_key_that_is_gone_is_a_sentence(owner: TestClient, tmp_path: Path) -> None:
    for file in (tmp_path / "secrets").glob("audit_signing*"):
        file.unlink()
    told = said(owner)
    assert told["is_sound"] is None and told["problem"] and told["places"] == []


def test_who_is_bound_to_a_tenant_is_not_told_of_paths_restores_and_erasures(
    owner: TestClient, as_role: AsRole, control_database: ControlDatabase, tmp_path: Path
) -> None:
    def answered(findings: AuditFindings | OSError) -> tuple[Any, Any]:
        def check(data: Path, keys: AuditKeys, database: ControlDatabase) -> AuditFindings:
            if isinstance(findings, OSError):
                raise findings
            return findings

        owner.app.state.audit_verifier.close()  # type: ignore[attr-defined]  # FastAPI's
        owner.app.state.audit_verifier = AuditVerifier(control_database, tmp_path, check=check)  # type: ignore[attr-defined]
        return said(owner), said(as_role("finance", "acme"), 600)

    bare: dict[str, Any] = {"place": "control", "chain": "control", "entries": 3, "last": 3, "fault": None}
    restored = {**bare, "checkpoints": 1, "signed_upto": 3, "notes": ["ann accepted: gateway-7 ends with entry 9123"]}
    changes = {**bare, "place": "control database", "confirmed_upto": 3, "erased": 2, "notes": []}
    told, bound = answered(AuditFindings([restored, changes], []))
    assert place(told, "control")["notes"] and place(told, "control database")["erased"] == 2
    assert [(each["notes"], each["erased"]) for each in bound["places"]] == [([], None), ([], None)]
    told, bound = answered(OSError(5, "Input/output error", str(tmp_path / "audit")))
    assert str(tmp_path) in told["problem"]
    assert bound["problem"] and str(tmp_path) not in bound["problem"] and bound["is_sound"] is None


def test_a_log_that_takes_long_is_verified_a_tenth_of_the_time_however_often_it_is_asked_for(
    control_database: ControlDatabase, tmp_path: Path
) -> None:
    AuditSigner.of(SecretFiles(tmp_path / "secrets"))
    now, begun, ticks = [datetime(2026, 11, 2, tzinfo=UTC)], [], iter(range(0, 1000, 20))

    def check(data: Path, keys: AuditKeys, database: ControlDatabase) -> AuditFindings:
        begun.append(now[0])
        return AuditFindings([], [])

    verifier = AuditVerifier(control_database, tmp_path, lambda: now[0], check, lambda: next(ticks))  # 20 s each
    try:
        for _ in range(401):
            verifier.look(1, 10)
            now[0] += timedelta(seconds=1)
        assert [(at - begun[0]).total_seconds() for at in begun] == [0, 201]
    finally:
        verifier.close()


def test_many_who_ask_at_once_do_not_take_the_control_planes_threads(
    control_database: ControlDatabase, tmp_path: Path
) -> None:
    AuditSigner.of(SecretFiles(tmp_path / "secrets"))
    may_end = threading.Event()

    def check(data: Path, keys: AuditKeys, database: ControlDatabase) -> AuditFindings:
        assert may_end.wait(30)
        return AuditFindings([], [])

    verifier = AuditVerifier(control_database, tmp_path, check=check)
    answered: list[bool] = []
    asking = [threading.Thread(target=lambda: answered.append(verifier.look(60, 30)[1])) for _ in range(20)]
    try:
        for one in asking:
            one.start()
        assert poll_within(lambda: len(answered) == 16, 10), len(answered)  # four wait for it
        assert all(answered)
    finally:
        may_end.set()
        for one in asking:
            one.join(30)
        verifier.close()


def test_a_finding_is_kept_and_one_verification_runs_at_a_time(
    control_database: ControlDatabase, tmp_path: Path
) -> None:
    AuditSigner.of(SecretFiles(tmp_path / "secrets"))
    now, begun, may_end = [datetime(2026, 11, 2, tzinfo=UTC)], [], threading.Event()

    def slow(data: Path, keys: AuditKeys, database: ControlDatabase) -> AuditFindings:
        begun.append(now[0])
        assert may_end.wait(10)
        return check_audit(data, keys, database)

    verifier = AuditVerifier(control_database, tmp_path, lambda: now[0], slow)
    try:
        assert verifier.look(60, 0.01) == (None, True)
        assert verifier.look(60, 0.01) == (None, True) and len(begun) == 1
        may_end.set()
        first, is_running = verifier.look(60, 10)
        assert first is not None and first.findings is not None and not is_running
        now[0] += timedelta(seconds=60)
        assert verifier.look(60, 10) == (first, False) and len(begun) == 1
        may_end.clear()
        now[0] += timedelta(seconds=1)
        assert verifier.look(60, 0.01) == (first, True)  # what was found before, until the next is there
        may_end.set()
        second, is_running = verifier.look(60, 10)
        assert second is not None and second.checked_at == now[0] and not is_running and len(begun) == 2
    finally:
        may_end.set()
        verifier.close()
