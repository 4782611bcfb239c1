"""Usage in Anthropic's shape: three disjoint kinds of input, and nothing unknown shown as if it were known."""

from hypothesis import given, settings
from hypothesis import strategies as st

from contracts.metering.usage import LEAVES, UNKNOWN_USAGE, Usage
from gateway.apis.messages.rendering import input_usage, message_usage

COUNTS = st.none() | st.integers(0, 10**6)


def test_every_kind_of_token_stands_in_its_own_field():
    usage = Usage(
        input_text=40,
        input_image=2,
        cache_read_text=60,
        cache_write_5m=7,
        cache_write_1h=8,
        output_text=5,
        output_reasoning=3,
    )
    assert message_usage(usage) == {
        "input_tokens": 42,
        "cache_read_input_tokens": 60,
        "cache_creation_input_tokens": 15,
        "cache_creation": {"ephemeral_5m_input_tokens": 7, "ephemeral_1h_input_tokens": 8},
        "output_tokens": 8,
        "output_tokens_details": {"thinking_tokens": 3},
    }


def test_what_is_not_known_is_left_out_and_a_reported_zero_is_shown():
    assert message_usage(UNKNOWN_USAGE) == {"input_tokens": 0, "output_tokens": 0}
    assert input_usage(Usage(input_text=3, cache_read_text=0)) == {"input_tokens": 3, "cache_read_input_tokens": 0}


@settings(max_examples=60, deadline=None)
@given(st.builds(Usage, *[COUNTS] * len(LEAVES)))
def test_the_kinds_of_input_add_up_to_all_of_it(usage):
    shown = message_usage(usage)
    names = ("input_tokens", "cache_read_input_tokens", "cache_creation_input_tokens")
    assert sum(int(str(shown.get(name, 0))) for name in names) == (usage.input_tokens or 0)
    assert shown["output_tokens"] == (usage.output_tokens or 0)
