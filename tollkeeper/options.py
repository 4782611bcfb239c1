"""Options that several commands share."""

from pathlib import Path
from typing import Annotated

import typer

Data = Annotated[Path, typer.Option("--data", envvar="TOLLKEEPER_DATA", help="The data directory.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON for machines.")]
ControlUrl = Annotated[
    str, typer.Option("--control-url", envvar="TOLLKEEPER_CONTROL_URL", help="Where the control plane answers.")
]
DEFAULT_DATA = Path(".tollkeeper")
