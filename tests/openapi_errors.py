"""What an OpenAPI document says of errors, compared with what a process answers."""

import os
import re
import shutil
import subprocess
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import uvicorn
from fastapi import FastAPI
from fastapi.testclient import TestClient

# Left out: what asks for more than a document can say (names that must exist, rules between fields), and what is
# lenient on purpose (0 for false).
LEFT_OUT = (
    "positive_data_acceptance",
    "negative_data_rejection",
    "ignored_auth",
    "use_after_free",
    "ensure_resource_availability",
)
CASES, SEED, LIMIT_SECONDS = 5, 1, 300


def operations(client: TestClient) -> Iterator[tuple[str, str, dict[str, Any]]]:
    """Yield method, path and description of every operation."""
    for path, methods in client.get("/openapi.json").json()["paths"].items():
        for method, operation in methods.items():
            yield method.upper(), path, operation


def filled(path: str) -> str:
    """Return a path with names of things that do not exist."""
    return re.sub(r"\{[^}]*\}", "nothing", path)


def undocumented(client: TestClient) -> list[str]:
    """Return what is answered to bad requests and not documented, or not in the documented shape."""
    found: list[str] = []
    for method, path, operation in operations(client):
        for body, headers in ((None, {}), ({}, {}), ({"nonsense": 1}, {}), (None, {"authorization": "Bearer no"})):
            reply = client.request(method, filled(path), json=body, headers=headers)
            said = operation["responses"].get(str(reply.status_code))
            if said is None or (reply.status_code >= 400 and not _is_error(reply.json())) or not _id_of(reply):
                found.append(f"{method} {path}: {reply.status_code} {reply.text[:200]}")
    return found


def _is_error(body: Any) -> bool:
    return set(body) == {"error"} and set(body["error"]) == {"message", "type", "param", "code"}


def _id_of(reply: Any) -> str:
    return str(reply.headers.get("x-request-id", ""))


@contextmanager
def served(app: FastAPI) -> Iterator[str]:
    """Serve an app over HTTP meanwhile, and provide its URL."""
    server = uvicorn.Server(uvicorn.Config(app, port=0, log_level="error", ws="none"))
    thread = threading.Thread(target=server.run, daemon=True)
    thread.start()
    while not server.started:
        assert thread.is_alive(), "the process did not start"
        time.sleep(0.01)
    try:
        yield f"http://127.0.0.1:{server.servers[0].sockets[0].getsockname()[1]}"
    finally:
        server.should_exit = True
        thread.join(20)


def check_with_schemathesis(url: str, token: str, folder: Path) -> None:
    """Fail where schemathesis finds an answer that the document does not know. Skip if it is not installed."""
    program = shutil.which(os.environ.get("SCHEMATHESIS", "schemathesis"))
    if program is None:
        pytest.skip("schemathesis is not installed, or SCHEMATHESIS does not name it")
    done = subprocess.run(
        [program, "run", f"{url}/openapi.json", "-H", f"Authorization: Bearer {token}", "--workers", "1"]
        + ["--phases", "fuzzing", "--max-examples", str(CASES), "--seed", str(SEED), "--continue-on-failure"]
        + ["--exclude-checks", ",".join(LEFT_OUT), "--suppress-health-check", "all", "--no-color"],
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=LIMIT_SECONDS,
    )
    assert done.returncode == 0, done.stdout[-6000:] + done.stderr[-1000:]
