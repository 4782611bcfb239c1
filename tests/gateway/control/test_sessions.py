"""People who sign in: accounts, passwords, sessions that end, and a bound on guessing."""

from collections.abc import Callable
from contextlib import nullcontext
from datetime import UTC, datetime, timedelta
from threading import Semaphore
from typing import Any, Final

import pytest
from argon2 import PasswordHasher
from fastapi import FastAPI
from fastapi.testclient import TestClient
from sqlalchemy import update
from sqlalchemy.orm import Session

from backends.control import accounts
from backends.control.accounts import find_account
from backends.control.changes import Author, begin_change
from backends.control.erasure import erase_tenant
from backends.control.user_sessions import MAX_SESSIONS, begin_session, find_session, is_session_like, new_secret
from backends.secrets import passwords
from contracts.control import AuditEntry, Role, RoleGrant, User, UserSession
from contracts.errors import AuthenticationFailed, LimitExceeded, PermissionDenied
from gateway.control import sessions
from gateway.control.sign_in_limit import PER_ACCOUNT, PER_ADDRESS, PER_PAIR, SignInLimit
from tests.gateway.control.conftest import AsRole

pytestmark = [
    pytest.mark.parametrize("control_database_url", ["sqlite"], indirect=True),
    pytest.mark.usefixtures("control_database_url"),
]

PASSWORD: Final = "correct horse battery"


def error_of(reply: Any) -> tuple[int, str]:
    return reply.status_code, reply.json()["error"]["code"]


def make(client: TestClient, email: str = "ada@example.com", **fields: Any) -> Any:
    body = {"email": email, "name": "Ada", "role": "finance", "password": PASSWORD, **fields}
    return client.post("/v1/accounts", json=body)


def sign_in(client: TestClient, email: str = "ada@example.com", password: str = PASSWORD) -> Any:
    return client.post("/sign-in", json={"email": email, "password": password}, headers={"Authorization": ""})


def as_session(client: TestClient, token: str, method: str, path: str, **options: Any) -> Any:
    return client.request(method, path, headers={"Authorization": f"Bearer {token}"}, **options)


def database_of(client: TestClient) -> Any:
    assert isinstance(client.app, FastAPI)
    return client.app.state.database


def test_who_signs_in_may_do_what_the_role_may_and_no_more(owner: TestClient) -> None:
    assert make(owner, role="team_lead", tenant="acme", team="search").status_code == 201
    begun = sign_in(owner, " ADA@example.com").json()
    assert is_session_like(begun["token"])
    who = as_session(owner, begun["token"], "GET", "/v1/sessions/current").json()
    assert who == {"name": "ada@example.com", "role": "team_lead", "tenant_id": "acme", "team_id": "search"}
    assert as_session(owner, begun["token"], "GET", "/v1/tenants/acme/keys").status_code == 200
    assert error_of(as_session(owner, begun["token"], "GET", "/v1/tenants/globex")) == (404, "not_found")
    assert error_of(as_session(owner, begun["token"], "GET", "/v1/accounts")) == (403, "permission_denied")
    assert error_of(as_session(owner, begun["token"], "POST", "/v1/models", json={})) == (403, "permission_denied")


def test_a_wrong_password_and_an_unknown_account_are_told_apart_by_nothing(owner: TestClient) -> None:
    make(owner)
    wrong, unknown = sign_in(owner, password="not the password"), sign_in(owner, "nobody@example.com")
    assert error_of(wrong) == error_of(unknown) == (401, "wrong_password")
    assert wrong.json() == unknown.json()


def test_who_has_no_password_does_not_get_in_by_one(owner: TestClient) -> None:
    assert make(owner, password=None).json()["has_password"] is False
    assert error_of(sign_in(owner)) == (401, "wrong_password")


def test_signing_out_ends_the_session_at_once(owner: TestClient) -> None:
    make(owner)
    token = sign_in(owner).json()["token"]
    assert as_session(owner, token, "DELETE", "/v1/sessions/current").status_code == 200
    assert error_of(as_session(owner, token, "GET", "/v1/sessions/current")) == (401, "invalid_admin_token")


@pytest.mark.parametrize("change", [{"is_active": False}, {"password": "another good password"}])
def test_a_closed_account_and_a_new_password_end_every_session(owner: TestClient, change: dict[str, object]) -> None:
    make(owner)
    token = sign_in(owner).json()["token"]
    assert owner.patch("/v1/accounts/ada@example.com", json=change).status_code == 200
    assert error_of(as_session(owner, token, "GET", "/v1/sessions/current")) == (401, "invalid_admin_token")
    assert error_of(sign_in(owner)) == (401, "wrong_password")


