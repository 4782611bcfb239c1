"""Usage in disjoint leaves: each token is in exactly one, and `None` means not reported, never zero.

Providers report totals with overlapping parts ("prompt_tokens, of which cached"). These are split once, here, so that
no later sum can count a token twice. Usage sold by another unit than tokens has a leaf for each unit. A new kind is a
word of `Leaf`, a row of `KINDS` and a field of `Usage`, each at the end of its list.
"""

from collections.abc import Callable, Iterable, Mapping
from functools import reduce
from operator import itemgetter
from typing import Any, Final, Literal, NamedTuple, Self

import msgspec
from msgspec.structs import astuple

from contracts.metering.leaf_counts import MAX_TOKENS_PER_LEAF as MAX_TOKENS_PER_LEAF
from contracts.metering.leaf_counts import check_counts

Leaf = Literal[
    "input_text",
    "input_audio",
    "input_image",
    "cache_read_text",
    "cache_read_audio",
    "cache_write_5m",
    "cache_write_1h",
    "output_text",
    "output_reasoning",
    "output_audio",
    "output_image",
    "images",
    "milliseconds",
    "characters",
    "requests",
]
UnitLeaf = Literal["images", "milliseconds", "characters", "requests"]
Group = Literal["input", "cache_read", "cache_write", "output", "unit"]


class UsageKind(NamedTuple):
    """One kind of usage. `medium` is what its tokens represent, empty if it counts no tokens; `title` is its name in
    reports.
    """

    group: Group
    medium: str
    title: str


# The one table of kinds: lists, columns, queries, prices and reports are derived from it.
KINDS: Final[Mapping[Leaf, UsageKind]] = {
    "input_text": UsageKind("input", "text", "input"),
    "input_audio": UsageKind("input", "audio", "audio input"),
    "input_image": UsageKind("input", "image", "image input"),
    "cache_read_text": UsageKind("cache_read", "text", "cached input"),
    "cache_read_audio": UsageKind("cache_read", "audio", "cached audio input"),
    "cache_write_5m": UsageKind("cache_write", "text", "cache write, 5 minutes"),
    "cache_write_1h": UsageKind("cache_write", "text", "cache write, 1 hour"),
    "output_text": UsageKind("output", "text", "output"),
    "output_reasoning": UsageKind("output", "text", "reasoning"),
    "output_audio": UsageKind("output", "audio", "audio output"),
    "output_image": UsageKind("output", "image", "image output"),
    "images": UsageKind("unit", "", "images"),
    "milliseconds": UsageKind("unit", "", "milliseconds"),
    "characters": UsageKind("unit", "", "characters"),
    "requests": UsageKind("unit", "", "requests"),
}


def leaves_of(*groups: Group) -> tuple[Leaf, ...]:
    """Return the kinds of these groups, in the order of `LEAVES`."""
    return tuple(leaf for leaf, kind in KINDS.items() if kind.group in groups)


LEAVES: Final[tuple[Leaf, ...]] = tuple(KINDS)  # in the order of the fields
INPUT_LEAVES: Final = leaves_of("input", "cache_read", "cache_write")
FRESH_LEAVES: Final = leaves_of("input", "cache_write")
CACHE_READ_LEAVES: Final = leaves_of("cache_read")
CACHE_WRITE_LEAVES: Final = leaves_of("cache_write")
OUTPUT_LEAVES: Final = leaves_of("output")
TOKEN_LEAVES: Final = INPUT_LEAVES + OUTPUT_LEAVES
MEDIA_LEAVES: Final[tuple[Leaf, ...]] = tuple(leaf for leaf in TOKEN_LEAVES if KINDS[leaf].medium != "text")
UNIT_LEAVES: Final = leaves_of("unit")
MEDIA: Final = tuple(dict.fromkeys(KINDS[leaf].medium for leaf in MEDIA_LEAVES))  # distinguished from text


def leaf_of(group: str, medium: str) -> Leaf | None:
    """Return the kind of a medium's tokens in a group; `None` if they are counted as its text."""
    return next((leaf for leaf, kind in KINDS.items() if (kind.group, kind.medium) == (group, medium)), None)


def counted_as(leaf: Leaf) -> Leaf:
    """Return the kind that includes this one in a count without the distinction: text of its group, or itself.

    Cache writes and units are never counted as another kind.
    """
    group = KINDS[leaf].group
    return (None if group == "cache_write" else leaf_of(group, "text")) or leaf


def _counts_of(leaves: tuple[Leaf, ...]) -> Callable[[tuple[int | None, ...]], tuple[int | None, ...]]:
    return itemgetter(*map(LEAVES.index, leaves))


_INPUTS: Final = _counts_of(INPUT_LEAVES)
_READ: Final = _counts_of(CACHE_READ_LEAVES)
_WRITTEN: Final = _counts_of(CACHE_WRITE_LEAVES)
_OUTPUTS: Final = _counts_of(OUTPUT_LEAVES)
_TOKENS: Final = _counts_of(TOKEN_LEAVES)
_UNITS: Final = _counts_of(UNIT_LEAVES)
_NO_INPUTS: Final = (None,) * len(INPUT_LEAVES)
_NO_OUTPUTS: Final = (None,) * len(OUTPUT_LEAVES)
_NO_UNITS: Final = (None,) * len(UNIT_LEAVES)
_NO_TOKENS: Final = (None,) * len(TOKEN_LEAVES)


def column_of(leaf: Leaf) -> str:
    """Return the column that holds a leaf's count in the store."""
    return f"units_{leaf}" if leaf in UNIT_LEAVES else f"tokens_{leaf}"


