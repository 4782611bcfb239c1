"""Models for GPU benchmarks: the shapes of two Llamas, random weights, and a tokenizer that covers their vocabulary."""

import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

BUILTIN: Final = Path(__file__).resolve().parent.parent / "backends" / "engine" / "builtin_model"
VOCABULARY: Final = 128_256
_WORD: Final = re.compile(r"Ġ[a-z]+")

_COMMON: Final[Mapping[str, Any]] = {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "hidden_act": "silu",
    "attention_bias": False,
    "mlp_bias": False,
    "rms_norm_eps": 1e-5,
    "rope_parameters": {"rope_theta": 500_000.0, "rope_type": "default"},
    "max_position_embeddings": 32_768,
    "vocab_size": VOCABULARY,
    "bos_token_id": 1,
    "eos_token_id": 2,
    "pad_token_id": 0,
    "torch_dtype": "bfloat16",
}
# Llama 3.2 1B and Llama 3.1 8B, without their rope scaling, which costs no time.
SHAPES: Final[Mapping[str, Mapping[str, Any]]] = {
    "1b": {
        "hidden_size": 2048,
        "intermediate_size": 8192,
        "num_hidden_layers": 16,
        "num_attention_heads": 32,
        "num_key_value_heads": 8,
        "head_dim": 64,
        "tie_word_embeddings": True,
    },
    "8b": {
        "hidden_size": 4096,
        "intermediate_size": 14_336,
        "num_hidden_layers": 32,
        "num_attention_heads": 32,
        "num_key_value_heads": 8,
        "head_dim": 128,
        "tie_word_embeddings": False,
    },
}


def write_model(folder: Path, shape: str) -> Path:
    """Write what an engine needs of a model besides its weights: configuration and tokenizer. Raises KeyError."""
    path = folder / f"llama-{shape}"
    path.mkdir(parents=True, exist_ok=True)
    (path / "config.json").write_text(json.dumps({**_COMMON, **SHAPES[shape]}))
    (path / "tokenizer.json").write_text(json.dumps(_tokenizer()))
    (path / "tokenizer_config.json").write_bytes((BUILTIN / "tokenizer_config.json").read_bytes())
    (path / "generation_config.json").write_text(json.dumps({"bos_token_id": 1, "eos_token_id": 2}))
    return path


def words() -> dict[int, str]:
    """Return the ids that are one word each, and the text, space before it, that becomes exactly that id."""
    vocabulary: dict[str, int] = json.loads((BUILTIN / "tokenizer.json").read_text())["model"]["vocab"]
    return {number: f" {token[1:]}" for token, number in vocabulary.items() if _WORD.fullmatch(token)}


def _tokenizer() -> dict[str, Any]:
    """The built-in model's tokenizer with words up to the vocabulary's end, which no text becomes but ids may be."""
    tokenizer: dict[str, Any] = json.loads((BUILTIN / "tokenizer.json").read_text())
    words = tokenizer["model"]["vocab"]
    used = set(words.values()) | {one["id"] for one in tokenizer["added_tokens"]}
    words.update({f"Ġw{number}": number for number in range(VOCABULARY) if number not in used})
    return tokenizer
