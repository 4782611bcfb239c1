"""Six engines' metrics in one vocabulary. The pages have the names and labels of each engine's documentation."""

import pytest

from backends.engine_metrics.gauges import ServerGauges
from backends.engine_metrics.reading import read_gauges
from contracts.errors import UpstreamBroken

VLLM = """
# HELP vllm:num_requests_running Number of requests in model execution batches.
# TYPE vllm:num_requests_running gauge
vllm:num_requests_running{engine="0",model_name="m"} 3.0
vllm:num_requests_running{engine="1",model_name="m"} 4.0
vllm:num_requests_waiting{engine="0",model_name="m"} 1.0
vllm:num_requests_waiting{engine="1",model_name="m"} 0.0
vllm:num_requests_waiting_by_reason{engine="0",model_name="m",reason="capacity"} 1.0
vllm:num_requests_waiting_by_reason{engine="0",model_name="m",reason="deferred"} 0.0
vllm:engine_sleep_state{engine="0",model_name="m",sleep_state="awake"} 1.0
vllm:engine_sleep_state{engine="0",model_name="m",sleep_state="weights_offloaded"} 0.0
vllm:kv_cache_usage_perc{engine="0",model_name="m"} 0.25
vllm:kv_cache_usage_perc{engine="1",model_name="m"} 0.75
vllm:prompt_tokens_total{engine="0",model_name="m"} 1.25e6
vllm:generation_tokens_total{engine="0",model_name="m"} 250.0
vllm:prefix_cache_queries_total{engine="0",model_name="m"} 1000.0
vllm:prefix_cache_hits_total{engine="0",model_name="m"} 640.0
vllm:num_preemptions_total{engine="0",model_name="m"} 2.0
vllm:spec_decode_num_draft_tokens_total{engine="0",model_name="m"} 100.0
vllm:spec_decode_num_accepted_tokens_total{engine="0",model_name="m"} 70.0
"""
OLD_VLLM = """
vllm:num_requests_running{model_name="m"} 1.0
vllm:gpu_cache_usage_perc{model_name="m"} 0.5
"""
SGLANG = """
sglang:prompt_tokens_total{model_name="m"} 8.128902e+06
sglang:generation_tokens_total{model_name="m"} 7.557572e+06
sglang:token_usage{model_name="m",tp_rank="0"} 0.28
sglang:num_running_reqs{model_name="m",tp_rank="0"} 162.0
sglang:num_running_reqs{model_name="m",tp_rank="1"} 162.0
sglang:num_running_reqs{model_name="m",pp_rank="1",tp_rank="0"} 162.0
sglang:num_queue_reqs{model_name="m",tp_rank="0"} 2826.0
sglang:cache_hit_rate{model_name="m",pp_rank="0",tp_rank="0"} 0.007507552643049313
sglang:cached_tokens_total{cache_source="device",model_name="m"} 10.0
sglang:cached_tokens_total{cache_source="host",model_name="m"} 5.0
sglang:num_retracted_requests_total{model_name="m"} 3.0
"""
TGI = """
tgi_batch_current_size 4
tgi_queue_size 7
tgi_request_generated_tokens_bucket{le="1"} 0
tgi_request_generated_tokens_sum 8123
tgi_request_generated_tokens_count 44
tgi_request_input_length_sum 999
"""
TRTLLM = """
trtllm_num_requests_running{model_name="m",engine_type="trtllm"} 5
trtllm_num_requests_waiting{model_name="m",engine_type="trtllm"} 6
trtllm_kv_cache_utilization{model_name="m",engine_type="trtllm"} 0.62
"""
TRITON = """
nv_inference_request_success{model="tensorrt_llm",version="1"} 10
nv_trt_llm_request_metrics{model="tensorrt_llm",request_type="waiting",version="1"} 1
nv_trt_llm_request_metrics{model="tensorrt_llm",request_type="scheduled",version="1"} 8
nv_trt_llm_request_metrics{model="tensorrt_llm",request_type="max",version="1"} 512
nv_trt_llm_kv_cache_block_metrics{kv_cache_block_type="fraction",model="tensorrt_llm",version="1"} 0.4875
nv_trt_llm_kv_cache_block_metrics{kv_cache_block_type="used",model="tensorrt_llm",version="1"} 3000
"""
LLAMACPP = """
# HELP llamacpp:prompt_tokens_total Number of prompt tokens processed, excluding cached tokens.
# TYPE llamacpp:prompt_tokens_total counter
llamacpp:prompt_tokens_total 247
# HELP llamacpp:prompt_tokens_cached_total Number of prompt tokens reused from the cache.
# TYPE llamacpp:prompt_tokens_cached_total counter
llamacpp:prompt_tokens_cached_total 3893
llamacpp:prompt_seconds_total 8.168
llamacpp:tokens_predicted_total 690
llamacpp:tokens_predicted_seconds_total 29.567
llamacpp:n_decode_total 512
llamacpp:n_tokens_max 143
llamacpp:n_busy_slots_per_decode 1.25
llamacpp:prompt_tokens_seconds 30.24
llamacpp:predicted_tokens_seconds 23.34
llamacpp:requests_processing 2
llamacpp:requests_deferred 5
llamacpp:spec_decode_num_draft_tokens_total 230
llamacpp:spec_decode_num_accepted_tokens_total 142
"""
OLLAMA = """
{"models": [
  {"name": "gemma3", "model": "gemma3", "size": 6591830464, "digest": "a2af6cc3eb7f", "details": {"format": "gguf"},
   "expires_at": "2026-10-17T16:47:07.93355-07:00", "size_vram": 5333539264, "context_length": 4096},
  {"name": "nomic-embed-text", "size": 600000000, "size_vram": 600000000}
]}
"""