def sum_in_sql(leaves: Iterable[Leaf]) -> str:
    """Return the SQL expression that sums these leaves' columns of a row; unreported ones count as 0."""
    return " + ".join(f"ifNull({column_of(leaf)}, 0)" for leaf in leaves)


class Usage(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """Usage of one request. Fields are disjoint.

    Packed, the fields are an array in records, journals and the engine wire protocol: a new field is appended, whatever
    its kind, and none ever moves.

    `input_text` is the uncached text input (all input not otherwise classified). `output_text` is the visible output.
    Not tokens are `images` (generated), `milliseconds` (of audio input), `characters` (of speech) and `requests` (of an
    operation priced per request). A leaf that was not reported is `None`; one reported as none is 0.
    """

    input_text: int | None = None
    input_audio: int | None = None
    input_image: int | None = None
    cache_read_text: int | None = None
    cache_read_audio: int | None = None
    cache_write_5m: int | None = None
    cache_write_1h: int | None = None
    output_text: int | None = None
    output_reasoning: int | None = None
    output_audio: int | None = None
    output_image: int | None = None
    images: int | None = None
    milliseconds: int | None = None
    characters: int | None = None
    requests: int | None = None

    __post_init__ = check_counts  # type: ignore[misc]  # what the compiler makes is not a function to the checker

    @property
    def input_tokens(self) -> int | None:
        """Sum the input leaves; `None` if no input leaf is known."""
        counts = _INPUTS(astuple(self))
        return None if counts == _NO_INPUTS else sum(filter(None, counts))

    @property
    def output_tokens(self) -> int | None:
        """Sum the output leaves; `None` if no output leaf is known."""
        counts = _OUTPUTS(astuple(self))
        return None if counts == _NO_OUTPUTS else sum(filter(None, counts))

    @property
    def has_input(self) -> bool:
        """Return whether any input leaf is known."""
        return _INPUTS(astuple(self)) != _NO_INPUTS

    @property
    def has_output(self) -> bool:
        """Return whether any output leaf is known."""
        return _OUTPUTS(astuple(self)) != _NO_OUTPUTS

    @property
    def has_units(self) -> bool:
        """Return whether any unit other than tokens was counted."""
        return _UNITS(astuple(self)) != _NO_UNITS

    @property
    def total_tokens(self) -> int | None:
        """Sum the leaves of tokens; `None` if none is known."""
        counts = _TOKENS(astuple(self))
        return None if counts == _NO_TOKENS else sum(filter(None, counts))

    @property
    def is_known(self) -> bool:
        """Return whether at least one leaf was reported."""
        return self != UNKNOWN_USAGE

    @property
    def cache_read_tokens(self) -> int | None:
        """Sum the input read from a cache; `None` if it was not reported."""
        return reduce(_add, _READ(astuple(self)))

    @property
    def cache_write_tokens(self) -> int | None:
        """Sum the input written to a cache, for any duration; `None` if it was not reported."""
        return reduce(_add, _WRITTEN(astuple(self)))

    def reported(self) -> dict[Leaf, int]:
        """Return the reported leaves with their counts, in the order of `LEAVES`."""
        return {leaf: count for leaf, count in zip(LEAVES, astuple(self), strict=True) if count is not None}

    def plus(self, other: Self) -> "Usage":
        """Add leaf by leaf. A leaf is `None` only if both are: a known part is never lost."""
        return Usage(*map(_add, astuple(self), astuple(other)))


UNKNOWN_USAGE: Final = Usage()


def _add(left: int | None, right: int | None) -> int | None:
    if left is None:
        return right
    if right is None:
        return left
    return left + right


class CacheCreation(msgspec.Struct, frozen=True, gc=False):
    """Anthropic's breakdown of prompt cache writes, by how long they are cached."""

    ephemeral_5m_input_tokens: int | None = None
    ephemeral_1h_input_tokens: int | None = None


class PromptTokensDetails(msgspec.Struct, frozen=True, gc=False):
    """OpenAI's breakdown of `prompt_tokens`: overlapping parts of the total. The last two fields are LiteLLM's."""

    cached_tokens: int | None = None
    audio_tokens: int | None = None
    image_tokens: int | None = None
    cache_write_tokens: int | None = None
    cache_creation_tokens: int | None = None
    cache_creation_token_details: CacheCreation | None = None


class CompletionTokensDetails(msgspec.Struct, frozen=True, gc=False):
    """OpenAI's breakdown of `completion_tokens`."""

    reasoning_tokens: int | None = None
    audio_tokens: int | None = None
    image_tokens: int | None = None
    accepted_prediction_tokens: int | None = None
    rejected_prediction_tokens: int | None = None


class OpenAIUsage(msgspec.Struct, frozen=True, gc=False):
    """The `usage` object of OpenAI's chat, completion and embedding APIs, as sent.

    The fields from `cache_creation_input_tokens` on are Anthropic's, which gateways to its models (LiteLLM) add to
    OpenAI's. The last four are not counts: the service tier that answered, and the cost that the provider reports
    (OpenRouter in USD, xAI in ticks of 10^-10 USD).
    """

    prompt_tokens: int | None = None
    completion_tokens: int | None = None
    total_tokens: int | None = None
    prompt_tokens_details: PromptTokensDetails | None = None
    completion_tokens_details: CompletionTokensDetails | None = None
    cache_creation_input_tokens: int | None = None
    cache_read_input_tokens: int | None = None
    cache_creation: CacheCreation | None = None
    service_tier: Any = None
    speed: Any = None
    cost: Any = None
    cost_in_usd_ticks: Any = None
