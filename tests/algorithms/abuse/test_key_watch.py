"""What one key does, below, at and above each rule's limit."""

from typing import Any

import pytest

from algorithms.abuse.detection import Detection
from algorithms.abuse.key_watch import KeyWatch, Use
from algorithms.abuse.spec import ABUSE_KINDS, abuse_spec
from contracts.errors import ConfigurationError

_SECOND = 1_000_000_000
_WORDS = "amber birch cedar delta ember fjord grove heath inlet jetty knoll lagoon marsh niche orchid plaza".split()


def _watch(**rules: Any) -> KeyWatch:
    return KeyWatch(abuse_spec(rules))


def _unlike(number: int) -> str:
    """Return a prompt that shares no run of words with another number's."""
    return " ".join(f"{word}{chr(97 + number // 26 % 26)}{chr(97 + number % 26)}" for word in _WORDS)


def _seen(watch: KeyWatch, texts: list[str], **use: Any) -> list[list[Detection]]:
    return [watch.look(Use(text, at_ns=number * _SECOND, **use)) for number, text in enumerate(texts)]


def _variant(number: int) -> str:
    return (
        f"Please tell me all that is known about the employee whose badge reads {_WORDS[number % 16]}{number} in full"
    )


@pytest.mark.parametrize("action", ["throttle", "alert"])
def test_a_flood_is_seen_above_its_limit_and_not_at_it(action: str) -> None:
    watch = _watch(flood={"limit": 5, "window_seconds": 600, "action": action})
    seen = _seen(
        watch, [f"Translate order {number} into French for me, please, and keep names." for number in range(6)]
    )
    assert [bool(each) for each in seen] == [False] * 5 + [True]
    (detection,) = seen[5]
    assert (detection.kind, detection.action, detection.observed, detection.limit) == ("flood", action, 6, 5)


def test_what_is_throttled_is_not_counted_and_who_waits_as_told_is_served() -> None:
    watch = _watch(flood={"limit": 2, "window_seconds": 60, "action": "throttle"})
    say = "Write the very same thing again and again for me now."
    for second in (0, 1):
        assert watch.look(Use(say, second * _SECOND)) == []
    (refused,) = watch.look(Use(say, 2 * _SECOND))
    (again,) = watch.look(Use(say, 3 * _SECOND))
    assert refused.observed == again.observed == 3
    assert watch.look(Use(say, int((3 + again.retry_after_seconds) * _SECOND))) == []


def test_prompts_that_are_unlike_are_no_flood() -> None:
    watch = _watch(flood={"limit": 2})
    assert not any(_seen(watch, [_unlike(number) for number in range(40)]))


def test_two_floods_at_once_are_counted_apart() -> None:
    watch = _watch(flood={"limit": 3, "window_seconds": 600})
    seen = _seen(watch, [_unlike(0), _unlike(1)] * 3)
    assert not any(seen)


def test_probing_counts_variants_and_not_repetitions() -> None:
    watch = _watch(probing={"limit": 4, "window_seconds": 3600, "similarity": 0.5})
    assert not any(_seen(watch, [_variant(0)] * 20))
    seen = _seen(watch, [_variant(number) for number in range(1, 6)])
    assert [bool(each) for each in seen] == [False, False, False, True, True]
    assert seen[3][0].kind == "probing"


@pytest.mark.parametrize(
    ("use", "is_seen"),
    [
        ({"wants_logprobs": True, "output_limit": 1024}, True),
        ({"wants_logprobs": True, "output_limit": None}, True),
        ({"wants_logprobs": True, "output_limit": 1023}, False),
        ({"wants_logprobs": False, "output_limit": 4096}, False),
    ],
)
def test_a_harvest_is_many_unlike_prompts_for_long_answers_with_probabilities(
    use: dict[str, Any], is_seen: bool
) -> None:
    watch = _watch(harvest={"limit": 6, "output_tokens": 1024})
    seen = _seen(watch, [_unlike(number) for number in range(7)], **use)
    assert not any(seen[:6])
    assert bool(seen[6]) is is_seen


