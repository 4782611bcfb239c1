"""Reads a model's directory for its description to gateways: tokenizer, template, end tokens, hashes. Loads nothing."""

from dataclasses import dataclass
from pathlib import Path
from typing import Final

from backends.engine.model_card import (
    ModelCard,
    chat_template_of,
    eos_token_ids_of,
    hash_of_files,
    read_json,
    special_tokens_of,
)
from contracts.errors import ConfigurationError

_WEIGHTS: Final = ("*.safetensors", "*.bin", "*.pt", "*.gguf")


@dataclass(frozen=True, slots=True)
class VllmModelCard(ModelCard):
    """Description of a model directory that vLLM is to load."""

    def weights_hash(self, settings: str) -> str:
        """Return the SHA-256 of the weight files' names and contents, as for other engines. Reads all files, which is
        slow.

        `settings` (how vLLM is to load them) is included if not empty: quantization or dummy weights change what is
        served.
        """
        digest = hash_of_files(sorted(found for pattern in _WEIGHTS for found in self.path.glob(pattern)))
        digest.update(settings.encode())
        return digest.hexdigest()


def read_model_card(path: Path, chat_template: Path | None = None) -> VllmModelCard:
    """Read a model directory; `chat_template` is a file that replaces the model's own. Raises ConfigurationError."""
    if not path.is_dir():
        raise ConfigurationError(f"{path} is not a model: there is no such directory")
    config = read_json(path / "config.json")
    if not config:
        raise ConfigurationError(f"{path} is not a model: it has no config.json")
    tokenizer = path / "tokenizer.json"
    if not tokenizer.is_file():
        raise ConfigurationError(
            f"{path} has no tokenizer.json, without which a gateway cannot make prompts for it; save its tokenizer in "
            "the fast format"
        )
    tokenizer_config = read_json(path / "tokenizer_config.json")
    try:
        template = chat_template_of(path, tokenizer_config) if chat_template is None else chat_template.read_text()
    except OSError as error:
        raise ConfigurationError(f"the chat template {chat_template} cannot be read: {error.strerror}") from error
    return VllmModelCard(
        path=path,
        config=config,
        tokenizer=tokenizer.read_bytes(),
        chat_template=template,
        special_tokens=special_tokens_of(tokenizer_config),
        eos_token_ids=eos_token_ids_of(config, read_json(path / "generation_config.json")),
    )
