"""Texts in pieces: whatever the splits, a text is cut as it would be whole, and only what could match waits."""

import json
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from contracts.errors import ConfigurationError
from contracts.guardrails.beginnings import beginnings_of
from contracts.guardrails.finding import Shown
from contracts.guardrails.plain_text import original_span, plain_text
from contracts.guardrails.policy import StageSpec
from gateway.guardrails.detector_dependencies import DetectorDependencies
from gateway.guardrails.guard_stage import GuardStage, build_stage
from gateway.guardrails.screening.expression import Expression
from gateway.guardrails.screening.screen import Screen
from gateway.guardrails.screening.spelling import AS_IS, IN_JSON
from gateway.guardrails.screening.stream_screen import MOST_HELD, StreamPlan

CARD = "4111 1111 1111 1111"


def stage(detector, action="redact", **settings):
    spec = StageSpec(name=detector, detector=detector, direction="output", action=action, settings=settings)
    return GuardStage(spec, "output", build_stage("p", spec, DetectorDependencies()))


PLAN = StreamPlan(
    Screen([stage("pii"), stage("secrets"), stage("deny", keywords=["blue moon"], expressions={"code": "q(?:ab)+z"})])
)


def in_pieces(text, sizes, plan=PLAN, spelling=AS_IS):
    stream, out, at = plan.stream(spelling), [], 0
    while at < len(text):
        size = next(sizes)
        out.append(stream.take(text[at : at + size]))
        at += size
    return "".join(out) + stream.flush(), stream


@pytest.mark.parametrize("before", ["项目 ", "ёлка ", "é "])
@pytest.mark.parametrize("sizes", [1, 3, 7])
def test_what_came_before_in_other_letters_moves_nothing(before, sizes):
    text = f"{before * 3}pay {CARD} now"
    assert in_pieces(text, iter(lambda: sizes, None))[0] == f"{before * 3}pay [card] now"


def test_a_text_that_nothing_can_match_waits_for_nothing_in_any_letters():
    stream = PLAN.stream()
    assert [stream.take(piece) for piece in ("这个", "项目", "很快。", "!\n")] == ["这个", "项目", "很快。", "!\n"]


def randomly(seed):
    chosen = random.Random(seed)
    while True:
        yield chosen.choice((1, 1, 2, 3, 5, 8, 13))


@pytest.mark.parametrize(
    ("text", "cut"),
    [
        (f"my card {CARD}, thanks", "my card [card], thanks"),
        ("it is4111111111111111and 2024 5500-0000-0000-0004 12/27", "it is[card]and 2024 [card] 12/27"),
        ("write joe.doe@example.com. Or not", "write [email]. Or not"),
        ("pay to DE89 3704 0044 0532 0130 00 NOW", "pay to [iban] NOW"),
        ("AB12 is not an account, GB82 WEST 1234 5698 7654 32 is", "AB12 is not an account, [iban] is"),
        ("call +49 30 901820 or (212) 555-0123", "call [phone] or [phone]"),
        ("on 2026-11-22 10:30:15 it was 1 2 3 4 5 6 7 8 9 10", "on 2026-11-22 10:30:15 it was 1 2 3 4 5 6 7 8 9 10"),
        ("ssn 529-98-7765, not 000-12-3456", "ssn [us_ssn], not 000-12-3456"),
        ("once in a bluE \n Moon, qababz", "once in a [keyword], [code]"),
        ("blue moons and qabz", "blue moons and [code]"),
        ("key sk-abcdefghijklmnopqrst and AKIAIOSFODNN7EXAMPLE", "key [key] and [key]"),
        ("-----BEGIN RSA PRIVATE KEY-----\nMIIE\n-----END RSA PRIVATE KEY-----\nbye", "[private_key]\nbye"),
        ("at https://joe:hunter22@localhost/", "at https://[password]@localhost/"),
        ("４１１１\u200b1111１１１１1111 end", "[card] end"),
        ("а@b.co and раypal", "[email] and раypal"),
        ("blu\u0435 m\u043eon", "[keyword]"),
        ("b\u0301lue \U0001f17coon \U000e0041", "[keyword] \U000e0041"),
        ("sound 4111\u00ad1111\u20601111\ufeff1111!", "sound [card]!"),
        ("٤١١١ ١١١١ ١١١١ ١١١١", "[card]"),
    ],
)
def test_a_text_is_cut_alike_whole_and_at_every_split(text, cut):
    whole, _ = in_pieces(text, iter([len(text)]))
    assert whole == cut
    for place in range(1, len(text)):
        assert in_pieces(text, iter([place, len(text)]))[0] == cut, place
    assert in_pieces(text, iter([1] * len(text)))[0] == cut


def test_a_planted_card_number_never_gets_through_in_10_000_random_splits():
    words = "so it goes, 12, of 34; and then 2026, or a@b ; ".split(" ")
    plan = StreamPlan(Screen([stage("pii", kinds=["card", "email"])]))
    for seed in range(10_000):
        chosen = random.Random(seed)
        number = chosen.choice((CARD, "5500000000000004", "3782-822463-10005"))
        said = " ".join(chosen.choices(words, k=6))
        text = f"{said} {number}. {said}"
        out, _ = in_pieces(text, randomly(seed), plan)
        assert number not in out and "[card]" in out, seed
        assert out == text.replace(number, "[card]"), seed


