"""A GPU of one stream whose time is handed in, and scheduler orders of vLLM's shape."""

from dataclasses import dataclass, field
from types import SimpleNamespace


@dataclass
class FakeGpu:
    """`stream_ns` is when what was launched so far will be done, `now_ns` the present, on one clock."""

    now_ns: int = 1_000_000
    stream_ns: int = 0
    events: int = 0

    def time_ns(self):
        return self.now_ns

    def event(self):
        self.events += 1
        return FakeEvent(self)

    def run(self, busy_ns):
        """Launch work of this length."""
        self.stream_ns = max(self.stream_ns, self.now_ns) + busy_ns

    def catch_up(self):
        """Wait for the stream, as the host does for its output."""
        self.now_ns = max(self.now_ns, self.stream_ns)


@dataclass
class FakeEvent:
    gpu: FakeGpu
    at_ns: int | None = None
    waits: int = field(default=0)

    def record(self, stream=None):
        self.at_ns = max(self.gpu.stream_ns, self.gpu.now_ns)

    def query(self):
        return self.at_ns is not None and self.at_ns <= self.gpu.now_ns

    def elapsed_time(self, later):
        return (later.at_ns - self.at_ns) / 1e6

    def synchronize(self):
        raise AssertionError("the meter must never wait for the GPU")


def new_request(name, prompt, computed=0, *, prefill=None, images=(), extra=None, blocks=()):
    """What vLLM tells of a sequence it schedules for the first time."""
    return SimpleNamespace(
        req_id=name,
        prompt_token_ids=[1] * prompt,
        prefill_token_ids=None if prefill is None else [1] * prefill,
        num_computed_tokens=computed,
        block_ids=(list(blocks),),
        sampling_params=SimpleNamespace(extra_args=extra),
        mm_features=[SimpleNamespace(mm_position=SimpleNamespace(length=length)) for length in images],
        prompt_embeds=None,
    )


def batch(new=(), running=(), counts=None, *, finished=(), drafts=None, encoder=None, resumed=()):
    """One order: `running` holds (name, tokens computed before), `counts` how many tokens each name computes now."""
    counts = counts or {}
    return SimpleNamespace(
        scheduled_new_reqs=list(new),
        scheduled_cached_reqs=SimpleNamespace(
            req_ids=[name for name, _ in running],
            resumed_req_ids=set(resumed),
            num_computed_tokens=[computed for _, computed in running],
            num_output_tokens=[0] * len(running),
        ),
        num_scheduled_tokens=dict(counts),
        total_num_scheduled_tokens=sum(counts.values()),
        scheduled_spec_decode_tokens=drafts or {},
        scheduled_encoder_inputs=encoder or {},
        finished_req_ids=set(finished),
    )
