"""What a replayed request says and how long it is: words by the model's tokens, alike where the trace says so."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from contracts.errors import ConfigurationError
from tollkeeper.replay.lengths import LengthRule
from tollkeeper.replay.prompt import PromptWriter
from tollkeeper.replay.token_rate import TokenRate
from tollkeeper.replay.trace import TraceRequest


def test_equal_block_ids_are_equal_text_and_unequal_ones_are_not() -> None:
    writer = PromptWriter(TokenRate(), block_tokens=16)
    one, two, other = (writer.write(number, 64, blocks) for number, blocks in enumerate([(1, 2), (1, 2), (1, 3)]))
    words = [text.split() for text in (one, two, other)]
    assert words[0][:32] == words[1][:32] and words[0][32:] != words[1][32:]
    assert words[0][:16] == words[2][:16] and words[0][16:32] != words[2][16:32]
    assert all(len(each) == 64 for each in words)


def test_a_prompt_shorter_than_its_blocks_keeps_those_that_fit_whole() -> None:
    writer = PromptWriter(TokenRate(), block_tokens=16)
    short, long = writer.write(0, 40, (1, 2, 3)), writer.write(1, 48, (1, 2, 3))
    assert short.split()[:32] == long.split()[:32]
    assert len(short.split()) == 40


def test_a_run_s_prompts_are_the_same_every_time_and_another_run_s_are_not() -> None:
    def prompt(seed: str) -> str:
        return PromptWriter(TokenRate(), 16, seed).write(7, 30)

    assert prompt("a") == prompt("a") != prompt("b")


@given(
    rate=st.floats(0.3, 6.0), fixed=st.floats(0, 40), tokens=st.integers(1, 20_000), blocks=st.lists(st.integers(0, 9))
)
def test_a_prompt_has_as_many_words_as_its_tokens_ask_for(
    rate: float, fixed: float, tokens: int, blocks: list[int]
) -> None:
    measured = TokenRate(rate, fixed)
    words = len(PromptWriter(measured, 512).write(0, tokens, tuple(blocks)).split())
    assert words == measured.words_for(tokens) >= 1
    if tokens > fixed + rate:
        assert words * rate + fixed == pytest.approx(tokens, abs=rate / 2 + 1e-6)


@pytest.mark.parametrize(
    ("few", "many", "rate"),
    [(12, 268, TokenRate(1.0, 4.0)), (20, 404, TokenRate(1.5, 8.0)), (None, 268, TokenRate()), (9, 9, TokenRate())],
)
def test_the_token_rate_is_the_line_through_two_measurements(
    few: int | None, many: int | None, rate: TokenRate
) -> None:
    assert TokenRate.measured(few, many) == rate


@pytest.mark.parametrize(
    ("given_in", "given_out", "fits"), [(899, 50, True), (900, 50, True), (901, 50, False), (5000, 4500, False)]
)
def test_what_exceeds_the_context_is_scaled_down_to_fit(given_in: int, given_out: int, fits: bool) -> None:
    lengths = LengthRule(context_tokens=1000).apply(TraceRequest(0.0, given_in, given_out))
    assert lengths.is_scaled_to_fit is not fits
    if fits:
        assert (lengths.input_tokens, lengths.output_tokens) == (given_in, given_out)
    else:
        assert 940 <= lengths.input_tokens + lengths.output_tokens <= 950
        assert lengths.input_tokens / lengths.output_tokens == pytest.approx(given_in / given_out, rel=0.05)


def test_lengths_are_scaled_before_they_are_fitted_and_never_vanish() -> None:
    assert LengthRule(0.5).apply(TraceRequest(0.0, 100, 11)).input_tokens == 50
    assert LengthRule(0.001).apply(TraceRequest(0.0, 100, 0)) == LengthRule().apply(TraceRequest(0.0, 1, 1))
    assert not LengthRule(0.1, 1000).apply(TraceRequest(0.0, 9000, 100)).is_scaled_to_fit


@pytest.mark.parametrize(("scale", "context"), [(0.0, None), (-1.0, None), (101.0, None), (1.0, 63)])
def test_a_scale_or_context_out_of_range_is_refused(scale: float, context: int | None) -> None:
    with pytest.raises(ConfigurationError):
        LengthRule(scale, context)
