"""`python -m pytest -p tests.with_compiled ...`: the tests of this process on the compiled modules, if they are fresh.

Tests that reach into a module, to replace a part of it, are left out: there they would replace nothing.
"""

import pytest

from backends.processes.compiled import use_compiled

_FOUND = use_compiled()


def pytest_report_header() -> str:
    return f"hot modules: {_FOUND.state} ({_FOUND.reason})"


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if _FOUND.state != "compiled":
        raise pytest.UsageError(f"nothing compiled can be tested: {_FOUND.reason}")
    left_out = [item for item in items if item.get_closest_marker("interpreted")]
    config.hook.pytest_deselected(items=left_out)
    items[:] = [item for item in items if item not in left_out]
