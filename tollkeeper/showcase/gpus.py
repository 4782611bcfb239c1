"""The demo's two GPUs: an hour of engine steps generated from that hour's requests, and samples of the devices."""

import random
from collections import defaultdict
from collections.abc import Iterator, Sequence
from typing import Any, Final

from msgspec import structs

from contracts.recording.records import DeviceRecord, GpuShare, RequestRecord, StepRecord

GPU: Final = "NVIDIA H100 80GB HBM3"
GPU_SECONDS: Final = 3_600  # period of steps and samples before now
_LOOK_SECONDS: Final = 10
_SECOND: Final = 10**9
_MS: Final = 10**6
_LONGEST_IDLE_NS: Final = 300 * _SECOND
_METHOD: Final = "steptime-as/1"
_CONFIDENCE: Final = 0.94


def engine_steps(
    source: random.Random, until_ns: int, replicas: Sequence[str], requests: Sequence[RequestRecord]
) -> list[StepRecord]:
    """Return the engine steps of the hour before `until_ns` (Unix nanoseconds), one replica after the other.

    A record covers half a second. Each request that a replica served is in the steps from its arrival to its end;
    without requests the replica is idle. So every nanosecond is covered once.
    """
    begin = until_ns - GPU_SECONDS * _SECOND
    steps: list[StepRecord] = []
    for place, replica in enumerate(replicas):
        served = [one for one in requests if one.replica == replica and one.gpu and one.started_at_ns >= begin]
        steps += _of_replica(source, place, replica, (begin, until_ns), served)
    return steps


def charged(requests: Sequence[RequestRecord], steps: Sequence[StepRecord]) -> list[RequestRecord]:
    """Return the requests with the GPU time of their steps; requests without steps are unchanged."""
    taken: defaultdict[bytes, list[int]] = defaultdict(lambda: [0, 0])
    for step in steps:
        for request_id, phase, ns in zip(step.request_ids, step.phases, step.gpu_ns, strict=True):
            taken[request_id][phase] += ns

    def share(request: RequestRecord) -> GpuShare:
        prefill, decode = taken[request.request_id]
        blocks = (request.usage.output_text or 0) / 40
        return GpuShare(prefill, decode, 0, 0, blocks * (prefill + decode) / _SECOND, _METHOD, _CONFIDENCE)

    return [structs.replace(one, gpu=share(one)) if one.request_id in taken else one for one in requests]


