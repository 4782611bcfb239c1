"""An adapter gives what the same weights merged into the model give, beside others in one batch."""

import copy
import json
import random
from pathlib import Path

import msgspec
import pytest
import torch
from safetensors.torch import save_file
from torch import nn

from bench.torch_driver import run
from contracts.engine.kept_prefix import KeptPrefix
from contracts.errors import ConfigurationError
from tests.backends.engine.torch_engine.tiny_models import TinyModel, random_ids, request

TARGETS = ("q_proj", "v_proj", "o_proj", "down_proj")
RANK = 4
ALPHA = 8


def save_adapter(tiny: TinyModel, path: Path, seed: int, **config: object) -> TinyModel:
    """Save a random adapter in PEFT's format; return the model with it merged."""
    torch.manual_seed(seed)
    merged = copy.deepcopy(tiny.reference)
    tensors = {}
    for name, layer in merged.named_modules():
        if isinstance(layer, nn.Linear) and name.rpartition(".")[2] in TARGETS:
            down, up = torch.randn(RANK, layer.in_features) * 0.2, torch.randn(layer.out_features, RANK) * 0.2
            tensors[f"base_model.model.{name}.lora_A.weight"] = down
            tensors[f"base_model.model.{name}.lora_B.weight"] = up
            with torch.no_grad():
                layer.weight += up @ down * (ALPHA / RANK)
    path.mkdir()
    facts = {"peft_type": "LORA", "r": RANK, "lora_alpha": ALPHA, "bias": "none", "target_modules": list(TARGETS)}
    (path / "adapter_config.json").write_text(json.dumps(facts | config))
    save_file(tensors, path / "adapter_model.safetensors")
    return TinyModel(tiny.path, merged, tiny.tokenizer)


def test_rows_with_different_adapters_in_one_batch_answer_as_their_merged_models(tiny, make_engine, tmp_path):
    merged = {name: save_adapter(tiny, tmp_path / name, seed) for seed, name in enumerate(("red", "blue"))}
    merged[""] = tiny
    engine = make_engine(tiny.path, adapters=(("red", tmp_path / "red"),), max_batch_tokens=40)
    engine.load_adapter("blue", tmp_path / "blue")
    assert engine.hello().adapters == ["red", "blue"]
    source = random.Random(1)
    names = ["red", "", "blue", "red", "blue", ""]
    batch = [
        request(number, random_ids(source, 10 + 11 * number), max_tokens=20, adapter=name)
        for number, name in enumerate(names)
    ]
    answers = run(engine, batch)
    for one in batch:
        assert answers[one.request_id].token_ids == merged[one.adapter].generate(one.token_ids, 20), one.adapter
    plain = [merged[name].generate(batch[0].token_ids, 20) for name in ("red", "", "blue")]
    assert plain[0] != plain[1] != plain[2]


def test_a_request_whose_adapter_is_unloaded_before_its_first_step_is_refused_and_others_go_on(
    llama, make_engine, tmp_path
):
    save_adapter(llama, tmp_path / "red", 1)
    engine = make_engine(llama.path, adapters=(("red", tmp_path / "red"),))
    prompt = random_ids(random.Random(5), 20)
    engine.submit(request(1, prompt, max_tokens=3, adapter="red"))
    engine.submit(request(2, prompt, max_tokens=3))
    engine.unload_adapter("red")  # accepted, and not in use yet
    answers = run(engine, [request(3, prompt, max_tokens=3)])
    ids = [number.to_bytes(16, "big") for number in (1, 2, 3)]
    assert answers[ids[0]].account.error_code == "unknown_adapter"
    assert [len(answers[one].token_ids) for one in ids[1:]] == [3, 3]


