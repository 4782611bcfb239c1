"""A local Hugging Face model directory, checked before anything is loaded from it. Reads JSON and hashes; no torch."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import Final

from contracts.errors import ConfigurationError

_PICKLES: Final = ("*.bin", "*.pt", "*.pth", "*.pkl", "*.ckpt")
_CHUNK_BYTES: Final = 1 << 22
_SPECIAL: Final = ("bos_token", "eos_token", "unk_token", "pad_token", "sep_token", "cls_token", "mask_token")


@dataclass(frozen=True, slots=True)
class ModelFiles:
    """What a directory says of its model. Hashes are SHA-256 in hex."""

    path: Path
    config: Mapping[str, object]
    architecture: str
    weights: tuple[Path, ...]
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

    def weights_hash(self) -> str:
        """Hash the weight files, names and contents, in the order of their names. Reads them all."""
        digest = sha256()
        for path in self.weights:
            digest.update(path.name.encode() + b"\0")
            with path.open("rb") as file:
                while chunk := file.read(_CHUNK_BYTES):
                    digest.update(chunk)
        return digest.hexdigest()


def read_model_files(path: Path) -> ModelFiles:
    """Read and check a directory. Raises ConfigurationError, naming what is wrong with it."""
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


def _check_architecture(path: Path, config: Mapping[str, object]) -> str:
    """Refuse what paged full attention over one decoder would serve wrongly."""
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


def chat_template_of(path: Path, tokenizer_config: Mapping[str, object]) -> str:
    file = path / "chat_template.jinja"
    if file.is_file():
        return file.read_text()
    found = tokenizer_config.get("chat_template")
    if isinstance(found, list):  # named templates: the default one
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
