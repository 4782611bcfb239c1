"""What cannot be served is refused at start, by name; what can is described truly."""

import json
import shutil
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import GPT2Config, GPT2LMHeadModel

from backends.engine.torch_engine.model_files import read_model_files
from bench.torch_driver import run
from contracts.errors import ConfigurationError
from tests.backends.engine.torch_engine.tiny_models import (
    BEGIN,
    CONTEXT,
    END,
    END_ID,
    TEMPLATE,
    VOCABULARY,
    TinyModel,
    build_model,
    request,
)


@pytest.fixture
def copied(llama: TinyModel, tmp_path: Path) -> Path:
    """Provide a copy of the model directory that a test may spoil."""
    return Path(shutil.copytree(llama.path, tmp_path / "model"))


def change(path: Path, **facts: object) -> None:
    config = path / "config.json"
    config.write_text(json.dumps(json.loads(config.read_text()) | facts))


def test_hello_describes_the_model(llama, make_engine):
    hello = make_engine(llama.path).hello()
    assert (hello.id, hello.state, hello.context_tokens, hello.vocabulary) == ("tiny", "ready", CONTEXT, VOCABULARY)
    assert (hello.block_size, hello.kv_blocks) == (16, 128)
    assert hello.tokenizer == (llama.path / "tokenizer.json").read_bytes()
    assert hello.tokenizer_hash == sha256(hello.tokenizer).hexdigest()
    assert hello.chat_template == TEMPLATE
    assert hello.template_hash == sha256(TEMPLATE.encode()).hexdigest()
    assert hello.special_tokens == {"bos_token": BEGIN, "eos_token": END}
    assert hello.eos_token_ids == [END_ID]


def test_the_weights_hash_follows_the_weights(llama, copied, make_engine):
    same = make_engine(copied).hello().weights_hash
    assert same == make_engine(llama.path).hello().weights_hash
    weights = copied / "model.safetensors"
    content = bytearray(weights.read_bytes())
    content[-1] ^= 1
    weights.write_bytes(bytes(content))
    assert make_engine(copied).hello().weights_hash != same


def test_the_hellos_own_hashes_are_accepted(llama, make_engine):
    engine = make_engine(llama.path)
    hello = engine.hello()
    submit = request(1, [5], tokenizer_hash=hello.tokenizer_hash, template_hash=hello.template_hash, model="tiny")
    assert run(engine, [submit])[submit.request_id].account.finish_reason == "length"


def test_warming_up_leaves_no_trace(llama, make_engine):
    engine = make_engine(llama.path)
    engine.warm_up()
    assert engine.blocks.counts().cached == 0
    assert engine.take_kv_events() == []
    assert not engine.has_work


@pytest.mark.parametrize(
    ("facts", "reason"),
    [
        ({"is_encoder_decoder": True}, "an encoder and a decoder"),
        ({"sliding_window": 128}, "sliding window of 128"),
        ({"layer_types": ["full_attention", "linear_attention"]}, "linear_attention"),
        ({"layer_types": ["sliding_attention", "full_attention"]}, "sliding_attention"),
        ({"attention_chunk_size": 64}, "chunked attention"),
        ({"auto_map": {"AutoModel": "x.Y"}}, "auto_map"),
        ({"quantization_config": {"quant_method": "awq"}}, "quantized"),
    ],
)
def test_an_architecture_that_would_be_served_wrongly_is_refused_by_name(copied, make_engine, facts, reason):
    change(copied, **facts)
    with pytest.raises(ConfigurationError, match=f"LlamaForCausalLM.*{reason}"):
        make_engine(copied)


def test_a_model_that_attends_in_its_own_way_is_found_out(tmp_path, llama, make_engine):
    bloom = tmp_path / "bloom"
    torch.manual_seed(0)
    from transformers import BloomConfig, BloomForCausalLM  # only this test needs it

    BloomForCausalLM(BloomConfig(vocab_size=VOCABULARY, hidden_size=32, n_layer=2, n_head=4)).save_pretrained(bloom)
    shutil.copy(llama.path / "tokenizer.json", bloom)
    with pytest.raises(ConfigurationError, match="BloomForCausalLM"):
        make_engine(bloom)


