"""Semantic cache: prompts with swapped order, entities or units share no answer; how many paraphrases still do.

The pairs lie in `pairs/`. Those in files named `held_back` were written by someone who had not seen the rule and were
not looked at while it was made; those named `fresh` were written after it. Those named `third` were written after
the rule that replaced it, by its author.
"""

import asyncio
import http.client
import json
import tempfile
import time
from pathlib import Path
from typing import Any, Final

import numpy as np
import yaml

from backends.embedder.child import EmbedderChild
from bench.load.gateway_process import MeasuredGateway, configuration
from bench.load.machine import Cores
from bench.load.peers import MODEL, Peer
from bench.load.processes import free_ports
from bench.report import Report
from gateway.cache.fingerprint import figures_and_negations

SIMILARITY: Final = 0.95
_TRIES: Final = 3  # an embedding that takes longer than the gateway waits for is a miss that says nothing
_PAIRS: Final = Path(__file__).with_name("pairs")
_WARM: Final = ("What is the tallest mountain on earth?", "what is the tallest mountain on earth?")

Pair = tuple[str, str]


def measure(report: Report) -> None:
    """Ask a gateway both prompts of each pair and count which second ones are answered from the first."""
    sets = {path.stem: _read(path) for path in sorted(_PAIRS.glob("*.yaml"))}
    before = {name: _hits_by_embedding_alone(pairs) for name, pairs in sets.items()}
    try:
        cores = Cores.choose()
    except RuntimeError as error:
        report.add_absent("semantic_cache", "pairs", str(error))
        return
    with tempfile.TemporaryDirectory(prefix="tollkeeper-bench-") as home:
        config = configuration(MODEL, {"kind": "scripted", "settings": {"script": {"tokens": 3}}})
        config["models"][0]["cache"] = {"mode": "semantic", "similarity": SIMILARITY}
        gateway = MeasuredGateway("semantic", cores.measured, Path(home), config, free_ports(1))
        try:
            asker = _Asker(gateway.peer)
            asker.warm_up()
            for name, pairs in sets.items():
                hits = [asker.is_hit(pair, was_hit) for pair, was_hit in zip(pairs, before[name], strict=True)]
                _add_rows(report, name, pairs, hits, before[name])
        finally:
            gateway.stop()


def _add_rows(report: Report, name: str, pairs: list[Pair], hits: list[bool], before: list[bool]) -> None:
    report.add(f"semantic_cache_{name}_hits_by_embedding_alone", sum(before), "pairs", n=len(pairs))
    if name.startswith("different"):
        report.add(f"semantic_cache_{name}_false_hits", sum(hits), "pairs", must=0, better="lower", n=len(pairs))
    else:
        kept = sum(hits) / max(sum(before), 1)
        report.add(f"semantic_cache_{name}_hits_kept", round(kept, 3), "share", must=0.9, n=sum(before))


def _read(path: Path) -> list[Pair]:
    return [(str(pair["kept"]), str(pair["asked"])) for pair in yaml.safe_load(path.read_text(encoding="utf-8"))]


def _hits_by_embedding_alone(pairs: list[Pair]) -> list[bool]:
    """Return which pairs would hit if only the cosine, figures and negations counted."""

    async def embed() -> list[bool]:
        child = EmbedderChild()
        try:
            found = []
            for kept, asked in pairs:
                one, two = await child.embed(kept, "bench"), await child.embed(asked, "bench")
                cosine = float(np.frombuffer(one.vector, "<f4") @ np.frombuffer(two.vector, "<f4"))
                is_whole = one.is_whole and two.is_whole
                found.append(
                    is_whole and cosine >= SIMILARITY and figures_and_negations(kept) == figures_and_negations(asked)
                )
            return found
        finally:
            await child.close()

    return asyncio.run(embed())


class _Asker:
    """Asks prompts over one connection; each pair has a system prompt of its own, so that no other pair is found."""

    def __init__(self, peer: Peer) -> None:
        self._peer = peer
        self._connection = http.client.HTTPConnection("127.0.0.1", peer.port)
        self._asked = 0

    def warm_up(self) -> None:
        """Wait until the gateway finds a prompt by its meaning."""
        ends = time.monotonic() + 120
        while not self._try(_WARM):
            if time.monotonic() > ends:
                raise RuntimeError("the gateway finds nothing by meaning within two minutes")
            time.sleep(0.5)

    def is_hit(self, pair: Pair, is_expected: bool) -> bool:
        """Return whether the second prompt gets the first one's answer; a miss that is not expected is tried again."""
        return any(self._try(pair) for _ in range(_TRIES if is_expected else 1))

    def _try(self, pair: Pair) -> bool:
        self._asked += 1
        self._ask(pair[0])
        return self._ask(pair[1]) in ("semantic-hit", "hit")

    def _ask(self, prompt: str) -> str:
        messages: list[dict[str, Any]] = [
            {"role": "system", "content": f"pair {self._asked}"},
            {"role": "user", "content": prompt},
        ]
        headers = {"Content-Type": "application/json", **self._peer.headers}
        body = json.dumps({"model": MODEL, "messages": messages})
        self._connection.request("POST", "/v1/chat/completions", body, headers)
        response = self._connection.getresponse()
        response.read()
        if response.status != 200:
            raise RuntimeError(f"a prompt was answered with status {response.status}")
        return response.getheader("x-cache") or ""
