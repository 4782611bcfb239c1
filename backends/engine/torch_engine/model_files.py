"""Reads and checks a local Hugging Face model directory before it is loaded. Without torch."""

from collections.abc import Mapping
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

_PICKLES: Final = ("*.bin", "*.pt", "*.pth", "*.pkl", "*.ckpt")


@dataclass(frozen=True, slots=True)
class ModelFiles(ModelCard):
    """The files of a model that the torch engine supports."""

    architecture: str
    weights: tuple[Path, ...]

    def weights_hash(self) -> str:
        """Return the hash of the weight files' names and contents, sorted by name. Reads them all."""
        return hash_of_files(self.weights).hexdigest()


def read_model_files(path: Path) -> ModelFiles:
    """Read and check a directory. Raises ConfigurationError, naming the fault."""
    if not path.is_dir():
        raise ConfigurationError(f"{path} is not a model: there is no such directory")
    config = read_json(path / "config.json")
    if not config:
        raise ConfigurationError(f"{path} is not a model: it has no config.json")
    architecture = _check_architecture(path, config)
    weights = tuple(sorted(path.glob("*.safetensors")))
    if not weights:
        pickles = sorted(found.name for pattern in _PICKLES for found in path.glob(pattern))
        if pickles:
            raise ConfigurationError(
                f"{path / pickles[0]} is a pickle, which can run code when it is opened; "
                "convert the weights to safetensors"
            )
        raise ConfigurationError(f"{path} is not a model: it has no *.safetensors file")
    tokenizer = path / "tokenizer.json"
    if not tokenizer.is_file():
        raise ConfigurationError(f"{path} has no tokenizer.json; save its tokenizer in the fast format")
    tokenizer_config = read_json(path / "tokenizer_config.json")
    return ModelFiles(
        path=path,
        config=config,
        architecture=architecture,
        weights=weights,
        tokenizer=tokenizer.read_bytes(),
        chat_template=chat_template_of(path, tokenizer_config),
        special_tokens=special_tokens_of(tokenizer_config),
        eos_token_ids=eos_token_ids_of(config, read_json(path / "generation_config.json")),
    )


def _check_architecture(path: Path, config: Mapping[str, object]) -> str:
    """Return the architecture. Raises ConfigurationError unless it is one decoder with full attention."""
    named = config.get("architectures")
    architecture = str(named[0]) if isinstance(named, list) and named else str(config.get("model_type", "unknown"))
    layer_types = config.get("layer_types")
    others = sorted({str(kind) for kind in layer_types} - {"full_attention"}) if isinstance(layer_types, list) else []
    uses_window = config.get("sliding_window") and config.get("use_sliding_window", True)
    reasons = (
        (config.get("is_encoder_decoder"), "an encoder and a decoder"),
        (others, f"layers of kind {', '.join(others)}"),
        (not layer_types and uses_window, f"a sliding window of {config.get('sliding_window')} tokens"),
        (config.get("attention_chunk_size"), "chunked attention"),
        (config.get("auto_map"), "its own Python code (auto_map)"),
        (config.get("quantization_config"), "quantized weights"),
    )
    for applies, reason in reasons:
        if applies:
            raise ConfigurationError(f"{path}: {architecture} has {reason}, which this engine does not serve")
    return architecture