@pytest.mark.parametrize(
    ("method", "change", "begins"),
    [
        ("password", {}, True),
        ("password", {"role": "admin", "tenant": "acme"}, True),
        ("password", {"password": "another good password"}, False),
        ("oidc", {"password": "another good password"}, True),
        ("oidc", {"is_active": False}, False),
        ("oidc", None, False),
    ],
)
def test_what_proved_somebody_counts_only_while_it_holds(
    owner: TestClient, method: str, change: dict[str, object] | None, begins: bool
) -> None:
    user = f"/v1/accounts/{make(owner).json()['id']}"
    with database_of(owner).session() as session:
        account = find_account(session, "ada@example.com")
    assert account is not None
    # Between the account's reading and the session's beginning lies the check of the password.
    assert (owner.delete(user) if change is None else owner.patch(user, json=change)).status_code == 200
    refused = nullcontext() if begins else pytest.raises(AuthenticationFailed, match="at this moment")
    author = Author("ada@example.com", datetime.now(UTC))
    with refused, database_of(owner).session() as session:
        begin_session(session, author, account, method, new_secret(), timedelta(hours=1), b"pepper")
    with database_of(owner).session() as session:
        assert session.query(UserSession).count() == begins


def test_rights_over_an_account_are_those_of_what_it_is_when_it_is_changed(
    owner: TestClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    make(owner)

    def after_another(session: Session, author: Author, action: str, subject: str, detail: Any = None) -> AuditEntry:
        entry = begin_change(session, author, action, subject, detail)
        session.execute(update(RoleGrant).values(role=Role.OWNER), execution_options={"synchronize_session": False})
        return entry

    monkeypatch.setattr(accounts, "begin_change", after_another)  # as if somebody else had the lock before
    author, who = Author("admin", datetime.now(UTC)), "ada@example.com"
    changes: list[Callable[[Session], object]] = [
        lambda session: accounts.change_user(session, author, Role.ADMIN, who, password_digest="mine"),
        lambda session: accounts.grant_role(session, author, Role.ADMIN, who, Role.FINANCE, "", ""),
        lambda session: accounts.delete_user(session, author, Role.ADMIN, who),
    ]
    for change in changes:
        with pytest.raises(PermissionDenied), database_of(owner).session() as session:
            change(session)


def test_an_address_that_looks_like_an_id_signs_in(owner: TestClient) -> None:
    assert make(owner, "usr_kim@example.com").status_code == 201
    assert sign_in(owner, "usr_kim@example.com").status_code == 201


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"tenant": "acme"}, "set role as well"),
        ({"team": None}, "set role as well"),
        ({"role": "admin"}, "set tenant, or null for everything"),
    ],
)
def test_a_role_is_never_given_without_what_it_reaches(owner: TestClient, change: dict[str, object], says: str) -> None:
    before = make(owner, role="admin", tenant="acme").json()
    refused = owner.patch("/v1/accounts/ada@example.com", json=change)
    assert refused.status_code == 400 and says in refused.json()["error"]["message"]
    assert owner.get("/v1/accounts/ada@example.com").json() == before
    wide = owner.patch("/v1/accounts/ada@example.com", json={"role": "admin", "tenant": None}).json()
    assert (wide["role"], wide["tenant_id"]) == ("admin", "")


def test_a_tenants_audit_tells_of_its_own_people(owner: TestClient, as_role: AsRole) -> None:
    make(owner, tenant="acme")
    make(owner, "kim@example.com", tenant="globex")
    token = sign_in(owner).json()["token"]
    assert as_session(owner, token, "DELETE", "/v1/sessions/current").status_code == 200
    shown = as_role("finance", "acme").get("/v1/audit").json()["data"]
    assert [entry["action"] for entry in shown if entry["action"].startswith(("user", "session"))] == [
        "session.end",
        "session.begin",
        "user.create",
    ]


def test_a_removed_account_takes_its_sessions_with_it(owner: TestClient) -> None:
    user_id = make(owner).json()["id"]
    token = sign_in(owner).json()["token"]
    assert owner.delete(f"/v1/accounts/{user_id}").json() == {"id": user_id, "deleted": True}
    assert as_session(owner, token, "GET", "/v1/sessions/current").status_code == 401
    with database_of(owner).session() as session:
        assert session.query(UserSession).count() == session.query(User).count() == 0


