"""The embedder: all-MiniLM-L6-v2 from the package that carries its weights, as plain batched inference."""

import json
from collections.abc import Sequence
from hashlib import sha256
from typing import Final

import torch
from transformers import AutoModel

from backends.engine.embed_order import EMBEDDER_NAME
from backends.engine.quiet_transformers import quiet_transformers
from backends.tokenization.minilm_files import packaged_minilm
from contracts.engine.wire import ModelHello
from contracts.errors import ConfigurationError

_NEEDED_BY: Final = "the embedder needs"
_REMEDY: Final = "install it or set TOLLKEEPER_ENGINE_EMBEDDER=false"
_WARMUP: Final = [[101, 102], [101] + [2000] * 30 + [102]]


class Embedder:
    """Embeds texts: mean pooling over the last layer, normalised to length 1, as in sentence-transformers."""

    def __init__(self, threads: int) -> None:
        """Load the model from disk. Raises ConfigurationError if the package is missing or damaged."""
        path = packaged_minilm(_NEEDED_BY, _REMEDY)
        quiet_transformers()
        torch.set_num_threads(threads)
        try:
            tokenizer = json.loads((path / "tokenizer.json").read_text())
            limits = json.loads((path / "sentence_bert_config.json").read_text())
            self._model = AutoModel.from_pretrained(
                path, dtype=torch.float32, local_files_only=True, use_safetensors=True, add_pooling_layer=False
            )
            weights = sha256((path / "model.safetensors").read_bytes()).hexdigest()
        except (OSError, ValueError, RuntimeError) as error:
            raise ConfigurationError(f"the embedder in {path} cannot be loaded: {error}") from error
        self._model.eval()
        self._model.requires_grad_(False)
        self.max_tokens: int = limits["max_seq_length"]
        self.dimensions: int = self._model.config.hidden_size
        self.vocabulary: int = self._model.config.vocab_size
        # The file's settings truncate and pad to 128 tokens, which would falsify token counts.
        tokenizer["truncation"] = tokenizer["padding"] = None
        self._tokenizer = json.dumps(tokenizer, ensure_ascii=False).encode()
        self._weights_hash = weights

    def warm_up(self) -> None:
        """Embed a short text, so that the first request is not slowed by one-time initialisation."""
        self.embed(_WARMUP)

    def hello(self) -> ModelHello:
        """Return the description of the model."""
        return ModelHello(
            id=EMBEDDER_NAME,
            kind="embed",
            weights_hash=self._weights_hash,
            tokenizer_hash=sha256(self._tokenizer).hexdigest(),
            tokenizer=self._tokenizer,
            context_tokens=self.max_tokens,
            vocabulary=self.vocabulary,
            dimensions=self.dimensions,
        )

    def embed(self, inputs: Sequence[Sequence[int]]) -> torch.Tensor:
        """Embed one batch of token ids: [inputs, dimensions], float32. Inputs of similar length need the
        least padding.
        """
        lengths = torch.tensor([len(ids) for ids in inputs])
        longest = int(lengths.max())
        ids = torch.tensor([[*one, *[0] * (longest - len(one))] for one in inputs])
        mask = None if int(lengths.min()) == longest else (torch.arange(longest) < lengths[:, None])
        with torch.inference_mode():
            hidden = self._model(input_ids=ids, attention_mask=mask).last_hidden_state
            if mask is not None:
                hidden = hidden * mask[:, :, None]
            pooled = hidden.sum(1) / lengths[:, None]
            return torch.nn.functional.normalize(pooled, dim=1)
