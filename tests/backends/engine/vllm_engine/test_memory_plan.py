"""Whether a model fits, reckoned before anything is loaded."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from backends.engine.vllm_engine.memory_plan import (
    GpuRoom,
    MemoryNeeds,
    check_room,
    dtype_bytes,
    kv_bytes_per_token,
    parameter_count,
)
from contracts.errors import ConfigurationError

LLAMA_8B = {
    "hidden_size": 4096,
    "intermediate_size": 14_336,
    "num_hidden_layers": 32,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
    "vocab_size": 128_256,
    "tie_word_embeddings": False,
}
GB = 10**9


def gpu(free: int, total: int = 141 * GB) -> GpuRoom:
    return GpuRoom("GPU 0 (H200)", total, free)


def test_llama_3_1_8b_has_as_many_parameters_as_its_makers_say():
    assert parameter_count(LLAMA_8B) == 8_030_261_248
    assert kv_bytes_per_token(LLAMA_8B, 2) == 131_072


def test_an_embedding_that_is_tied_is_counted_once():
    assert parameter_count(LLAMA_8B | {"tie_word_embeddings": True}) == 8_030_261_248 - 128_256 * 4096


@pytest.mark.parametrize("other", [{"num_experts": 8}, {"hidden_size": None}, {"vocab_size": "many"}])
def test_another_shape_is_not_guessed(other):
    assert parameter_count(LLAMA_8B | other) is None


@pytest.mark.parametrize("other", [{"kv_lora_rank": 512}, {"sliding_window": 4096}, {"layer_types": ["a"]}])
def test_keys_and_values_of_another_kind_are_not_guessed(other):
    assert kv_bytes_per_token(LLAMA_8B | other, 2) is None


def test_a_model_fits_to_the_byte_and_not_beyond():
    needs = MemoryNeeds(weights_bytes=16 * GB, kv_bytes_per_token=1000, context_tokens=1_000_000)
    check_room("m", needs, [gpu(17 * GB)], 1.0)
    with pytest.raises(ConfigurationError) as raised:
        check_room("m", needs, [gpu(17 * GB - 1)], 1.0)
    assert raised.value.message == (
        "model 'm' does not fit: weights 16.00 GB + keys and values of one context 1.00 GB (1000000 tokens of 1000 "
        "bytes) over 1 GPU = 17.00 GB each; GPU 0 (H200) has 17.00 GB free of 141.00 GB, of which "
        "--gpu-memory-utilization 1 leaves 17.00 GB. Take a smaller --max-model-len, --quantization, more GPUs "
        "(--tensor-parallel-size) or a smaller model"
    )


def test_vllm_s_share_of_the_gpu_is_the_limit_where_it_is_the_smaller():
    needs = MemoryNeeds(weights_bytes=16 * GB, kv_bytes_per_token=0, context_tokens=1)
    check_room("m", needs, [gpu(141 * GB, 160 * GB)], 0.1)
    with pytest.raises(ConfigurationError, match="does not fit"):
        check_room("m", needs, [gpu(141 * GB, 159 * GB)], 0.1)


def test_the_fullest_of_several_gpus_decides():
    needs = MemoryNeeds(weights_bytes=16 * GB, kv_bytes_per_token=0, context_tokens=1, ranks=2)
    check_room("m", needs, [gpu(8 * GB), gpu(9 * GB)], 1.0)
    with pytest.raises(ConfigurationError, match="over 2 GPUs = 8.00 GB each"):
        check_room("m", needs, [gpu(9 * GB), gpu(7 * GB)], 1.0)
    with pytest.raises(ConfigurationError, match="spread over 2 GPUs .* sees 1"):
        check_room("m", needs, [gpu(100 * GB)], 1.0)


@given(st.integers(0, 10**13), st.integers(0, 10**6), st.integers(1, 10**6), st.integers(1, 64))
def test_the_gpus_together_hold_at_least_what_is_needed(weights, kv, context, ranks):
    needs = MemoryNeeds(weights_bytes=weights, kv_bytes_per_token=kv, context_tokens=context, ranks=ranks)
    assert 0 <= needs.bytes_each * ranks - (weights + kv * context) < ranks


@pytest.mark.parametrize(
    ("name", "size"), [("torch.bfloat16", 2), ("auto", 2), ("fp8", 1), ("fp8_e4m3", 1), ("float32", 4)]
)
def test_numbers_have_the_size_of_their_type(name, size):
    assert dtype_bytes(name) == size
    assert dtype_bytes("auto", 4) == 4, "where the model decides, its own type counts"
