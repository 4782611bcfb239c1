"""The cache key of a request: a hash of everything that its answer depends on."""

import re
from hashlib import blake2b
from typing import Any, Final

import msgspec

from backends.embedder.base import MOST_CHARACTERS
from contracts.access.identity import Identity
from contracts.serving.caching import CacheShare
from contracts.serving.configuration import ModelSpec, PoolSpec, Snapshot, TargetSpec

# Top-level fields that say who asks and what for. Nothing that is seen in an answer depends on them, but for a
# response of the Responses API, which repeats them.
_BESIDE: Final = ("metadata", "prompt_cache_key", "prompt_cache_retention", "safety_identifier", "store", "user")
_SHAPE: Final = b"2"  # of what is hashed: a change here makes all that is kept unknown
_KEY_BYTES: Final = 24
_MAX_CONTEXTS: Final = 20_000
# Settings of a target that say how it is reached: whatever they are, it gives the same answers.
_WAY: Final = frozenset(("credentials", "headers", "metrics_url", "timeouts", "tls"))
# Numbers, and the signs of sums, comparisons and money: "Is x > 5 true for x = 6?" is at 0.947 of "Is x < 5 ...". A
# hyphen within words is none, nor is an exclamation mark by itself.
_FIGURES: Final = re.compile(
    r"(?:(?<!\w)\.)?\d+(?:[.,:]\d+)*|[!<>=]=+|[<>=\u2260\u2264\u2265+*/%^&|~\u00b1\u00d7\u00f7$\u00a3\u00a5\u20ac]|"
    r"(?<![^\W\d_])[-\u2212]|[-\u2212](?=\.?\d)"
)
# Words that turn a sentence into its opposite. MiniLM has "Cancel it" and "Do not cancel it" at a cosine of 0.97.
_NEGATIONS: Final = re.compile(
    r"\b(?:not|no|never|none|nor|neither|nobody|nothing|nowhere|without|cannot|except|unless|nicht|kein\w*|nie|ohne|"
    r"ne|pas|jamais|sans|non|nunca|sin|não|nem|sem|mai|senza)\b|n['\u2019]t\b",
    re.IGNORECASE,
)

_decode: Final = msgspec.json.decode
_encode: Final = msgspec.json.Encoder(order="sorted").encode


class Fingerprint(msgspec.Struct, frozen=True):
    """Identifies a request (`exact`), and everything except the words of its last message (`around`).

    `text` is these words; empty if there are none, or more than an embedder reads: then there is no semantic match.
    """

    exact: bytes
    around: bytes = b""
    text: str = ""


def fingerprint(body: bytes, context: "Context", *, wants_text: bool, is_response: bool = False) -> Fingerprint | None:
    """Return the fingerprint of a request's body, which is a JSON object, within a `context`; `None` if it cannot be
    parsed.

    Notation does not matter: order of fields, white space, escapes, and null fields. `is_response`: the request belongs
    to the Responses API, whose text is in `input`.
    """
    beside = () if is_response else _BESIDE
    try:
        fields = _decode(body)
        if not isinstance(fields, dict):
            return None
        for name in [name for name, value in fields.items() if value is None or name in beside]:
            del fields[name]
        exact = context.named(b"exact", _encode(fields))
        if not wants_text:
            return Fingerprint(exact)
        text = _take_input(fields) if is_response else _take_text(fields)
        if not text or len(text) > MOST_CHARACTERS:
            return Fingerprint(exact)
        return Fingerprint(exact, context.named(b"around", figures_and_negations(text), _encode(fields)), text)
    except (msgspec.MsgspecError, UnicodeError, RecursionError):
        return None


def served_by(model: ModelSpec, pool: PoolSpec) -> bytes:
    """Return the identity of the model that answers: which model it is, and under which name it is called. It is equal
    for all replicas. If a target states no model name, its address is used.
    """
    sampling = model.sampling
    kinds = sorted({_served_at(target) for target in pool.targets})
    stated = None if sampling is None else (sampling.defaults, sampling.pinned)
    return _encode((model.id, kinds, stated))


