"""Settings of an abuse policy: rules with limits, each off unless set."""

from collections.abc import Mapping
from typing import Annotated, Final, Literal

import msgspec
from msgspec import Meta

from contracts.errors import ConfigurationError

AbuseKind = Literal["flood", "probing", "harvest", "address_sharing", "agent_sharing"]
AbuseAction = Literal["throttle", "alert"]
ABUSE_KINDS: Final[tuple[AbuseKind, ...]] = ("flood", "probing", "harvest", "address_sharing", "agent_sharing")

WindowSeconds = Annotated[int, Meta(ge=1, le=86_400)]
Count = Annotated[int, Meta(ge=1, le=100_000)]
FaceCount = Annotated[int, Meta(ge=1, le=256)]
Share = Annotated[float, Meta(ge=0.3, le=1)]


class _Rule(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """`throttle` refuses requests above the limit with status 429; `alert` serves them. Both are reported."""

    action: AbuseAction = "alert"


class FloodRule(_Rule, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """More than `limit` nearly identical prompts in a window."""

    limit: Count = 60
    window_seconds: WindowSeconds = 60
    similarity: Share = 0.85


class ProbingRule(_Rule, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """More than `limit` different but similar prompts in a window: a search for a certain answer."""

    limit: Count = 100
    window_seconds: WindowSeconds = 3600
    similarity: Share = 0.6


class HarvestRule(_Rule, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """More than `limit` prompts in a window that are all different, each for a long answer with log probabilities.

    That is how a model is copied (Tramèr et al. 2016; Carlini et al. 2024). Requests without an output limit count as
    requests for long answers.
    """

    limit: Count = 500
    window_seconds: WindowSeconds = 3600
    similarity: Share = 0.3  # prompts below it count as different
    output_tokens: Annotated[int, Meta(ge=1, le=2**31 - 1)] = 1024
    needs_logprobs: bool = True


class SharingRule(_Rule, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """A key used from more addresses, or by more user agents, in a window than one owner would have.
    `None`: no limit.
    """

    addresses: FaceCount | None = 5
    user_agents: FaceCount | None = None
    window_seconds: WindowSeconds = 3600


class AbuseSpec(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """The rules of one policy. `keys`: the ids of the keys that they apply to; empty: all keys of the policy."""

    flood: FloodRule | None = None
    probing: ProbingRule | None = None
    harvest: HarvestRule | None = None
    sharing: SharingRule | None = None
    keys: frozenset[str] = frozenset()

    @property
    def watches_prompts(self) -> bool:
        """Return whether any rule compares prompts."""
        return self.flood is not None or self.probing is not None or self.harvest is not None


def abuse_spec(given: Mapping[str, object]) -> AbuseSpec:
    """Return the rules from plain data. Raises ConfigurationError with the invalid field."""
    try:
        spec = msgspec.convert(dict(given), AbuseSpec, strict=False)
    except msgspec.ValidationError as error:
        raise ConfigurationError(f"abuse: {error}") from error
    if not spec.watches_prompts and spec.sharing is None:
        raise ConfigurationError("abuse states no rule; give flood, probing, harvest or sharing, or leave it out")
    if spec.sharing is not None and spec.sharing.addresses is None and spec.sharing.user_agents is None:
        raise ConfigurationError("abuse: sharing limits neither addresses nor user_agents; give one of them")
    return spec