def device_looks(
    source: random.Random, until_ns: int, replicas: Sequence[str], steps: Sequence[StepRecord]
) -> list[DeviceRecord]:
    """Return a sample of each GPU every ten seconds of the hour, with the utilisation of its steps."""
    count = GPU_SECONDS // _LOOK_SECONDS
    begin, length = until_ns - GPU_SECONDS * _SECOND, _LOOK_SECONDS * _SECOND
    busy = {replica: [0] * (count + 1) for replica in replicas}
    for step in steps:
        if step.kind == "step":  # a step counts at its start
            busy[step.replica][min((step.started_at_ns - begin) // length, count)] += step.busy_ns
    looks: list[DeviceRecord] = []
    for place, replica in enumerate(replicas):
        energy = 1e6
        for number in range(count):
            kernels = min(busy[replica][number] / length, 1.0)
            load = kernels * source.uniform(0.7, 0.85)
            watts = round(95 + 560 * load, 1)
            energy += watts * _LOOK_SECONDS
            looks.append(
                _look(place, replica, number + 1, begin + (number + 1) * length, (kernels, load, watts, energy))
            )
    return looks


def _of_replica(
    source: random.Random, place: int, replica: str, hour: tuple[int, int], served: Sequence[RequestRecord]
) -> Iterator[StepRecord]:
    coming = sorted(served, key=lambda one: one.started_at_ns, reverse=True)
    running: list[RequestRecord] = []
    left: dict[bytes, int] = {}  # tokens that the engine has yet to compute: all of an answer but its last
    (at, until), sequence = hour, 0
    common: dict[str, Any] = {
        "engine": f"showcase-{replica}", "model": served[0].model if served else "", "replica": replica,
        "gateway": "gw-1", "devices": [f"GPU-showcase-{place}"], "kv_blocks_total": 1_200,
    }  # fmt: skip
    while at < until:
        sequence += 1
        running = [one for one in running if left[one.request_id]]
        came: list[RequestRecord] = []
        while coming and coming[-1].started_at_ns <= at:
            came.append(coming.pop())
            left[came[-1].request_id] = max((came[-1].usage.output_text or 1) - 1, 0)
        if not running and not came:
            ends = min(until, at + _LONGEST_IDLE_NS, coming[-1].started_at_ns if coming else until)
            yield StepRecord(
                **common, sequence=sequence, started_at_ns=at, busy_ns=ends - at, kind="idle", gap_cause="idle",
                running=0, waiting=0, kv_blocks_used=0,
            )  # fmt: skip
            at = ends
            continue
        gap, busy = int(source.uniform(2, 14) * _MS), int(source.uniform(0.35, 0.6) * _SECOND)
        rows = [*running, *came]
        shares = [busy // len(rows)] * (len(rows) - 1)
        made = [_made(one, left[one.request_id], at + gap + busy) for one in running]
        yield StepRecord(
            **common,
            sequence=sequence,
            started_at_ns=at + gap,
            busy_ns=busy,
            gap_ns=gap,
            gap_cause="host",
            running=len(rows),
            waiting=len(came),
            kv_blocks_used=min(120 + len(rows) * 90, 1_200),
            method=_METHOD,
            confidence=_CONFIDENCE,
            request_ids=[one.request_id for one in rows],
            tenants=[one.who.tenant for one in rows],
            scheduled=[*made, *(one.usage.input_text or 1 for one in came)],
            context=[_context(one, at) for one in rows],
            cached=[*(0 for _ in running), *(one.usage.cache_read_text or 0 for one in came)],
            phases=[*(1 for _ in running), *(0 for _ in came)],
            gpu_ns=[*shares, busy - sum(shares)],
        )
        at += gap + busy
        for one, tokens in zip(running, made, strict=True):
            left[one.request_id] -= tokens
        running = rows


def _made(request: RequestRecord, left: int, until: int) -> int:
    """Return how many of its `left` tokens a request gets in a step that ends at `until`: all if it ends by then."""
    done = min((until - request.started_at_ns) / request.duration_ns, 1.0)
    return max(left - int((1 - done) * (request.usage.output_text or 0)), 1)


def _context(request: RequestRecord, at: int) -> int:
    """Return a request's context length in tokens at a time."""
    usage = request.usage
    done = min((at - request.started_at_ns) / request.duration_ns, 1.0)
    return (usage.input_text or 0) + (usage.cache_read_text or 0) + int(done * (usage.output_text or 0))


def _look(
    place: int, replica: str, sequence: int, at: int, measured: tuple[float, float, float, float]
) -> DeviceRecord:
    kernels, load, watts, energy = measured
    return DeviceRecord(
        host=f"showcase-{replica}",
        sequence=sequence,
        at_ns=at,
        device=f"GPU-showcase-{place}",
        device_model=GPU,
        device_index=place,
        vendor="nvidia",
        replica=replica,
        gateway="gw-1",
        memory_total_bytes=80 * 2**30,
        memory_used_bytes=int((62 + 4 * load) * 2**30),
        power_watts=watts,
        energy_joules=energy,
        temperature_celsius=round(36 + 32 * load, 1),
        sm_clock_mhz=1_755,
        kernel_activity=kernels,
        sm_activity=load,
        sm_occupancy=load * 0.5,
        tensor_activity=load * 0.4,
        dram_activity=min(load * 1.1, 1.0),
        other_processes=0,
        is_shared=False,
    )