def test_another_role_holds_from_the_next_request_on(owner: TestClient) -> None:
    make(owner)
    token = sign_in(owner).json()["token"]
    assert as_session(owner, token, "GET", "/v1/tenants/acme/keys").status_code == 403
    assert owner.patch("/v1/accounts/ada@example.com", json={"role": "admin", "tenant": "acme"}).status_code == 200
    assert as_session(owner, token, "GET", "/v1/tenants/acme/keys").status_code == 200
    assert as_session(owner, token, "GET", "/v1/tenants/globex/keys").status_code == 404


def test_a_session_is_over_at_its_end_and_not_before(owner: TestClient) -> None:
    make(owner)
    begun = sign_in(owner).json()
    end = datetime.fromisoformat(begun["expires_at"])
    assert isinstance(owner.app, FastAPI)
    pepper = owner.app.state.key_pepper
    with database_of(owner).session() as session:
        for moment, works in ((-1, True), (0, False), (1, False)):
            found = find_session(session, begun["token"], pepper, end + timedelta(microseconds=moment))
            assert (found is not None) == works


def test_a_user_has_a_bounded_number_of_sessions_and_the_oldest_goes(owner: TestClient) -> None:
    make(owner)
    tokens = [sign_in(owner).json()["token"] for _ in range(MAX_SESSIONS + 1)]
    assert as_session(owner, tokens[0], "GET", "/v1/sessions/current").status_code == 401
    assert as_session(owner, tokens[1], "GET", "/v1/sessions/current").status_code == 200


@pytest.mark.parametrize(
    ("fields", "says"),
    [
        ({"password": "eleven char"}, "password"),
        ({"email": "nobody"}, "e-mail address"),
        ({"role": "team_lead", "tenant": "acme"}, "needs `team`"),
        ({"role": "owner", "tenant": "acme"}, "leave `tenant` out"),
        ({"role": "admin", "tenant": "nobody"}, "'nobody'"),
    ],
)
def test_an_account_that_makes_no_sense_is_refused_with_its_reason(
    owner: TestClient, fields: dict[str, Any], says: str
) -> None:
    reply = make(owner, **fields)
    assert 400 <= reply.status_code < 500
    assert says in reply.json()["error"]["message"]
    assert PASSWORD not in reply.text and "eleven char" not in reply.text


def test_the_same_address_has_one_account(owner: TestClient) -> None:
    assert make(owner).status_code == 201
    assert error_of(make(owner, "Ada@Example.com")) == (409, "conflict")


def test_nobody_makes_or_changes_an_account_above_or_beside_their_own(owner: TestClient, as_role: AsRole) -> None:
    tenants_admin = as_role("admin", "acme")
    assert error_of(make(tenants_admin, role="owner")) == (403, "permission_denied")
    assert error_of(make(tenants_admin, role="finance", tenant="globex")) == (404, "not_found")
    assert make(tenants_admin, role="finance", tenant="acme").status_code == 201
    make(owner, "boss@example.com", role="owner")
    assert error_of(tenants_admin.delete("/v1/accounts/boss@example.com")) == (404, "not_found")
    assert error_of(as_role("admin").delete("/v1/accounts/boss@example.com")) == (403, "permission_denied")
    listed = [row["email"] for row in tenants_admin.get("/v1/accounts").json()["data"]]
    assert listed == ["ada@example.com"]


def test_neither_passwords_nor_tokens_stand_in_the_audit(owner: TestClient) -> None:
    make(owner)
    token = sign_in(owner).json()["token"]
    with database_of(owner).session() as session:
        entries = [f"{entry.action} {entry.subject} {entry.detail}" for entry in session.query(AuditEntry)]
    assert any(entry.startswith("user.create") for entry in entries)
    assert any(entry.startswith("session.begin") for entry in entries)
    assert not any(PASSWORD in entry or token in entry for entry in entries)


def test_guesses_of_an_account_from_one_address_are_bounded(owner: TestClient) -> None:
    make(owner)
    for _ in range(PER_PAIR):
        assert sign_in(owner, password="not the password").status_code == 401
    refused = sign_in(owner)
    assert error_of(refused) == (429, "rate_limit_exceeded")
    assert 0 < int(refused.headers["retry-after"]) <= 60


def test_a_right_password_is_no_failure_and_waiting_as_told_helps() -> None:
    now = [1_000.0]
    limit = SignInLimit(clock=lambda: now[0])
    for _ in range(3 * PER_PAIR):
        limit.begin("ada", "here")
        limit.succeed("ada", "here")
    for _ in range(PER_PAIR):
        limit.begin("ada", "here")
    with pytest.raises(LimitExceeded) as refused:
        limit.begin("ada", "here")
    assert refused.value.retry_after_seconds is not None
    now[0] += refused.value.retry_after_seconds - 0.001
    with pytest.raises(LimitExceeded):
        limit.begin("ada", "here")
    now[0] += 0.001
    limit.begin("ada", "here")


