"""vLLM as an engine: ends, refusals, accounts, faults."""

import time
from dataclasses import replace

import pytest

from backends.engine.parsers.answer_format import AnswerFormat
from backends.engine.parsers.reasoning import ReasoningTags
from backends.engine.step_book import QueueFacts
from backends.engine.vllm_engine.step_metering import Account, NoMetering
from contracts.engine.wire import Delta, Finished, Grammar, Image
from contracts.errors import ConfigurationError, Unavailable
from contracts.recording.records import GpuShare
from tests.backends.engine.vllm_engine.driving import ask, deltas, drive, end, rest, text
from tests.backends.engine.vllm_engine.played_llm import FACTS, Choice, Output, tokens

WORDS = [300, 301, 302]


class Metering(NoMetering):
    """Knows each request's account once it has been asked `delay` times."""

    def __init__(self, account: Account, delay: int = 0) -> None:
        self.engine_args = {}
        self.account = account
        self.delay = delay
        self.told: list[str] = []

    def queue(self, at_ns: int, *, runnable: bool) -> None:
        self.told.append("runnable" if runnable else "idle")

    def is_settled(self, request_id: bytes) -> bool:
        self.delay -= 1
        return self.delay < 0

    def end(self, request_id: bytes, *, is_aborted: bool) -> Account:
        self.told.append("abort" if is_aborted else "end")
        return self.account


def test_an_abort_ends_at_vllm_too_and_pays_for_what_was_made(make_engine):
    engine, llm = make_engine(lambda request: tokens(range(300, 340)))
    engine.submit(ask(max_tokens=40))
    engine.step()
    engine.abort(ask().request_id)
    finished = end(rest(engine))
    assert finished.finish_reason == "abort" and not finished.error_code
    assert llm.aborted == [(ask().request_id.hex(), None)]
    assert finished.usage.output_text == 1 and finished.usage.input_text == 3


def test_an_abort_before_the_first_token_costs_what_the_steps_say(make_engine):
    for computed, read in ((None, None), (0, 0), (2, 2), (9, 3)):
        engine, _ = make_engine(metering=Metering(Account(computed_tokens=computed)))
        engine.submit(ask())
        engine.abort(ask().request_id)
        assert end(rest(engine)).usage.input_text == read, f"{computed} computed"


def test_a_stop_string_ends_the_answer_and_the_request_at_vllm(make_engine, vocabulary):
    words = vocabulary.tokenizer.decode(WORDS)
    engine, llm = make_engine(lambda request: tokens([*WORDS, 303, 304]))
    events = drive(engine, ask(stop=[words[1:-1]]))
    assert text(events) == words[:1]
    assert deltas(events)[-1].stop == words[1:-1] and deltas(events)[-1].finish_reason == "stop"
    assert llm.aborted == [(ask().request_id.hex(), None)]
    assert end(events).usage.output_text == len(WORDS), "what came after the stop is nobody's output"


def test_one_choice_s_stop_string_leaves_the_others_running(make_engine, vocabulary):
    stop = vocabulary.tokenizer.decode([300])

    def play(request):
        first = [Output([Choice(0, [300])]), Output([Choice(1, [302])])]
        return [*first, Output([Choice(0, [301])]), Output([Choice(1, [303], "length")], finished=True)]

    engine, llm = make_engine(play)
    events = drive(engine, ask(n=2, stop=[stop]))
    assert llm.aborted == [(ask().request_id.hex(), 0)]
    assert {one.index: one.finish_reason for one in events if isinstance(one, Delta) and one.finish_reason} == {
        0: "stop",
        1: "length",
    }
    assert end(events).overrun_tokens == 1, "a token of the choice that had ended"


def test_several_tokens_of_one_step_are_one_delta(make_engine):
    engine, _ = make_engine(lambda request: [Output([Choice(0, [*WORDS, 2], "stop")], finished=True)])
    events = drive(engine, ask())
    (delta,) = deltas(events)
    assert delta.token_ids == [*WORDS, 2] and len(delta.times_ns) == 4
    assert delta.finish_reason == "stop" and end(events).usage.output_text == 4


def test_reasoning_is_told_apart_and_counted(make_engine, vocabulary):
    ids = vocabulary.tokenizer.encode("<t>hm</t>yes", add_special_tokens=False).ids
    engine, _ = make_engine(
        lambda request: tokens([*ids, 2], reason="stop"), answers=AnswerFormat(ReasoningTags("<t>", "</t>"))
    )
    events = drive(engine, ask(max_tokens=99))
    assert "".join(one.reasoning for one in events if isinstance(one, Delta)) == "hm" and text(events) == "yes"
    usage = end(events).usage
    assert usage.output_reasoning and usage.output_tokens == len(ids) + 1


