"""Finds the provider and name that price lists use for a hosted target's model.

LiteLLM's names have the provider as prefix (`anthropic/claude-sonnet-4-5`), sometimes an API and a region
(`bedrock/converse/us-east-1/anthropic...`), and a date or `latest` as suffix. Price lists omit some of these parts.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

# Names of APIs, which do not change a price.
_MANNERS: Final = ("converse/", "invoke/", "converse_like/", "responses/", "chat/", "mantle/", "openai/")
_WITH_MANNERS: Final = frozenset({"bedrock", "bedrock_converse", "azure", "azure_ai", "openai", "vertex_ai"})
_AWS_REGION: Final = re.compile(r"(?:us|eu|ap|ca|sa|me|af|il|mx|us-gov|cn)-[a-z]+-\d/")
_AWS_PROFILE: Final = re.compile(r"(?:us|us-gov|eu|apac|jp|au|ca|global)\.(?=[a-z0-9-]+\.)")
_AZURE_REGION: Final = re.compile(r"(?:global|global-standard)/")  # others cost more, and price lists have them
_DATED: Final = re.compile(r"(?:[-@:](?:\d{8}|\d{4}-\d{2}-\d{2}|latest|default))$")
# LiteLLM's other names of a provider, by price lists' name.
_ALIASES: Final[Mapping[str, str]] = {
    "bedrock_converse": "bedrock",
    "bedrock_mantle": "bedrock",
    "amazon_bedrock": "bedrock",
    "vertex_ai_beta": "vertex_ai",
    "cohere_chat": "cohere",
    "azure_text": "azure",
    "text-completion-openai": "openai",
    "custom_openai": "openai",
    "codestral": "mistral",
    "text-completion-codestral": "mistral",
}


@dataclass(frozen=True, slots=True)
class PricedName:
    """A provider as named by LiteLLM or the target, and a possible name of a model in a price list."""

    provider: str
    model: str


def price_names(kind: str, provider: str, model: str, seller: str = "") -> tuple[PricedName, ...]:
    """Return the possible names of a target's model in price lists, most specific first.

    `kind` is the target's, `seller` its `custom_llm_provider` of LiteLLM, if any. Targets of kind litellm have the
    provider in the model's name, others in `provider`.
    """
    if kind != "litellm":
        return _names_of(provider, model)
    if seller:
        return _names_of(seller, model)
    prefix, slash, rest = model.partition("/")
    return _names_of(prefix, rest) if slash else _names_of(provider, model)


def _names_of(provider: str, model: str) -> tuple[PricedName, ...]:
    seller = _ALIASES.get(provider.lower(), provider)
    names = [model]
    for shorten in (_without_manner, _without_region, _without_profile, _without_path):
        names += [short for name in names if (short := shorten(seller, name)) != name]
    names += [short for name in names if (short := _DATED.sub("", name)) != name]
    return tuple(PricedName(seller, name) for name in dict.fromkeys(names) if name)


def _without_manner(provider: str, name: str) -> str:
    if provider not in _WITH_MANNERS:
        return name
    manner = next((one for one in _MANNERS if name.startswith(one)), "")
    return name[len(manner) :]


def _without_region(provider: str, name: str) -> str:
    pattern = {"bedrock": _AWS_REGION, "azure": _AZURE_REGION, "azure_ai": _AZURE_REGION}.get(provider)
    return name if pattern is None else pattern.sub("", name, count=1) if pattern.match(name) else name


def _without_profile(provider: str, name: str) -> str:
    return _AWS_PROFILE.sub("", name, count=1) if provider == "bedrock" and _AWS_PROFILE.match(name) else name


def _without_path(provider: str, name: str) -> str:
    """Return a model's name without the path of its address: Fireworks' account, Google's publisher."""
    for prefix in ("accounts/fireworks/models/", "publishers/google/models/", "models/"):
        if name.startswith(prefix):
            return name[len(prefix) :]
    return name
