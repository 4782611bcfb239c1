"""all-MiniLM-L6-v2 in plain tensor operations, with 8-bit weights if the processor multiplies those exactly.

The model: Reimers and Gurevych 2019 (Sentence-BERT), on Wang et al. 2020 (MiniLM): six layers of BERT, mean pooling,
length 1. Activations are quantised to 8 bits per token, so a text's vector does not depend on its neighbours.
"""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from hashlib import sha256
from typing import Any, Final, Protocol

import torch
from safetensors.torch import load_file
from tokenizers import Tokenizer
from torch.nn.functional import gelu, layer_norm, linear, normalize

from backends.embedder.base import DIMENSIONS
from backends.tokenization.minilm_files import packaged_minilm
from contracts.errors import ConfigurationError

_NEEDED_BY: Final = "routes and caches that go by meaning need"
_REMEDY: Final = "install the extra `engine`, or take `semantic` out of the configuration"
_UNKNOWN: Final = "[UNK]"  # the token of words, emoji and letters that the model has never seen
_LAYERS: Final = 6
_HEADS: Final = 12
_HEAD_SIZE: Final = DIMENSIONS // _HEADS
_EPSILON: Final = 1e-12  # of the layers' norms, as in the model's config.json
_PROBES: Final = (
    "How do I reset my password?",
    "Merge two sorted lists in Python, and say why it takes linear time.",
    "The parcel has not arrived.",
)
_LEAST_AGREEMENT: Final = 0.99  # cosine of 8-bit and float vectors; 0.997 where 8-bit products are exact
# Of a text that is too long, both ends are read: the question may be at either.
_HEAD_SHARE: Final = 0.75


class _Linear(Protocol):
    def __call__(self, x: torch.Tensor) -> torch.Tensor:
        """Return x W^T + b: [tokens, in] to [tokens, out]."""


class _Float32:
    def __init__(self, weight: torch.Tensor, bias: torch.Tensor) -> None:
        self._weight, self._bias = weight, bias

    def __call__(self, x: torch.Tensor) -> torch.Tensor:
        return linear(x, self._weight, self._bias)


class _Int8:
    """Weights with a scale for each output, activations with one for each token: Dettmers et al. 2022, section 2.1."""

    def __init__(self, weight: torch.Tensor, bias: torch.Tensor) -> None:
        scale = weight.abs().amax(1).clamp_(min=1e-12) / 127
        self._weight = (weight / scale[:, None]).round_().to(torch.int8).t().contiguous()
        self._scale, self._bias = scale, bias

    def __call__(self, x: torch.Tensor) -> torch.Tensor:
        scale = x.abs().amax(1, keepdim=True).clamp_(min=1e-12).mul_(1 / 127)
        product = torch._int_mm((x / scale).round_().to(torch.int8), self._weight)  # no public function returns 32 bits
        return torch.addcmul(self._bias, product * scale, self._scale)


@dataclass(frozen=True, slots=True)
class _Norm:
    weight: torch.Tensor
    bias: torch.Tensor

    def __call__(self, x: torch.Tensor) -> torch.Tensor:
        return layer_norm(x, (DIMENSIONS,), self.weight, self.bias, _EPSILON)


@dataclass(frozen=True, slots=True)
class _Layer:
    queries_keys_values: _Linear
    attended: _Linear
    attention_norm: _Norm
    widened: _Linear
    narrowed: _Linear
    output_norm: _Norm


