"""How the dashboard process starts, and what it says when it cannot."""

import os
import socket
import subprocess
import sys
from pathlib import Path

from pydantic import SecretStr

from dashboard.__main__ import check_port, command
from dashboard.settings import DashboardSettings
from dashboard.theme import theme_flags
from tests.ports import find_free_port


def start(tmp_path: Path, **variables: str) -> subprocess.CompletedProcess[str]:
    environment = {name: value for name, value in os.environ.items() if not name.startswith("TOLLKEEPER_")}
    return subprocess.run(
        [sys.executable, "-m", "dashboard"],
        cwd=tmp_path,
        env=environment | variables,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


def test_a_port_in_use_is_one_line_that_says_what_to_do(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        result = start(tmp_path, TOLLKEEPER_DASHBOARD_PORT=str(port))
    assert result.returncode == 2
    assert result.stderr.splitlines() == [
        f"dashboard: cannot listen on 127.0.0.1:{port} (Address already in use); "
        "stop what uses it or choose another with TOLLKEEPER_DASHBOARD_PORT"
    ]


def test_a_port_that_is_no_port_is_named_by_its_variable(tmp_path: Path) -> None:
    result = start(tmp_path, TOLLKEEPER_DASHBOARD_PORT="70000")
    assert result.returncode == 2
    assert result.stderr.startswith("dashboard: TOLLKEEPER_DASHBOARD_PORT: ")
    assert len(result.stderr.splitlines()) == 1


def test_a_free_port_passes() -> None:
    check_port("127.0.0.1", find_free_port())


def test_the_server_never_reports_usage_and_asks_nothing_at_start() -> None:
    arguments = command(DashboardSettings(dashboard_port=9999))
    assert "--browser.gatherUsageStats=false" in arguments
    assert "--server.headless=true" in arguments
    assert "--client.showErrorDetails=none" in arguments
    assert "--server.port=9999" in arguments
    assert Path(arguments[5]).name == "server.py"


def test_every_theme_option_is_one_streamlit_knows() -> None:
    from streamlit import config

    known = config.get_config_options()
    assert [name for name in theme_flags() if name not in known] == []


def test_the_store_is_read_as_a_user_who_cannot_write(tmp_path: Path) -> None:
    address = DashboardSettings(data=tmp_path).store_address()
    assert address.user == "reader"
    assert address.password == (tmp_path / "secrets" / "store_reader").read_text().strip()


def test_credentials_of_the_settings_go_before_the_secrets_file(tmp_path: Path) -> None:
    settings = DashboardSettings(data=tmp_path, store_user="viewer", store_password=SecretStr("given"))
    assert settings.store_address().user == "viewer"
    assert settings.store_address().password == "given"
    assert not (tmp_path / "secrets").exists()


def test_the_gateway_url_of_the_example_follows_the_settings() -> None:
    assert DashboardSettings(gateway_port=9000).public_gateway_url() == "http://127.0.0.1:9000"
    assert DashboardSettings(gateway_url="https://llm.example/").public_gateway_url() == "https://llm.example"


def test_no_file_of_the_dashboard_hides_a_top_level_package() -> None:
    """Streamlit puts `dashboard/` first on sys.path, so a file of that name would be imported instead."""
    here = Path(command(DashboardSettings())[5]).parent
    names = {path.stem for path in here.iterdir()}
    taken = {"contracts", "backends", "gateway", "collector", "analytics", "dashboard", "migrations", "tollkeeper"}
    assert names & taken == set()
    assert names & set(sys.stdlib_module_names) == set()
