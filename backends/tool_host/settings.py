"""Settings of a tool host, from TOLLKEEPER_TOOLS_* variables."""

from pathlib import Path

from pydantic_settings import SettingsConfigDict

from backends.processes.logs import LogSettings


def tools_socket_of(stated: Path | None, data: Path) -> Path:
    """Return the socket of the tool host: `stated`, or run/tools.sock in the data directory."""
    return (stated or data / "run" / "tools.sock").absolute()


class ToolHostSettings(LogSettings):
    """Settings of the tool host."""

    model_config = SettingsConfigDict(env_prefix="TOLLKEEPER_", extra="ignore", frozen=True)

    data: Path = Path(".tollkeeper")
    tools_socket: Path | None = None
    tools_file: Path | None = None  # the YAML file that names the servers' programs

    @property
    def socket(self) -> Path:
        """Return the socket that gateways connect to."""
        return tools_socket_of(self.tools_socket, self.data)
