"""One page of the dashboard, drawn by itself for finance of the installation, or of the tenant in TEST_REACH."""

from streamlit.testing.v1 import AppTest


def draw(module: str, name: str) -> None:
    """What Streamlit runs for the page."""
    import importlib
    import os
    from datetime import UTC, datetime

    import streamlit

    from analytics.access_scope import EVERYTHING, AccessScope
    from contracts.control import Role
    from dashboard.filters import read_filters
    from dashboard.frame import visit_of
    from dashboard.viewer import Viewer

    page = getattr(importlib.import_module(module), name)
    whose = os.environ.get("TEST_REACH")
    viewer = Viewer("tester", Role.FINANCE, AccessScope(whose, None) if whose else EVERYTHING)
    page.draw(visit_of(page, viewer, read_filters(streamlit.query_params.to_dict()), datetime.now(UTC)))


def drawn(module: str, name: str, address: dict[str, str]) -> AppTest:
    app = AppTest.from_function(draw, kwargs={"module": module, "name": name}, default_timeout=30)
    for key, value in address.items():
        app.query_params[key] = value
    app.run()
    assert not app.exception, app.exception
    return app


def cells(app: AppTest) -> str:
    return " ".join(table.value.to_csv() for table in app.dataframe)
