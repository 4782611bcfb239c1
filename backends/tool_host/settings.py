"""Settings of a tool host, read from TOLLKEEPER_TOOLS_* variables at its start."""

from pathlib import Path

from pydantic_settings import SettingsConfigDict

from backends.processes.logs import LogSettings


def tools_socket_of(stated: Path | None, data: Path) -> Path:
    """Return where a tool host listens: what is stated, else run/tools.sock in the data directory."""
    return (stated or data / "run" / "tools.sock").absolute()


class ToolHostSettings(LogSettings):
    """Settings of the tool host."""

    model_config = SettingsConfigDict(env_prefix="TOLLKEEPER_", extra="ignore", frozen=True)

    data: Path = Path(".tollkeeper")
    tools_socket: Path | None = None
    tools_file: Path | None = None  # the YAML file that names the servers' programs

    @property
    def socket(self) -> Path:
        """Return where gateways connect."""
        return tools_socket_of(self.tools_socket, self.data)
