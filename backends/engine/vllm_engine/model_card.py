"""A model's directory as its host describes it to gateways: tokenizer, template, end tokens, hashes. Loads nothing."""

from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import Final

from backends.engine.torch_engine.model_files import (
    chat_template_of,
    eos_token_ids_of,
    read_json,
    special_tokens_of,
)
from contracts.errors import ConfigurationError

_CHUNK_BYTES: Final = 1 << 22
_WEIGHTS: Final = ("*.safetensors", "*.bin", "*.pt", "*.gguf")


@dataclass(frozen=True, slots=True)
class ModelCard:
    """What a directory says of its model. The tokenizer is empty where the model brings none in the fast format."""

    path: Path
    config: dict[str, object]
    tokenizer: bytes
    chat_template: str
    special_tokens: dict[str, str]
    eos_token_ids: tuple[int, ...]

    @property
    def tokenizer_hash(self) -> str:
        """Hash tokenizer.json."""
        return sha256(self.tokenizer).hexdigest()

    @property
    def template_hash(self) -> str:
        """Hash the chat template; that of the empty text where there is none."""
        return sha256(self.chat_template.encode()).hexdigest()

    def weights_hash(self, settings: str) -> str:
        """Hash the weight files, names and contents, as every engine of ours does. Reads them all, which takes a while.

        Where `settings` (how vLLM was told to load them) is not empty it counts too: quantized while loading, or made
        up, they are other weights.
        """
        digest = sha256()
        for path in sorted(found for pattern in _WEIGHTS for found in self.path.glob(pattern)):
            digest.update(path.name.encode() + b"\0")
            with path.open("rb") as file:
                while chunk := file.read(_CHUNK_BYTES):
                    digest.update(chunk)
        digest.update(settings.encode())
        return digest.hexdigest()


def read_model_card(path: Path, chat_template: Path | None = None) -> ModelCard:
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
    return ModelCard(
        path=path,
        config=config,
        tokenizer=tokenizer.read_bytes(),
        chat_template=template,
        special_tokens=special_tokens_of(tokenizer_config),
        eos_token_ids=eos_token_ids_of(config, read_json(path / "generation_config.json")),
    )
