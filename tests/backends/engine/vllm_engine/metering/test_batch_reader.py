"""What was in a step: phases, prefix hits, recomputation, drafts, images, and what ran on unwanted."""

from hypothesis import given
from hypothesis import strategies as st

from algorithms.gpu_time.step_model import DECODE, ENCODE, PREFILL
from backends.engine.vllm_engine.metering.batch_reader import BatchReader
from tests.backends.engine.vllm_engine.metering.fake_gpu import batch, new_request


def read(reader, order):
    """Read a batch that computes something."""
    step = reader.read(order)
    assert step is not None
    return step


def test_a_prompt_in_chunks_is_prefill_until_its_last_token_and_samples_only_there():
    reader = BatchReader()
    first = read(reader, batch([new_request("a", 100)], counts={"a": 64}))
    second = read(reader, batch(running=[("a", 64)], counts={"a": 36}))
    third = read(reader, batch(running=[("a", 100)], counts={"a": 1}))
    assert (first.phases, first.logits, first.context) == ([PREFILL], [0], [0])
    assert (second.phases, second.logits, second.context) == ([PREFILL], [1], [64])
    assert (third.phases, third.logits, third.context) == ([DECODE], [], [100])


def test_a_prefix_hit_is_told_once_with_the_first_chunk():
    reader = BatchReader()
    first = read(reader, batch([new_request("a", 100, computed=48)], counts={"a": 20}))
    second = read(reader, batch(running=[("a", 68)], counts={"a": 32}))
    assert (first.cached, first.context) == ([48], [48])
    assert second.cached == []


def test_a_prompt_of_one_token_is_no_decode():
    reader = BatchReader()
    step = read(reader, batch([new_request("a", 49, computed=48)], counts={"a": 1}))
    assert (step.phases, step.logits) == ([PREFILL], [1])


def test_steady_decode_sends_no_column_that_says_nothing():
    reader = BatchReader()
    read(reader, batch([new_request("a", 4), new_request("b", 4)], counts={"a": 4, "b": 4}))
    step = read(reader, batch(running=[("a", 4), ("b", 4)], counts={"a": 1, "b": 1}))
    assert (step.keys, step.scheduled, step.context, step.phases) == ([1, 2], [1, 1], [4, 4], [DECODE, DECODE])
    assert not any((step.logits, step.cached, step.recompute, step.drafted, step.accepted, step.names))


def test_what_a_preemption_lost_is_recomputed_and_no_more():
    reader = BatchReader()
    read(reader, batch([new_request("a", 10)], counts={"a": 10}))
    read(reader, batch(running=[("a", 10)], counts={"a": 1}))
    again = read(reader, batch([new_request("a", 10, prefill=12)], counts={"a": 12}))
    assert (again.recompute, again.phases, again.logits, again.keys) == ([11], [PREFILL], [1], [1])
    after = read(reader, batch(running=[("a", 12)], counts={"a": 1}))
    assert (after.recompute, after.phases) == ([], [DECODE])


def test_a_resumed_sequence_of_the_first_model_runner_is_recomputed_too():
    reader = BatchReader()
    read(reader, batch([new_request("a", 10)], counts={"a": 10}))
    again = read(reader, batch(running=[("a", 4)], counts={"a": 7}, resumed=["a"]))
    assert (again.recompute, again.context, again.logits) == ([6], [4], [1])


def test_drafts_are_scheduled_and_what_comes_of_them_is_accepted():
    reader = BatchReader()
    read(reader, batch([new_request("a", 4), new_request("b", 4)], counts={"a": 4, "b": 4}))
    step = read(reader, batch(running=[("a", 4), ("b", 4)], counts={"a": 4, "b": 1}, drafts={"a": [7, 8, 9]}))
    step.note_sampled({"a": 3, "b": 1})
    assert (step.drafted, step.accepted, step.logits) == ([3, 0], [2, 0], [4, 1])


def test_rejected_drafts_are_not_taken_for_recomputation():
    reader = BatchReader()
    read(reader, batch([new_request("a", 4)], counts={"a": 4}))
    read(reader, batch(running=[("a", 4)], counts={"a": 4}, drafts={"a": [1, 2, 3]}))
    step = read(reader, batch(running=[("a", 5)], counts={"a": 4}, drafts={"a": [1, 2, 3]}))
    assert step.recompute == []


def test_an_image_is_a_row_of_its_own():
    reader = BatchReader()
    step = read(reader, batch([new_request("a", 20, images=[5, 7])], counts={"a": 20}, encoder={"a": [0, 1]}))
    assert (step.keys, step.scheduled, step.phases, step.logits) == ([1, 1], [20, 12], [PREFILL, ENCODE], [1, 0])