def test_prompts_that_are_alike_are_no_harvest() -> None:
    watch = _watch(harvest={"limit": 3})
    assert not any(_seen(watch, [_variant(1)] * 10, wants_logprobs=True))


def test_a_key_is_shared_above_its_number_of_addresses() -> None:
    watch = _watch(sharing={"addresses": 3, "action": "throttle"})
    seen = [watch.look(Use("", number * _SECOND, address=f"198.51.100.{number}")) for number in range(4)]
    assert [bool(each) for each in seen] == [False, False, False, True]
    (detection,) = seen[3]
    assert (detection.kind, detection.observed) == ("address_sharing", 4)
    assert detection.facts == {"networks": ["198.51.100.0/24"]}  # of people's addresses no more is told
    assert watch.look(Use("", 5 * _SECOND, address="198.51.100.1")) == []  # who was there before stays welcome


def test_one_customer_of_an_ipv6_network_is_one_address() -> None:
    watch = _watch(sharing={"addresses": 1})
    assert not any(watch.look(Use("", _SECOND, address=f"2001:db8:1:2::{number:x}")) for number in range(50))
    assert watch.look(Use("", _SECOND, address="2001:db8:1:3::1"))


def test_addresses_are_forgotten_after_the_window() -> None:
    watch = _watch(sharing={"addresses": 1, "window_seconds": 60, "action": "throttle"})
    assert watch.look(Use("", 0, address="192.0.2.1")) == []
    (refused,) = watch.look(Use("", 10 * _SECOND, address="192.0.2.2"))
    assert refused.retry_after_seconds == 50
    assert watch.look(Use("", 60 * _SECOND, address="192.0.2.2")) == []


def test_user_agents_are_counted_where_the_policy_says_so() -> None:
    watch = _watch(sharing={"addresses": None, "user_agents": 2})
    seen = [watch.look(Use("", 0, address="192.0.2.1", user_agent=name)) for name in ("a/1", "b/1", "a/1", "c/1")]
    assert [[each.kind for each in some] for some in seen] == [[], [], [], ["agent_sharing"]]


def test_what_is_kept_of_a_key_is_bounded_whatever_it_does() -> None:
    watch = _watch(flood={}, probing={}, harvest={"limit": 100_000}, sharing={"addresses": 8, "user_agents": 8})
    sizes = set()
    for number in range(600):
        use = Use(_unlike(number), number, f"10.{number // 250}.{number % 250}.1", f"agent/{number}", True)
        watch.look(use)
        sizes.add(watch.size)
    assert max(sizes) <= 16 + 16 + 32 + 9 + 9


def test_the_caller_is_told_what_was_counted_what_is_allowed_and_what_to_do() -> None:
    watch = _watch(flood={"limit": 1, "window_seconds": 120, "action": "throttle"})
    say = "The secret word of this prompt is rhubarb, keep it to yourself."
    watch.look(Use(say, 0))
    error = watch.look(Use(say, _SECOND))[0].error()
    assert (error.status, error.error_code) == (429, "abuse_throttled")
    assert "2 nearly identical prompts in 2 minutes, where 1 are allowed" in error.message
    assert error.retry_after_seconds is not None and f"{error.retry_after_seconds:.0f} s" in error.message
    assert "rhubarb" not in error.message


@pytest.mark.parametrize("given", [{}, {"flood": {"limit": 0}}, {"flod": {}}, {"sharing": {"addresses": None}}])
def test_a_malformed_policy_is_refused(given: dict[str, Any]) -> None:
    with pytest.raises(ConfigurationError, match="abuse"):
        abuse_spec(given)


def test_every_kind_says_what_it_saw_and_what_ends_it() -> None:
    for kind in ABUSE_KINDS:
        assert Detection(kind, "alert", 3, 2, 60).error().message.count(";") == 2
