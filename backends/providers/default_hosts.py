"""Host names of providers' public endpoints, as of 2026-11."""

from collections.abc import Mapping
from typing import Any, Final

_HOSTS: Final[Mapping[str, tuple[str, ...]]] = {
    "openai": ("api.openai.com",),
    "anthropic": ("api.anthropic.com",),
    "gemini": ("generativelanguage.googleapis.com",),
    "mistral": ("api.mistral.ai",),
    "groq": ("api.groq.com",),
    "cohere": ("api.cohere.com", "api.cohere.ai"),
    "cohere_chat": ("api.cohere.com", "api.cohere.ai"),
    "deepseek": ("api.deepseek.com",),
    "xai": ("api.x.ai",),
    "openrouter": ("openrouter.ai",),
    "fireworks_ai": ("api.fireworks.ai",),
    "together_ai": ("api.together.xyz", "api.together.ai"),
    "perplexity": ("api.perplexity.ai",),
    "cerebras": ("api.cerebras.ai",),
    "sambanova": ("api.sambanova.ai",),
    "nvidia_nim": ("integrate.api.nvidia.com",),
    "voyage": ("api.voyageai.com",),
    "jina_ai": ("api.jina.ai",),
    "ai21": ("api.ai21.com",),
    "huggingface": ("router.huggingface.co",),
}
_GOOGLE_SIGN_IN: Final = ("oauth2.googleapis.com", "sts.googleapis.com", "iamcredentials.googleapis.com")
_DEFAULT_REGION: Final = "us-east-1"


def default_hosts(provider: str, parameters: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the hosts of a provider for a target without a URL; empty if they are not known.

    Amazon's and Google's depend on the region or location in the target's parameters.
    """
    if provider == "bedrock":
        region = str(parameters.get("aws_region_name") or parameters.get("region_name") or _DEFAULT_REGION)
        return (f"bedrock-runtime.{region}.amazonaws.com", f"sts.{region}.amazonaws.com", "sts.amazonaws.com")
    if provider == "vertex_ai":
        location = str(parameters.get("vertex_location") or "us-central1")
        return ("aiplatform.googleapis.com", f"{location}-aiplatform.googleapis.com", *_GOOGLE_SIGN_IN)
    return _HOSTS.get(provider, ())
