"""What vLLM 0.25.1's workers told on an H200 (2026-11-21, Llama shape of 1B, random weights), heard again.

Two engines: one with chunked prefill, a shared prefix, aborts and sleep; one with n-gram drafts and too small a cache,
so that it preempts.
"""

import gzip
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from algorithms.gpu_time.ledger import ledger_lines
from algorithms.gpu_time.step_model import DECODE, PREFILL
from backends.engine.step_book import StepBook
from backends.engine.vllm_engine.metering.frames import MeterFrame, decode_frame
from backends.engine.vllm_engine.metering.request_book import RequestBook
from backends.engine.vllm_engine.metering.step_splitter import StepSplitter
from contracts.recording.records import decode_record, encode_record

HERE = Path(__file__).parent


def read_frames(name):
    packed = gzip.decompress((HERE / name).read_bytes())
    frames: list[MeterFrame] = []
    place = 0
    while place < len(packed):
        end = place + 4 + int.from_bytes(packed[place : place + 4], "little")
        frames.append(decode_frame(packed[place + 4 : end]))
        place = end
    return frames


def replay(name):
    frames = read_frames(name)
    steps = [step for frame in frames for step in frame.steps]
    book = StepBook("e", "m", "r", "gpu0", now_ns=lambda: steps[0].started_ns, wall_offset_ns=0)
    splitter = StepSplitter(book, RequestBook(), make_executor=lambda: ThreadPoolExecutor(1))
    book.queue(steps[0].started_ns, runnable=True)
    for frame in frames:
        splitter.feed(frame)
        splitter.record()
    splitter.close()
    return splitter, book.take(), steps


@pytest.fixture(scope="module", params=["frames_h200_1b.bin.gz", "frames_h200_1b_drafts.bin.gz"])
def replayed(request):
    return replay(request.param)


def test_every_step_is_split_exactly_and_none_is_missing(replayed):
    splitter, records, steps = replayed
    assert [one.number for one in steps] == list(range(1, len(steps) + 1))
    assert [one.sequence for one in records] == list(range(1, len(records) + 1))
    assert [one.busy_ns for one in records] == [one.busy_ns for one in steps]
    assert all(sum(one.gpu_ns) == one.busy_ns for one in records)
    assert (splitter.lost.steps, splitter.lost.rows) == (0, 0)
    assert splitter.is_quiet


def test_records_survive_the_journal(replayed):
    _, records, _ = replayed
    assert all(decode_record(encode_record(one)) == one for one in records)


def test_steps_lie_one_after_another_and_the_ledger_closes(replayed):
    _, records, _ = replayed
    for before, after in zip(records, records[1:], strict=False):
        assert after.started_at_ns - after.gap_ns == before.started_at_ns + before.busy_ns
    began, ended = records[0].started_at_ns, records[-1].started_at_ns + records[-1].busy_ns
    assert ledger_lines(records, began, ended)["e"].unexplained_ns == 0


def test_no_request_is_left_open(replayed):
    splitter, _, _ = replayed
    assert not splitter.requests.has_live


def test_a_shared_prefix_and_chunks_are_seen():
    _, records, _ = replay("frames_h200_1b.bin.gz")
    assert sum(sum(one.cached) for one in records) == 284_240
    assert {phase for one in records for phase in one.phases} == {PREFILL, DECODE}
    assert max(sum(one.scheduled) for one in records) == 4_096  # the engine's limit of a step


def test_drafts_and_recomputation_are_seen():
    splitter, records, _ = replay("frames_h200_1b_drafts.bin.gz")
    drafted = sum(sum(one.drafted) for one in records)
    accepted = sum(sum(one.accepted) for one in records)
    assert (drafted, accepted) == (184 + 1_685, 184 + 1_679)
    assert sum(sum(one.recompute) for one in records) == 1_337