def test_another_decoder_with_standard_attention_is_served(tmp_path, llama, make_engine):
    path = tmp_path / "gpt2"
    torch.manual_seed(0)
    shape: dict[str, Any] = {"vocab_size": VOCABULARY, "n_embd": 32, "n_layer": 2, "n_head": 4, "n_positions": 128}
    reference = GPT2LMHeadModel(GPT2Config(**shape, initializer_range=0.3, bos_token_id=1, eos_token_id=0)).eval()
    reference.save_pretrained(path)
    shutil.copy(llama.path / "tokenizer.json", path)
    tiny = TinyModel(path, reference, llama.tokenizer)
    prompts = [[5, 9, 77, 300], list(range(5, 60))]
    answers = run(make_engine(path), [request(number, prompt) for number, prompt in enumerate(prompts)])
    for number, prompt in enumerate(prompts):
        assert answers[number.to_bytes(16, "big")].token_ids == tiny.generate(prompt, 16)


def test_pickled_weights_are_refused_by_name(copied, make_engine):
    (copied / "model.safetensors").rename(copied / "pytorch_model.bin")
    with pytest.raises(ConfigurationError, match="pytorch_model.bin is a pickle"):
        make_engine(copied)


@pytest.mark.parametrize(
    ("missing", "reason"),
    [
        ("config.json", "not a model: it has no config.json"),
        ("model.safetensors", "not a model: it has no .*safetensors"),
        ("tokenizer.json", "no tokenizer.json"),
    ],
)
def test_a_directory_that_lacks_a_part_is_refused(copied, make_engine, missing, reason):
    (copied / missing).unlink()
    with pytest.raises(ConfigurationError, match=reason):
        make_engine(copied)


def test_a_directory_that_is_none_or_broken_is_refused(copied, tmp_path, make_engine):
    with pytest.raises(ConfigurationError, match="no such directory"):
        make_engine(tmp_path / "nowhere")
    (copied / "config.json").write_text("{")
    with pytest.raises(ConfigurationError, match="cannot be read as JSON"):
        make_engine(copied)


def test_weights_cut_short_are_refused(copied, make_engine):
    weights = copied / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:2000])
    with pytest.raises(ConfigurationError, match="cannot be loaded"):
        make_engine(copied)


def test_too_little_memory_for_one_request_is_refused_with_the_arithmetic(llama, make_engine):
    block_bytes = 16 * 2 * 2 * 2 * 16 * 4  # tokens, keys and values, layers, heads, size, float32
    enough = 2 * 32 * block_bytes
    assert make_engine(llama.path, kv_blocks=None, kv_bytes=enough).hello().kv_blocks == 32
    arithmetic = f"512 tokens needs 32 blocks x 16 tokens x {block_bytes // 16} bytes"
    with pytest.raises(ConfigurationError, match=arithmetic):
        make_engine(llama.path, kv_blocks=None, kv_bytes=enough - 1)
    assert make_engine(llama.path, kv_blocks=None, kv_bytes=enough // 2, context_tokens=256).hello().kv_blocks == 16


@pytest.mark.parametrize(
    ("settings", "reason"),
    [
        ({"context_tokens": 10_000}, "context_tokens 10000"),
        ({"max_batch_tokens": 8, "max_sequences": 9}, "below max_sequences 9"),
        ({"max_sequences": 0}, "max_sequences is 0"),
        ({"device": "tpu"}, "device"),
        ({"kv_blocks": 31}, "holds only 31 blocks"),
    ],
)
def test_impossible_settings_are_refused(llama, make_engine, settings, reason):
    with pytest.raises(ConfigurationError, match=reason):
        make_engine(llama.path, **settings)


def test_facts_are_read_wherever_a_directory_keeps_them(copied):
    (copied / "generation_config.json").write_text(json.dumps({"eos_token_id": [3, 0]}))
    (copied / "chat_template.jinja").write_text("from the file")
    files = read_model_files(copied)
    assert files.eos_token_ids == (0, 3)
    assert files.chat_template == "from the file"
    (copied / "chat_template.jinja").unlink()
    named = [{"name": "other", "template": "no"}, {"name": "default", "template": "yes"}]
    (copied / "tokenizer_config.json").write_text(json.dumps({"chat_template": named}))
    assert read_model_files(copied).chat_template == "yes"


def test_a_context_beyond_the_built_models_is_its_own(tmp_path, make_engine):
    tiny = build_model("llama", tmp_path / "long", context=2048)
    assert make_engine(tiny.path).hello().context_tokens == 2048
