"""Marked prompts stay in vLLM's cache for their time, within bounds, and never in the way of what runs."""

import pytest

from backends.engine.vllm_engine.keeping.prompt_keeper import PromptKeeper
from tests.backends.engine.vllm_engine.keeping.vllm_pool import Manager, first_output, request

SECOND = 1_000_000_000
SIZE = 4


class Engine:
    """A manager, the keeper beside it, and a clock."""

    def __init__(self, blocks: int) -> None:
        self.manager = Manager(blocks, SIZE)
        self.now_ns = 0
        self.keeper = PromptKeeper(self.manager, SIZE, lambda: self.now_ns)
        self.asked = 0

    def serve(self, first: int, tokens: int, keep=(), tenant="a"):
        """Run a prompt to its end; return what was said of it and how many tokens were cached, `None`: no room."""
        self.asked += 1
        asked = request(str(self.asked), first, tokens, keep, tenant)
        self.keeper.expect(asked)
        self.keeper.expire()
        cached = len(self.manager.hits(asked)) * SIZE
        if self.manager.run(asked) is None:
            return None
        outputs, output = first_output(asked)
        self.keeper.answer(outputs)
        self.manager.end(asked)
        return (output.kv_transfer_params or {}).get("tollkeeper_kept"), cached

    def flood(self, first: int, times: int = 4) -> None:
        free = self.manager.block_pool.get_num_free_blocks()
        for number in range(times):
            assert self.serve(first + number, free * SIZE) is not None


def test_what_is_kept_survives_a_flood_until_its_time_is_over():
    engine = Engine(20)
    assert engine.serve(1, 17, [(16, 300)]) == ([16], 0)
    engine.flood(50)
    assert engine.serve(1, 17) == (None, 16)
    engine.now_ns = 300 * SECOND
    engine.keeper.expire()
    assert engine.keeper.kept == 0 and engine.manager.block_pool.get_num_free_blocks() == 20
    engine.flood(80)
    assert engine.serve(1, 17) == (None, 0)


def test_without_a_mark_a_flood_takes_it():
    engine = Engine(20)
    engine.serve(1, 17)
    engine.flood(50)
    assert engine.serve(1, 17) == (None, 0)


def test_only_whole_blocks_of_the_prompt_are_kept_and_several_beginnings_have_their_own_times():
    engine = Engine(40)
    assert engine.serve(1, 18, [(6, 3600), (18, 300)])[0] == [4, 16]
    engine.now_ns = 300 * SECOND
    engine.keeper.expire()
    assert engine.keeper.kept == 1
    assert engine.serve(2, 3, [(3, 300)])[0] == [0]


def test_a_tenant_keeps_a_quarter_and_all_together_a_half():
    engine = Engine(40)
    assert engine.serve(1, 41, [(40, 300)])[0] == [40] and engine.serve(2, 5, [(4, 300)])[0] == [0]
    assert engine.serve(3, 41, [(40, 300)], "b")[0] == [40] and engine.serve(4, 5, [(4, 300)], "c")[0] == [0]
    assert engine.keeper.kept == 20


def test_a_waiting_prompt_takes_kept_blocks_where_it_can_begin_with_them():
    engine = Engine(20)
    engine.serve(1, 20, [(20, 300)])
    assert engine.keeper.kept == 5 and engine.serve(2, 72) is not None
    assert engine.keeper.kept == 2  # 18 blocks were needed, 15 were free; of the prefix the end went first
    assert engine.serve(1, 20) == (None, 8)


def test_one_that_could_not_begin_with_them_either_leaves_them():
    engine = Engine(20)
    engine.serve(1, 20, [(20, 300)])
    holder = request("holder", 9, 40)
    assert engine.manager.run(holder) is not None
    assert engine.serve(2, 60) is None and engine.keeper.kept == 5
    engine.manager.end(holder)


def test_one_that_runs_takes_one_before_another_is_preempted():
    engine = Engine(20)
    engine.serve(1, 20, [(20, 300)])
    running = request("running", 9, 60, status="RUNNING")
    assert engine.manager.run(running) is not None
    running.num_tokens = 61
    assert engine.manager.allocate_slots(running, 1) is not None and engine.keeper.kept == 4


def test_its_own_hits_are_not_what_a_request_takes():
    engine = Engine(20)
    engine.serve(1, 16, [(16, 300)])
    engine.serve(2, 16, [(4, 300)])
    assert engine.keeper.kept == 5
    assert engine.serve(1, 80) == (None, 16) and engine.keeper.kept == 4


def test_an_emptied_cache_is_possible_while_prompts_are_kept():
    engine = Engine(20)
    engine.serve(1, 20, [(20, 300)])
    assert not engine.manager.block_pool.reset()
    engine.keeper.let_go()
    assert engine.manager.block_pool.reset() and engine.keeper.kept == 0


def test_nothing_stands_between_vllm_and_its_blocks_while_nothing_is_kept():
    engine = Engine(20)
    assert "allocate_slots" not in vars(engine.manager)
    engine.serve(1, 20, [(20, 1)])
    assert "allocate_slots" in vars(engine.manager)
    engine.now_ns = SECOND
    engine.keeper.expire()
    assert "allocate_slots" not in vars(engine.manager)


def test_a_prompt_whose_blocks_are_gone_is_not_kept_in_part():
    engine = Engine(20)
    asked = request("1", 1, 20, [(20, 300)])
    engine.keeper.expect(asked)
    engine.manager.run(asked)
    del engine.manager.block_pool.cached[asked.block_hashes[2]]
    outputs, output = first_output(asked)
    engine.keeper.answer(outputs)
    assert output.kv_transfer_params == {"tollkeeper_kept": [0]} and engine.keeper.kept == 0


def test_requests_that_ended_before_their_first_token_are_forgotten():
    engine = Engine(20)
    for number in range(200):
        asked = request(str(number), number, 4, [(4, 300)])
        asked.is_finished = lambda: True
        engine.keeper.expect(asked)
    assert len(engine.keeper._expected) <= 64


@pytest.mark.parametrize("said", [None, {"other": 1}])
def test_what_a_connector_says_stays_said(said):
    engine = Engine(20)
    asked = request("1", 1, 20, [(20, 300)])
    engine.keeper.expect(asked)
    engine.manager.run(asked)
    outputs, output = first_output(asked)
    output.kv_transfer_params = said
    engine.keeper.answer(outputs)
    assert output.kv_transfer_params == {**(said or {}), "tollkeeper_kept": [20]}
