"""One gateway process before an obliging model. Without langchain-tests, which `make langchain` installs, no tests."""

import asyncio
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path

import pytest

from bench.fleet.fleet import key_of
from bench.fleet.gateway import GatewayProcess
from tests.gateway.langchain.obliging_model import ObligingModel

collect_ignore = [] if find_spec("langchain_tests") else ["test_standard_suites.py"]


@pytest.fixture(scope="session")
def gateway_url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of a gateway whose only model is `obliging`; its key is the fleet's first."""
    model = ObligingModel()
    config = {
        "keys": [{"key": key_of(0), "tenant": "acme", "id": "key_1"}],
        "pools": [{"name": "pool", "targets": [{"name": "obliging", "kind": "openai_http", "url": model.url}]}],
        "models": [{"name": "obliging", "pool": "pool"}],
    }
    home: Path = tmp_path_factory.mktemp("langchain")
    gateway = GatewayProcess("gw", home, config)
    asyncio.run(gateway.start())
    yield f"http://127.0.0.1:{gateway.port}/v1"
    gateway.kill()
    model.close()
