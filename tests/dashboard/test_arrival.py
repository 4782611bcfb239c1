"""Who needs no account: who sits at this machine, and nobody whom a proxy, another name or address brings."""

import os
import socket
from pathlib import Path

import pytest
import streamlit

from dashboard import arrival, neighbours
from dashboard.arrival import is_at_this_machine
from dashboard.preferences import LOCALES, Preferences, locale_of, zone_of
from dashboard.settings import DashboardSettings

HERE = {"Host": "127.0.0.1:8501", "Origin": "http://127.0.0.1:8501"}


@pytest.fixture(autouse=True)
def _fresh(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    streamlit.cache_resource.clear()
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
    monkeypatch.setattr(arrival, "settings", lambda: chosen)
    assert is_at_this_machine(HERE) == is_open


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
        host, port = client.getsockname()
        assert list(neighbours._owners((host, port))) == [os.getuid()]
        assert not neighbours.is_another_user((host, port))
        monkeypatch.setattr(neighbours, "_owners", lambda client: iter([os.getuid() + 4_000]))
        assert neighbours.is_another_user((host, port))


@pytest.mark.parametrize("client", [None, ("testclient", 50_000), ("192.0.2.1", 1)])
def test_where_it_cannot_be_told_whose_it_is_nobody_is_accused(client: tuple[str, int] | None) -> None:
    assert not neighbours.is_another_user(client)


def test_addresses_are_written_as_the_kernel_does() -> None:
    assert neighbours._written(("127.0.0.1", 8501)) == {
        "0100007F:2135",
        "0000000000000000FFFF00000100007F:2135",
    }
    assert neighbours._written(("::1", 1)) == {"00000000000000000000000001000000:0001"}
