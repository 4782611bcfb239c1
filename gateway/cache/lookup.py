"""A request's cache lookup: what it may get from the cache, and whether its own answer is stored."""

import asyncio

import msgspec

from contracts.serving.caching import CachePolicy
from gateway.cache.cache_control import CacheWish
from gateway.cache.fingerprint import Fingerprint
from gateway.cache.flights import Flight
from gateway.limits.reservation import Grant
from gateway.replies.answer_copy import AnswerCopy


class CacheLookup(msgspec.Struct, eq=False):
    """The state of a lookup. It is created before the cache is searched, and ended with the request in any case.

    `copy` is set if the model's answer will be stored, `flight` if other requests may wait for it. `grant` is the
    reservation of a hit.
    """

    policy: CachePolicy
    wish: CacheWish
    name: Fingerprint | None  # `None`: this request cannot be cached
    model: str  # only its answers are stored under the name,
    regions: frozenset[str] | None  # and only answers from there
    body: bytes  # as the application sent it
    retries: int | None  # as the client says
    copy: AnswerCopy | None = None
    flight: Flight | None = None
    meaning: "asyncio.Task[bytes | None] | None" = None  # the embedding, perhaps not computed yet
    grant: Grant | None = None
    is_lacking: bool = False  # a cascade returned an answer that is not good enough, for want of a better one