def test_vllm() -> None:
    assert read_gauges(VLLM) == ServerGauges(
        engine="vllm",
        running=7,
        waiting=1,
        waiting_by_reason={"capacity": 1, "deferred": 0},
        kv_usage=0.5,
        prompt_tokens=1_250_000,
        generated_tokens=250,
        cached_tokens=640,
        looked_up_tokens=1000,
        preemptions=2,
        drafted_tokens=100,
        accepted_tokens=70,
        is_asleep=False,
    )


def test_vllm_s_former_names() -> None:
    gauges = read_gauges(OLD_VLLM)
    assert (gauges.running, gauges.kv_usage, gauges.waiting, gauges.is_asleep) == (1, 0.5, None, None)


def test_vllm_asleep() -> None:
    page = VLLM.replace('sleep_state="awake"} 1.0', 'sleep_state="awake"} 0.0')
    assert read_gauges(page).is_asleep is True


def test_sglang_and_its_ranks_are_counted_once() -> None:
    assert read_gauges(SGLANG) == ServerGauges(
        engine="sglang",
        running=162,
        waiting=2826,
        kv_usage=0.28,
        prompt_tokens=8_128_902,
        generated_tokens=7_557_572,
        cached_tokens=15,
        looked_up_tokens=8_128_902,
        preemptions=3,
        recent_hit_ratio=0.007507552643049313,
    )


def test_tgi() -> None:
    expected = ServerGauges(engine="tgi", running=4, waiting=7, prompt_tokens=999, generated_tokens=8123)
    assert read_gauges(TGI) == expected


@pytest.mark.parametrize(
    ("page", "running", "waiting", "usage"),
    [(TRTLLM, 5, 6, 0.62), (TRTLLM.replace("trtllm_", "trtllm:"), 5, 6, 0.62), (TRITON, 8, 1, 0.4875)],
)
def test_tensorrt_llm_in_its_three_spellings(page: str, running: int, waiting: int, usage: float) -> None:
    gauges = read_gauges(page)
    assert gauges == ServerGauges(engine="tensorrt_llm", running=running, waiting=waiting, kv_usage=usage)