class _Encoder:
    """The network: token ids in, vectors out."""

    def __init__(self, weights: dict[str, torch.Tensor], kind: type[_Float32] | type[_Int8]) -> None:
        def norm(name: str) -> _Norm:
            return _Norm(weights[f"{name}.weight"], weights[f"{name}.bias"])

        def joined(*names: str, scales: Sequence[float] = (1.0,)) -> _Linear:
            parts = [
                (weights[f"{name}.weight"] * scale, weights[f"{name}.bias"] * scale)
                for name, scale in zip(names, scales, strict=True)
            ]
            return kind(torch.cat([weight for weight, _ in parts]), torch.cat([bias for _, bias in parts]))

        self._words = weights["embeddings.word_embeddings.weight"]
        # All texts are of token type 0, so its embedding is added to the position embeddings once.
        kinds = weights["embeddings.token_type_embeddings.weight"]
        self._places = weights["embeddings.position_embeddings.weight"] + kinds[0]
        self._norm = norm("embeddings.LayerNorm")
        self._layers = []
        for number in range(_LAYERS):
            at = f"encoder.layer.{number}"
            this = f"{at}.attention.self"
            self._layers.append(
                _Layer(
                    joined(f"{this}.query", f"{this}.key", f"{this}.value", scales=(_HEAD_SIZE**-0.5, 1.0, 1.0)),
                    joined(f"{at}.attention.output.dense"),
                    norm(f"{at}.attention.output.LayerNorm"),
                    joined(f"{at}.intermediate.dense"),
                    joined(f"{at}.output.dense"),
                    norm(f"{at}.output.LayerNorm"),
                )
            )

    def __call__(self, texts: Sequence[Sequence[int]]) -> torch.Tensor:
        """Return [texts, DIMENSIONS] for the texts' token ids. They are concatenated: nothing is padded."""
        lengths = [len(text) for text in texts]
        ids = torch.tensor([one for text in texts for one in text])
        places = torch.cat([self._places[:length] for length in lengths])
        with torch.inference_mode():
            x = self._norm(self._words[ids] + places)
            for layer in self._layers:
                found = layer.queries_keys_values(x).view(-1, 3, _HEADS, _HEAD_SIZE)
                attended = torch.cat([_attend(text) for text in torch.split(found, lengths)])
                x = layer.attention_norm(x + layer.attended(attended))
                x = layer.output_norm(x + layer.narrowed(gelu(layer.widened(x))))
            means = torch.stack([text.mean(0) for text in torch.split(x, lengths)])
            return normalize(means, dim=1)


def _attend(found: torch.Tensor) -> torch.Tensor:
    """Compute attention within one text: [tokens, 3, heads, size] to [tokens, heads * size]. The queries are already
    scaled.
    """
    queries, keys, values = found.permute(1, 2, 0, 3).contiguous()  # a fifth faster than strided
    weights = torch.softmax(torch.bmm(queries, keys.transpose(1, 2)), -1)
    return torch.bmm(weights, values).transpose(0, 1).reshape(-1, DIMENSIONS)


class MiniLM:
    """The model with its tokenizer, loaded from the package that carries its weights."""

    def __init__(self, threads: int = 1) -> None:
        """Load and check it. Raises ConfigurationError if the package is missing or damaged."""
        path = packaged_minilm(_NEEDED_BY, _REMEDY)
        torch.set_num_threads(threads)
        try:
            text = (path / "tokenizer.json").read_bytes()
            layout = json.loads(text)
            file = path / "model.safetensors"
            weights = {name: value.float() for name, value in load_file(file).items() if value.is_floating_point()}
            digest = sha256(file.read_bytes() + text).hexdigest()
        except (OSError, ValueError, RuntimeError) as error:
            raise ConfigurationError(f"the embedder in {path} cannot be loaded: {error}") from error
        layout["truncation"] = layout["padding"] = None  # the file's setting would truncate at 128 tokens
        self._tokenizer: Any = Tokenizer.from_str(json.dumps(layout))
        self._unknown: int | None = self._tokenizer.token_to_id(_UNKNOWN)
        self._encoder, arithmetic = self._fastest(weights)
        self.identity = f"all-minilm-l6-v2:{digest[:16]}:{arithmetic}"

    def tokenize(self, text: str, most_tokens: int) -> tuple[list[int], bool]:
        """Return a text's token ids, at most that many, and whether they represent all of it.

        They do not if a word is not in the vocabulary: all such words have the same id.
        """
        ids: list[int] = self._tokenizer.encode(text).ids
        if len(ids) <= most_tokens:
            return ids, self._unknown not in ids
        head = int(most_tokens * _HEAD_SHARE)
        return ids[:head] + ids[len(ids) - (most_tokens - head) :], False

    def embed(self, texts: Sequence[Sequence[int]]) -> list[bytes]:
        """Return the vector of each list of token ids: float32, little-endian."""
        return [vector.numpy().astype("<f4", copy=False).tobytes() for vector in self._encoder(texts)]

    def _fastest(self, weights: dict[str, torch.Tensor]) -> tuple[_Encoder, str]:
        """Choose 8-bit weights if they are as accurate as float32: some processors lack the instruction, or
        saturate.
        """
        plain = _Encoder(weights, _Float32)
        if not torch.cpu._is_vnni_supported():
            return plain, "float32"
        small = _Encoder(weights, _Int8)
        probes = [self.tokenize(probe, 64)[0] for probe in _PROBES]
        agreement = float((plain(probes) * small(probes)).sum(1).min())
        return (small, "int8") if agreement >= _LEAST_AGREEMENT else (plain, "float32")
