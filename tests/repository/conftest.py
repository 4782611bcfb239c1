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
from gateway.picker.settings import PickerSettings
from gateway.settings import GatewaySettings
from gateway.sidecar.settings import SidecarSettings
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
        "gateway.picker": PickerSettings,
        "gateway.sidecar": SidecarSettings,
        "migrations": MigrationSettings,
    }
