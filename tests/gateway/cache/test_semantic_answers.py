"""Answers to what means the same: found by meaning, only where all else is equal, and never of another tenant."""

import asyncio
import itertools

import pytest

from backends.embedder.base import DIMENSIONS
from gateway.cache.answer_store import MEANING_BYTES, text_bytes
from tests.gateway.cache.word_embedder import WordEmbedder

OTHER_KEY = "tk-" + "B" * 43
ASKED = "How do I return a parcel?"
ALIKE = "how do i return a parcel"  # the same words, written differently
NEAR = "hi, how do I return a parcel?"
SIMILARITY = 0.9
FAR = "Which colours does the sky have?"


@pytest.fixture
def embedder():
    return WordEmbedder()


@pytest.fixture
def similarity():
    return SIMILARITY


@pytest.fixture
async def gateway(start_gateway, kit, upstream, embedder, similarity):
    upstream.always(upstream.whole(upstream.completion(prompt=1000, output=500)))
    config = kit.configuration(("m", [kit.http_target(upstream.url)]))
    config["models"][0]["cache"] = {"mode": "semantic", "similarity": similarity, "hit_price": "0.5"}
    config["keys"].append({"key": OTHER_KEY, "tenant": "globex", "id": "key_2"})
    gateway = await start_gateway(config)
    gateway.gateway._answers._embedder = embedder
    gateway.gateway._answers._known_meanings = None
    return gateway


def messages(text, *before):
    return {"messages": [*before, {"role": "user", "content": text}]}


async def ask(gateway, text, *before, key=None, headers=None, **fields):
    given = dict(headers or {}) | ({"Authorization": f"Bearer {key}"} if key else {})
    return await gateway.chat(headers=given, model="m", **messages(text, *before), **fields)


async def test_what_means_the_same_is_answered_again_and_says_how_alike_it_is(gateway, upstream):
    first, alike = await ask(gateway, ASKED), await ask(gateway, ALIKE)
    assert (first.headers["x-cache"], alike.headers["x-cache"]) == ("miss", "semantic-hit")
    assert float(alike.headers["x-cache-similarity"]) == pytest.approx(1) and alike.body == first.body
    record = gateway.requests()[1]
    assert (record.cache, record.cost_pico_usd, record.attempts) == ("semantic_hit", 1000 * 10**6, 0)
    assert (await ask(gateway, ASKED)).headers["x-cache"] == "hit" and len(upstream.requests) == 1


async def test_what_is_less_alike_than_the_policy_wants_is_asked(gateway, upstream):
    await ask(gateway, ASKED)
    near, far = await ask(gateway, NEAR), await ask(gateway, FAR)
    assert (near.headers["x-cache"], far.headers["x-cache"]) == ("semantic-hit", "miss")
    assert 0.9 <= float(near.headers["x-cache-similarity"]) < 0.95 and len(upstream.requests) == 2


@pytest.mark.parametrize(
    "more",
    [
        {"temperature": 0.5},
        {"max_tokens": 9},
        {"stream": True},
        {"tools": [{"type": "function", "function": {"name": "f"}}]},
    ],
)
async def test_other_parameters_or_tools_make_another_question(gateway, more):
    await ask(gateway, ASKED)
    assert (await ask(gateway, ALIKE, **more)).headers.get("x-cache", "miss") == "miss"
    assert gateway.requests()[1].cache == "miss"


async def test_another_system_prompt_or_history_makes_another_question(gateway):
    await ask(gateway, ASKED)
    system = {"role": "system", "content": "You are a pirate"}
    said = [await ask(gateway, ALIKE, system), await ask(gateway, ASKED + " ", system), await ask(gateway, ALIKE)]
    assert [answer.headers["x-cache"] for answer in said] == ["miss", "semantic-hit", "semantic-hit"]


async def test_the_same_question_of_another_tenant_finds_nothing(gateway, embedder, upstream):
    await ask(gateway, ASKED)
    for text in (ASKED, ALIKE):
        answer = await ask(gateway, text, key=OTHER_KEY)
        assert answer.headers["x-cache"] == ("miss" if text is ASKED else "semantic-hit")
    assert [request.json["messages"][0]["content"] for request in upstream.requests] == [ASKED, ASKED]
    assert set(embedder.owners) == {"acme", "globex"}


