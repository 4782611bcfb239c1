"""vLLM's prefix cache as the host tells of it, on a GPU: what it says is held is what prompts hit, kept ones stay."""

import importlib.util
import random
import shutil
import time

import pytest

from backends.engine.base import ModelOrder
from backends.engine.settings import BUILTIN_PATH, EngineHostSettings
from contracts.engine.block_keys import block_hashes
from contracts.engine.kept_prefix import KeptPrefix
from contracts.engine.wire import Finished
from tests.backends.engine.vllm_engine.driving import ask, deltas, drive, end

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(
        shutil.which("nvidia-smi") is None or importlib.util.find_spec("vllm") is None, reason="needs a GPU and vLLM"
    ),
]

BLOCKS, SIZE = 96, 16
WORDS = (
    f"--enforce-eager --max-model-len 1024 --gpu-memory-utilization 0.2 --max-num-seqs 16 --enable-sleep-mode "
    f"--num-gpu-blocks-override {BLOCKS}"
)


class Asker:
    """Asks one engine, under new numbers; remembers what its records said of the cache."""

    def __init__(self, engine):
        self.engine = engine
        self.number = 0
        self.held: set[int] = set()
        self.sequences: list[int] = []

    def submit(self, prompt, salt="", keep=0, seconds=300, tokens=1):
        self.number += 1
        kept = [KeptPrefix(tokens=keep, ttl_seconds=seconds)] if keep else []
        return ask(
            self.number, list(prompt), max_tokens=tokens, temperature=0.0, ignore_eos=True, cache_salt=salt,
            tenant=salt, kept_prefixes=kept,
        )  # fmt: skip

    def __call__(self, *prompts, **options):
        """Ask prompts at once; return each one's usage."""
        submits = [self.submit(one, **options) for one in prompts]
        events = drive(self.engine, *submits)
        by_id = {one.request_id: one for one in events if isinstance(one, Finished)}
        return [by_id[one.request_id].usage for one in submits]

    def hear(self):
        """Receive the cache's changes until none comes for a while, and return what is held by them."""
        quiet = time.monotonic()
        while time.monotonic() - quiet < 0.5:
            for record in self.engine.take_kv_events():
                quiet = time.monotonic()
                self.sequences.append(record.sequence)
                if record.event == "stored":
                    self.held |= set(record.block_hashes)
                elif record.event == "removed":
                    self.held -= set(record.block_hashes)
                else:
                    self.held.clear()
            time.sleep(0.02)
        return self.held


@pytest.fixture(scope="module")
def asker():
    from backends.engine.vllm_builder import build

    settings = EngineHostSettings(engine_kind="vllm", engine_vllm_arguments=WORDS)
    engine = build(settings, ModelOrder("m", str(BUILTIN_PATH), engine="e/1"), BUILTIN_PATH)
    engine.warm_up()
    yield Asker(engine)
    engine.close()


def prompt_of(seed, tokens):
    source = random.Random(seed)
    return [source.randrange(100, 4000) for _ in range(tokens)]


def test_a_prompt_is_told_by_the_names_that_a_router_computes(asker):
    prompt = prompt_of(1, 320)
    asker(prompt, salt="acme")
    held = asker.hear()
    assert set(block_hashes(prompt, SIZE, "acme")) <= held and not set(block_hashes(prompt, SIZE)) & held
    assert set(asker.engine.cached_blocks().hashes) == held
    assert asker.sequences == list(range(len(asker.sequences)))


def test_what_is_said_to_be_held_is_what_prompts_hit(asker):
    """Prompts with common beginnings, some at once, in a cache too small for them all."""
    source = random.Random(7)
    roots = [prompt_of(100 + number, 160) for number in range(6)]
    for _ in range(40):
        batch = [
            source.choice(roots)[: source.choice((48, 96, 160))] + prompt_of(source.random(), source.randrange(1, 120))
            for _ in range(source.choice((1, 1, 2, 3)))
        ]
        held = asker.hear() if len(batch) == 1 else set()
        usages = asker(*batch, salt="t", tokens=source.choice((1, 20)))
        if len(batch) > 1:
            continue
        expected = 0
        for name in block_hashes(batch[0], SIZE, "t")[: (len(batch[0]) - 1) // SIZE]:
            if name not in held:
                break
            expected += SIZE
        assert usages[0].cache_read_text == expected
    assert asker.hear() == set(asker.engine.cached_blocks().hashes)
    assert len(asker.held) <= BLOCKS and asker.sequences == list(range(len(asker.sequences)))
    assert asker.engine.stats()["kv_blocks_unnamed"] == 0


def flood(asker, seed):
    for number in range(6):
        asker(prompt_of(seed + number, 600), salt="flood")


def test_a_marked_prompt_survives_a_flood_and_one_without_a_mark_does_not(asker):
    kept, other = prompt_of(2, 200), prompt_of(3, 200)
    (written,) = asker(kept, salt="k", keep=200)
    assert (written.cache_write_5m, written.input_text) == (192, 8)
    asker(other, salt="k")
    flood(asker, 1000)
    assert asker(kept, salt="k")[0].cache_read_text == 192 and asker(other, salt="k")[0].cache_read_text == 0
    again = asker(kept, salt="k", keep=200)[0]
    assert (again.cache_write_5m, again.cache_read_text) == (0, 192)


def test_it_gives_way_to_what_runs_and_ends_with_its_time(asker):
    kept = prompt_of(4, 200)
    assert asker(kept, salt="g", keep=192, seconds=300)[0].cache_write_5m == 192
    usage = asker(prompt_of(5, 1020), prompt_of(6, 500), salt="big")  # with what is kept they do not fit
    assert [one.input_text for one in usage] == [1020, 500]
    short = prompt_of(8, 200)
    submit = asker.submit(short, salt="s", keep=192, seconds=1)
    assert end(drive(asker.engine, submit)).finish_reason == "length"
    time.sleep(1.1)
    flood(asker, 2000)
    assert asker(short, salt="s")[0].cache_read_text == 0


def test_sleep_empties_it_and_what_was_kept_too(asker):
    kept = prompt_of(9, 200)
    asker(kept, salt="z", keep=200)
    assert asker.hear()
    asker.engine.sleep(1)
    assert asker.hear() == set() == set(asker.engine.cached_blocks().hashes)
    asker.engine.wake()
    assert asker(kept, salt="z")[0].cache_read_text == 0
    assert set(block_hashes(kept, SIZE, "z")) <= asker.hear()
    assert deltas(drive(asker.engine, asker.submit(kept, salt="z")))[0].cached_tokens == 192
