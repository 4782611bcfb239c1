"""Random models of a few thousand parameters with a real byte-level tokenizer: enough for every path of the engine."""

import json
import random
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import (
    GenerationConfig,
    LlamaConfig,
    LlamaForCausalLM,
    PreTrainedModel,
    Qwen3Config,
    Qwen3ForCausalLM,
)

from contracts.engine.wire import Sampling, Submit

VOCABULARY = 512
CONTEXT = 512
END = "<|end|>"
BEGIN = "<|begin|>"
END_ID = 0
BEGIN_ID = 1
TEXT = (
    "The quick brown fox jumps over the lazy dog. A budget is a limit that somebody has to keep. "
    '{"name": "value", "count": 12, "items": [true, false, null]} pack my box with five dozen liquor jugs; '
)
TEMPLATE = "{% for message in messages %}{{ message['content'] }}{% endfor %}"


def build_tokenizer(size: int = VOCABULARY) -> Tokenizer:
    """Train a byte-level BPE on a few sentences, padded with rare tokens to exactly `size`."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(
        vocab_size=size, special_tokens=[END, BEGIN], initial_alphabet=alphabet, show_progress=False
    )
    tokenizer.train_from_iterator([TEXT] * 4, trainer)
    missing = size - tokenizer.get_vocab_size()
    tokenizer.add_tokens([f"rare{number}" for number in range(missing)])
    return tokenizer


@dataclass(frozen=True)
class TinyModel:
    """A saved model, and the same in transformers as the reference."""

    path: Path
    reference: Any  # transformers types its models' generate as a tensor
    tokenizer: Tokenizer

    def generate(self, prompt: Sequence[int], tokens: int) -> list[int]:
        """Return what transformers generates greedily, end tokens ignored."""
        ids = torch.tensor([list(prompt)])
        config = GenerationConfig(max_new_tokens=tokens, do_sample=False, eos_token_id=-1, pad_token_id=0)
        found = self.reference.generate(ids, attention_mask=torch.ones_like(ids), generation_config=config)
        return [int(token) for token in found[0, len(prompt) :]]

    def logits(self, ids: Sequence[int]) -> torch.Tensor:
        """Return the reference's logits [tokens, vocabulary]."""
        with torch.inference_mode():
            logits: torch.Tensor = self.reference(torch.tensor([list(ids)])).logits[0].float()
        return logits


def build_model(kind: str, path: Path, *, context: int = CONTEXT) -> TinyModel:
    """Save a random Llama or Qwen3 with tokenizer, template and special tokens."""
    torch.manual_seed(7)
    shape: dict[str, Any] = {
        "vocab_size": VOCABULARY,
        "hidden_size": 64,
        "intermediate_size": 128,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "max_position_embeddings": context,
        "eos_token_id": END_ID,
        "bos_token_id": BEGIN_ID,
    }
    if kind == "llama":
        reference: PreTrainedModel = LlamaForCausalLM(LlamaConfig(**shape))
    else:
        reference = Qwen3ForCausalLM(Qwen3Config(head_dim=24, **shape))
    for parameter in reference.parameters():
        if parameter.dim() > 1:  # wide enough that the likeliest token is not decided by rounding
            torch.nn.init.normal_(parameter, std=0.15)
    reference.eval()
    reference.save_pretrained(path)
    tokenizer = build_tokenizer()
    tokenizer.save(str(path / "tokenizer.json"))
    facts = {"bos_token": BEGIN, "eos_token": {"content": END}, "chat_template": TEMPLATE}
    (path / "tokenizer_config.json").write_text(json.dumps(facts))
    return TinyModel(path, reference, tokenizer)


def random_ids(source: random.Random, count: int) -> list[int]:
    """Return ordinary token ids."""
    return [source.randrange(2, VOCABULARY) for _ in range(count)]


def request(number: int, token_ids: Sequence[int], *, max_tokens: int = 16, **options: Any) -> Submit:
    """Build a request; sampling fields and Submit fields may be given together. Greedy, end ignored, unless told."""
    names = set(Sampling.__struct_fields__)
    sampling = {"temperature": 0.0, "ignore_eos": True} | {
        name: value for name, value in options.items() if name in names
    }
    rest = {name: value for name, value in options.items() if name not in names}
    return Submit(
        request_id=number.to_bytes(16, "big"),
        model=str(rest.pop("model", "")),
        token_ids=list(token_ids),
        sampling=Sampling(max_tokens=max_tokens, **sampling),
        **rest,
    )
