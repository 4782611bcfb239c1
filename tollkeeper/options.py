"""Options that several commands share."""

from pathlib import Path
from typing import Annotated, Final

import typer

DEFAULT_DATA: Final = Path(".tollkeeper")

Data = Annotated[Path, typer.Option("--data", envvar="TOLLKEEPER_DATA", help="The data directory.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON for machines.")]
PortBase = Annotated[int | None, typer.Option("--port-base", help="Lay all ports out from here upwards.")]
Host = Annotated[
    str, typer.Option("--host", envvar="TOLLKEEPER_HOST", help="Where gateway, control plane and dashboard listen.")
]
Dashboard = Annotated[bool, typer.Option("--dashboard/--no-dashboard", help="Run the dashboard.")]
StoreUrl = Annotated[
    str,
    typer.Option(
        "--store-url", envvar="TOLLKEEPER_STORE_URL", help="Use this ClickHouse server, not the embedded store."
    ),
]
ControlUrl = Annotated[
    str, typer.Option("--control-url", envvar="TOLLKEEPER_CONTROL_URL", help="Where the control plane answers.")
]
