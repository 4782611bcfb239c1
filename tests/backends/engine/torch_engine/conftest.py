"""Tiny models, saved once for the whole run, and engines on them that are checked for leaks at the end."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers

from backends.engine.torch_engine.engine import TorchEngine
from backends.engine.torch_engine.settings import EngineSettings
from tests.backends.engine.torch_engine.tiny_models import TinyModel, build_model

MakeEngine = Callable[..., TorchEngine]


@pytest.fixture(scope="session", autouse=True)
def quiet_libraries() -> None:
    torch.set_num_threads(1)
    transformers.utils.logging.set_verbosity_error()
    transformers.utils.logging.disable_progress_bar()


@pytest.fixture(scope="session")
def llama(tmp_path_factory: pytest.TempPathFactory) -> TinyModel:
    return build_model("llama", tmp_path_factory.mktemp("llama"))


@pytest.fixture(scope="session")
def qwen3(tmp_path_factory: pytest.TempPathFactory) -> TinyModel:
    return build_model("qwen3", tmp_path_factory.mktemp("qwen3"))


@pytest.fixture(params=["llama", "qwen3"])
def tiny(request: pytest.FixtureRequest) -> TinyModel:
    found: TinyModel = request.getfixturevalue(request.param)
    return found


@pytest.fixture
def make_engine() -> Iterator[MakeEngine]:
    """Build engines; at the end of the test each must have all its blocks and seats back."""
    made: list[TorchEngine] = []

    def make(path: Path, **settings: Any) -> TorchEngine:
        options: dict[str, Any] = {
            "kv_blocks": 128,
            "max_batch_tokens": 128,
            "max_sequences": 16,
            "threads": 1,
            "model": "tiny",
        }
        engine = TorchEngine(EngineSettings(path=path, **(options | settings)))
        made.append(engine)
        return engine

    yield make
    for engine in made:
        engine.close()
        engine.blocks.check_integrity()
        stats = engine.stats()
        assert (stats["running"], stats["waiting"], stats["kv_blocks_held"], stats["decode_rows"]) == (0, 0, 0, 0)


@pytest.fixture
def engine(llama: TinyModel, make_engine: MakeEngine) -> TorchEngine:
    return make_engine(llama.path)
