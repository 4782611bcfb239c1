"""Policies that cannot stand are refused wherever they are given, in a sentence that names the place and the remedy."""

import pytest

from contracts.errors import ConfigurationError
from contracts.guardrails.finding import Verdict, joined, read_verdict
from contracts.guardrails.policy import covering, policy_of
from gateway.guardrails.detector_dependencies import DetectorDependencies
from gateway.guardrails.guard_plan import compile_plan
from gateway.guardrails.policy_trial import try_policy
from gateway.guardrails.screening.expression import Expression


def stage(detector, **more):
    settings = more.pop("settings", {})
    return {"name": more.pop("name", "s"), "detector": detector, "settings": settings, **more}


@pytest.mark.parametrize(
    ("rules", "said"),
    [
        ({"stages": []}, "0 stages"),
        ({"stages": [stage("pii")] * 2}, "two stages 's'"),
        ({"stages": [stage("pii", name="Bad Name")]}, "a name is"),
        ({"stages": [stage("pii", direction="sideways")]}, "direction"),
        ({"stages": [stage("pii", action="shout")]}, "action"),
        ({"stages": [stage("pii", colour="red")]}, "colour"),
        ({"stages": [stage("nothing_like_it")]}, "there is no detector 'nothing_like_it'; there are"),
        ({"stages": [stage("pii", settings={"kinds": ["shoe_size"]})]}, "there is no 'shoe_size'"),
        ({"stages": [stage("pii", settings={"regions": ["Atlantis"]})]}, "not a region"),
        ({"stages": [stage("secrets", settings={"min_entropy_bits": 9})]}, "min_entropy_bits"),
        ({"stages": [stage("deny")]}, "give keywords or expressions"),
        ({"stages": [stage("deny", settings={"keywords": [" "]})]}, "keywords[0]"),
        ({"stages": [stage("deny", settings={"expressions": {"e": "(a+)\\1"}})]}, "backreferences"),
        ({"stages": [stage("deny", settings={"expressions": {"e": "(?=a)b"}})]}, "looking around"),
        ({"stages": [stage("deny", settings={"expressions": {"e": "a*"}})]}, "matches the empty text"),
        (
            {"stages": [stage("deny", settings={"expressions": {"e": "(a"}})]},
            "expressions.e: the expression is refused",
        ),
        ({"stages": [stage("deny", settings={"expressions": {"e": "((a{1000}){1000}){9}"}})]}, "expressions.e"),
        ({"stages": [stage("deny", settings={"expressions": {"E!": "a"}})]}, "a name is 1 to 40"),
        ({"stages": [stage("deny", direction="output", settings={"expressions": {"e": "^a"}})]}, "does not have yet"),
        ({"stages": [stage("max_tokens", settings={"default": 9, "most": 8})]}, "above most"),
        ({"stages": [stage("max_tokens", direction="output", settings={"most": 8})]}, "must be input"),
        ({"stages": [stage("parameters", settings={"denied": ["messages"]})]}, "cannot be denied"),
        ({"stages": [stage("models")]}, "give allowed or denied"),
        ({"tenants": [""], "stages": [stage("pii")]}, "leave the list empty"),
    ],
)
def test_a_malformed_policy_is_refused_by_name(rules, said):
    with pytest.raises(ConfigurationError) as refused:
        compile_plan([policy_of("mine", rules)], DetectorDependencies())
    assert "'mine'" in refused.value.message and said in refused.value.message


async def test_a_gateway_does_not_start_with_a_malformed_policy_and_keeps_the_last_good_one(
    start_gateway, kit, tmp_path
):
    good = kit.configuration(
        ("scripted-1", [kit.scripted()]),
        guardrails=[{"name": "p", "stages": [stage("deny", settings={"keywords": ["red"]})]}],
    )
    gateway = await start_gateway(good)
    bad = {**good, "guardrails": [{"name": "p", "stages": [stage("deny", settings={"expressions": {"e": "(?!a)"}})]}]}
    with pytest.raises(ConfigurationError, match="looking around"):
        await start_gateway(bad)
    assert (await gateway.chat(messages=[{"role": "user", "content": "red"}])).status == 400


def test_a_policy_that_a_gateway_cannot_use_refuses_what_it_covers_alone(monkeypatch):
    policy = policy_of("p", {"tenants": ["acme"], "stages": [stage("nothing_like_it")]})
    assert covering([policy], "globex", "m") == ()
    assert covering([policy], "acme", "m") == (policy,)


def test_an_expression_that_backtracks_for_ever_elsewhere_takes_linear_time_here():
    expression = Expression(r"(a+)+$|(a|aa)+b")
    assert expression.start("a" * 100_000 + "c") == -1


def test_spans_are_of_characters_whatever_their_bytes():
    text = "é a 😀 aa"
    assert [text[slice(*span)] for span in Expression("a+|é").spans(text)] == ["é", "a", "aa"]
    assert list(Expression("a?").spans("bab")) == [(1, 2)]


def test_verdicts_are_read_back_as_they_were_written():
    one = Verdict("cards", "pii", "output", "redact", True, ("card", "iban"), 3)
    assert one.text == "dry:output/cards/redact:card+iban=3"
    found = read_verdict(one.text)
    assert found is not None and (found.stage, found.kinds, found.count, found.is_dry_run) == (
        "cards",
        ("card", "iban"),
        3,
        True,
    )
    assert read_verdict("pii:masked") is None
    assert [each.count for each in joined([one, one])] == [6]


def test_a_policy_is_tried_on_a_text():
    rules = {
        "stages": [
            stage("pii", action="redact", direction="both", settings={"kinds": ["card"]}),
            stage("deny", name="d", direction="output", settings={"keywords": ["red"]}),
        ]
    }
    policy = policy_of("p", rules)
    tried = try_policy(policy, "a red 4111111111111111", "input")
    assert (tried.text, tried.verdicts, tried.blocked_by) == ("a red [card]", ["input/s/redact:card=1"], "")
    assert try_policy(policy, "a red 4111111111111111", "output").blocked_by == "d"
