"""`python -m pytest -p tests.cpu_times ...`: CPU time by folder, of tests and of the processes they waited for.

A server that outlives a test counts for the test in which it ends, and a server that is killed with the run for none.
"""

import os
from collections import Counter
from collections.abc import Generator, Iterable
from pathlib import PurePosixPath
from typing import Any, Final

import pytest

PROPERTY: Final = "cpu_seconds"
LEAST_SECONDS: Final = 5.0  # what takes less is not listed
_DEPTH: Final = 3  # folders of a path: tests/gateway/control
_counted = [0.0]


def cpu_seconds() -> float:
    """Return the CPU time of this process and of those it has waited for, in seconds."""
    times = os.times()
    return times.user + times.system + times.children_user + times.children_system


def pytest_collection_finish() -> None:
    """Count from here on."""
    _counted[0] = cpu_seconds()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport() -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Put on the report of each phase of a test what was used since the last one."""
    report = yield
    now = cpu_seconds()
    report.user_properties.append((PROPERTY, now - _counted[0]))
    _counted[0] = now
    return report


def by_folder(reports: Iterable[Any], depth: int = _DEPTH) -> Counter[str]:
    """Return the CPU seconds of reports by folder, at most `depth` names deep."""
    found: Counter[str] = Counter()
    for report in reports:
        parts = PurePosixPath(report.nodeid.partition("::")[0]).parts[:-1][:depth]
        found["/".join(parts)] += sum(value for name, value in report.user_properties if name == PROPERTY)
    return found


def pytest_terminal_summary(terminalreporter: Any) -> None:
    """List what took most."""
    reports = (each for many in terminalreporter.stats.values() for each in many if hasattr(each, "user_properties"))
    found = by_folder(reports)
    terminalreporter.section(f"CPU seconds by folder, {LEAST_SECONDS:g} or more")
    for folder, seconds in found.most_common():
        if seconds >= LEAST_SECONDS:
            terminalreporter.write_line(f"{seconds:8.1f} {folder}")
    terminalreporter.write_line(f"{sum(found.values()):8.1f} all {len(found)} folders")
