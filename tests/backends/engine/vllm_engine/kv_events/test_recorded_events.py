"""What vLLM 0.25.1 published on an H200, told to the host's code: the contract between the two, without a GPU.

Recorded on 2026-11-22 with the built-in model and a cache of 33 blocks: every batch as it came, what was asked in
between, how many tokens of it vLLM had cached, and what the host said was held.
"""

import gzip
import json
from pathlib import Path
from typing import Any

from backends.engine.torch_engine.kv_events import KvEventLog
from backends.engine.vllm_engine.kv_events.source import KvPlace
from contracts.engine.block_keys import block_hashes
from tests.backends.engine.vllm_engine.kv_events.test_feed import Wire

SIZE = 16
LINES: list[list[Any]] = json.loads(gzip.decompress((Path(__file__).parent / "recorded_events.json.gz").read_bytes()))


def test_what_is_said_to_be_held_is_what_prompts_hit_and_what_was_said_there():
    wire = Wire()
    source = KvPlace(lambda events, again: wire).follow(KvEventLog("e/1", "m", "r", SIZE, "gpu", lambda: 7))
    wire.again += [(-1, b"")]  # the first batch came before anybody listened, and is not in the recording
    hits = 0
    for kind, *fields in LINES:
        if kind == "event":
            wire.coming.append((fields[0], bytes.fromhex(fields[1])))
        elif kind == "asked" and fields[4] == 1:  # two at once may find each other's blocks
            salt, prompt, _, cached, _ = fields
            held, expected = set(source.cached_blocks().hashes), 0
            for name in block_hashes(prompt, SIZE, salt)[: (len(prompt) - 1) // SIZE]:
                if name not in held:
                    break
                expected += SIZE
            assert expected == cached
            hits += cached
        elif kind == "held":
            source.take()
            assert sorted(source.cached_blocks().hashes) == fields[0]
        elif kind == "reset":
            source.forget()
    assert hits == 96 + 64 + 128 + 96
    records = source.take()
    assert records == [] and source.facts()["kv_blocks_unnamed"] == 0
    source.close()
