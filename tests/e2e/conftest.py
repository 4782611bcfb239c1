"""The installation that the tests of this folder share."""

from collections.abc import Iterator

import pytest

from bench.newcomer import Newcomer, fresh_installation
from tests.e2e.installation import Installation, wait_until

PATIENCE_SECONDS = 150.0
SETUP = ("init", "--yes", "--key", "first", "--budget-usd", "5", "--alert", "https://hooks.slack.com/services/x")
VARIABLES = {
    "TOLLKEEPER_ALERTS_INWARD": "127.0.0.0/8",  # where the tests' receivers are
    "TOLLKEEPER_ALERTS_EVALUATE_SECONDS": "1",
    "TOLLKEEPER_DRAIN_NOTICE_SECONDS": "0",  # no load balancer is in front
}


@pytest.fixture(scope="package")  # it evaluates alerts every second, so it ends with the package
def newcomer(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Newcomer]:
    """Someone in a fresh checkout, who has set everything up with `tollkeeper init`; the built-in model answers."""
    folder = tmp_path_factory.mktemp("installation")
    with fresh_installation(folder, SETUP, has_dashboard=True, variables=VARIABLES) as newcomer:
        yield newcomer


@pytest.fixture(scope="package")
def installation(newcomer: Newcomer) -> Installation:
    running = Installation(newcomer.folder / ".tollkeeper", newcomer.port_base)
    wait_until(lambda: "OPENAI_API_KEY=" in running.after_setup(), PATIENCE_SECONDS, "the end of `tollkeeper init`")
    return running
