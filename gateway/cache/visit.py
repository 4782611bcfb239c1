"""One request's visit to the cache: what it may be given, and what is to be kept of its own answer."""

import asyncio

import msgspec

from contracts.serving.caching import CachePolicy
from gateway.cache.cache_control import CacheWish
from gateway.cache.fingerprint import Fingerprint
from gateway.cache.flights import Flight
from gateway.limits.grant import Grant
from gateway.replies.answer_copy import AnswerCopy


class Visit(msgspec.Struct, eq=False):
    """Begun before the cache is asked, and ended whatever becomes of the request.

    `copy` is there where the model's answer is to be kept, and `flight` where others may wait for it. `grant` is what
    a hit has reserved.
    """

    policy: CachePolicy
    wish: CacheWish
    name: Fingerprint | None  # none: nothing can be kept of this request
    model: str  # only its answer is kept under the name,
    regions: frozenset[str] | None  # and only one that was made there
    body: bytes  # as the application sent it
    retries: int | None  # as the client says
    copy: AnswerCopy | None = None
    flight: Flight | None = None
    meaning: "asyncio.Task[bytes | None] | None" = None  # being found out, or known
    grant: Grant | None = None
    is_lacking: bool = False  # the model's answer is not good enough, and given for want of a better one
