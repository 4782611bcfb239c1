"""What agents say of their work becomes a request's conversation and tags, as labels."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from contracts.access.identity import MAX_TAG_LENGTH, MAX_TAGS
from gateway.apis.agent_labels import read_labels, repo_name, with_labels
from gateway.records.trace_context import UNTRACED
from gateway.request.context import NO_CONTEXT, has_context, read_context

ORIGIN = "git@github.com:acme/shop.git"
WORKSPACE = {"associated_remote_urls": {"fork": "https://example.com/x", "origin": ORIGIN}, "has_changes": True}


@pytest.mark.parametrize(
    ("headers", "session", "tags"),
    [
        ({b"x-claude-code-session-id": b"s1"}, "s1", {}),
        ({b"x-claude-code-session-id": b"s1", b"x-claude-code-agent-id": b"explore"}, "s1", {"agent": "explore"}),
        ({b"session-id": b"s2", b"x-openai-subagent": b"review"}, "s2", {"agent": "review"}),
        (
            {b"session-id": b"s2", b"x-codex-turn-metadata": json.dumps({"workspaces": {"/w": WORKSPACE}}).encode()},
            "s2",
            {"repo": "github.com/acme/shop"},
        ),
        ({b"x-session-affinity": b"ses_1"}, "ses_1", {}),
        ({b"x-session-affinity": b"ses_2", b"x-parent-session-id": b"ses_1"}, "ses_1", {"agent": "ses_2"}),
        (
            {b"baggage": b"session.id=b1, vcs.repository.name=acme%2Fshop;p=1,vcs.ref.head.name=main,vcs.change.id=7"},
            "b1",
            {"repo": "acme/shop", "branch": "main", "pr": "7"},
        ),
        (
            {b"baggage": b"gen_ai.conversation.id=b2,session.id=b1,gen_ai.agent.name=planner"},
            "b2",
            {"agent": "planner"},
        ),
        ({b"baggage": b"session.id=b1", b"session-id": b"s2"}, "s2", {}),
        (
            {b"x-tollkeeper-repo": b"https://me:secret@github.com/acme/app.git", b"baggage": b"vcs.repository.name=x"},
            "",
            {"repo": "github.com/acme/app"},
        ),
        (
            {b"x-tollkeeper-branch": b"b", b"x-tollkeeper-pr": b"12", b"x-tollkeeper-agent": b"a"},
            "",
            {"branch": "b", "pr": "12", "agent": "a"},
        ),
        ({b"x-codex-turn-metadata": b"{"}, "", {}),
        ({b"x-codex-turn-metadata": b'{"workspaces": 5}'}, "", {}),
        ({b"baggage": b"session.id"}, "", {}),
        ({b"baggage": b"session.id=%00"}, "", {}),
        ({b"accept": b"*/*"}, "", {}),
    ],
)
def test_what_agents_send_is_read(headers, session, tags):
    assert read_labels(headers) == (session, tags)
    context = read_context(headers, UNTRACED)
    assert (context.conversation_id, context.tags) == (session, tags)
    assert has_context(headers) is (b"accept" not in headers)


def test_the_gateways_own_conversation_and_tags_go_first():
    headers = {
        b"x-tollkeeper-conversation-id": b"mine",
        b"x-claude-code-session-id": b"theirs",
        b"x-tollkeeper-tags": b"repo=named, stage=x",
        b"baggage": b"vcs.repository.name=other,vcs.change.id=3",
    }
    context = read_context(headers, UNTRACED)
    assert context.conversation_id == "mine"
    assert context.tags == {"repo": "named", "stage": "x", "pr": "3"}


@pytest.mark.parametrize(("length", "kept"), [(8192, "v" * MAX_TAG_LENGTH), (8193, None)])
def test_a_long_header_is_cut_to_a_tag_and_one_beyond_8_KiB_says_nothing(length, kept):
    assert read_labels({b"x-tollkeeper-branch": b"v" * length})[1].get("branch") == kept


@pytest.mark.parametrize(("given", "total"), [(MAX_TAGS - 2, MAX_TAGS), (MAX_TAGS - 1, MAX_TAGS), (MAX_TAGS, MAX_TAGS)])
def test_labels_fill_the_room_that_the_callers_tags_leave(given, total):
    tags = {f"t{number}": "x" for number in range(given)}
    merged = with_labels(tags, {"repo": "r", "branch": "b"})
    assert len(merged) == total and merged.items() >= tags.items()


@pytest.mark.parametrize(
    ("address", "name"),
    [
        ("https://github.com/acme/app.git", "github.com/acme/app"),
        ("https://user:token@github.com/acme/app?x=1#y", "github.com/acme/app"),
        ("git@github.com:acme/app.git", "github.com/acme/app"),
        ("ssh://git@github.com/acme/app/", "github.com/acme/app"),
        ("acme/app", "acme/app"),
        ("app", "app"),
        ("", ""),
    ],
)
def test_all_addresses_of_a_repository_have_one_name(address, name):
    assert repo_name(address) == name


_NAMES = [b"baggage", b"x-codex-turn-metadata", b"x-tollkeeper-repo", b"session-id"]


@given(st.dictionaries(st.sampled_from(_NAMES), st.binary(max_size=200)))
def test_no_header_raises_and_what_is_read_fits_a_record(headers):
    session, tags = read_labels(headers)
    assert session.isprintable() and all(value and len(value) <= MAX_TAG_LENGTH for value in tags.values())
    assert read_context({}, UNTRACED) is NO_CONTEXT
