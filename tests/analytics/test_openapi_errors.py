"""The analytics process's OpenAPI document names the errors that its operations answer."""

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from fastapi import FastAPI
from fastapi.testclient import TestClient

from analytics.app import create_app
from analytics.settings import AnalyticsSettings
from backends.control.admin_tokens import TOKEN_PREFIX
from backends.secrets.secret_files import SecretFiles
from tests.openapi_errors import check_with_schemathesis, served, undocumented


@pytest.fixture
def app_and_token(store: Any, migrated_sqlite: Path, tmp_path: Path) -> Iterator[tuple[FastAPI, str]]:
    shutil.copy(migrated_sqlite, tmp_path / "control.db")
    shutil.copytree(store.data / "secrets", tmp_path / "secrets")
    token = SecretFiles(tmp_path / "secrets").get_or_create("admin_token", prefix=TOKEN_PREFIX)
    yield create_app(AnalyticsSettings(data=tmp_path, store_url=store.url, alerts_evaluate_seconds=3600)), token


def test_what_bad_requests_are_answered_is_documented(app_and_token: tuple[FastAPI, str]) -> None:
    app, token = app_and_token
    with TestClient(app) as client:
        assert undocumented(client) == []
        client.headers["authorization"] = f"Bearer {token}"
        assert undocumented(client) == []
        assert client.get("/metrics").headers["content-type"].startswith("text/plain")


def test_schemathesis_finds_nothing_undocumented(app_and_token: tuple[FastAPI, str], tmp_path: Path) -> None:
    app, token = app_and_token
    with served(app) as url:
        check_with_schemathesis(url, token, tmp_path)