def test_an_account_waits_for_its_last_step_and_no_longer_than_a_while(make_engine):
    share = GpuShare(decode_ns=7)
    soon, _ = make_engine(lambda request: tokens(WORDS), metering=Metering(Account(gpu=share), delay=3))
    assert end(drive(soon, ask())).gpu == share
    never, _ = make_engine(lambda request: tokens(WORDS), metering=Metering(Account(), delay=10**9))
    assert end(drive(never, ask())).gpu is None


def test_an_aborted_request_s_account_waits_until_vllm_has_heard_of_it(make_engine):
    # A worker may not have told of the request yet, so that the meter knows of nothing to wait for.
    share, heard = GpuShare(prefill_ns=9), []
    metering = Metering(Account(gpu=share))
    engine, llm = make_engine(metering=metering)

    def abort(name, choice=None, *, then=lambda: None):
        def hear():
            assert "end" not in metering.told
            heard.append(name)
            then()

        llm.at(time.monotonic_ns() + 20_000_000, hear)

    llm.abort = abort
    engine.submit(ask())
    engine.abort(ask().request_id)
    assert end(rest(engine)).gpu == share and len(heard) == 1


def test_the_meter_hears_when_something_can_run_and_when_nothing_can(make_engine):
    metering = Metering(Account())
    engine, _ = make_engine(lambda request: tokens(WORDS), metering=metering)
    drive(engine, ask(1), ask(2))
    drive(engine, ask(3))
    assert metering.told == ["runnable", "end", "end", "idle", "runnable", "end", "idle"]


def test_a_deadline_ends_a_request_wherever_it_is(make_engine):
    engine, llm = make_engine()
    finished = end(drive(engine, ask(deadline_ns=time.monotonic_ns() + 20_000_000)))
    assert finished.error_code == "upstream_timeout" and llm.aborted


def test_a_second_request_of_the_same_id_does_not_end_the_first(make_engine):
    engine, _ = make_engine(lambda request: tokens(WORDS))
    assert len([one for one in drive(engine, ask(), ask()) if isinstance(one, Finished)]) == 1


@pytest.mark.parametrize(
    ("options", "code"),
    [
        ({"token_ids": [5] * 256}, "context_length_exceeded"),
        ({"token_ids": [4096]}, "token_out_of_range"),
        ({"adapter": "nobody"}, "unknown_adapter"),
        ({"images": [Image(data=b"x", sha256=b"y" * 32)]}, "invalid_request"),
        ({"grammar": Grammar(kind="json_schema", text='{"x": "' + "y" * 65_536 + '"}')}, "invalid_grammar"),
        ({"grammar": Grammar(kind="json_schema", text="{")}, "invalid_grammar"),
        ({"grammar": Grammar(kind="choice", text="[]")}, "invalid_grammar"),
        ({"tokenizer_hash": "f" * 64}, "tokenizer_mismatch"),
    ],
)
def test_what_cannot_be_served_is_refused_before_vllm_hears_of_it(make_engine, options, code):
    engine, llm = make_engine()
    finished = end(drive(engine, ask(**options)))
    assert finished.error_code == code and finished.usage.output_text == 0
    assert not llm.requests


def test_a_grammar_of_exactly_the_largest_size_is_taken(make_engine):
    schema = '{"x": "' + "y" * (65_536 - 9) + '"}'
    assert len(schema) == 65_536
    engine, llm = make_engine(lambda request: tokens(WORDS))
    drive(engine, ask(grammar=Grammar(kind="json_schema", text=schema)))
    assert llm.requests[0].constraint == {"json": schema} and llm.requests[0].is_past_reasoning


def test_an_answer_that_another_replica_began_goes_on_where_it_stopped(make_engine, vocabulary):
    engine, llm = make_engine(lambda request: tokens([302, 303]))
    events = drive(engine, ask(max_tokens=4, min_tokens=3, generated_ids=[300, 301]))
    assert llm.requests[0].prompt.token_ids == [5, 6, 7, 300, 301]
    assert llm.requests[0].sampling["max_tokens"] == 2 and llm.requests[0].sampling["min_tokens"] == 1
    assert text(events) == vocabulary.tokenizer.decode([300, 301, 302, 303])[-len(text(events)) :]
    assert end(events).usage.input_text == 3 and end(events).usage.output_text == 2, "what others made is billed there"


@pytest.mark.parametrize(
    "options",
    [
        {"grammar": Grammar(kind="json_object", text="")},
        {"presence_penalty": 0.5},
        {"frequency_penalty": -0.5},
        {"seed": 7},
    ],
)
def test_an_answer_whose_rest_depends_on_more_than_its_ids_is_left_to_another_replica(make_engine, options):
    engine, llm = make_engine()
    assert end(drive(engine, ask(generated_ids=[300], **options))).error_code == "unavailable"
    assert not llm.requests