def test_guesses_from_elsewhere_lock_nobody_out(owner: TestClient) -> None:
    make(owner)
    for number in range(3 * PER_PAIR):
        stranger = TestClient(owner.app, client=(f"198.51.100.{number % 2}", 50000))
        assert sign_in(stranger, password="not the password").status_code in (401, 429)
    assert sign_in(stranger).status_code == 429
    assert sign_in(owner).status_code == 201


def test_guesses_of_an_account_from_everywhere_are_bounded_but_for_addresses_that_it_signs_in_from() -> None:
    limit = SignInLimit(clock=lambda: 5.0)
    limit.begin("ada", "at home")
    limit.succeed("ada", "at home")
    for number in range(PER_ACCOUNT):
        limit.begin("ada", f"address {number}")
    with pytest.raises(LimitExceeded):
        limit.begin("ada", "another address")
    limit.begin("ada", "at home")
    limit.begin("somebody else", "another address")


def test_guesses_are_bounded_by_address_whatever_the_account() -> None:
    limit = SignInLimit(clock=lambda: 5.0)
    for number in range(PER_ADDRESS):
        limit.begin(f"user-{number}", "there")
    with pytest.raises(LimitExceeded):
        limit.begin("somebody else", "there")
    limit.begin("somebody else", "elsewhere")


def test_guesses_are_bounded_by_the_network_that_one_holds_of_ipv6() -> None:
    limit = SignInLimit(clock=lambda: 5.0)
    for number in range(PER_ADDRESS):
        limit.begin(f"user-{number}", f"2001:db8:0:1:{number:x}::1")
    with pytest.raises(LimitExceeded):
        limit.begin("somebody else", "2001:db8:0:1:ffff::9")
    limit.begin("somebody else", "2001:db8:0:2::1")
    for number in range(PER_ADDRESS):
        limit.begin(f"user of IPv4 {number}", "::ffff:192.0.2.1")
    with pytest.raises(LimitExceeded):
        limit.begin("a third", "192.0.2.1")
    limit.begin("a third", "192.0.2.2")


@pytest.mark.parametrize(
    ("peer", "counted"), [("127.0.0.1", "198.51.100.7"), ("::1", "198.51.100.7"), ("192.0.2.7", "192.0.2.7")]
)
def test_where_a_browser_is_is_believed_of_a_dashboard_here_alone(owner: TestClient, peer: str, counted: str) -> None:
    make(owner)
    client = TestClient(owner.app, client=(peer, 50000))
    body = {"email": "ada@example.com", "password": PASSWORD, "address": "198.51.100.7"}
    assert client.post("/sign-in", json=body).status_code == 201
    with database_of(owner).session() as session:
        assert session.query(UserSession).one().address == counted


def test_a_try_that_found_no_room_to_be_checked_is_no_failure(
    owner: TestClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    make(owner)
    with monkeypatch.context() as busy:
        busy.setattr(sessions, "_CHECKS", Semaphore(0))
        busy.setattr(sessions, "_PATIENCE_SECONDS", 0.0)
        for _ in range(PER_ACCOUNT):
            assert "too many people" in sign_in(owner).json()["error"]["message"]
    assert sign_in(owner).status_code == 201


def test_a_password_is_known_by_its_hash_alone(own_hasher: Callable[[], PasswordHasher]) -> None:
    used = own_hasher()
    assert (used.memory_cost, used.time_cost, used.parallelism) == (64 << 10, 3, 4), (
        "RFC 9106, section 4, second choice"
    )
    digest = passwords.hash_password(PASSWORD)
    assert PASSWORD not in digest and digest.startswith("$argon2id$")
    assert passwords.is_password(digest, PASSWORD)
    assert not passwords.is_password(digest, PASSWORD + " ")
    assert not passwords.is_password(None, "the password of an account that is not there")
    assert not passwords.is_password(digest, "x" * (passwords.MAX_LENGTH + 1))


def test_an_erased_tenant_takes_the_accounts_of_its_people_with_it(owner: TestClient) -> None:
    make(owner, role="finance", tenant="globex")
    make(owner, "boss@example.com", role="owner")
    token = sign_in(owner).json()["token"]
    owner.patch("/v1/tenants/globex", json={"is_active": False})
    with database_of(owner).session() as session:
        erase_tenant(session, Author("owner", datetime.now(UTC)), "globex")
    assert [row["email"] for row in owner.get("/v1/accounts").json()["data"]] == ["boss@example.com"]
    assert as_session(owner, token, "GET", "/v1/sessions/current").status_code == 401
    assert make(owner).status_code == 201