def test_an_end_names_the_last_step_of_its_sequence():
    reader = BatchReader()
    read(reader, batch([new_request("a", 4)], counts={"a": 4}))
    read(reader, batch([new_request("b", 4)], counts={"b": 4}))
    assert reader.read(batch(finished=["a", "b"])) is None
    begun, ended = reader.take()
    assert [(one.key, one.name, one.prompt_tokens) for one in begun] == [(1, "a", 4), (2, "b", 4)]
    assert {(one.key, one.last_step) for one in ended} == {(1, 1), (2, 2)}
    assert reader.take() == ([], [])


def test_a_sequence_that_ended_while_its_step_ran_is_discarded_there():
    """Two batches in flight: b is ended by the output of step 1 when step 2 has been launched with it."""
    reader = BatchReader(depth=2)
    read(reader, batch([new_request("a", 4), new_request("b", 4)], counts={"a": 4, "b": 4}))
    second = read(reader, batch(running=[("a", 4), ("b", 4)], counts={"a": 1, "b": 1}))
    read(reader, batch(running=[("a", 5)], counts={"a": 1}, finished=["b"]))
    assert second.discarded == {2}


def test_a_sequence_that_ended_with_its_step_is_not_discarded():
    reader = BatchReader(depth=2)
    first = read(reader, batch([new_request("a", 4), new_request("b", 4)], counts={"a": 4, "b": 4}))
    read(reader, batch(running=[("a", 4)], counts={"a": 1}))
    read(reader, batch(running=[("a", 5)], counts={"a": 1}, finished=["b"]))
    assert first.discarded == set()


def test_without_overlap_nothing_is_discarded():
    reader = BatchReader(depth=1)
    first = read(reader, batch([new_request("a", 4)], counts={"a": 4}))
    assert reader.read(batch(finished=["a"])) is None
    assert first.discarded == set()


def test_a_sequence_from_before_metering_began_is_taken_as_it_comes():
    reader = BatchReader()
    step = read(reader, batch(running=[("old", 30)], counts={"old": 1}))
    assert (step.context, step.phases) == ([30], [DECODE])
    assert reader.take()[0][0].name == "old"


@given(st.lists(st.tuples(st.integers(1, 40), st.integers(0, 40)), min_size=1, max_size=8))
def test_columns_have_one_entry_a_row_or_none(requests):
    reader = BatchReader()
    new = [new_request(str(place), prompt + hit, hit) for place, (prompt, hit) in enumerate(requests)]
    step = read(reader, batch(new, counts={str(place): prompt for place, (prompt, _) in enumerate(requests)}))
    rows = len(requests)
    assert len(step.scheduled) == len(step.context) == len(step.phases) == rows
    for column in (step.logits, step.cached, step.recompute, step.drafted, step.accepted):
        assert len(column) in (0, rows)
    assert sum(step.scheduled) == sum(prompt for prompt, _ in requests)


def test_a_prefix_that_several_decodes_read_costs_each_of_them_less():
    reader = BatchReader(block_size=16)
    new = [new_request(name, 50, computed=48, blocks=[7, 8, 9, place]) for place, name in enumerate("abc", 20)]
    read(reader, batch(new, counts={"a": 2, "b": 2, "c": 2}))
    step = read(reader, batch(running=[("a", 50), ("b", 50), ("c", 50)], counts={"a": 1, "b": 1, "c": 1}))
    assert step.shared == [int(0.45 * (48 - 16))] * 3
    again = read(reader, batch(running=[("a", 51), ("b", 51), ("c", 51)], counts={"a": 1, "b": 1, "c": 1}))
    assert again.shared == step.shared
    alone = read(reader, batch(running=[("a", 52)], counts={"a": 1}, finished=["b", "c"]))
    assert alone.shared == []


def test_hits_of_different_prefixes_share_nothing():
    reader = BatchReader(block_size=16)
    new = [
        new_request(name, 50, computed=48, blocks=[place, place + 1, place + 2]) for place, name in ((1, "a"), (9, "b"))
    ]
    read(reader, batch(new, counts={"a": 2, "b": 2}))
    assert read(reader, batch(running=[("a", 50), ("b", 50)], counts={"a": 1, "b": 1})).shared == []


def test_a_steady_batch_that_ends_is_caught_up_with():
    """Positions and last steps are told late for batches that only decode, and are right all the same."""
    reader = BatchReader(depth=2)
    read(reader, batch([new_request("a", 4), new_request("b", 4)], counts={"a": 4, "b": 4}))
    for place in range(5):
        read(reader, batch(running=[("a", 4 + place), ("b", 4 + place)], counts={"a": 1, "b": 1}))
    reader.take()
    again = read(reader, batch([new_request("a", 4, prefill=10)], running=[("b", 9)], counts={"a": 10, "b": 1}))
    assert dict(zip(again.keys, again.recompute, strict=True)) == {1: 9, 2: 0}
    reader.read(batch(finished=["b"]))
    assert [(one.key, one.last_step) for one in reader.take()[1]] == [(2, 7)]
