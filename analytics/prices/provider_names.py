"""Under which provider and name price lists know the model that a hosted target names.

LiteLLM's names have the provider before them (`anthropic/claude-sonnet-4-5`), perhaps a way to call it and a region
(`bedrock/converse/us-east-1/anthropic...`), and a date or `latest` behind them. Price lists leave some of this out.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

# Ways to call a model, which change no price.
_MANNERS: Final = ("converse/", "invoke/", "converse_like/", "responses/", "chat/", "mantle/", "openai/")
_WITH_MANNERS: Final = frozenset({"bedrock", "bedrock_converse", "azure", "azure_ai", "openai", "vertex_ai"})
_AWS_REGION: Final = re.compile(r"(?:us|eu|ap|ca|sa|me|af|il|mx|us-gov|cn)-[a-z]+-\d/")
_AWS_PROFILE: Final = re.compile(r"(?:us|us-gov|eu|apac|jp|au|ca|global)\.(?=[a-z0-9-]+\.)")
_AZURE_REGION: Final = re.compile(r"(?:global|global-standard)/")  # others ask more, and price lists name them
_DATED: Final = re.compile(r"(?:[-@:](?:\d{8}|\d{4}-\d{2}-\d{2}|latest|default))$")
# LiteLLM's other names of one provider, by the one that price lists have.
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
    """A provider, as LiteLLM or the target calls it, and a model's name as a price list may have it."""

    provider: str
    model: str


def price_names(kind: str, provider: str, model: str, seller: str = "") -> tuple[PricedName, ...]:
    """Return the names that price lists may have a target's model under, the most exact first.

    `kind` is the target's, `seller` LiteLLM's `custom_llm_provider` where the target states one. A target of kind
    litellm says in its model whose it is; of others the provider says it.
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
    """Leave out what only the address of the model needs: Fireworks' account, Google's publisher."""
    for prefix in ("accounts/fireworks/models/", "publishers/google/models/", "models/"):
        if name.startswith(prefix):
            return name[len(prefix) :]
    return name
