"""Which of an answer's tokens were given with the meter on, and what the comparison makes of them."""

import pytest

from bench.gpu_figures import FigureFile
from bench.gpu_runs import Answer, Run
from bench.gpu_toggling import add_toggled, block_pairs, is_metered, pairs_of


def answer(gaps):
    return Answer(0.0, tokens=len(gaps) + 1, gaps=list(gaps))


@pytest.mark.parametrize(
    ("step", "begins_metered", "metered"),
    [(0, True, True), (9, True, True), (10, True, False), (19, True, False), (20, True, True), (0, False, False)],
)
def test_every_other_block_is_metered(step, begins_metered, metered):
    assert is_metered(step, 10, begins_metered) is metered


def test_a_gap_belongs_to_the_block_of_the_token_that_ends_it():
    gaps = [float(step) for step in range(1, 25)]
    (pair,) = block_pairs(answer(gaps), 10, True)
    assert pair.on == [3.0, 4.0, 5.0, 6.0, 7.0, 8.0, 9.0]  # the first three of a block are left out
    assert pair.off == [13.0, 14.0, 15.0, 16.0, 17.0, 18.0, 19.0]
    (pair,) = block_pairs(answer(gaps), 10, False)
    assert pair.on[0] == 13.0


@pytest.mark.parametrize(("tokens", "pairs"), [(19, 0), (20, 1), (39, 1), (40, 2)])
def test_blocks_that_are_not_whole_are_left_out(tokens, pairs):
    assert len(block_pairs(answer([1.0] * (tokens - 1)), 10, True)) == pairs


def test_runs_begin_metered_and_not_in_turn_and_the_cost_is_the_ratio(tmp_path):
    def run(begins_metered):
        gaps = [1.02 if is_metered(step, 10, begins_metered) else 1.0 for step in range(1, 40)]
        return Run("r", [answer(gaps)], [], 0, 0)

    pairs = pairs_of([run(True), run(False), run(True)], 10)
    assert len(pairs) == 6
    figures = FigureFile(tmp_path / "figures.jsonl")
    add_toggled(figures, "m", pairs)
    found = figures.figures()
    assert found["m_throughput"].value == pytest.approx(1 / 1.02)
    assert found["m_throughput_of_means"].value == pytest.approx(1 / 1.02)
    assert found["m_itl_p50"].value == found["m_itl_p99"].value == pytest.approx(1.02)