def test_what_is_not_said_is_unknown() -> None:
    gauges = read_gauges("vllm:num_requests_running 0")
    assert gauges == ServerGauges(engine="vllm", running=0)


def test_not_a_number_is_unknown() -> None:
    assert read_gauges("vllm:num_requests_running 0\nvllm:kv_cache_usage_perc NaN").kv_usage is None


def test_llama_cpp_counts_cached_prompt_tokens_apart() -> None:
    assert read_gauges(LLAMACPP) == ServerGauges(
        engine="llamacpp",
        running=2,
        waiting=5,
        prompt_tokens=4140,
        generated_tokens=690,
        cached_tokens=3893,
        looked_up_tokens=4140,
        drafted_tokens=230,
        accepted_tokens=142,
        computed_tokens=247,
    )


def test_an_older_llama_cpp_leaves_all_prompt_tokens_unknown() -> None:
    older = "llamacpp:prompt_tokens_total 6886\nllamacpp:kv_cache_usage_ratio 0.25\nllamacpp:requests_processing 0"
    expected = ServerGauges(engine="llamacpp", running=0, kv_usage=0.25, computed_tokens=6886)
    assert read_gauges(older) == expected


def test_ollama_reports_its_loaded_models_and_nothing_else() -> None:
    assert read_gauges(OLLAMA) == ServerGauges(
        engine="ollama", loaded_models=2, model_bytes=7_191_830_464, model_gpu_bytes=5_933_539_264
    )


@pytest.mark.parametrize("page", ['{"models": []}', '{"models": null}'])
def test_an_ollama_without_a_loaded_model(page: str) -> None:
    expected = ServerGauges(engine="ollama", loaded_models=0, model_bytes=0, model_gpu_bytes=0)
    assert read_gauges(page) == expected


def test_one_unknown_size_makes_the_sum_unknown() -> None:
    gauges = read_gauges('{"models": [{"name": "a", "size": 5, "size_vram": 0}, {"name": "b", "size": 7}]}')
    assert (gauges.loaded_models, gauges.model_bytes, gauges.model_gpu_bytes) == (2, 12, None)


@pytest.mark.parametrize("page", ["{", '{"error": "not found"}', '{"models": 3}', '{"models": [{"size": "5"}]}'])
def test_json_of_something_else_is_refused(page: str) -> None:
    with pytest.raises(UpstreamBroken, match="/api/ps"):
        read_gauges(page)


@pytest.mark.parametrize("page", ["", "go_goroutines 9", "<html>"])
def test_a_page_of_something_else_is_refused(page: str) -> None:
    with pytest.raises(UpstreamBroken, match="metrics_url"):
        read_gauges(page)


@pytest.mark.parametrize(
    ("page", "stages"),
    [
        (
            'vllm:time_to_first_token_seconds_sum{engine="0"} 1.5\n'
            'vllm:time_to_first_token_seconds_sum{engine="1"} 0.25\n'
            'vllm:time_to_first_token_seconds_count{engine="0"} 3\n'
            'vllm:time_to_first_token_seconds_count{engine="1"} 1\n',
            ((1.75, 4),),
        ),
        ("sglang:time_to_first_token_seconds_sum 4\nsglang:time_to_first_token_seconds_count 2\n", ((4.0, 2),)),
        (
            "tgi_request_queue_duration_sum 2\ntgi_request_queue_duration_count 4\n"
            'tgi_batch_inference_duration_sum{method="prefill"} 3\n'
            'tgi_batch_inference_duration_sum{method="decode"} 9\n'
            'tgi_batch_inference_duration_count{method="prefill"} 2\n'
            'tgi_batch_inference_duration_count{method="decode"} 9\n',
            ((2.0, 4), (3.0, 2)),
        ),
        ("tgi_queue_size 7\n", ()),
    ],
)
def test_the_stages_before_the_first_token(page: str, stages: tuple[tuple[float, int], ...]) -> None:
    assert read_gauges(page).first_token_stages == stages
