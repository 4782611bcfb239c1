"""LangChain's standard suites for chat models and embeddings, through the gateway: `make langchain` runs them."""

from typing import Any, ClassVar

import pytest
from langchain_core.embeddings import Embeddings
from langchain_core.language_models import BaseChatModel
from langchain_openai import ChatOpenAI, OpenAIEmbeddings
from langchain_tests.integration_tests import ChatModelIntegrationTests, EmbeddingsIntegrationTests

from bench.fleet.fleet import key_of


class Suite(ChatModelIntegrationTests):  # type: ignore[misc]  # installed for `make langchain` alone
    """What both of OpenAI's APIs have in common."""

    more: ClassVar[dict[str, Any]] = {}

    @pytest.fixture(autouse=True)
    def _address(self, gateway_url: str) -> None:
        type(self).url = gateway_url

    url: ClassVar[str] = ""

    @property
    def chat_model_class(self) -> type[BaseChatModel]:
        return ChatOpenAI

    @property
    def chat_model_params(self) -> dict[str, Any]:
        return {"model": "obliging", "base_url": self.url, "api_key": key_of(0), "max_retries": 0, **self.more}

    @property
    def supports_json_mode(self) -> bool:
        return True

    @property
    def model_override_value(self) -> str:
        return "obliging"


class TestChatCompletions(Suite):
    """Chats."""

    more: ClassVar[dict[str, Any]] = {"stream_usage": True}


class TestResponses(Suite):
    """The Responses API, which the gateway translates for the model's server."""

    more: ClassVar[dict[str, Any]] = {"use_responses_api": True}


class TestEmbeddings(EmbeddingsIntegrationTests):  # type: ignore[misc]  # as above
    """Embeddings."""

    url: ClassVar[str] = ""

    @pytest.fixture(autouse=True)
    def _address(self, gateway_url: str) -> None:
        type(self).url = gateway_url

    @property
    def embeddings_class(self) -> type[Embeddings]:
        return OpenAIEmbeddings

    @property
    def embedding_model_params(self) -> dict[str, Any]:
        # Texts are sent as they are: the tokenizer of OpenAI's models is fetched from a server otherwise.
        fields = {"model": "obliging", "base_url": self.url, "api_key": key_of(0), "max_retries": 0}
        return fields | {"check_embedding_ctx_length": False}