def test_one_adapters_cache_is_not_anothers(llama, make_engine, tmp_path):
    save_adapter(llama, tmp_path / "red", 1)
    engine = make_engine(llama.path, adapters=(("red", tmp_path / "red"),))
    prompt = random_ids(random.Random(2), 50)
    run(engine, [request(1, prompt)])
    assert run(engine, [request(2, prompt, adapter="red")])[(2).to_bytes(16, "big")].cached_tokens == 0
    assert run(engine, [request(3, prompt, adapter="red")])[(3).to_bytes(16, "big")].cached_tokens == 48


def test_other_weights_under_an_adapters_name_do_not_hit_its_cache(llama, make_engine, tmp_path):
    blue = save_adapter(llama, tmp_path / "blue", 2)
    save_adapter(llama, tmp_path / "red", 1)
    engine = make_engine(llama.path, adapters=(("mine", tmp_path / "red"),))
    prompt = random_ids(random.Random(2), 50)
    kept = [KeptPrefix(tokens=48, ttl_seconds=300)]
    run(engine, [request(1, prompt), msgspec.structs.replace(request(2, prompt, adapter="mine"), kept_prefixes=kept)])
    assert engine.stats()["kv_blocks_kept"] == 3
    stored = [one for one in engine.take_kv_events() if one.adapter == "mine"]
    engine.load_adapter("mine", tmp_path / "blue")
    assert engine.stats()["kv_blocks_kept"] == 0
    [gone] = engine.take_kv_events()
    assert (gone.event, gone.adapter) == ("removed", "mine")
    assert set(gone.block_hashes) == {key for one in stored for key in one.block_hashes}
    answers = run(engine, [request(3, prompt, max_tokens=20, adapter="mine"), request(4, prompt)])
    answer, plain = (answers[number.to_bytes(16, "big")] for number in (3, 4))
    assert (answer.cached_tokens, plain.cached_tokens) == (0, 48)
    assert answer.token_ids == blue.generate(prompt, 20)
    engine.unload_adapter("mine")
    engine.load_adapter("mine", tmp_path / "blue")
    assert run(engine, [request(5, prompt, adapter="mine")])[(5).to_bytes(16, "big")].cached_tokens == 0
    engine.blocks.check_integrity()


def test_an_adapter_in_use_cannot_be_unloaded(llama, make_engine, tmp_path):
    save_adapter(llama, tmp_path / "red", 1)
    engine = make_engine(llama.path, adapters=(("red", tmp_path / "red"),))
    engine.submit(request(1, [5, 6], adapter="red"))
    engine.step()
    with pytest.raises(ConfigurationError, match="in use"):
        engine.unload_adapter("red")
    run(engine, [])
    engine.unload_adapter("red")
    with pytest.raises(ConfigurationError, match="not loaded"):
        engine.unload_adapter("red")
    account = run(engine, [request(2, [5, 6], adapter="red")])[(2).to_bytes(16, "big")].account
    assert account.error_code == "unknown_adapter"


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"peft_type": "IA3"}, "not a LoRA"),
        ({"use_dora": True}, "use_dora"),
        ({"modules_to_save": ["lm_head"]}, "modules_to_save"),
        ({"bias": "all"}, "biases"),
        ({"r": 0}, "rank 0"),
    ],
)
def test_an_adapter_that_would_come_out_wrong_is_refused(llama, make_engine, tmp_path, change, reason):
    save_adapter(llama, tmp_path / "red", 1, **change)
    with pytest.raises(ConfigurationError, match=reason):
        make_engine(llama.path).load_adapter("red", tmp_path / "red")


def test_an_adapter_of_another_model_is_refused(llama, make_engine, tmp_path):
    save_adapter(llama, tmp_path / "red", 1)
    save_file(
        {"base_model.model.model.layers.99.mlp.up_proj.lora_A.weight": torch.zeros(4, 64)},
        tmp_path / "red" / "adapter_model.safetensors",
    )
    with pytest.raises(ConfigurationError, match="layers.99"):
        make_engine(llama.path).load_adapter("red", tmp_path / "red")
    with pytest.raises(ConfigurationError, match="not an adapter"):
        make_engine(llama.path).load_adapter("red", tmp_path)
