"""Validates a target's settings as far as possible without its files, variables and keys."""

import msgspec

from backends.endpoints.source import check_source
from backends.llm.host.engine_target import EngineTargetSettings
from backends.llm.http.http_abilities import read_abilities, read_paths
from backends.llm.http.http_credentials import check_header_value
from backends.llm.http.http_settings import REFERENCES, OpenAISettings, read_headers, read_timeouts, read_tls_names
from backends.llm.provider_target import ProviderSettings
from backends.llm.scripted import read_script
from contracts.errors import ConfigurationError
from contracts.pricing.failure_billing import read_billing
from contracts.serving.configuration import TargetSpec
from contracts.serving.discovery import without_discovery
from contracts.serving.native_apis import drops_unknown, native_apis

SHAPES: dict[str, type[msgspec.Struct]] = {
    "openai_http": OpenAISettings,
    "litellm": ProviderSettings,
    "engine": EngineTargetSettings,
}


def check_settings(spec: TargetSpec) -> None:
    """Raise ConfigurationError if a target's settings are invalid."""
    check_source(spec)
    spec = without_discovery(spec)
    shape = SHAPES.get(spec.kind)
    if shape is not None:
        try:
            msgspec.convert(spec.settings, shape)
        except msgspec.ValidationError as error:
            raise ConfigurationError(f"target {spec.id!r}, settings: {error}") from error
    read_billing(spec)
    drops_unknown(spec)
    if spec.kind in ("openai_http", "litellm"):
        read_timeouts(spec)
    if spec.kind == "scripted":
        read_script(spec)
    if spec.kind != "openai_http":
        return
    for name, value in read_headers(spec).items():
        if not value.startswith(REFERENCES):
            check_header_value(spec, name, value)
    read_tls_names(spec, is_https=spec.url.startswith("https://"))
    read_abilities(spec)
    read_paths(spec)
    native_apis(spec)
