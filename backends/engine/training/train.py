"""Trains the built-in model from the corpus: a byte-pair tokenizer and a Llama of about five million parameters.

    python -m backends.engine.training.train corpus.jsonl OUT --minutes 6

Takes a few minutes on one GPU; on a CPU only `--minutes` keeps it short. Writes a Hugging Face directory (bf16
safetensors, tokenizer, chat template) and `training.json` with the loss curve and what was used.
"""

import argparse
import json
import math
import random
import time
from pathlib import Path
from typing import Any, Final

import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import LlamaConfig, LlamaForCausalLM

SEED: Final = 20261120
VOCABULARY: Final = 4096
CONTEXT: Final = 8192
SPECIAL: Final = ("<|pad|>", "<|begin|>", "<|end|>", "<|system|>", "<|user|>", "<|assistant|>")
CHAT_TEMPLATE: Final = (
    "{{ bos_token }}{% for message in messages %}<|{{ 'system' if message.role == 'developer' else "
    "('user' if message.role in ('tool', 'function') else message.role) }}|>"
    "{{ message.content if message.content is string else (message.content or []) | map(attribute='text') "
    "| select('string') | join(' ') }}<|end|>{% endfor %}"
    "{% if add_generation_prompt %}<|assistant|>{% endif %}"
)


def config() -> LlamaConfig:
    """Return the model's configuration: 4.8M parameters, 9.6 MB in bf16."""
    shape: dict[str, Any] = dict(
        vocab_size=VOCABULARY,
        hidden_size=256,
        intermediate_size=560,
        num_hidden_layers=6,
        num_attention_heads=4,
        num_key_value_heads=2,
        head_dim=64,
        max_position_embeddings=CONTEXT,
        rope_theta=100_000.0,
        tie_word_embeddings=True,
        bos_token_id=1,
        eos_token_id=2,
        pad_token_id=0,
        attn_implementation="sdpa",
    )
    return LlamaConfig(**shape)


