"""Open WebUI lists the gateway's models and chats with them, as it is installed from the package index.

`make openwebui` installs it (2.4 GB) and runs this. The variable OPEN_WEBUI names its program.
"""

import contextlib
import json
import os
import subprocess
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pytest

from tests.e2e.agents.conftest import wait_until_served
from tests.e2e.agents.scripted_model import GREETING, ScriptedModel
from tests.e2e.installation import Installation, wait_until
from tests.ports import find_free_ports
from tests.steady_time import poll_within

pytestmark = [pytest.mark.e2e, pytest.mark.agents]

START_SECONDS = 300.0  # it imports torch, and fills a database
WHOLE, STREAMED = "open-webui-whole", "open-webui-streamed"


@dataclass(frozen=True)
class OpenWebUI:
    """A running Open WebUI, and the token of the person who signed up."""

    url: str
    token: str

    def ask(self, path: str, body: object = None) -> bytes:
        """Call its HTTP API."""
        return asked(self.url + path, body, {"authorization": f"Bearer {self.token}"})


def asked(url: str, body: object, headers: dict[str, str]) -> bytes:
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(url, data, {"content-type": "application/json", **headers})
    with urllib.request.urlopen(request, timeout=120) as reply:
        return bytes(reply.read())


@pytest.fixture(scope="module")
def open_webui(
    installation: Installation, served_model: ScriptedModel, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[OpenWebUI]:
    program = os.environ.get("OPEN_WEBUI", "")
    if not program:
        pytest.skip("OPEN_WEBUI does not name Open WebUI's program; `make openwebui` installs it")
    for model in (WHOLE, STREAMED):  # by which its records are found
        installation.request("POST", "/v1/models", {"id": model, "pool": "agents"})
    wait_until_served(installation, STREAMED)
    home = tmp_path_factory.mktemp("open-webui")
    port = find_free_ports(1)[0]
    url = f"http://127.0.0.1:{port}"
    with (home / "log").open("w") as log:
        process = subprocess.Popen(
            [program, "serve", "--host", "127.0.0.1", "--port", str(port)],
            cwd=home,
            env={
                "PATH": os.environ["PATH"],
                "HOME": str(home),
                "DATA_DIR": str(home / "data"),
                "WEBUI_SECRET_KEY": "of-this-test",
                "OPENAI_API_BASE_URL": f"{installation.gateway_url}/v1",
                "OPENAI_API_KEY": installation.key,
                "ENABLE_OLLAMA_API": "False",
                "OFFLINE_MODE": "True",
                "RAG_EMBEDDING_ENGINE": "openai",  # so that it loads no model of its own
                "ANONYMIZED_TELEMETRY": "False",
            },
            stdout=log,
            stderr=subprocess.STDOUT,
        )
    try:
        wait_until(lambda: process.poll() is not None or is_up(url), START_SECONDS, "Open WebUI answers")
        assert process.poll() is None, (home / "log").read_text()[-5000:]
        person = {"name": "Ada", "email": "ada@example.com", "password": "a-long-password"}
        yield OpenWebUI(url, json.loads(asked(f"{url}/api/v1/auths/signup", person, {}))["token"])
    finally:
        process.terminate()
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(timeout=30)
        process.kill()


def is_up(url: str) -> bool:
    with urllib.request.urlopen(f"{url}/health", timeout=10) as reply:
        return bool(reply.status == 200)


def chat(open_webui: OpenWebUI, model: str, *, stream: bool) -> bytes:
    message = {"role": "user", "content": "Good morning"}
    return open_webui.ask("/api/chat/completions", {"model": model, "messages": [message], "stream": stream})


def record_of(installation: Installation, model: str) -> list[dict[str, Any]]:
    """Wait for the record of a model's one request, and return what it says."""
    query = (
        "SELECT stream, status, tokens_input_text AS input, tokens_output_text AS output "
        f"FROM requests WHERE requested_model = '{model}'"
    )
    found: list[dict[str, Any]] = []

    def is_there() -> bool:
        found[:] = installation.store().query(query)
        return bool(found)

    assert poll_within(is_there, 60)
    return found


def test_it_lists_the_models_of_its_key(open_webui: OpenWebUI, installation: Installation) -> None:
    key = {"authorization": f"Bearer {installation.key}"}
    served = json.loads(asked(f"{installation.gateway_url}/v1/models", None, key))["data"]
    listed = json.loads(open_webui.ask("/api/models"))["data"]
    assert {WHOLE, STREAMED} <= {one["id"] for one in served} <= {one["id"] for one in listed}


def test_it_chats_whole(open_webui: OpenWebUI, installation: Installation) -> None:
    answer = json.loads(chat(open_webui, WHOLE, stream=False))
    assert answer["choices"][0]["message"]["content"] == GREETING
    assert record_of(installation, WHOLE) == [{"stream": False, "status": 200, "input": 10, "output": 5}]


def test_it_chats_by_a_stream(open_webui: OpenWebUI, installation: Installation) -> None:
    events = chat(open_webui, STREAMED, stream=True).decode().split("\n\n")
    data = [event.removeprefix("data: ") for event in events if event.startswith("data: {")]
    choices = [choice for one in data for choice in json.loads(one).get("choices", ())]
    assert "".join(choice["delta"].get("content") or "" for choice in choices) == GREETING
    assert record_of(installation, STREAMED) == [{"stream": True, "status": 200, "input": 10, "output": 5}]
