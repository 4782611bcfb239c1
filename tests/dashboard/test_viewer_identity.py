"""Who needs no account: who sits at this machine, and nobody whom a proxy, another name or address brings."""

import os
import socket
from pathlib import Path

import pytest

from dashboard import peer_user, sign_in, viewer_identity
from dashboard.preferences import LOCALES, Preferences, locale_of, zone_of
from dashboard.settings import DashboardSettings
from dashboard.viewer_identity import is_at_this_machine

HERE = {"Host": "127.0.0.1:8501", "Origin": "http://127.0.0.1:8501"}


@pytest.fixture(autouse=True)
def _fresh(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("TOLLKEEPER_DATA", str(tmp_path))


@pytest.mark.parametrize("headers", [HERE, {"host": "localhost:8501"}, {"host": "[::1]:8501"}, {}])
def test_who_sits_at_the_machine_needs_no_account(headers: dict[str, str]) -> None:
    assert is_at_this_machine(headers)


@pytest.mark.parametrize(
    "headers",
    [
        {**HERE, "Host": "tollkeeper.example"},  # another name that leads here: DNS rebinding, a proxy that keeps it
        {**HERE, "Origin": "https://tollkeeper.example"},  # a proxy that does not keep the name
        {**HERE, "X-Forwarded-For": "192.0.2.1"},
        {**HERE, "Forwarded": "for=192.0.2.1"},
        {**HERE, "x-real-ip": "127.0.0.1"},
        {**HERE, "Via": "1.1 proxy"},
        {**HERE, "Host": "127.0.0.1.example:8501"},
        {**HERE, "Origin": "null"},
        {**HERE, "Origin": "http://127.0.0.1:3000"},  # a page of another program's port
        {**HERE, "Origin": "http://localhost:8501"},
        {"Origin": "http://127.0.0.1:8501"},
        {**HERE, "Host": "192.0.2.1:8501"},
    ],
)
def test_who_comes_through_anything_else_must_sign_in(headers: dict[str, str]) -> None:
    assert not is_at_this_machine(headers)


@pytest.mark.parametrize(
    ("host", "sign_in", "is_open"),
    [
        ("127.0.0.1", "auto", True),
        ("localhost", "auto", True),
        ("127.0.0.1", "always", False),
        ("0.0.0.0", "auto", False),
        ("::", "auto", False),
        ("192.0.2.1", "auto", False),
        ("tollkeeper.example", "auto", False),
    ],
)
def test_a_dashboard_that_others_reach_is_open_to_nobody(
    monkeypatch: pytest.MonkeyPatch, host: str, sign_in: str, is_open: bool
) -> None:
    chosen = DashboardSettings(host=host, dashboard_sign_in=sign_in)  # type: ignore[arg-type]  # one of its two words
    monkeypatch.setattr(viewer_identity, "settings", lambda: chosen)
    assert is_at_this_machine(HERE) == is_open


@pytest.mark.parametrize(
    "setting",
    [
        {"dashboard_url": "https://llm.example"},
        {"trusted_proxies": "127.0.0.0/8"},
        {"oidc_metadata_url": "https://idp.example/.well-known/openid-configuration"},
    ],
)
def test_a_dashboard_that_is_set_up_for_others_is_open_to_nobody(
    monkeypatch: pytest.MonkeyPatch, setting: dict[str, str]
) -> None:
    monkeypatch.setattr(viewer_identity, "settings", lambda: DashboardSettings(**setting))  # type: ignore[arg-type]  # strings
    assert not is_at_this_machine(HERE)


def stream(headers: dict[str, str]) -> dict[str, object]:
    raw = [(name.lower().encode(), value.encode()) for name, value in headers.items()]
    ends = {"client": ("127.0.0.1", 50_000), "server": ("127.0.0.1", 8501)}
    return {"type": "websocket", "path": "/_stcore/stream", "query_string": b"", "headers": raw, **ends}


@pytest.mark.parametrize("cookie", [{}, {"Cookie": "tollkeeper_session="}, {"Cookie": "x=tollkeeper_session"}])
@pytest.mark.parametrize("is_another", [False, True])
def test_a_page_of_another_user_gets_no_numbers_whatever_its_cookies_are_called(
    monkeypatch: pytest.MonkeyPatch, cookie: dict[str, str], is_another: bool
) -> None:
    monkeypatch.setattr(sign_in, "is_another_user", lambda client, server: is_another)
    assert sign_in._may_listen(stream({**HERE, **cookie})) is not is_another


def test_a_page_of_another_port_gets_no_numbers() -> None:
    assert not sign_in._may_listen(stream({**HERE, "Origin": "http://127.0.0.1:3000"}))


@pytest.mark.parametrize(
    "text", ["", "|", "a|b|c|d", "Europe+Berlin|xx_XX|EURO", "../../etc/passwd||", "<script>|de_DE|€€€", "|" * 99]
)
def test_a_cookie_that_somebody_else_wrote_is_read_as_far_as_it_makes_sense(text: str) -> None:
    found = Preferences.of_cookie(text)
    assert found.zone in ("", "Europe/Berlin") and found.locale in ("", *LOCALES) and found.currency == ""


def test_preferences_come_back_from_their_cookie() -> None:
    chosen = Preferences("America/Argentina/Buenos_Aires", "de_DE", "USD")
    assert Preferences.of_cookie(chosen.as_cookie()) == chosen
    assert chosen.as_cookie().replace("|", "").replace("+", "").replace("_", "").isalnum()


def test_the_first_zone_and_locale_that_exist_are_taken() -> None:
    assert zone_of("", None, "Nowhere/Land", "Asia/Tokyo", "UTC").key == "Asia/Tokyo"
    assert zone_of("../../etc/passwd", "/etc/passwd").key == "UTC"
    assert [locale_of(name) for name in ("de", "de-DE", "de_AT", "fr-FR", "xx", "", None)] == [
        *("de_DE", "de_DE", "de_DE", "fr_FR"),
        *("en_US", "en_US", "en_US"),
    ]


def test_whose_program_connects_is_told_by_the_connection(monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server, socket.create_connection(server.getsockname()) as client:
        near, far = client.getsockname(), server.getsockname()
        assert peer_user._owners(near, far) == [os.getuid()]
        assert not peer_user.is_another_user(near, far)
        assert peer_user.is_another_user(near, ("127.0.0.1", far[1] ^ 1))  # a connection to something else
        for owners in ([os.getuid() + 4_000], [os.getuid(), os.getuid() + 4_000]):
            monkeypatch.setattr(peer_user, "_owners", lambda near, far, owners=owners: owners)
            assert peer_user.is_another_user(near, far)


# Columns of a row: its number, this end, the other end, the state, queues, timer, tries again, and whose it is.
ROW = "   0: 0100007F:C350 {other} {state} 00000000:00000000 00:00000000 00000000  {uid}        0 1"


@pytest.mark.parametrize(
    ("rows", "is_another"),
    [
        ([("0100007F:2135", "01", 1_000)], False),
        ([("0100007F:2135", "01", 4_321)], True),
        ([("0100007F:2135", "01", 0)], True),  # root is somebody else, too
        ([("0100007F:2135", "01", 4_321), ("0100007F:2135", "06", 0)], True),
        ([("0100007F:2135", "01", 4_321), ("0100007F:1F90", "01", 1_000)], True),
        ([("0100007F:2135", "01", 1_000), ("0100007F:1F90", "06", 0)], False),
        ([("0100007F:2135", "05", 1_000)], True),  # closed at its end: whoever waits for an answer has not
        ([], True),
    ],
)
def test_only_the_open_connection_s_own_row_tells_whose_it_is(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, rows: list[tuple[str, str, int]], is_another: bool
) -> None:
    table = tmp_path / "tcp"
    lines = [ROW.format(other=other, state=state, uid=uid) for other, state, uid in rows]
    table.write_text("\n".join(["  sl  local_address rem_address", *lines]))
    monkeypatch.setattr(peer_user, "_TABLES", (table, tmp_path / "tcp6"))
    monkeypatch.setattr(os, "getuid", lambda: 1_000)
    assert peer_user.is_another_user(("127.0.0.1", 50_000), ("127.0.0.1", 8501)) == is_another


@pytest.mark.parametrize("client", [None, ("testclient", 50_000), ("192.0.2.1", 1)])
def test_where_it_cannot_be_told_whose_it_is_nobody_is_accused(client: tuple[str, int] | None) -> None:
    assert not peer_user.is_another_user(client, ("192.0.2.2", 8501))
    assert not peer_user.is_another_user(client, None)


def test_without_tables_nobody_is_accused(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(peer_user, "_TABLES", (tmp_path / "tcp",))
    assert not peer_user.is_another_user(("127.0.0.1", 50_000), ("127.0.0.1", 8501))


def test_addresses_are_written_as_the_kernel_does() -> None:
    assert peer_user._written(("127.0.0.1", 8501)) == {
        "0100007F:2135",
        "0000000000000000FFFF00000100007F:2135",
    }
    assert peer_user._written(("::1", 1)) == {"00000000000000000000000001000000:0001"}
