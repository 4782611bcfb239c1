"""What is looked at before vLLM starts: its release, the model's directory, the GPUs."""

import logging
import os
import sys
from importlib import metadata
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from backends.engine import vllm_builder
from backends.engine.base import ModelOrder
from backends.engine.settings import BUILTIN_PATH, EngineHostSettings
from backends.engine.torch_engine.model_files import read_model_files
from backends.engine.vllm_engine import capability, gpu_room
from backends.engine.vllm_engine.cache_hooks import CacheHooks
from backends.engine.vllm_engine.model_card import read_model_card
from backends.engine.vllm_engine.step_metering import NoMetering
from backends.gpu.base import DeviceIdentity, DeviceSample, Round
from contracts.errors import ConfigurationError
from tests.backends.engine.vllm_engine.played_llm import PlayedLlm

GB = 10**9


def config(**more: Any) -> Any:
    """What of vLLM's configuration is read."""
    found = {"tensor": 1, "dtype": "torch.bfloat16", "load_format": "auto", "quantization": None} | more
    return SimpleNamespace(
        model_config=SimpleNamespace(
            dtype=found["dtype"], max_model_len=1000, quantization=found["quantization"], runner_type="generate"
        ),
        cache_config=SimpleNamespace(cache_dtype="auto", gpu_memory_utilization=0.9),
        parallel_config=SimpleNamespace(
            tensor_parallel_size=found["tensor"], pipeline_parallel_size=1, world_size=found["tensor"], device_ids=None
        ),
        load_config=SimpleNamespace(load_format=found["load_format"]),
    )


class Reader:
    """Two GPUs, of which the second is nearly full."""

    def devices(self) -> tuple[DeviceIdentity, ...]:
        return tuple(DeviceIdentity(f"GPU-{place}", place, "H200") for place in range(2))

    def look(self) -> Round:
        free = (100 * GB, 1 * GB)
        return Round(
            tuple(
                DeviceSample(f"GPU-{place}", 0, memory_total_bytes=141 * GB, memory_free_bytes=room)
                for place, room in enumerate(free)
            )
        )

    def close(self) -> None: ...


@pytest.fixture
def two_gpus(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gpu_room, "require_gpu", lambda: [Reader()])
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)


def test_another_release_is_warned_of_and_serves(monkeypatch, caplog):
    monkeypatch.setattr(metadata, "version", lambda name: "0.26.0")
    monkeypatch.setattr(capability, "missing_parts", list)
    with caplog.at_level(logging.WARNING):
        assert capability.check_vllm() == "0.26.0"
    assert "not the version this host was tested with, 0.25.1" in caplog.text


def test_a_release_that_lacks_what_serving_needs_is_refused_by_name(monkeypatch):
    monkeypatch.setattr(metadata, "version", lambda name: "9.9")
    monkeypatch.setattr(capability, "missing_parts", lambda: ["AsyncLLM.add_request"])
    with pytest.raises(ConfigurationError, match=r"vLLM 9.9 lacks AsyncLLM.add_request, .* install 0.25.1"):
        capability.check_vllm()


def test_steps_that_cannot_be_metered_are_served_all_the_same_with_a_warning(monkeypatch, caplog):
    monkeypatch.setattr(vllm_builder, "missing_hooks", lambda: ["Worker.execute_model"])
    with caplog.at_level(logging.WARNING):
        assert not vllm_builder.can_meter()
    assert "not metered: this version lacks Worker.execute_model" in caplog.text


@pytest.mark.parametrize("close_fails", [False, True])
def test_what_fails_after_vllm_has_started_ends_vllm_and_all_that_goes_with_it(monkeypatch, tmp_path, close_fails):
    closed: list[str] = []

    class Client(PlayedLlm):
        def close(self) -> None:
            closed.append("vLLM")
            if close_fails:
                raise RuntimeError("it does not end")

    class Metering(NoMetering):
        def close(self) -> None:
            closed.append("metering")

    class Hooks(CacheHooks):
        def close(self) -> None:
            closed.append("hooks")

    words = SimpleNamespace(
        load_format="auto", quantization=None, seed=0, data_parallel_size=1, enable_sleep_mode=False
    )
    played_module = SimpleNamespace(
        engine_arguments=lambda given: words,
        engine_config=lambda given: SimpleNamespace(lora_config=object()),
        AsyncLlmClient=lambda *_, **__: Client(lambda request: ()),
    )
    monkeypatch.setitem(sys.modules, "backends.engine.vllm_engine.async_llm", played_module)
    for name, played in {
        "check_vllm": lambda: "1",
        "check_gpus": lambda *_: (),
        "NoMetering": Metering,
        "add_cache_hooks": lambda config: Hooks(None),
        "_answers": lambda *_: None,
    }.items():
        monkeypatch.setattr(vllm_builder, name, played)
    settings = EngineHostSettings(
        engine_kind="vllm", engine_metering=False, data=tmp_path, engine_vllm_arguments="--enable-lora"
    )
    order = ModelOrder("m", str(BUILTIN_PATH), adapters=(("mine", tmp_path),))
    with pytest.raises(ConfigurationError, match="adapter"):
        vllm_builder.build(settings, order, BUILTIN_PATH)
    assert closed == ["vLLM", "hooks", "metering"]