def share_of(who: Identity, share: CacheShare) -> tuple[str, ...] | None:
    """Return the scope within which an answer may be shared; it starts with the tenant. `None` if the scope is the
    user, and the user is unknown.
    """
    if share == "project":
        return (who.tenant, who.team, who.project)
    if share == "key":
        return (who.tenant, who.key_id)
    if share == "user":
        return (who.tenant, who.key_id, who.user) if who.user else None
    return (who.tenant,)


class Context:
    """Everything that a request's answer depends on besides its body."""

    __slots__ = ("_digest",)

    def __init__(self, *parts: object) -> None:
        stated = _encode([part.hex() if isinstance(part, bytes) else part for part in parts])
        self._digest = blake2b(_SHAPE, digest_size=_KEY_BYTES)
        _add(self._digest, stated)

    def named(self, *parts: bytes) -> bytes:
        """Return the hash of the context and these parts."""
        digest = self._digest.copy()
        for part in parts:
            _add(digest, part)
        return digest.digest()


class Contexts:
    """The contexts of one snapshot's requests, each computed once."""

    def __init__(self) -> None:
        self._snapshot: Snapshot | None = None
        self._models: dict[str, bytes] = {}
        self._known: dict[tuple[object, ...], Context] = {}

    def of(
        self, model: ModelSpec, snapshot: Snapshot, *facts: str | int | tuple[str, ...] | frozenset[str] | None
    ) -> Context:
        """Return the context of requests for a model with these facts."""
        if snapshot is not self._snapshot or len(self._known) >= _MAX_CONTEXTS:
            self._snapshot = snapshot
            self._models.clear()
            self._known.clear()
        name = (model.id, *facts)
        found = self._known.get(name)
        if found is None:
            served = self._models.get(model.id)
            if served is None:
                served = self._models[model.id] = served_by(model, snapshot.pools[model.pool])
            plain = [sorted(fact) if isinstance(fact, frozenset) else fact for fact in facts]
            found = self._known[name] = Context(served, *plain)
        return found


def _served_at(target: TargetSpec) -> tuple[str, ...]:
    settings = {name: value for name, value in target.settings.items() if name not in _WAY}
    address = "" if target.model else target.url
    return target.kind, target.model, target.provider, address, _encode(settings).decode()


def _add(digest: "blake2b", part: bytes) -> None:
    digest.update(b"%d:" % len(part))
    digest.update(part)


def figures_and_negations(text: str) -> bytes:
    """Return what texts with the same meaning must share, regardless of their embeddings: numbers and negations."""
    figures = " ".join(_FIGURES.findall(text)).replace("\u2212", "-")
    return b"%d %b" % (len(_NEGATIONS.findall(text)), figures.encode())


def _take_text(fields: dict[str, Any]) -> str:
    """Remove and return the text of a chat's last message, if it is a user's; empty if there is none."""
    messages = fields.get("messages")
    last = messages[-1] if isinstance(messages, list) and messages else None
    if not isinstance(last, dict) or last.get("role") != "user":
        return ""
    return _take_words(last, "text")


def _take_input(fields: dict[str, Any]) -> str:
    """Remove the text from a response's input, or from its last message, if it is a user's."""
    given = fields.get("input")
    if isinstance(given, str):
        fields["input"] = ""
        return given.strip()
    last = given[-1] if isinstance(given, list) and given else None
    if not isinstance(last, dict) or last.get("role") != "user" or last.get("type", "message") != "message":
        return ""
    return _take_words(last, "input_text")


def _take_words(message: dict[str, Any], kind: str) -> str:
    """Remove the text from a message whose text parts have this kind."""
    content = message.get("content")
    if isinstance(content, str):
        message["content"] = ""
        return content.strip()
    if not isinstance(content, list):
        return ""
    said: list[str] = []
    for part in content:
        if isinstance(part, dict) and part.get("type") == kind and isinstance(part.get("text"), str):
            said.append(part["text"])
            part["text"] = ""
    return "\n".join(said).strip()
