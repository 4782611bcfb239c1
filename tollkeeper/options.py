"""Options that several commands share."""

import os
from decimal import Decimal
from pathlib import Path
from typing import Annotated, Final

import typer

from contracts.errors import InvalidRequest
from tollkeeper.own_gateway import gateway_certificate
from tollkeeper.ports import Ports

DEFAULT_DATA: Final = Path(".tollkeeper")

Data = Annotated[Path, typer.Option("--data", envvar="TOLLKEEPER_DATA", help="The data directory.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON for machines.")]
PortBase = Annotated[
    int | None,
    typer.Option(
        "--port-base", help="First port to use; other processes use the ports after it (default: their usual ports)."
    ),
]
Host = Annotated[
    str,
    typer.Option(
        "--host", envvar="TOLLKEEPER_HOST", help="Address that gateway, control plane and dashboard listen on."
    ),
]
Dashboard = Annotated[bool, typer.Option("--dashboard/--no-dashboard", help="Run the dashboard.")]
StoreUrl = Annotated[
    str,
    typer.Option(
        "--store-url", envvar="TOLLKEEPER_STORE_URL", help="Use this ClickHouse server, not the embedded store."
    ),
]
Engine = Annotated[bool, typer.Option("--engine/--no-engine", help="Run an engine host with the built-in model.")]
HungRestartSeconds = Annotated[
    float,
    typer.Option(
        min=0,
        envvar="TOLLKEEPER_HUNG_RESTART_SECONDS",
        help="Seconds after which a hung process is killed and restarted (default 120; 0: never).",
    ),
]
Workers = Annotated[
    int,
    typer.Option(
        "--workers",
        envvar="TOLLKEEPER_WORKERS",
        min=1,
        max=256,
        help="Gateway processes that share the port; more than one needs TOLLKEEPER_REDIS_URL.",
    ),
]
EngineModel = Annotated[
    str,
    typer.Option(
        "--model",
        help="Hugging Face directory or hub name of a model to serve; NAME=DIRECTORY names it; repeat for more.",
    ),
]
ProvidersPython = Annotated[
    str,
    typer.Option(
        "--providers-python",
        envvar="TOLLKEEPER_PROVIDERS_PYTHON",
        help="Python interpreter with LiteLLM, for hosted providers (default .venv-providers).",
    ),
]
VllmPython = Annotated[
    str,
    typer.Option(
        "--vllm-python",
        envvar="TOLLKEEPER_VLLM_PYTHON",
        help="Python interpreter with vLLM, for TOLLKEEPER_ENGINE_KIND=vllm (default .venv-vllm).",
    ),
]
Install = Annotated[
    bool,
    typer.Option(
        "--install/--no-install",
        envvar="TOLLKEEPER_INSTALL",
        help="Run pip for LiteLLM or vLLM if a target needs one that is missing (default: print the command).",
    ),
]
ControlUrl = Annotated[
    str,
    typer.Option(
        "--control-url",
        envvar="TOLLKEEPER_CONTROL_URL",
        help="Base URL of the control plane (default: this machine's).",
    ),
]
GatewayUrl = Annotated[
    str,
    typer.Option(
        "--gateway-url", envvar="TOLLKEEPER_GATEWAY_URL", help="Base URL of the gateway (default: this machine's)."
    ),
]
ModelName = Annotated[str, typer.Option("--model", help="Model to use (default: the built-in one).")]
RunId = Annotated[str, typer.Option("--run-id", help="Id stored with every request of this run (default: generated).")]


def default_gateway() -> str:
    """Return the local gateway's URL, from the ports and the certificate in the environment."""
    scheme = "https" if gateway_certificate() else "http"
    return f"{scheme}://127.0.0.1:{Ports.from_environment(os.environ).gateway}"


def gpu_hour_usd(text: str) -> Decimal | None:
    """Parse a price per GPU hour in USD; `None` if the text is empty. Raises InvalidRequest if it is not a price."""
    if not text:
        return None
    try:
        price = Decimal(text)
    except ArithmeticError as error:
        raise InvalidRequest(f"{text[:40]!r} is not a price per GPU hour; use USD such as 2.50") from error
    if not price.is_finite() or price < 0:
        raise InvalidRequest(f"a GPU-hour cannot cost {text[:40]} USD")
    return price
