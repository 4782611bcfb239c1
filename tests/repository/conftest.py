"""What the repository's tests share: the settings class of every process."""

from collections.abc import Mapping

import pytest
from pydantic_settings import BaseSettings

from analytics.settings import AnalyticsSettings
from backends.engine.settings import EngineHostSettings
from backends.providers.settings import ProviderHostSettings
from backends.store.settings import StoreSettings
from backends.tool_host.settings import ToolHostSettings
from collector.settings import CollectorSettings
from dashboard.settings import DashboardSettings
from gateway.control.settings import ControlSettings
from gateway.observability.sidecar.settings import SidecarSettings
from gateway.process.settings import GatewaySettings
from gateway.routing.picker.settings import PickerSettings
from migrations.settings import MigrationSettings


@pytest.fixture(scope="session")
def settings_classes() -> Mapping[str, type[BaseSettings]]:
    """Provide the settings class by what follows `python -m`."""
    return {
        "analytics": AnalyticsSettings,
        "backends.engine": EngineHostSettings,
        "backends.providers": ProviderHostSettings,
        "backends.store": StoreSettings,
        "backends.tool_host": ToolHostSettings,
        "collector": CollectorSettings,
        "dashboard": DashboardSettings,
        "gateway": GatewaySettings,
        "gateway.control": ControlSettings,
        "gateway.routing.picker": PickerSettings,
        "gateway.observability.sidecar": SidecarSettings,
        "migrations": MigrationSettings,
    }
