"""A range of time for questions about single requests."""

from datetime import UTC, datetime, timedelta

import pytest

from analytics.scope import Scope


@pytest.fixture
def scope() -> Scope:
    now = datetime.now(UTC).replace(microsecond=0)
    return Scope(now - timedelta(hours=1), now + timedelta(seconds=5))
