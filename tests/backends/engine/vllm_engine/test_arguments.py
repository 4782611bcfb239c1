"""What vLLM is started with: the operator's words, the settings in vLLM's, and what the host keeps to itself."""

from pathlib import Path

import pytest
from pydantic import ValidationError

from backends.engine.base import ModelOrder
from backends.engine.settings import EngineHostSettings
from backends.engine.vllm_engine.arguments import option_words, vllm_arguments
from contracts.errors import ConfigurationError

PATH = Path("/models/m")
BARE = ["--model", "/models/m", "--served-model-name", "m", "--disable-log-stats"]
GRAMMARS = ["--structured-outputs-config", '{"backend": "guidance", "disable_any_whitespace": true}']


def words(order: ModelOrder | None = None, **settings: object) -> list[str]:
    made = EngineHostSettings(engine_kind="vllm", **settings)  # type: ignore[arg-type]  # each test names real ones
    return list(vllm_arguments(made, order or ModelOrder("m", "/models/m"), PATH).words)


def test_what_nobody_states_is_left_to_vllm():
    assert words() == [*BARE, "--scheduling-policy", "priority", *GRAMMARS]


def test_the_operator_s_words_come_last_and_as_they_are():
    given = '--tensor-parallel-size 2 --speculative-config \'{"method": "ngram", "num_speculative_tokens": 3}\''
    assert words(engine_vllm_arguments=given)[-4:] == [
        *("--tensor-parallel-size", "2", "--speculative-config"),
        '{"method": "ngram", "num_speculative_tokens": 3}',
    ]


def test_settings_are_said_in_vllm_s_words_only_where_they_are_stated():
    found = words(
        engine_dtype="bfloat16",
        engine_kv_bytes=1000,
        engine_context_tokens=4096,
        engine_max_batch_tokens=512,
        engine_max_sequences=64,
        engine_prefix_cache=False,
        engine_device="cuda:1",
    )
    assert found[len(BARE) : -4] == [
        *("--dtype", "bfloat16", "--kv-cache-memory-bytes", "1000", "--max-model-len", "4096"),
        *("--max-num-batched-tokens", "512", "--max-num-seqs", "64", "--no-enable-prefix-caching"),
        *("--device-ids", "1"),
    ]


@pytest.mark.parametrize(
    ("given", "kept"),
    [
        ("--scheduling-policy fcfs", "priority"),
        ("--structured-outputs-config.backend xgrammar", "guidance"),
        ('--structured-outputs-config \'{"backend": "xgrammar"}\'', "guidance"),
    ],
)
def test_the_operator_s_own_choice_replaces_ours(given, kept):
    assert not any(kept in word for word in words(engine_vllm_arguments=given))


@pytest.mark.parametrize("given", ["--model x", "--served-model-name=x", "--tokenizer x", "--disable-log-stats"])
def test_what_the_host_decides_is_refused_with_the_way_to_say_it(given):
    with pytest.raises(ConfigurationError, match=r"may not hold --[a-z-]+: \w"):
        words(engine_vllm_arguments=given)


def test_another_worker_class_needs_metering_off():
    with pytest.raises(ConfigurationError, match="TOLLKEEPER_ENGINE_METERING=false"):
        words(engine_vllm_arguments="--worker-cls a.B")
    assert "a.B" in words(engine_vllm_arguments="--worker-cls a.B", engine_metering=False)


@pytest.mark.parametrize("given", ["--a 'b", "--tool-call-parser"])
def test_words_that_cannot_be_read_are_a_named_error(given):
    with pytest.raises(ConfigurationError, match="TOLLKEEPER_ENGINE_VLLM_ARGUMENTS cannot be read"):
        words(engine_vllm_arguments=given)


def test_vllm_runs_on_cuda_only():
    with pytest.raises(ConfigurationError, match="'cpu'; vLLM runs on cuda only"):
        words(engine_device="cpu")


def test_what_only_vllm_s_server_knows_is_the_host_s():
    settings = EngineHostSettings(
        engine_kind="vllm",
        engine_vllm_arguments="--tool-call-parser hermes --enable-auto-tool-choice --chat-template t.jinja --seed 1",
    )
    found = vllm_arguments(settings, ModelOrder("m", "/models/m"), PATH)
    assert (found.tool_parser, found.chat_template, found.words[-2:]) == ("hermes", Path("t.jinja"), ("--seed", "1"))


def test_a_load_call_s_options_are_words_too_and_go_last():
    options = {"max_model_len": 4096, "enforce_eager": True, "enable_prefix_caching": False, "seed": None, "dtype": "a"}
    expected = ["--max-model-len", "4096", "--enforce-eager", "--no-enable-prefix-caching", "--dtype", "a"]
    assert option_words(options) == expected
    found = words(ModelOrder("m", "/models/m", options=options), engine_vllm_arguments="--seed 1")
    assert found[-8:] == ["--seed", "1", *expected]


@pytest.mark.parametrize(("rank", "room"), [(1, "1"), (8, "8"), (9, "16"), (512, "512")])
def test_adapters_get_the_smallest_room_that_holds_them(rank, room, tmp_path):
    (tmp_path / "adapter_config.json").write_text(f'{{"r": {rank}}}')
    found = words(ModelOrder("m", "/models/m", adapters=(("a", tmp_path), ("b", tmp_path))))
    assert found[-5:] == ["--enable-lora", "--max-loras", "2", "--max-lora-rank", room]


def test_an_adapter_beyond_the_largest_room_is_refused(tmp_path):
    (tmp_path / "adapter_config.json").write_text('{"r": 513}')
    with pytest.raises(ConfigurationError, match="rank 513 exceeds the largest that vLLM serves, 512"):
        words(ModelOrder("m", "/models/m", adapters=(("a", tmp_path),)))


def test_there_are_two_kinds_of_engine():
    with pytest.raises(ValidationError, match="engine_kind"):
        EngineHostSettings(engine_kind="other")  # type: ignore[arg-type]  # that it is not one is what is tested


def test_the_built_in_embedder_is_beside_vllm_only_where_it_is_asked_for():
    assert EngineHostSettings().has_embedder
    assert not EngineHostSettings(engine_kind="vllm").has_embedder
    assert EngineHostSettings(engine_kind="vllm", engine_embedder=True).has_embedder
    assert not EngineHostSettings(engine_embedder=False).has_embedder
