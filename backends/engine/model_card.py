"""Reads a local model directory's facts for gateways: tokenizer, template, end tokens, hashes. Loads no weights."""

import hashlib
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import Final

from contracts.errors import ConfigurationError

_CHUNK_BYTES: Final = 1 << 22
_SPECIAL: Final = ("bos_token", "eos_token", "unk_token", "pad_token", "sep_token", "cls_token", "mask_token")


@dataclass(frozen=True, slots=True)
class ModelCard:
    """A model directory's facts. Hashes are SHA-256 in hexadecimal."""

    path: Path
    config: Mapping[str, object]
    tokenizer: bytes
    chat_template: str
    special_tokens: dict[str, str]
    eos_token_ids: tuple[int, ...]

    @property
    def tokenizer_hash(self) -> str:
        """Return the hash of tokenizer.json."""
        return sha256(self.tokenizer).hexdigest()

    @property
    def template_hash(self) -> str:
        """Return the hash of the chat template; of an empty text if there is none."""
        return sha256(self.chat_template.encode()).hexdigest()


def hash_of_files(paths: Iterable[Path]) -> "hashlib._Hash":
    """Return a SHA-256 object over the names and contents of the files, in this order."""
    digest = sha256()
    for path in paths:
        digest.update(path.name.encode() + b"\0")
        with path.open("rb") as file:
            while chunk := file.read(_CHUNK_BYTES):
                digest.update(chunk)
    return digest


def read_json(path: Path) -> dict[str, object]:
    if not path.is_file():
        return {}
    try:
        found = json.loads(path.read_text())
    except (OSError, ValueError) as error:
        raise ConfigurationError(f"{path} cannot be read as JSON: {error}") from error
    if not isinstance(found, dict):
        raise ConfigurationError(f"{path} is not a JSON object")
    return found


def chat_template_of(path: Path, tokenizer_config: Mapping[str, object]) -> str:
    file = path / "chat_template.jinja"
    if file.is_file():
        return file.read_text()
    found = tokenizer_config.get("chat_template")
    if isinstance(found, list):  # several named templates: use the default
        found = next(
            (one.get("template") for one in found if isinstance(one, dict) and one.get("name") == "default"), ""
        )
    return found if isinstance(found, str) else ""


def special_tokens_of(tokenizer_config: Mapping[str, object]) -> dict[str, str]:
    found = {}
    for name in _SPECIAL:
        token = tokenizer_config.get(name)
        if isinstance(token, dict):
            token = token.get("content")
        if isinstance(token, str):
            found[name] = token
    return found


def eos_token_ids_of(config: Mapping[str, object], generation: Mapping[str, object]) -> tuple[int, ...]:
    found: set[int] = set()
    for source in (config, generation):
        ids = source.get("eos_token_id")
        found.update(one for one in (ids if isinstance(ids, list) else [ids]) if isinstance(one, int) and one >= 0)
    return tuple(sorted(found))
