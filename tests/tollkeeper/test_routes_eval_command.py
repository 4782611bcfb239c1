"""`tollkeeper routes eval` what it prints, and what it says of what it cannot read."""

import hashlib
import json
from pathlib import Path

import numpy as np
import pytest
import yaml
from typer.testing import CliRunner, Result

from backends.embedder.base import DIMENSIONS, Embedding
from tollkeeper import routes_eval
from tollkeeper.cli import app

SEMANTIC = {
    "intents": [
        {"name": "code", "utterances": ["Fix the bug in my program", "Why does this loop never end?", "Refactor this"]},
        {"name": "billing", "utterances": ["Where is my invoice?", "I was charged twice", "I want a refund"]},
    ]
}
PROMPTS = [
    {"text": "There is a bug in my program, fix it", "intent": "code"},
    {"text": "I want my invoice", "intent": "billing", "complexity": "simple"},
    {"text": "What is the highest mountain of Peru?", "intent": None},
    {"text": "Nothing is said of this one"},
]


class LastWords:
    """In place of the model: texts that end with the same word are near one another."""

    identity = "last words"

    async def embed(self, text: str, owner: str, most_tokens: int = 0) -> Embedding:
        seeds = (hashlib.sha256(part.encode()).digest()[:8] for part in (text.split()[-1], text))
        word, all_of_it = (np.random.default_rng(int.from_bytes(seed)).standard_normal(DIMENSIONS) for seed in seeds)
        vector = word + 0.3 * all_of_it
        return Embedding((vector / np.linalg.norm(vector)).astype("<f4").tobytes(), 1, True)

    async def close(self) -> None:
        pass


def run(*arguments: str) -> Result:
    return CliRunner().invoke(app, ["routes", "eval", *arguments])


def written(folder: Path, data: object, name: str = "prompts.yaml") -> str:
    path = folder / name
    path.write_text(data if isinstance(data, str) else yaml.safe_dump(data))
    return str(path)


def test_accuracy_abstention_and_confusion_are_told(tmp_path: Path) -> None:
    result = run(written(tmp_path, {"semantic": SEMANTIC, "prompts": PROMPTS}), "--json")
    assert result.exit_code == 0, result.output
    told = json.loads(result.stdout)
    held_out, prompts = told["examples"]["intents"], told["prompts"]["intents"]
    assert held_out["count"] == 6 and 0 <= held_out["accuracy"] <= 1
    assert set(held_out["thresholds"]) == {"code", "billing"}
    assert 0 < held_out["calibrated_threshold"] < 1
    assert (prompts["count"], prompts["accuracy"], prompts["abstention"]) == (3, 1.0, 1 / 3)
    assert prompts["confusion"]["code"] == {"code": 1, "billing": 0, "(none)": 0}
    assert "complexity" not in told["prompts"], "the route does not look at complexity"


def test_a_route_of_a_gateways_file_is_looked_at(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(routes_eval, "EmbedderChild", LastWords)
    intents = [{"name": name, "utterances": [f"{part} {name}" for part in "abcde"]} for name in ("code", "bills")]
    config = {
        "keys": [{"key": "env:A_VARIABLE_THAT_IS_NOT_SET", "tenant": "acme"}],
        "pools": [{"name": "small", "targets": [{"name": "s", "kind": "scripted"}]}],
        "models": [{"name": "small", "pool": "small"}],
        "routes": [
            {
                "name": "assistant",
                "choose": [{"model": "small"}],
                "semantic": {"intents": intents, "complexity": {"threshold": 0.5}},
            },
            {"name": "plain", "choose": [{"model": "small"}]},
        ],
    }
    gateway = written(tmp_path, config, "gateway.yaml")
    asked = [("f code", "code"), ("f bills", "bills"), ("f weather", None)]
    prompts = written(tmp_path, {"prompts": [{"text": text, "intent": intent} for text, intent in asked]})
    result = run(prompts, "--config", gateway, "--route", "assistant")
    assert result.exit_code == 0, result.output
    assert "10 examples, each held out\naccuracy 100.0%, abstention 0.0%, precision 100.0%" in result.stdout
    assert "3 labelled prompts, intents\naccuracy 100.0%, abstention 33.3%, precision 100.0%" in result.stdout
    assert "is / read as  code  bills  (none)\ncode             1      .       ." in result.stdout
    assert "(calibrated)" in result.stdout and "threshold of complex: 0.500 (stated)" in result.stdout
    for route, message in (("plain", "has no `semantic` block"), ("other", "has no route 'other'")):
        result = run(prompts, "--config", gateway, "--route", route)
        assert result.exit_code == 2 and message in result.stderr


@pytest.mark.parametrize(
    ("data", "message"),
    [
        ({"prompts": PROMPTS}, "has no `semantic`; write it there, or name a route with --route"),
        ({"semantic": SEMANTIC, "prompts": [{"text": "x", "intent": "other"}]}, "no intent 'other'; there are: code"),
        ({"semantic": SEMANTIC, "prompts": [{"txt": "a secret"}]}, "`$.prompts[0]`"),
        ({"semantic": {"intents": []}}, "neither intents nor complexity"),
        ("a: [", "neither YAML nor JSON"),
    ],
)
def test_what_is_wrong_with_the_file_is_named(tmp_path: Path, data: object, message: str) -> None:
    result = run(written(tmp_path, data))
    assert result.exit_code == 2
    assert message in " ".join(result.stderr.split()) and "secret" not in result.stderr


def test_a_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    result = run(str(tmp_path / "none.yaml"))
    assert result.exit_code == 2 and "cannot be read: No such file" in " ".join(result.stderr.split())
