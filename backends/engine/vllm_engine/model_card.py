"""A model's directory as its host describes it to gateways: tokenizer, template, end tokens, hashes. Loads nothing."""

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
    """What a directory says of a model that vLLM is to load, in whichever way."""

    def weights_hash(self, settings: str) -> str:
        """Hash the weight files, names and contents, as every engine of ours does. Reads them all, which takes a while.

        Where `settings` (how vLLM was told to load them) is not empty it counts too: quantized while loading, or made
        up, they are other weights.
        """
        digest = hash_of_files(sorted(found for pattern in _WEIGHTS for found in self.path.glob(pattern)))
        digest.update(settings.encode())
        return digest.hexdigest()


def read_model_card(path: Path, chat_template: Path | None = None) -> VllmModelCard:
    """Read a directory; `chat_template` is a file that goes before the model's own. Raises ConfigurationError."""
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
