"""Read labels that coding agents and tracing libraries send: session, repository, branch, pull request, subagent.

The session becomes the request's conversation id, the others become tags. They are not authenticated: a caller can
send any value.
"""

from collections.abc import Mapping
from typing import Final
from urllib.parse import unquote

import msgspec

from contracts.access.identity import MAX_TAG_LENGTH, MAX_TAGS

REPO: Final = "repo"
BRANCH: Final = "branch"
PULL_REQUEST: Final = "pr"
AGENT: Final = "agent"  # the subagent; requests of the main agent have none
WORK_TAGS: Final = (REPO, BRANCH, PULL_REQUEST, AGENT)

_OWN: Final = {f"x-tollkeeper-{name}".encode(): name for name in WORK_TAGS}
_TURN_METADATA: Final = b"x-codex-turn-metadata"
_BAGGAGE: Final = b"baggage"
# Claude Code; Codex; opencode, which names a session's parent in those of its subagents.
_SESSIONS: Final = (b"x-claude-code-session-id", b"session-id", b"x-session-affinity")
_AGENTS: Final = (b"x-claude-code-agent-id", b"x-openai-subagent")
_PARENT_SESSION: Final = b"x-parent-session-id"
HEADERS: Final = frozenset((*_OWN, *_SESSIONS, *_AGENTS, _PARENT_SESSION, _TURN_METADATA, _BAGGAGE))

# OpenTelemetry's names of attributes.
_CONVERSATIONS_IN_BAGGAGE: Final = ("gen_ai.conversation.id", "session.id")
_TAGS_IN_BAGGAGE: Final = {
    "vcs.repository.name": REPO,
    "vcs.repository.url.full": REPO,
    "vcs.ref.head.name": BRANCH,
    "vcs.change.id": PULL_REQUEST,
    "gen_ai.agent.id": AGENT,
    "gen_ai.agent.name": AGENT,
}
_MAX_HEADER: Final = 8192  # the most that the W3C's recommendation for baggage asks to be passed on


class _Workspace(msgspec.Struct, frozen=True):
    associated_remote_urls: dict[str, str] = {}


class _TurnMetadata(msgspec.Struct, frozen=True):
    workspaces: dict[str, _Workspace] = {}


_turn_metadata: Final = msgspec.json.Decoder(_TurnMetadata)


def read_labels(headers: Mapping[bytes, bytes]) -> tuple[str, dict[str, str]]:
    """Return the session named by a request's agent, and the tags of its work. Both are empty if the headers name none.

    The gateway's own headers take precedence over the agent's, and these over baggage. Unreadable headers are ignored.
    """
    if HEADERS.isdisjoint(headers):
        return "", {}
    session, tags = _in_baggage(headers.get(_BAGGAGE, b""))
    named, agent = _session_and_agent(headers)
    if agent:
        tags[AGENT] = agent
    repo = _repo_in(headers.get(_TURN_METADATA, b""))
    if repo:
        tags[REPO] = repo
    for header, name in _OWN.items():
        value = _text(headers, header)
        if value:
            tags[name] = value
    if REPO in tags:
        tags[REPO] = repo_name(tags[REPO])
    return named or session, {name: value[:MAX_TAG_LENGTH] for name, value in tags.items() if value}


def with_labels(tags: dict[str, str], labels: Mapping[str, str]) -> dict[str, str]:
    """Return the caller's tags and the agent's. If the record has no room for all, the caller's are kept."""
    if not labels:
        return tags
    merged = dict(tags)
    for name, value in labels.items():
        if len(merged) < MAX_TAGS:
            merged.setdefault(name, value)
    return merged


def repo_name(address: str) -> str:
    """Return a repository's name from any of its URLs: the same for all of them, without credentials.

    Example: "https://user:token@github.com/acme/app.git" and "git@github.com:acme/app" are "github.com/acme/app".
    """
    scheme, found, rest = address.strip().partition("://")
    if not found:
        rest = scheme
        host, colon, path = rest.partition(":")
        if colon and "@" in host and not path.startswith("//"):
            rest = f"{host}/{path}"
    authority, slash, path = rest.partition("/")
    if "@" in authority:
        authority = authority.rpartition("@")[2]
    name = f"{authority}{slash}{path.partition('?')[0].partition('#')[0]}".rstrip("/")
    return name.removesuffix(".git")


def _session_and_agent(headers: Mapping[bytes, bytes]) -> tuple[str, str]:
    """Return the session and agent in agents' own headers. A subagent's session is a part of its parent's."""
    named = next((found for name in _SESSIONS if (found := _text(headers, name))), "")
    agent = next((found for name in _AGENTS if (found := _text(headers, name))), "")
    parent = _text(headers, _PARENT_SESSION)
    return (parent, agent or named) if parent else (named, agent)


def _in_baggage(header: bytes) -> tuple[str, dict[str, str]]:
    if not header or len(header) > _MAX_HEADER:
        return "", {}
    said: dict[str, str] = {}
    for member in header.decode("latin-1").split(","):
        name, equals, value = member.partition(";")[0].partition("=")
        if equals:
            said[name.strip()] = _plain(unquote(value.strip()))
    session = next((said[name] for name in _CONVERSATIONS_IN_BAGGAGE if said.get(name)), "")
    return session, {tag: said[name] for name, tag in _TAGS_IN_BAGGAGE.items() if said.get(name)}


def _repo_in(header: bytes) -> str:
    """Return the first remote of the first workspace that Codex has opened; its `origin`, if there is one."""
    if not header or len(header) > _MAX_HEADER:
        return ""
    try:
        workspaces = _turn_metadata.decode(header).workspaces
    except (msgspec.MsgspecError, UnicodeError, RecursionError):
        return ""
    for workspace in workspaces.values():
        urls = workspace.associated_remote_urls
        if urls:
            return _plain(urls.get("origin") or next(iter(urls.values())))
    return ""


def _text(headers: Mapping[bytes, bytes], name: bytes) -> str:
    value = headers.get(name)
    return _plain(value.decode("latin-1").strip()) if value and len(value) <= _MAX_HEADER else ""


def _plain(value: str) -> str:
    return value if value.isprintable() else ""
