"""What `tollkeeper up` says where others reach the dashboard: how they come in, and what is still to be done."""

import io
from pathlib import Path

import pytest
from rich.console import Console

from tollkeeper import up as command
from tollkeeper.installation import Installation
from tollkeeper.plan import Choices
from tollkeeper.ports import Ports


class Started:
    """Stands for processes that run."""

    async def start(self) -> None:
        return

    async def wait_for_failure(self) -> None:
        return


@pytest.mark.parametrize(
    ("host", "has_dashboard", "warns"),
    [("127.0.0.1", True, False), ("0.0.0.0", True, True), ("0.0.0.0", False, False)],
)
async def test_a_dashboard_that_others_reach_says_how_they_come_in(
    tmp_path: Path, host: str, has_dashboard: bool, warns: bool
) -> None:
    said = io.StringIO()
    choices = Choices(tmp_path, Ports(), host, has_dashboard=has_dashboard, has_engine=False)
    console = Console(file=said, width=80)
    session = command._Session(Started(), Installation(tmp_path), choices, console, None)  # type: ignore[arg-type]  # nothing is to run
    await session._work()
    words = said.getvalue()
    assert ("requires sign-in" in words and "accounts add" in words and f"listening on {host}" in words) == warns