def test_the_operator_s_environment_goes_before_ours(monkeypatch):
    monkeypatch.setenv("VLLM_WORKER_MULTIPROC_METHOD", "fork")
    monkeypatch.delenv("VLLM_NO_USAGE_STATS", raising=False)
    vllm_builder.prepare_environment()
    assert os.environ["VLLM_WORKER_MULTIPROC_METHOD"] == "fork" and os.environ["VLLM_NO_USAGE_STATS"] == "1"


def test_a_directory_says_the_same_to_both_engines():
    card, files = read_model_card(BUILTIN_PATH), read_model_files(BUILTIN_PATH)
    assert card.weights_hash("") == files.weights_hash(), "either may go on with the other's answer"
    assert (card.tokenizer_hash, card.template_hash) == (files.tokenizer_hash, files.template_hash)
    assert (card.eos_token_ids, card.special_tokens) == (files.eos_token_ids, files.special_tokens)
    assert card.weights_hash("quantization=fp8") != card.weights_hash("")


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ({"load_format": "auto", "quantization": None, "seed": 0}, ""),
        ({"load_format": "auto", "quantization": "fp8", "seed": 0}, "quantization=fp8"),
        ({"load_format": "dummy", "quantization": None, "seed": 3}, "load_format=dummy,seed=3"),
    ],
)
def test_weights_that_differ_from_their_files_are_other_weights(arguments, said):
    assert vllm_builder._weights_settings(SimpleNamespace(**arguments)) == said


def test_what_is_no_model_is_refused_by_name(tmp_path: Path):
    with pytest.raises(ConfigurationError, match="no such directory"):
        read_model_card(tmp_path / "nowhere")
    with pytest.raises(ConfigurationError, match=r"has no config\.json"):
        read_model_card(tmp_path)
    (tmp_path / "config.json").write_text('{"model_type": "llama"}')
    with pytest.raises(ConfigurationError, match=r"has no tokenizer\.json, without which a gateway"):
        read_model_card(tmp_path)
    (tmp_path / "tokenizer.json").write_bytes((BUILTIN_PATH / "tokenizer.json").read_bytes())
    with pytest.raises(ConfigurationError, match="the chat template .* cannot be read"):
        read_model_card(tmp_path, tmp_path / "none.jinja")
    (tmp_path / "t.jinja").write_text("{{ messages }}")
    assert read_model_card(tmp_path, tmp_path / "t.jinja").chat_template == "{{ messages }}"


def test_a_model_is_put_on_as_many_gpus_as_it_is_spread_over(two_gpus, card):
    assert [gpu.uuid for gpu in gpu_room.check_gpus("m", card.config, BUILTIN_PATH, config())] == ["GPU-0"]
    both = gpu_room.check_gpus("m", card.config, BUILTIN_PATH, config(tensor=2))
    assert [gpu.uuid for gpu in both] == ["GPU-0", "GPU-1"]


def test_a_model_that_cannot_fit_is_refused_before_anything_is_loaded(two_gpus, card, tmp_path):
    large = card.config | {"hidden_size": 16_384, "intermediate_size": 65_536, "num_hidden_layers": 100}
    with pytest.raises(ConfigurationError, match=r"'m' does not fit: weights \d+.\d\d GB"):
        gpu_room.check_gpus("m", large, tmp_path, config(load_format="dummy"))
    with pytest.raises(ConfigurationError, match="spread over 3 GPUs"):
        gpu_room.check_gpus("m", card.config, BUILTIN_PATH, config(tensor=3))


def test_weights_are_counted_as_they_will_lie_in_memory(card, tmp_path):
    def weights(**more: Any) -> int | None:
        needs = gpu_room.needs_of(card.config, BUILTIN_PATH, config(**more))
        return None if needs is None else needs.weights_bytes

    files = (BUILTIN_PATH / "model.safetensors").stat().st_size
    assert weights() == files
    assert weights(load_format="dummy") == pytest.approx(files, rel=0.01)
    assert weights(quantization="fp8") == pytest.approx(files / 2, rel=0.01)
    assert gpu_room.needs_of({"model_type": "other"}, tmp_path, config()) is None, "not told, so not guessed"