async def test_texts_with_other_numbers_are_never_the_same(gateway):
    await ask(gateway, "How do I return parcel 17 to you?")
    assert (await ask(gateway, "How do I return parcel 71 to you?")).headers["x-cache"] == "miss"


@pytest.mark.parametrize("similarity", [0.0])  # only the words decide
@pytest.mark.parametrize(
    ("kept", "asked"),
    [
        # order
        ("flight from Rome to Paris", "flight from Paris to Rome"),
        ("Did Bob pay Alice?", "Did Alice pay Bob?"),
        ("Is the red car faster than the blue one?", "Is the blue car faster than the red one?"),
        ("Did he thank her for the long letter she wrote?", "Did she thank her for the long letter he wrote?"),
        ("How do I get from the station to the old harbour", "How do I get from the old station to the harbour"),
        ("wie weit ist es von Rom nach Paris", "wie weit ist es von Paris nach Rom"),
        # units, entities, directions
        ("convert 5 EUR to USD", "convert 5 USD to EUR"),
        ("What is the fee for a transfer of up to 90 USD", "What is the fee for a transfer of up to 90 EUR"),
        ("Do I turn left at the church in the market square", "Do I turn right at the church in the market square"),
        # what capitals tell
        ("what do we use SAP for in the office", "what do we use sap for in the office"),
        ("how do I say Polish in German", "how do I say polish in German"),
        ("Dove chocolate or any other one, which one is best", "dove chocolate or any other one, which one is best"),
        # articles
        ("is vitamin a good for the skin and the hair", "is vitamin good for the skin and the hair"),
        ("what is the matrix", "what is a matrix"),
        # a question and a statement
        ("you are coming to the office today", "you are coming to the office today?"),
        # what somebody may do and what is asked for
        ("Can you write a novel in a month or two", "write a novel in a month or two"),
        ("Do you know how to cook rice in a pan", "how to cook rice in a pan"),
        # what stands in the text itself
        ("Translate to German: please explain it to me", "Translate to German: explain it to me"),
        ("please count the words in this sentence", "count the words in this sentence"),
        ('explain the line x = "what\'s the time"', 'explain the line x = "what is the time"'),
        ("fix the indent\nif a:\n b()", "fix the indent\nif a:\nb()"),
        # the language that only an opening tells
        ("Por favor, explique OAuth e SAML a um amigo", "S'il vous plaît, explique OAuth e SAML a um amigo"),
        # spelling, which code depends on
        ("is colour a name that the library knows", "is color a name that the library knows"),
    ],
)
async def test_other_words_or_another_order_are_asked(gateway, upstream, kept, asked):
    await ask(gateway, kept)
    assert (await ask(gateway, asked)).headers["x-cache"] == "miss"
    assert len(upstream.requests) == 2


@pytest.mark.parametrize("similarity", [0.0])  # only the words decide
@pytest.mark.parametrize(
    ("kept", "asked"),
    [
        ("Explain how a heat pump works in a house.", "Please explain how a heat pump works in a house."),
        ("explain how a heat pump works in a house", "Could you please explain how a heat pump works in a house?"),
        ("Can you tell me how to tie a tie for a wedding?", "how to tie a tie for a wedding"),
        ("how do i undo the last commit in git", "How do I undo the last commit in git?"),
        ("What's the best way to learn the piano?", "what is the best way to learn the piano"),
        ("I\u2019d like a recipe for a pumpkin soup.", "I would like a recipe for a pumpkin soup"),
        ("Kannst du mir sagen, wie weit der Mond von der Erde weg ist?", "wie weit der Mond von der Erde weg ist"),
        ("Bitte übersetze das Gedicht von Goethe ins Englische.", "Übersetze das Gedicht von Goethe ins Englische"),
        ("Pouvez-vous me dire combien coûte un billet pour Lyon ?", "combien coûte un billet pour Lyon ?"),
        ("¿Puedes decirme cuál es la capital de Perú?", "¿Cuál es la capital de Perú?"),
        ("Vorrei sapere quali sono le regole degli scacchi", "quali sono le regole degli scacchi?"),
        ("Pode me dizer onde fica o Mosteiro dos Jerónimos?", "Onde fica o Mosteiro dos Jerónimos?"),
    ],
)
async def test_an_opening_a_first_capital_and_an_end_do_not_count(gateway, upstream, kept, asked):
    await ask(gateway, kept)
    assert (await ask(gateway, asked)).headers["x-cache"] == "semantic-hit"
    assert len(upstream.requests) == 1


