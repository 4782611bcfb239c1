"""What the settings of a target that speaks OpenAI's protocol may say."""

from typing import Literal

import msgspec

from backends.llm.http.openai_body import ThinkingCapField


class OpenAISettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What a target's settings may say. The way to it is read by `http_settings`."""

    timeouts: object = None
    tls: object = None
    headers: object = None
    output_limit_field: Literal["max_tokens", "max_completion_tokens"] = "max_tokens"
    sends_reasoning_effort: bool = True
    sends_priority: bool = False
    sends_cache_control: bool = False
    thinking_cap_field: ThinkingCapField | None = None  # none: by the server's address, where that says it
    apis: object = None  # read by contracts/serving/spoken_apis.py
    unknown_fields: object = None  # read by the same
    refuses: object = None  # read, like the next two, by `http_abilities`
    takes: object = None
    paths: object = None
    billing: object = None  # read by contracts/pricing/failure_billing.py
    metrics_url: str = ""  # read by gateway/observability/metrics/upstream_metrics.py
