"""`tollkeeper routes` against a real control plane and over a file, and what it says of what it cannot do."""

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
import yaml
from typer.testing import CliRunner, Result

from tollkeeper.cli import app

CONFIG: dict[str, Any] = {
    "keys": [{"key": "env:A_VARIABLE_THAT_IS_NOT_SET", "tenant": "acme"}],
    "pools": [
        {"name": "small", "targets": [{"name": f"s-{r}", "kind": "scripted", "region": r} for r in ("eu", "us")]},
        {"name": "large", "targets": [{"name": "l-eu", "kind": "scripted", "region": "eu"}]},
    ],
    "models": [{"name": "small", "pool": "small"}, {"name": "large", "pool": "large"}],
    "routes": [
        {
            "name": "assistant",
            "regions": ["eu"],
            "choose": [{"model": "small", "when": {"max_prompt_tokens": 4000}}, {"model": "large"}],
        }
    ],
}


def run(*arguments: str) -> Result:
    return CliRunner().invoke(app, list(arguments))


@pytest.fixture
def config(tmp_path: Path) -> Path:
    path = tmp_path / "gateway.yaml"
    path.write_text(yaml.safe_dump(CONFIG))
    return path


def test_a_route_is_set_listed_explained_and_deleted(data: Path, tmp_path: Path) -> None:
    where = ("--data", str(data))
    file = tmp_path / "assistant.yaml"
    file.write_text("choose:\n  - model: scripted-1\n")
    for word in ("created", "set"):
        done = run("routes", "set", "org/assistant", str(file), *where)
        assert f"route org/assistant {word}: scripted-1" in done.output
    (listed,) = json.loads(run("routes", "list", "--json", *where).stdout)
    assert (listed["id"], listed["rules"]) == ("org/assistant", {"choose": [{"model": "scripted-1"}]})
    told = run("routes", "explain", "org/assistant", "--tenant", "demo", *where)
    assert "org/assistant leads to scripted-1" in told.output
    file.write_text("choose:\n  - model: nothing\n")
    refused = run("routes", "set", "org/assistant", str(file), *where)
    assert refused.exit_code == 2 and "leads to model 'nothing'" in refused.output
    assert json.loads(run("routes", "delete", "org/assistant", "--json", *where).stdout)["deleted"]
    assert "no routes yet" in run("routes", "list", *where).output


SEMANTIC = """
semantic:
  intents:
    - {name: code, utterances: [Fix the bug, Write a function]}
choose:
  - {model: scripted-1, when: {intent: code}}
fallbacks: [{model: scripted-1}]
"""


@pytest.mark.parametrize("state", ["loading", "ready", "unavailable", None])
def test_a_semantic_route_says_whether_it_is_learned(data: Path, tmp_path: Path, state: str | None) -> None:
    file = tmp_path / "assistant.yaml"
    file.write_text(SEMANTIC)
    made = run("routes", "set", "org/assistant", str(file), "--data", str(data))
    assert "is still learning its example prompts" in made.output
    assert "x-tollkeeper-route-state: learning" in made.output
    ready = {"semantic": {"routes": {} if state is None else {"org/assistant": {"state": state}}}}
    with answering(ready) as url:
        where = ("--data", str(data), "--gateway-url", url)
        shown = run("routes", "show", "org/assistant", *where)
        told = json.loads(run("routes", "show", "org/assistant", "--json", *where).stdout)
    assert f"semantic: {state or 'unknown'}." in shown.output
    assert "Write a function" in shown.output
    assert told["semantic_state"] == (state or "unknown")
    assert told["rules"]["fallbacks"] == [{"model": "scripted-1"}]


def test_a_plain_route_is_shown_without_asking_the_gateway(data: Path, tmp_path: Path) -> None:
    where = ("--data", str(data), "--gateway-url", "http://127.0.0.1:9")
    file = tmp_path / "assistant.yaml"
    file.write_text("choose:\n  - model: scripted-1\n")
    run("routes", "set", "plain", str(file), "--data", str(data))
    shown = run("routes", "show", "plain", *where)
    assert shown.exit_code == 0
    assert "semantic" not in shown.output
    missing = run("routes", "show", "nothing", *where)
    assert (missing.exit_code, "there is no route 'nothing'" in missing.output) == (2, True)


@contextmanager
def answering(body: object) -> Iterator[str]:
    """Answer every GET with a JSON body."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            data = json.dumps(body).encode()
            self.send_response(200)
            self.send_header("content-length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        def log_message(self, format: str, *args: object) -> None:
            """Do nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}"
    finally:
        server.shutdown()
        thread.join(10)
        server.server_close()


def test_a_file_is_explained_without_its_credentials(config: Path) -> None:
    told = run("routes", "explain", "assistant", "--config", str(config), "--prompt-tokens", "4001", "--json")
    assert told.exit_code == 0, told.output
    answer = json.loads(told.stdout)
    assert [(leg["model"], leg["targets"], leg["regions"]) for leg in answer["order"]] == [("large", ["l-eu"], ["eu"])]
    at_the_bound = run("routes", "explain", "assistant", "--config", str(config), "--prompt-tokens", "4000")
    assert "assistant leads to small at s-eu" in at_the_bound.output and "s-us" not in at_the_bound.output
    assert "within the regions eu" in at_the_bound.output


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("nothing",), "has no route 'nothing'; it has: assistant"),
        (("assistant", "--tag", "x"), "--tag is written NAME=VALUE, not 'x'"),
        (("assistant", "--at", "yesterday"), "--at: "),
        (("assistant", "--budget-left", "small=1.5"), "--budget-left: "),
    ],
)
def test_what_cannot_be_explained_is_said_in_a_line(config: Path, arguments: tuple[str, ...], words: str) -> None:
    refused = run("routes", "explain", *arguments, "--config", str(config))
    assert refused.exit_code == 2 and words in " ".join(refused.output.split())