@pytest.mark.parametrize("similarity", [0.0])
@pytest.mark.parametrize("text", ["Who told Anna what Bob owes Clara?", "please explain to me how Anna and Bob met"])
async def test_two_words_that_change_places_or_one_that_is_missing_are_asked(gateway, text):
    words = text.split(" ")
    others = [[*words[:place], *words[place + 1 :]] for place in range(1, len(words))]
    for one, two in itertools.combinations(range(1, len(words)), 2):
        others.append([*words[:one], words[two], *words[one + 1 : two], words[one], *words[two + 1 :]])
    for seed, other in enumerate(others):  # of which each pair has its own
        await ask(gateway, text, seed=seed)
        assert (await ask(gateway, " ".join(other), seed=seed)).headers["x-cache"] == "miss", other


async def test_a_paraphrase_is_found_behind_a_nearer_question_that_asks_for_the_opposite(gateway, upstream):
    wish = "find the cheapest direct flight that leaves on a weekday"
    await ask(gateway, f"{wish} from Paris to Rome")
    await ask(gateway, f"please {wish} from Rome to Paris")
    found = await ask(gateway, f"{wish} from Rome to Paris")
    assert found.headers["x-cache"] == "semantic-hit" and float(found.headers["x-cache-similarity"]) < 1
    assert len(upstream.requests) == 2


async def test_a_text_longer_than_is_read_is_neither_found_nor_kept_by_its_meaning(gateway, embedder):
    embedder.longest = 3
    assert [(await ask(gateway, text)).headers["x-cache"] for text in (ASKED, ALIKE, ASKED)] == ["miss", "miss", "hit"]


async def test_without_an_embedder_exact_answers_are_still_given(gateway, embedder):
    embedder.is_away = True
    assert [(await ask(gateway, text)).headers["x-cache"] for text in (ASKED, ALIKE, ASKED)] == ["miss", "miss", "hit"]
    embedder.is_away = False
    await ask(gateway, FAR)
    assert (await ask(gateway, "w" + FAR[1:])).headers["x-cache"] == "semantic-hit"


async def test_a_slow_embedder_holds_no_request_up_for_long(gateway, embedder, monkeypatch):
    monkeypatch.setattr("gateway.cache.answer_cache._LONGEST_THOUGHT_SECONDS", 0.01)
    embedder.is_late = True
    answer = await asyncio.wait_for(ask(gateway, ASKED), 2)
    assert (answer.status, answer.headers["x-cache"]) == (200, "miss")


async def test_a_caller_that_wants_no_cache_is_not_looked_up_by_meaning(gateway, embedder):
    await ask(gateway, ASKED)
    asked = len(embedder.owners)
    answer = await ask(gateway, ALIKE, headers={"Cache-Control": "no-store"})
    assert answer.headers["x-cache"] == "bypass" and len(embedder.owners) == asked
    assert (await ask(gateway, ALIKE, headers={"Cache-Control": "no-cache"})).headers["x-cache"] == "miss"


async def test_what_is_kept_of_a_meaning_counts_against_the_bound(gateway, embedder):
    sizes = [0]
    for embedder.longest in (50, 1):  # of the second the meaning is not known
        await ask(gateway, FAR, seed=embedder.longest)
        sizes.append(gateway.gateway.health()["answer_cache"]["bytes"])
    with_it, without = sizes[1], sizes[2] - sizes[1]
    assert with_it - without == MEANING_BYTES + text_bytes(FAR) >= DIMENSIONS * 4


async def test_a_question_is_forgotten_with_its_answer(gateway):
    await ask(gateway, ASKED)
    answers = gateway.gateway._answers
    for name in list(answers._store._partitions["acme"].entries):
        answers._store.remove("acme", name)
    assert (await ask(gateway, ALIKE)).headers["x-cache"] == "miss" and len(answers._known_meanings) == 1


async def test_a_stream_is_answered_by_meaning_as_a_stream(gateway, upstream):
    upstream.always(upstream.streamed(upstream.chunk("one "), upstream.chunk("two", finish="stop")))
    first, alike = [await ask(gateway, text, stream=True) for text in (ASKED, ALIKE)]
    assert alike.headers["x-cache"] == "semantic-hit" and alike.events == first.events