@given(st.text(alphabet="4 1-@.aqbzskеІ\u200b5\n", max_size=60), st.integers(0, 10_000))
def test_pieces_and_whole_agree(text, seed):
    whole, _ = in_pieces(text, iter([max(len(text), 1)]))
    assert in_pieces(text, randomly(seed))[0] == whole


def test_arguments_in_json_stay_json_whatever_they_are_spelt_with():
    said = (
        '{"a": "4111\\u0020 1111 \\"4\\u0031111111111 11111\\n", "n": 5500000000000004,'
        ' "k":"\\ud83d\\ude00 bl\\u0075e moon", "l": "\\\\u0034111"}'
    )
    expected = {"a": '4111  1111 "[card]\n', "n": "[card]", "k": "😀 [keyword]", "l": "\\u0034111"}
    for place in range(1, len(said)):
        assert json.loads(in_pieces(said, iter([place, len(said)]), spelling=IN_JSON)[0]) == expected, place


def test_what_cannot_become_a_match_does_not_wait():
    stream = StreamPlan(Screen([stage("deny", keywords=["blue moon"])])).stream()
    assert [stream.take(piece) for piece in ("a red", " sun, a bl", "ack", " blue", " mood", " x")] == [
        "a red",
        " sun, a ",
        "black",
        " ",
        "blue mood",
        " x",
    ]


def test_a_block_ends_a_text_where_the_match_begins():
    stream = StreamPlan(Screen([stage("deny", action="block", keywords=["blue moon"])])).stream()
    assert stream.take("under a blue") + stream.take(" moon ") + stream.take("we walk") == "under a "
    assert stream.blocked is not None and stream.blocked.text == "output/deny/block:keyword=1"
    assert stream.flush() == ""


def test_a_match_that_outgrows_what_may_be_held_is_blocked_and_what_never_matches_goes_on():
    plan = StreamPlan(Screen([stage("deny", expressions={"run": "x[ab]+y", "long": "<[^>]*>?>"})]))
    stream = plan.stream()
    for _ in range(3 * MOST_HELD // 8):
        stream.take("xabababa")
    assert stream.blocked is None
    grown = StreamPlan(Screen([stage("secrets", kinds=["private_key"])])).stream()
    out = grown.take("key: -----BEGIN PRIVATE KEY-----\n")
    for _ in range(MOST_HELD // 8 + 1):
        out += grown.take("MIIEabcd")
    assert (out, grown.blocked is not None) == ("key: ", True)


@pytest.mark.parametrize(
    ("expression", "begun", "not_begun"),
    [
        ("abc", ("", "a", "ab"), ("abc", "b")),
        ("ab+c", ("a", "abbb"), ("ac",)),
        ("a(?:bc|d)e", ("a", "ab", "abc", "ad"), ("abce",)),
        ("(?i)Foo\\s+bar", ("fO", "FOO \t", "foo ba"), ("bar",)),
        ("x{2,3}", ("x", "xx"), ("xxx",)),
        ("(?:ab){2}", ("a", "ab", "aba"), ("abab",)),
        ("foo\\b", ("foo",), ("food",)),
        ("[]x]+z", ("]x]",), ("z",)),
    ],
)
def test_beginnings_are_what_a_match_may_go_on_from(expression, begun, not_begun):
    found = Expression(rf"\A(?:{beginnings_of(expression)})\z")
    for text in begun:
        assert found.start(text) == 0, text
    for text in not_begun:
        assert found.start(text) == -1, text


@pytest.mark.parametrize(
    "expression", ["^a", "a$", r"\Aa", r"a\z", "(?=a)", "(?<!a)b", r"\Qa\E", "(a", "a)", "*", "[a"]
)
def test_what_a_stream_cannot_look_for_is_refused(expression):
    with pytest.raises(ConfigurationError):
        beginnings_of(expression)


@given(st.text(max_size=30), st.text(max_size=30))
def test_plain_text_of_two_texts_is_that_of_both_together(first, second):
    assert plain_text(first) + plain_text(second) == plain_text(first + second)


@given(st.text(alphabet="aｂ\u0301\u200bﬁ①іx ", min_size=1, max_size=20))
def test_spans_of_plain_text_lead_back_to_what_they_came_from(text):
    plain = plain_text(text)
    for start in range(len(plain)):
        first, last = original_span(text, start, start + 1)
        assert plain[start] in plain_text(text[first:last])


def test_a_look_at_many_texts_finds_what_is_in_each():
    screen = Screen([stage("deny", action="flag", expressions={"first": "^secret"})])
    found = screen.check([Shown("no"), Shown("a secret"), Shown("secret plans")])
    assert [verdict.count for verdict in found.verdicts] == [1]


class Asked:
    """A detector that says which texts it was shown."""

    def __init__(self, *patterns):
        self.patterns, self.shown = patterns, []

    def find(self, text, role, matching=None):
        self.shown.append(text)
        return ()


def test_a_text_in_which_no_expression_matches_is_shown_to_those_that_have_none_alone():
    spec = StageSpec(name="s", detector="pii", direction="input", action="redact", settings={})
    everywhere, some = Asked(), Asked("ab+c")
    screen = Screen([GuardStage(spec, "input", everywhere), GuardStage(spec, "input", some)])
    for texts in (["one"], ["one", "an abbc"], ["two", "three"], ["abc"]):
        screen.check([Shown(text, "user") for text in texts])
    assert everywhere.shown == ["one", "one", "an abbc", "two", "three", "abc"]
    assert some.shown == ["an abbc", "abc"]
