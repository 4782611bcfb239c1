"""LoRA adapters: which name serves them, and which are for another base."""

import json
import struct
from pathlib import Path

import pytest

from contracts.errors import ConfigurationError
from tests.backends.engine.vllm_engine.driving import ask, drive
from tests.backends.engine.vllm_engine.played_llm import tokens

# The built-in model: 6 layers, 256 wide, 4 heads and 2 key-value heads of 64, 560 inside.
FITTING = {"q_proj": (256, 256), "k_proj": (256, 128), "o_proj": (256, 256), "up_proj": (256, 560)}


def adapter(path: Path, modules=FITTING, *, layer: int = 0, rank: int = 4) -> Path:
    """Write an adapter's headers; its matrices are never read here."""
    path.mkdir(exist_ok=True)
    shapes = {}
    for module, (inputs, outputs) in modules.items():
        name = f"base_model.model.model.layers.{layer}.self_attn.{module}"
        shapes[f"{name}.lora_A.weight"] = [rank, inputs]
        shapes[f"{name}.lora_B.weight"] = [outputs, rank]
    header = {name: {"dtype": "F32", "shape": shape, "data_offsets": [0, 0]} for name, shape in shapes.items()}
    packed = json.dumps({"__metadata__": {}, **header}).encode()
    (path / "adapter_model.safetensors").write_bytes(struct.pack("<Q", len(packed)) + packed)
    (path / "adapter_config.json").write_text(json.dumps({"r": rank, "base_model_name_or_path": "some/base"}))
    return path


def test_an_adapter_that_fits_is_served_by_name_and_its_number_is_never_used_again(make_engine, tmp_path):
    engine, llm = make_engine(lambda request: tokens([300]))
    path = adapter(tmp_path / "a")
    engine.load_adapter("polite", path)
    engine.load_adapter("polite", path)  # a new version of it
    drive(engine, ask(adapter="polite"))
    assert [(one.name, one.number) for one in llm.adapters] == [("polite", 2)]
    assert llm.requests[0].adapter == llm.adapters[0] and engine.hello().adapters == ["polite"]
    engine.unload_adapter("polite")
    assert engine.hello().adapters == [] and not llm.adapters


def test_an_adapter_in_use_is_neither_replaced_nor_unloaded(make_engine, tmp_path):
    engine, _ = make_engine(lambda request: tokens([300, 301, 302]))
    path = adapter(tmp_path / "a")
    engine.load_adapter("polite", path)
    engine.submit(ask(adapter="polite"))
    engine.step()
    for attempt in (lambda: engine.unload_adapter("polite"), lambda: engine.load_adapter("polite", path)):
        with pytest.raises(ConfigurationError, match="in use by a running request"):
            attempt()


@pytest.mark.parametrize(
    ("modules", "layer", "message"),
    [
        ({"q_proj": (320, 256)}, 0, r"made for some/base\) has 320 columns in .*q_proj.lora_A.* needs 256"),
        ({"k_proj": (256, 256)}, 0, "has 256 rows in .*k_proj.lora_B.* needs 128"),
        (FITTING, 6, "has a layer 6, model 'm' 6 layers"),
    ],
)
def test_an_adapter_of_another_base_is_refused_by_its_shapes(make_engine, tmp_path, modules, layer, message):
    engine, llm = make_engine()
    with pytest.raises(ConfigurationError, match=message) as raised:
        engine.load_adapter("x", adapter(tmp_path / "a", modules, layer=layer))
    assert "another base" in raised.value.message and not llm.adapters


def test_the_last_layer_and_modules_of_unknown_size_are_left_to_vllm(make_engine, tmp_path):
    engine, llm = make_engine()
    engine.load_adapter("a", adapter(tmp_path / "a", layer=5))
    engine.load_adapter("b", adapter(tmp_path / "b", {"something_else": (3, 5)}))
    assert [one.name for one in llm.adapters] == ["a", "b"]


def test_vllm_s_own_refusal_is_told_in_its_words(make_engine, tmp_path):
    engine, llm = make_engine()
    llm.refuses_adapters = "LoRA rank 4 is greater than\n max_lora_rank 1."
    with pytest.raises(ConfigurationError, match="vLLM refuses adapter 'x' .*rank 4 is greater than max_lora_rank 1"):
        engine.load_adapter("x", adapter(tmp_path / "a"))
    assert engine.hello().adapters == []


@pytest.mark.parametrize("damage", ["", "\xff" * 8, "\x08\0\0\0\0\0\0\0no json!"])
def test_a_broken_file_is_named(make_engine, tmp_path, damage):
    path = adapter(tmp_path / "a")
    (path / "adapter_model.safetensors").write_bytes(damage.encode("latin-1"))
    engine, _ = make_engine()
    with pytest.raises(ConfigurationError, match="adapter_model.safetensors is not a safetensors file"):
        engine.load_adapter("x", path)


def test_weights_that_are_missing_are_named(make_engine, tmp_path):
    (tmp_path / "adapter_config.json").write_text('{"r": 8}')
    engine, _ = make_engine()
    with pytest.raises(ConfigurationError, match="has no adapter_model.safetensors"):
        engine.load_adapter("x", tmp_path)
