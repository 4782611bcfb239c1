"""The bill against what clients wrote down: several tenants through a real gateway, to the pico-dollar."""

import contextlib
import json
import subprocess
import sys
import time
from collections import defaultdict
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any

import httpx
import openai
import pytest

from tests.e2e.installation import UNKNOWN_KEY, Installation, wait_until

pytestmark = pytest.mark.e2e

PATIENCE_SECONDS = 120.0
MODEL = "scripted-1"
# USD per million tokens are pico-USD per token with six zeros less: the arithmetic here is the test's own.
Rates = dict[str, str]
BEFORE: Rates = {"input_text": "2.5", "cache_read_text": "0.25", "output_text": "10"}
AFTER: Rates = {"input_text": "3", "cache_read_text": "0.3", "output_text": "12.000001"}
OTHER: Rates = {"input_text": "0.7", "cache_read_text": "0", "output_text": "0.000001"}
GENERAL: Rates = {"input_text": "0.15", "output_text": "0.60"}  # what every installation begins with


@dataclass
class Books:
    """What a tenant's clients wrote down."""

    tenant: str
    key: str = ""
    requests: int = 0
    tokens: defaultdict[str, int] = field(default_factory=lambda: defaultdict(int))
    pico_usd: int = 0

    def add(self, rates: Rates, fresh: int, cached: int, made: int) -> None:
        self.requests += 1
        for leaf, count in (("input_text", fresh), ("cache_read_text", cached), ("output_text", made)):
            self.tokens[leaf] += count
            if count:
                whole, _, decimals = rates[leaf].partition(".")
                self.pico_usd += count * (int(whole) * 10**6 + int(decimals.ljust(6, "0") or "0"))


def tenant_with(installation: Installation, name: str, rates: Rates | None = None) -> Books:
    """Create a tenant, its own card if it has one, and a key for it that the gateway knows."""
    books = Books(f"{name}-{time.time_ns()}")
    installation.request("POST", "/v1/tenants", {"id": books.tenant, "name": name})
    if rates is not None:
        make_card(installation, books, "first", rates)
    make_key(installation, books)
    return books


def make_card(installation: Installation, books: Books, version: str, rates: Rates, **more: Any) -> None:
    named = {"model": MODEL, "version": f"{books.tenant}/{version}", "tenant": books.tenant}
    installation.request("POST", "/v1/prices", {**named, "usd_per_mtok": rates, **more})


def make_key(installation: Installation, books: Books) -> None:
    """Make a key and wait until the gateway knows it, and thereby all that was made before."""
    key: Any = installation.request("POST", f"/v1/tenants/{books.tenant}/keys", {"name": "app"})
    books.key = key["secret"]

    def is_served() -> bool:
        with client_of(installation, books) as client:
            try:
                client.models.list()
            except UNKNOWN_KEY:
                return False
            return True

    wait_until(is_served, PATIENCE_SECONDS, "the gateway knows the key")


def client_of(installation: Installation, books: Books) -> openai.OpenAI:
    return openai.OpenAI(base_url=f"{installation.gateway_url}/v1", api_key=books.key, max_retries=0, timeout=20)


def ask(client: openai.OpenAI, books: Books, rates: Rates, text: str, *, leaves_after: int | None = None) -> None:
    """Stream a chat and write down what came: reported usage, or where the stream is cut what was seen of it."""
    words, seen, usage = len(text.split()), 0, None
    message: Any = [{"role": "user", "content": text}]
    with contextlib.suppress(openai.APIError, httpx.HTTPError):
        stream = client.chat.completions.create(
            model=MODEL, messages=message, stream=True, stream_options={"include_usage": True}
        )
        for chunk in stream:
            usage = chunk.usage or usage
            seen += sum(bool(choice.delta.content) for choice in chunk.choices)
            if seen == leaves_after:
                stream.close()
                break
    if usage is None:
        books.add(rates, words, 0, seen)
        return
    details = usage.prompt_tokens_details
    cached = (details.cached_tokens or 0) if details else 0
    assert (usage.prompt_tokens, usage.completion_tokens) == (words, seen)
    books.add(rates, usage.prompt_tokens - cached, cached, usage.completion_tokens)


def some_traffic(installation: Installation, books: Books, rates: Rates) -> None:
    """Plain answers, one from a prompt cache, one that the model breaks off, and one whose client leaves."""
    with client_of(installation, books) as client:
        ask(client, books, rates, "tell me something [[script tokens=17]]")
        if "cache_read_text" in rates:
            ask(client, books, rates, "once more with a long prompt that is known [[script tokens=5 cached=6]]")
        ask(client, books, rates, "break off [[script tokens=30 fault=break after=7]]")
        ask(client, books, rates, "say and wait [[script tokens=30 fault=stall after=4]]", leaves_after=4)


def reported(installation: Installation, books: Books) -> Any:
    """Ask the command line as an operator would; `None` until every request is there."""
    since = (datetime.now(UTC) - timedelta(hours=1)).isoformat(timespec="minutes")
    command = [
        *(sys.executable, "-m", "tollkeeper", "cost", "report", "--by", "tenant,model", "--json", "--from", since),
        *("--tenant", books.tenant, "--data", str(installation.data), "--store-url", installation.store_url),
    ]
    said = json.loads(subprocess.run(command, capture_output=True, text=True, check=True, timeout=60).stdout)
    return said if said["total"]["requests"] >= books.requests else None


def test_the_report_is_what_clients_counted(installation: Installation) -> None:
    acme = tenant_with(installation, "acme", BEFORE)
    globex = tenant_with(installation, "globex", OTHER)
    initech = tenant_with(installation, "initech")

    for books, rates in ((acme, BEFORE), (globex, OTHER), (initech, GENERAL)):
        some_traffic(installation, books, rates)
    changes_at = datetime.now(UTC) + timedelta(seconds=2)
    change = {"replaces": f"{acme.tenant}/first", "valid_from": changes_at.isoformat(), "effect": "confirmed"}
    make_card(installation, acme, "second", AFTER, **change)
    make_key(installation, acme)
    wait_until(lambda: datetime.now(UTC) > changes_at, PATIENCE_SECONDS, "the price changes")
    some_traffic(installation, acme, AFTER)

    for books in (acme, globex, initech):
        said = wait_until(partial(reported, installation, books), PATIENCE_SECONDS, "the records are stored")
        total = said["total"]
        assert total["requests"] == books.requests
        assert total["input_tokens"] == books.tokens["input_text"] + books.tokens["cache_read_text"]
        assert total["cached_input_tokens"] == books.tokens["cache_read_text"]
        assert total["output_tokens"] == books.tokens["output_text"]
        assert (total["cost_pico_usd"], total["unpriced_requests"]) == (books.pico_usd, 0)
        (of_model,) = said["levels"][-1]["lines"]
        assert (of_model["tenant"], of_model["model"], of_model["cost_pico_usd"]) == (
            books.tenant,
            MODEL,
            books.pico_usd,
        )
