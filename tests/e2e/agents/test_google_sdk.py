"""Google's SDK with its defaults: models, answers, streams, counts, vectors, functions that it calls itself, files."""

import base64
import io
from collections.abc import Iterator
from typing import Any

import pytest
from google import genai
from google.genai import errors, types

from tests.e2e.agents.conftest import MODEL, wait_until_served
from tests.e2e.agents.scripted_model import GREETING, VECTOR, ScriptedModel
from tests.e2e.installation import Installation
from tests.steady_time import poll_within

pytestmark = [pytest.mark.e2e, pytest.mark.agents]

OWN = "google-model"  # by which its records are found
PIXEL = base64.b64decode("R0lGODlhAQABAIAAAAAAAP///yH5BAEAAAAALAAAAAABAAEAAAIBRAA7")


@pytest.fixture(scope="module")
def client(installation: Installation, served_model: ScriptedModel) -> Iterator[genai.Client]:
    installation.request("POST", "/v1/models", {"id": OWN, "pool": "agents"})
    wait_until_served(installation, OWN)
    options = types.HttpOptions(base_url=installation.gateway_url)
    with genai.Client(api_key=installation.key, http_options=options) as made:
        yield made


def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


def test_models_are_listed_and_named(client: genai.Client) -> None:
    names = {model.name for model in client.models.list()}
    assert {f"models/{OWN}", f"models/{MODEL}"} <= names
    assert client.models.get(model=OWN).name == f"models/{OWN}"
    with pytest.raises(errors.ClientError) as caught:
        client.models.get(model="nothing")
    assert (caught.value.code, caught.value.status) == (404, "NOT_FOUND")


def test_answers_and_streams_with_their_usage(client: genai.Client, installation: Installation) -> None:
    config = types.GenerateContentConfig(temperature=0.2, max_output_tokens=50, system_instruction="Be brief.")
    whole = client.models.generate_content(model=OWN, contents="Hello?", config=config)
    assert whole.text == GREETING and whole.candidates[0].finish_reason == types.FinishReason.STOP
    pieces = list(client.models.generate_content_stream(model=OWN, contents="Hello?"))
    assert "".join(piece.text or "" for piece in pieces) == GREETING
    for usage in (whole.usage_metadata, pieces[-1].usage_metadata):
        counts = (usage.prompt_token_count, usage.candidates_token_count, usage.total_token_count)
        assert counts == (10, 5, 15)
    query = (
        "SELECT count() AS requests, countIf(stream) AS streamed, sum(tokens_input_text) AS input, "
        f"sum(tokens_output_text) AS output FROM requests WHERE requested_model = '{OWN}' AND operation = 'chat'"
    )
    expected = {"requests": 2, "streamed": 1, "input": 20, "output": 10}
    assert poll_within(lambda: installation.store().query(query) == [expected], 60)


def test_a_chat_keeps_its_turns(client: genai.Client, served_model: ScriptedModel) -> None:
    chat = client.chats.create(model=MODEL)
    served_model.bodies.clear()
    for text in ("One.", "Two."):
        assert chat.send_message(text).text == GREETING
    roles = [message["role"] for message in served_model.bodies[-1]["messages"]]
    assert roles == ["user", "assistant", "user"]


def test_tokens_are_counted_and_texts_become_vectors(client: genai.Client) -> None:
    assert client.models.count_tokens(model=MODEL, contents="Hello?").total_tokens > 0
    answer = client.models.embed_content(model=MODEL, contents=["one", "two"])
    assert [one.values for one in answer.embeddings or []] == [VECTOR, VECTOR]


@pytest.mark.parametrize("is_streamed", [False, True])
def test_the_sdk_calls_a_function_and_hands_its_result_back(client: genai.Client, *, is_streamed: bool) -> None:
    config = types.GenerateContentConfig(tools=[add])
    asked: dict[str, Any] = {"model": MODEL, "contents": "How much is 40 and 2?", "config": config}
    if is_streamed:
        text = "".join(piece.text or "" for piece in client.models.generate_content_stream(**asked))
    else:
        answer = client.models.generate_content(**asked)
        text = answer.text or ""
        assert answer.automatic_function_calling_history
    assert text.startswith("The tool says: ") and "42" in text


def test_an_image_in_the_request_and_a_forced_call_reach_the_model(
    client: genai.Client, served_model: ScriptedModel
) -> None:
    served_model.bodies.clear()
    image = types.Part.from_bytes(data=PIXEL, mime_type="image/gif")
    calling = types.FunctionCallingConfig(mode=types.FunctionCallingConfigMode.ANY, allowed_function_names=["add"])
    config = types.GenerateContentConfig(
        tools=[add],
        tool_config=types.ToolConfig(function_calling_config=calling),
        automatic_function_calling=types.AutomaticFunctionCallingConfig(disable=True),
    )
    answer = client.models.generate_content(model=MODEL, contents=["What is it?", image], config=config)
    [call] = answer.function_calls or []
    assert (call.name, call.args) == ("add", {"a": 40, "b": 2})
    [body] = served_model.bodies
    assert body["tool_choice"] in ("required", {"type": "function", "function": {"name": "add"}})
    assert "data:image/gif;base64," in str(body["messages"])


def test_what_is_not_served_is_refused_in_googles_words(client: genai.Client) -> None:
    file = types.Part.from_uri(file_uri="https://example.com/a.pdf", mime_type="application/pdf")
    search = types.GenerateContentConfig(tools=[types.Tool(google_search=types.GoogleSearch())])
    refused = {
        "fileData": lambda: client.models.generate_content(model=MODEL, contents=[file]),
        "googleSearch": lambda: client.models.generate_content(model=MODEL, contents="a", config=search),
    }
    for name, act in refused.items():
        with pytest.raises(errors.ClientError) as caught:
            act()
        assert caught.value.code == 400 and name in str(caught.value.message), caught.value
    not_served = [
        lambda: client.files.upload(file=io.BytesIO(b"text"), config={"mime_type": "text/plain"}),
        lambda: list(client.files.list()),
        lambda: client.caches.create(model=MODEL, config={"contents": ["a"]}),
    ]
    for act in not_served:
        with pytest.raises(errors.ClientError) as caught:
            act()
        assert (caught.value.code, caught.value.status) == (404, "NOT_FOUND")
        assert "generateContent" in str(caught.value.message), "it says what is served"
