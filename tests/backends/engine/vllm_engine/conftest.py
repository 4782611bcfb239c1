"""An engine whose vLLM plays what a test gives it."""

from collections.abc import Callable, Sequence

import pytest

from backends.engine.parsers.answer_format import AnswerFormat
from backends.engine.settings import BUILTIN_PATH
from backends.engine.torch_engine.detokenizer import Vocabulary
from backends.engine.torch_engine.request_check import ModelLimits
from backends.engine.vllm_builder import model_hello
from backends.engine.vllm_engine.adapter_set import AdapterSet
from backends.engine.vllm_engine.answer_forms import TemplateForms
from backends.engine.vllm_engine.engine import Parts, VllmEngine
from backends.engine.vllm_engine.gauges import Gauges
from backends.engine.vllm_engine.intake import Intake
from backends.engine.vllm_engine.kv_events.source import KvSource, NoKvEvents
from backends.engine.vllm_engine.llm_client import LlmFacts, LlmRequest
from backends.engine.vllm_engine.model_card import read_model_card
from backends.engine.vllm_engine.step_metering import NoMetering, StepMetering
from tests.backends.engine.vllm_engine.played_llm import FACTS, Played, PlayedLlm

Play = Callable[[LlmRequest], Sequence[Played]]


@pytest.fixture(scope="session")
def card():
    return read_model_card(BUILTIN_PATH)


@pytest.fixture(scope="session")
def vocabulary(card):
    return Vocabulary(card.tokenizer)


@pytest.fixture
def make_engine(card, vocabulary):
    """Build an engine around a played vLLM; provide both."""

    def make(
        play: Play = lambda request: (),
        *,
        answers: AnswerFormat | None = None,
        metering: StepMetering | None = None,
        facts: LlmFacts = FACTS,
        name: str = "m",
        keeps_prompts: bool = False,
        kv: KvSource | None = None,
    ) -> tuple[VllmEngine, PlayedLlm]:
        llm = PlayedLlm(play, facts)
        limits = ModelLimits(name, facts.vocabulary, facts.context_tokens, 128, "", "")
        forms = TemplateForms(answers or AnswerFormat(), vocabulary)
        parts = Parts(
            client=llm,
            hello=model_hello(name, card, facts),
            intake=Intake(limits, vocabulary, forms, facts.accepts_images, keeps_prompts),
            adapters=AdapterSet(llm, card.config, name, is_enabled=True),
            metering=metering or NoMetering(),
            gauges=Gauges(kv_blocks=facts.kv_blocks),
            kv=kv or NoKvEvents(),
            weights_hash=lambda: "w",
        )
        return VllmEngine(parts), llm

    return make