def train_tokenizer(documents: list[dict[str, str]]) -> Tokenizer:
    """Train a byte-level byte-pair tokenizer on the corpus."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=VOCABULARY, special_tokens=list(SPECIAL), initial_alphabet=pre_tokenizers.ByteLevel.alphabet()
    )
    texts = (text for document in documents for text in document.values())
    tokenizer.train_from_iterator(texts, trainer)
    return tokenizer


def encode(documents: list[dict[str, str]], tokenizer: Tokenizer) -> list[list[int]]:
    """Convert documents to token ids; one to three consecutive dialogues form one conversation."""
    source = random.Random(SEED)
    begin, end, user, assistant = (SPECIAL.index(f"<|{name}|>") for name in ("begin", "end", "user", "assistant"))
    texts = [d["text"] for d in documents if "text" in d]
    dialogues = [d for d in documents if "user" in d]
    encoded = [[begin, *encoding.ids, end] for encoding in tokenizer.encode_batch(texts)]
    asked = tokenizer.encode_batch([d["user"] for d in dialogues])
    answered = tokenizer.encode_batch([d["assistant"] for d in dialogues])
    turn, conversation = 0, [begin]
    for question, answer in zip(asked, answered, strict=True):
        conversation += [user, *question.ids, end, assistant, *answer.ids, end]
        turn += 1
        if turn >= source.choice((1, 1, 1, 2, 3)):
            encoded.append(conversation)
            turn, conversation = 0, [begin]
    source.shuffle(encoded)
    return encoded


def batches(stream: torch.Tensor, length: int, rows: int, device: str, generator: torch.Generator) -> torch.Tensor:
    """Return rows of `length` + 1 tokens from random positions of the packed stream."""
    starts = torch.randint(0, stream.numel() - length - 1, (rows,), generator=generator)
    return torch.stack([stream[start : start + length + 1] for start in starts.tolist()]).to(device, torch.long)


def train(
    stream: torch.Tensor, held_out: torch.Tensor, minutes: float, device: str
) -> tuple[Any, list[dict[str, Any]]]:
    """Train for a number of minutes; return the model and the loss curve. Every fourth step uses rows of the full
    context length.
    """
    torch.manual_seed(SEED)
    generator = torch.Generator().manual_seed(SEED)
    model: Any = LlamaForCausalLM(config())
    model.to(device)
    optimizer = torch.optim.AdamW(
        model.parameters(), lr=3e-3, betas=(0.9, 0.95), weight_decay=0.1, fused=device != "cpu"
    )
    step_model = torch.compile(model, dynamic=False) if device != "cpu" else model
    curve: list[dict[str, Any]] = []
    began, step, tokens = time.monotonic(), 0, 0
    while (done := (time.monotonic() - began) / (60 * minutes)) < 1:
        length = CONTEXT if step % 4 == 3 else 1024
        rows = (128 if device != "cpu" else 4) * 1024 // length or 1
        for group in optimizer.param_groups:
            group["lr"] = 3e-3 * min(1.0, (step + 1) / 200) * (0.5 + 0.5 * math.cos(math.pi * done)) + 1e-5
        drawn = batches(stream, length, rows, device, generator)
        with torch.autocast(device, dtype=torch.bfloat16):
            logits = step_model(input_ids=drawn[:, :-1]).logits
            loss = torch.nn.functional.cross_entropy(logits.flatten(0, 1).float(), drawn[:, 1:].flatten())
        optimizer.zero_grad(set_to_none=True)
        loss.backward()  # type: ignore[no-untyped-call]  # torch's own omission
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        step, tokens = step + 1, tokens + rows * length
        if step % 500 == 0:
            curve.append(
                {"step": step, "tokens": tokens, "seconds": round(time.monotonic() - began), "loss": loss.item()}
            )
            print(json.dumps(curve[-1]), flush=True)
    curve.append({"step": step, "tokens": tokens, "held_out_loss": _held_out_loss(model, held_out, device)})
    return model, curve


def _held_out_loss(model: Any, held_out: torch.Tensor, device: str) -> float:
    losses = []
    with torch.inference_mode():
        for start in range(0, min(held_out.numel() - 1025, 200 * 1024), 1024):
            row = held_out[start : start + 1025].to(device, torch.long)[None]
            logits = model(input_ids=row[:, :-1]).logits
            losses.append(torch.nn.functional.cross_entropy(logits.flatten(0, 1).float(), row[:, 1:].flatten()).item())
    return sum(losses) / len(losses)


def save(model: Any, tokenizer: Tokenizer, curve: list[dict[str, Any]], target: Path) -> None:
    """Write the Hugging Face directory."""
    model.to(torch.bfloat16).save_pretrained(target)
    tokenizer.save(str(target / "tokenizer.json"))
    (target / "tokenizer_config.json").write_text(
        json.dumps(
            {
                "tokenizer_class": "PreTrainedTokenizerFast",
                "model_max_length": CONTEXT,
                "bos_token": SPECIAL[1],
                "eos_token": SPECIAL[2],
                "pad_token": SPECIAL[0],
                "clean_up_tokenization_spaces": False,
                "chat_template": CHAT_TEMPLATE,
            },
            indent=1,
        )
    )
    device_name = torch.cuda.get_device_name() if torch.cuda.is_available() else "CPU"
    facts = {"device": device_name, "torch": torch.__version__, "parameters": model.num_parameters(), "curve": curve}
    (target / "training.json").write_text(json.dumps(facts, indent=1))


def main() -> None:
    """Train the model and write its directory."""
    parser = argparse.ArgumentParser()
    parser.add_argument("corpus", type=Path)
    parser.add_argument("target", type=Path)
    parser.add_argument("--minutes", type=float, default=6.0)
    arguments = parser.parse_args()
    documents = [json.loads(line) for line in arguments.corpus.read_text().splitlines()]
    tokenizer = train_tokenizer(documents)
    encoded = encode(documents, tokenizer)
    held = len(encoded) // 100
    held_out, stream = (
        torch.tensor([token for row in rows for token in row], dtype=torch.int32)
        for rows in (encoded[:held], encoded[held:])
    )
    print(f"{stream.numel()} tokens of {len(encoded) - held} documents, {held_out.numel()} held out", flush=True)
    device = "cuda" if torch.cuda.is_available() else "cpu"
    model, curve = train(stream, held_out, arguments.minutes, device)
    save(model, tokenizer, curve, arguments.target)


if __name__ == "__main__":
    main()
