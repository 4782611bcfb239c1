"""`tollkeeper secrets`: a key goes in without standing on a command line, and a rotation is one command."""

import shutil
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from backends.control.sealer import KEY_FILE, KEYS_VARIABLE
from backends.secrets.secret_files import SecretFiles
from tollkeeper.cli import app
from tollkeeper.installation import Installation

KEY = "sk-hidden-0123456789"


def run(data: Path, *words: str, typed: str = "") -> Result:
    return CliRunner().invoke(app, ["secrets", *words, "--data", str(data)], input=typed)


def test_a_key_is_read_from_standard_input_or_a_file(data: Path, tmp_path: Path) -> None:
    done = run(data, "put", "openai", typed=KEY + "\n")
    assert done.exit_code == 0 and "stored:openai" in done.stdout and KEY not in done.output
    (tmp_path / "key").write_text(KEY)
    assert "version 2" in run(data, "put", "openai", "--file", str(tmp_path / "key")).stdout
    assert "openai" in run(data, "list").stdout
    assert run(data, "delete", "openai").exit_code == 0


def test_a_rotation_adds_a_key_and_forgets_the_old_ones_only_when_told(data: Path) -> None:
    files = SecretFiles(data / "secrets")
    run(data, "put", "openai", typed=KEY)
    (before,) = (files.get(KEY_FILE) or "").split()
    done = run(data, "rotate")
    assert done.exit_code == 0 and "stored keys 1" in done.stdout
    newer, old = (files.get(KEY_FILE) or "").split()
    assert old == before != newer
    assert run(data, "rotate", "--forget-old").exit_code == 0
    (newest,) = (files.get(KEY_FILE) or "").split()
    assert newest not in (newer, old)
    assert (files.directory / KEY_FILE).stat().st_mode & 0o777 == 0o600


def test_keys_in_the_environment_are_not_for_this_command_to_change(
    data: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(KEYS_VARIABLE, "A" * 43)
    done = run(data, "rotate", "--forget-old")
    assert done.exit_code == 2 and KEYS_VARIABLE in done.stderr


def test_a_rotation_beside_another_data_directory_is_refused_and_forgets_nothing(data: Path, tmp_path: Path) -> None:
    elsewhere, address = tmp_path / "elsewhere", Installation(data).address_of("control") or ""
    shutil.copytree(data / "secrets", elsewhere / "secrets")
    run(data, "put", "openai", typed=KEY)
    done = run(elsewhere, "rotate", "--forget-old", "--control-url", address)
    assert done.exit_code == 2 and "another key" in done.stderr
    kept = (SecretFiles(elsewhere / "secrets").get(KEY_FILE) or "").split()
    assert len(kept) == 2 and kept[1] == SecretFiles(data / "secrets").get(KEY_FILE)
