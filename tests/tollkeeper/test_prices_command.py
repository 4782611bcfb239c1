"""`tollkeeper prices import`: hosted targets, as the control plane makes them, get their cards."""

import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from fastapi.testclient import TestClient
from typer.testing import CliRunner

from backends.secrets.secret_files import SecretFiles
from gateway.control.app import create_app
from gateway.control.settings import ControlSettings
from tollkeeper.cli import app


@pytest.fixture
def data(migrated_sqlite: Path, tmp_path: Path) -> Path:
    """A data directory with a control database."""
    folder = tmp_path / "data"
    folder.mkdir()
    shutil.copy(migrated_sqlite, folder / "control.db")
    return folder


@pytest.fixture
def control(data: Path) -> Iterator[TestClient]:
    with TestClient(create_app(ControlSettings(data=data))) as client:
        client.headers["Authorization"] = f"Bearer {SecretFiles(data / 'secrets').get('admin_token')}"
        yield client


def sell(control: TestClient, name: str, target: dict[str, Any]) -> None:
    for path, body in (
        ("/v1/pools", {"id": name}),
        (f"/v1/pools/{name}/targets", {"id": "one", **target}),
        ("/v1/models", {"id": name, "pool": name}),
    ):
        assert control.post(path, json=body).status_code == 201


def imported(data: Path, *more: str) -> tuple[list[dict[str, Any]], str]:
    result = CliRunner().invoke(app, ["prices", "import", "--data", str(data), "--json", *more])
    assert result.exit_code == 0, result.output
    return json.loads(result.stdout), result.stderr


def test_hosted_targets_are_priced_and_what_is_not_is_explained(data: Path, control: TestClient) -> None:
    sell(control, "claude", {"kind": "litellm", "model": "anthropic/claude-sonnet-4-5", "provider": "anthropic"})
    sell(control, "gemini", {"kind": "litellm", "model": "gemini/gemini-2.5-flash"})
    sell(control, "ours", {"kind": "litellm", "model": "azure/our-chat", "provider": "azure"})
    http = {"kind": "openai_http", "url": "http://127.0.0.1:9/v1", "model": "embed-x", "provider": "mockai"}
    sell(control, "embed-x", http)
    card = {"model": "embed-x", "version": "embedx-1", "usd_per_mtok": {"input_text": "0.1"}}
    assert control.post("/v1/prices", json=card).status_code == 201
    made, said = imported(data, "--dry-run")
    assert {row["model"] for row in made} == {"claude", "gemini"}
    assert "ours of azure (azure/our-chat) stays unpriced" in said and "name the deployment" in said
    assert "embed-x" not in said, "it has a card"
    again, _ = imported(data)
    assert again == made
    cards = {row["model"]: row for row in control.get("/v1/prices").json()["data"]}
    assert (cards["claude"]["provider"], cards["gemini"]["provider"]) == ("anthropic", "litellm")
    assert imported(data)[0] == []