def test_a_continuation_that_is_complete_already_ends_at_once(make_engine):
    engine, llm = make_engine()
    assert end(drive(engine, ask(max_tokens=2, generated_ids=[300, 301]))).finish_reason == "length"
    assert not llm.requests


def test_what_vllm_cannot_take_for_reasons_of_its_own_cost_nothing(make_engine):
    engine, _ = make_engine(lambda request: [KeyError("inside")])
    finished = end(drive(engine, ask()))
    assert finished.error_code == "engine_failure" and "inside" not in finished.error_message
    assert finished.usage.input_text == 0


def test_an_error_in_the_middle_keeps_what_was_made(make_engine):
    play = [*tokens(WORDS, reason="error")[:2], Output([Choice(0, [], "error")], finished=True)]
    engine, _ = make_engine(lambda request: play)
    finished = end(drive(engine, ask()))
    assert finished.error_code == "engine_failure" and finished.usage.output_text == 2


def test_a_dead_vllm_is_said_and_serves_nothing(make_engine):
    engine, llm = make_engine()
    engine.submit(ask())
    llm.is_dead = True
    assert engine.has_work
    with pytest.raises(Unavailable, match="'m' has died") as raised:
        rest(engine)
    assert raised.value.error_code == "engine_failure"


def test_warming_up_leaves_no_trace(make_engine):
    engine, llm = make_engine(lambda request: tokens(WORDS))
    engine.warm_up()
    assert not engine.has_work and len(llm.requests) == 1
    assert engine.stats()["running"] == 0


def test_sleep_gives_the_memory_back_and_says_so(make_engine):
    engine, llm = make_engine(lambda request: tokens(WORDS))
    engine.sleep(2)
    assert engine.stats()["asleep"] and engine.can_sleep
    engine.wake()
    assert not engine.stats()["asleep"] and llm.slept == ["sleep 2", "wake"]
    engine.close()
    assert llm.is_closed


def test_images_go_along_with_their_hashes_to_a_model_that_sees(make_engine):
    seeing = replace(FACTS, accepts_images=True)
    engine, llm = make_engine(lambda request: tokens(WORDS), facts=seeing)
    image = Image(data=b"x", sha256=b"y" * 32)
    drive(engine, ask(1, images=[image]), ask(2, images=[image] * 65))
    assert [request.prompt.images for request in llm.requests] == [(image,)]
    assert engine.hello().accepts_images


@pytest.mark.parametrize(
    ("cached", "usage"), [(0, (3, 20, 0)), (2, (1, 20, 2)), (3, (0, 20, 3)), (16, (0, 7, 16)), (23, (0, 0, 23))]
)
def test_an_image_s_tokens_are_the_image_s_and_none_is_counted_twice(make_engine, cached, usage):
    output = Output([Choice(0, [300], "length")], True, cached, prompt_token_ids=[5] * 23)
    engine, _ = make_engine(lambda request: [output], facts=replace(FACTS, accepts_images=True))
    found = end(drive(engine, ask(images=[Image(data=b"x", sha256=b"y" * 32)]))).usage
    assert (found.input_text, found.input_image, found.cache_read_text) == usage and found.input_tokens == 23


def test_salt_priority_and_seed_reach_vllm(make_engine):
    engine, llm = make_engine(lambda request: tokens(WORDS))
    drive(engine, ask(cache_salt="s", priority=3, seed=4, stop_token_ids=[9], logit_bias={8: 1.5}))
    (request,) = llm.requests
    assert (request.prompt.cache_salt, request.priority) == ("s", 3)
    assert request.sampling["seed"] == 4 and request.sampling["logit_bias"] == {8: 1.5}
    assert request.sampling["detokenize"] is False, "text is the host's to make"


def test_the_hello_describes_the_model_as_vllm_serves_it(make_engine):
    engine, _ = make_engine()
    hello = engine.hello()
    assert (hello.kind, hello.context_tokens, hello.kv_blocks, hello.block_size) == ("generate", 256, 64, 16)
    assert hello.weights_hash == "w" and hello.tokenizer and hello.chat_template and hello.eos_token_ids == [2]
    assert engine.take_steps() == [] and engine.take_kv_events() == []
    assert QueueFacts(0, 0, 0, 64) == engine._gauges.queue_facts()


def test_an_adapter_is_served_by_its_name_until_it_is_unloaded(make_engine, tmp_path):
    engine, llm = make_engine(lambda request: tokens(WORDS))
    with pytest.raises(ConfigurationError, match="rank"):
        engine.load_adapter("polite", tmp_path)
    assert engine.hello().adapters == []
    with pytest.raises(ConfigurationError, match="no adapter 'polite'; loaded: none"):
        engine.unload_adapter("polite")
    assert not llm.adapters
