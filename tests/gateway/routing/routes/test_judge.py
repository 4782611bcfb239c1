"""Whether an answer is good enough for a cascade: refusals by their words, and nothing that merely sounds like one."""

import re
from pathlib import Path

import msgspec
import pytest

from bench.refusal_sentences import HELPFUL, REFUSALS
from contracts.api.chat import ChatRequest, Message
from contracts.serving.routes import CascadePolicy
from gateway.routing.routes.judge import HeldText, what_lacks

POLICY = CascadePolicy(min_mean_logprob=-1.0)
PLAIN = ChatRequest(model="m", messages=[Message(role="user", content="a")])


@pytest.mark.parametrize(
    "text",
    [
        "I'm sorry, but I can't help with that.",
        "I’m sorry, I can’t assist with that request.",
        "I cannot assist with this.",
        "I am unable to provide medical advice.",
        "Sorry, I can't create that.",
        "As an AI language model, I cannot provide opinions.",
        "Unfortunately, I cannot help with that.",
        "I won't help with this.",
        "Es tut mir leid, aber ich kann dir dabei nicht helfen.",
        "Leider kann ich diese Anfrage nicht erfüllen.",
        "Ich kann Ihnen keine Anleitung dazu bereitstellen.",
        "Je suis désolé, mais je ne peux pas vous aider avec cette demande.",
        "Malheureusement, je ne suis pas en mesure de fournir ces informations.",
        "Lo siento, pero no puedo ayudarte con eso.",
        "Mi dispiace, ma non posso aiutarti.",
        "Desculpe, mas não posso ajudar com isso.",
        "Het spijt me, maar ik kan je daar niet mee helpen.",
        "很抱歉，我无法提供这方面的帮助。",
        "我不能协助完成这个请求。",
        "申し訳ありませんが、そのご要望にはお応えできません。",
    ],
)
def test_refusals_are_known_by_how_they_begin(text):
    assert what_lacks(HeldText(text=text), PLAIN, POLICY) == "refusal"


@pytest.mark.parametrize(
    "text",
    [
        "",
        "I can help with that.",
        "I'm sorry to hear that. Here is what you can do.",
        "The song is called: I can't help falling in love.",
        "I can't wait to help!",
        "I can't help but admire that.",
        "I cannot be more precise: it is 4.",
        "Sorry for the delay. Paris.",
        "Ich kann nicht umhin, Ihnen zu helfen.",
        "Ich kann Ihnen dabei helfen. Nicht vergessen: es gibt zwei Wege.",
        "Leider war der Sommer kurz. Ich kann das nicht ändern, aber helfen.",
        "Je ne peux pas attendre de voir la mer.",
        "Je suis désolé de l'apprendre. Voici ce que vous pouvez faire.",
        "No puedo negar que es hermoso.",
        "Non posso che darti ragione.",
        "Não posso deixar de notar o erro.",
        "我无法确定是四还是五。",
        "申し訳ありません、答えは四です。",
    ],
)
def test_what_sounds_like_one_is_none(text):
    assert what_lacks(HeldText(text=text), PLAIN, POLICY) == ""


def sentences(of):
    return [
        pytest.param(text, id=f"{language}-{number}") for language in of for number, text in enumerate(of[language])
    ]


@pytest.mark.parametrize("text", sentences(REFUSALS))
def test_the_common_refusals_of_each_language_are_known(text):
    for written in (text, f"\n{text}", f"**{text}**", f"{text}\n\nPlease ask something else."):
        assert what_lacks(HeldText(text=written), PLAIN, POLICY) == "refusal"


@pytest.mark.parametrize("text", sentences(HELPFUL))
def test_a_helpful_answer_that_apologises_is_no_refusal(text):
    assert what_lacks(HeldText(text=text), PLAIN, POLICY) == ""


def test_each_language_that_the_docs_name_has_sentences():
    docs = (Path(__file__).parents[4] / "docs" / "routes.md").read_text()
    named = re.search(r"begins with typical words in ([^.]*)\.", docs)
    assert named is not None
    languages = set(re.findall(r"[A-Z]\w+", named.group(1)))
    assert languages == set(REFUSALS) == set(HELPFUL)
    assert all(len(REFUSALS[language]) >= 8 for language in languages)


def test_the_mean_is_held_to_the_floor_below_at_and_above():
    for logprobs, lacks in (([-1.5, -0.51], "logprob"), ([-1.5, -0.5], ""), ([-1.5, -0.49], ""), ([], "")):
        assert what_lacks(HeldText(text="x", logprobs=logprobs), PLAIN, POLICY) == lacks


def test_tool_calls_are_no_failed_schema():
    wanted = msgspec.structs.replace(PLAIN, response_format=msgspec.Raw(b'{"type": "json_object"}'))
    assert what_lacks(HeldText(text="", calls_tools=True), wanted, POLICY) == ""
    assert what_lacks(HeldText(text=""), wanted, POLICY) == "schema"
    assert what_lacks(HeldText(text="[1]"), wanted, POLICY) == "schema"
