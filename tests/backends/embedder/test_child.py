"""The embedder's process as its callers see it: what is kept, what is shared, and what happens when it dies."""

import asyncio
import os
import subprocess
import sys

import pytest

from backends.embedder.child import EmbedderChild
from backends.embedder.messages import MAX_FRAME_BYTES, Ask, Ready, frame, take_frames
from contracts.errors import EmbedderUnavailable

# An embedder that needs no model: its vector says how often it was asked. "die" ends it, "wait" is not answered.
SCRIPT = """
import os, sys
from backends.embedder.messages import *
buffer, count = bytearray(), 0
os.write(1, frame(Ready("script")))
while got := os.read(0, 1 << 16):
    buffer += got
    for body in take_frames(buffer):
        ask = read_ask(body)
        count += 1
        if ask.text == b"die":
            sys.exit(3)
        if ask.text != b"wait":
            os.write(1, frame(Answer(ask.number, count.to_bytes(4, "little"), len(ask.text), not ask.is_cut)))
"""
# The process itself, with a model that makes nothing.
REAL = """
import os, sys, types
class MiniLM:
    identity = "none"
    def __init__(self, threads): pass
    def tokenize(self, text, most_tokens): return [1], True
    def embed(self, texts): return [bytes(4) for _ in texts]
stub = sys.modules["backends.embedder.minilm"] = types.ModuleType("minilm")
stub.MiniLM = MiniLM
from backends.embedder.__main__ import main
os._exit(main())
"""
UNUSABLE = 'import os; from backends.embedder.messages import *; os.write(1, frame(Unusable("a package is missing")))'


def child_of(script):
    return EmbedderChild(command=(sys.executable, "-c", script))


@pytest.fixture
async def child():
    made = child_of(SCRIPT)
    yield made
    await made.close()


async def test_a_vector_is_kept_for_its_owner_alone(child):
    first = await child.embed("hello", "acme")
    assert await child.embed("hello", "acme") is first
    assert (await child.embed("hello", "umbrella")).vector != first.vector
    assert (await child.embed("hello", "acme", 128)).vector != first.vector
    assert child.made == 3 and child.identity == "script" and child.is_ready


async def test_equal_texts_at_the_same_time_are_one_request_and_who_leaves_ends_it_for_nobody(child):
    waiting = [asyncio.ensure_future(child.embed("hello", "acme")) for _ in range(3)]
    await asyncio.sleep(0)
    waiting[0].cancel()
    first, second = await asyncio.gather(*waiting[1:])
    assert first is second and child.made == 1


async def test_a_long_text_is_cut_before_it_is_sent_and_is_not_taken_for_its_parts(child):
    long = "a" * 10_000
    cut = await child.embed(long, "acme")
    assert not cut.is_whole and cut.tokens < 6000
    sent = f"{long[:4096]} {long[-1024:]}"
    whole = await child.embed(sent, "acme")
    assert whole.is_whole and whole.vector != cut.vector


async def test_when_it_dies_who_waits_is_told_and_the_next_begins_it_again_after_a_pause(child):
    waiting = asyncio.ensure_future(child.embed("wait", "acme"))
    with pytest.raises(EmbedderUnavailable, match="status 3"):
        await child.embed("die", "acme")
    with pytest.raises(EmbedderUnavailable):
        await waiting
    with pytest.raises(EmbedderUnavailable, match="status 3"):
        await child.embed("hello", "acme")
    assert (child.restarts, child.is_ready, child.identity) == (1, False, "")
    child._not_before = 0.0  # the pause is over
    assert (await child.embed("hello", "acme")).is_whole
    assert child.fault == ""


async def test_what_keeps_it_from_loading_is_told_in_its_words():
    child = child_of(UNUSABLE)
    with pytest.raises(EmbedderUnavailable, match="a package is missing"):
        await child.embed("hello", "acme")
    assert child.fault == "a package is missing"
    await child.close()


async def test_who_cannot_wait_is_refused_at_once_when_much_waits(child):
    await child.embed("hello", "acme")
    child._seconds_each = 1.0
    assert (await child.embed("nobody waits", "acme", within_seconds=0.1)).is_whole  # so it is asked at any rate
    child._seconds_each = 1.0
    waiting = asyncio.ensure_future(child.embed("wait", "acme"))
    await asyncio.sleep(0)
    for within_seconds, is_taken in ((1.99, False), (2.0, True), (2.01, True)):
        text = f"within {within_seconds}"
        if is_taken:
            assert (await child.embed(text, "acme", within_seconds=within_seconds)).is_whole
            child._seconds_each = 1.0
        else:
            with pytest.raises(EmbedderUnavailable, match="1 texts wait") as refused:
                await child.embed(text, "acme", within_seconds=within_seconds)
            assert refused.value.error_code == "embedder_busy"
    waiting.cancel()


async def test_its_end_ends_who_waits_and_it_does_not_begin_again(child):
    waiting = asyncio.ensure_future(child.embed("wait", "acme"))
    await child.embed("hello", "acme")
    await child.close()
    with pytest.raises(EmbedderUnavailable):
        await waiting
    with pytest.raises(EmbedderUnavailable):
        await child.embed("another", "acme")
    assert child.restarts == 0


@pytest.mark.parametrize("has_begun", [False, True])
def test_it_ends_quietly_when_who_asks_is_gone(has_begun):
    given, output = os.pipe()
    with subprocess.Popen(
        (sys.executable, "-c", REAL), stdin=subprocess.PIPE, stdout=output, stderr=subprocess.PIPE
    ) as process:
        os.close(output)
        if has_begun:
            assert b"none" in os.read(given, 1 << 10)
        os.close(given)
        assert process.stdin is not None and process.stderr is not None
        if has_begun:
            process.stdin.write(frame(Ask(1, b"hello", 8, False)))
            process.stdin.flush()  # and stays open: what it reads does not tell that nobody is there
        assert (process.wait(timeout=20), process.stderr.read()) == (0, b"")


async def test_it_is_given_none_of_our_secrets(monkeypatch):
    monkeypatch.setenv("OPENAI_API_KEY", "sk-secret")
    assert "OPENAI_API_KEY" not in EmbedderChild()._environment


def test_frames_are_taken_as_they_become_complete():
    data = frame(Ready("a")) + frame(Ready("b"))
    buffer, found = bytearray(), []
    for byte in data:
        buffer.append(byte)
        found += take_frames(buffer)
    assert len(found) == 2 and not buffer
    with pytest.raises(ValueError, match="a frame of"):
        take_frames(bytearray((MAX_FRAME_BYTES + 1).to_bytes(4, "little")))
