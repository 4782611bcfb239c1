"""The processes that `tollkeeper up` supervises on one machine, their order and settings."""

import math
import sys
from collections.abc import Mapping
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from pathlib import Path

from backends.control.bootstrap import BUILTIN_MODEL
from backends.engine.settings import BUILTIN_PATH
from backends.network.network_addresses import listens_on_loopback
from backends.providers.settings import listed
from backends.tool_host.settings import tools_socket_of
from contracts.errors import ConfigurationError
from gateway.process.settings import several_need_redis
from tollkeeper.children import ChildSpec
from tollkeeper.packaged_files import ROOT
from tollkeeper.ports import Ports
from tollkeeper.supervisor import Stage

LOOPBACK = "127.0.0.1"
_ENGINE_HUNG_RESTART_SECONDS = 30.0
HUNG_RESTART_SECONDS = 120.0
_EVERYWHERE = {"0.0.0.0": LOOPBACK, "::": "[::1]"}  # addresses to listen on, not to connect to


@dataclass(frozen=True, slots=True)
class Choices:
    """The options of `tollkeeper up`. An empty `store_url` means the embedded store."""

    data: Path
    ports: Ports
    host: str = LOOPBACK
    store_url: str = ""
    has_dashboard: bool = True
    has_engine: bool = True
    workers: int = 1  # gateway processes that share the port
    model: str = ""  # a directory or hub name that the engine host serves beside the built-in model
    providers_python: str = ""  # Python of the provider host; empty: .venv-providers
    vllm_python: str = ""  # Python of an engine host of kind vllm; empty: .venv-vllm
    installs: bool = False  # whether pip may install LiteLLM or vLLM if missing
    certificate: str = ""  # the gateway's PEM file; empty: plain HTTP
    settles: bool = False  # a collector was killed during an insert, which is completed before migrations
    hung_restart_seconds: float = HUNG_RESTART_SECONDS  # for all processes except engine hosts and the store; 0: never

    @property
    def shows_dashboard_to_others(self) -> bool:
        """Return whether the dashboard listens on an address that other machines can reach."""
        return self.has_dashboard and not listens_on_loopback(self.host)  # a name: its address is not known here

    def listening(self) -> dict[str, int]:
        """Return the ports that the processes will listen on, by name."""
        ports = self.ports.by_name()
        names = ["gateway", "control", "analytics", "collector", "otlp_grpc", "collector_health"]
        names += [] if self.store_url else ["store_http", "store_native"]
        names += ["dashboard"] if self.has_dashboard else []
        return {name: ports[name] for name in names}

    def addresses(self) -> dict[str, str]:
        """Return the local URLs of the processes, by name."""
        reachable = _EVERYWHERE.get(self.host, f"[{self.host}]" if ":" in self.host else self.host)
        ports = self.ports
        addresses = {
            "gateway": f"{'https' if self.certificate else 'http'}://{reachable}:{ports.gateway}",
            "control": f"http://{reachable}:{ports.control}",
            "analytics": f"http://{reachable}:{ports.analytics}",
            "collector": f"http://{LOOPBACK}:{ports.collector}",
            "store": self.store_url or f"http://{LOOPBACK}:{ports.store_http}",
        }
        if self.has_dashboard:
            addresses["dashboard"] = f"http://{reachable}:{ports.dashboard}"
        return addresses


def plan(choices: Choices, environment: Mapping[str, str]) -> tuple[Stage, ...]:
    """Return the stages: store, migrations, processes that the gateway needs, then gateway, analytics and dashboard.

    The store and the collector always listen on the loopback interface, because they do not authenticate callers.
    """
    addresses = choices.addresses()
    shared = _shared(choices, without_provider_keys(environment))
    if choices.certificate:  # so that the dashboard shows the gateway's https URL
        shared.setdefault("TOLLKEEPER_GATEWAY_URL", addresses["gateway"])
    inside = {**shared, "TOLLKEEPER_HOST": LOOPBACK}
    outside = {**shared, "TOLLKEEPER_HOST": choices.host}
    health = f"http://{LOOPBACK}:{choices.ports.collector_health}"
    # Started before the gateway, which needs what the control plane's first start creates; stopped after it, because
    # the collector receives the gateway's last records.
    control, hung = addresses["control"], choices.hung_restart_seconds
    standing: tuple[ChildSpec, ...] = (
        # Not /ready: the collector must start even if the disk or its spool is full, because it drains them.
        _answering("collector", "collector", inside, f"{health}/health", f"{health}/health", hung),
        _answering("control", "gateway.control", outside, f"{control}/health", f"{control}/health", hung),
    )
    serving = _gateways(choices, outside, addresses["gateway"], hung)
    # Started last and stopped first: it monitors the others, and none depends on it.
    alive = f"{addresses['analytics']}/health"
    serving.append(_answering("analytics", "analytics", outside, alive, alive, hung))
    if choices.has_engine and not is_vllm(environment):
        # Not awaited: loading is slow, and the gateway serves everything else meanwhile.
        engine = _engine_host(module("backends.engine"), inside)
        standing = (*standing, replace(engine, ends_first=True))
    if environment.get("TOLLKEEPER_TOOLS_FILE"):
        standing = (*standing, _tool_host(inside, hung))
    if choices.has_dashboard:
        ready = f"{addresses['dashboard']}/_stcore/health"
        serving.append(_answering("dashboard", "dashboard", outside, ready, ready, hung))
    stages = [
        Stage((ChildSpec("migrations", module("migrations"), inside),), runs_once=True),
        Stage(standing),
        Stage(tuple(serving)),
    ]
    if choices.settles:
        # First, because settling writes to the store: a store of a newer release must not be changed.
        checking = ChildSpec("migrations", (*module("migrations"), "--check"), inside)
        settling = ChildSpec("settle", (*module("collector"), "--settle"), inside)
        stages[:0] = [Stage((checking,), runs_once=True), Stage((settling,), runs_once=True)]
    if not choices.store_url:
        ping = f"{addresses['store']}/ping"
        # Never restarted when hung: its data is safe, and new records wait in the collector's spool.
        stages.insert(0, Stage((_answering("store", "backends.store", inside, ping, ping, 0.0),)))
    return tuple(stages)


def is_vllm(environment: Mapping[str, str]) -> bool:
    """Return whether the engine host is of kind vllm, which runs in its own Python."""
    return environment.get("TOLLKEEPER_ENGINE_KIND", "") == "vllm"


def vllm_host(choices: Choices, environment: Mapping[str, str], python: Path) -> ChildSpec:
    """Return the process of an engine host of kind vllm: it runs in another Python, with this code in PYTHONPATH."""
    shared = _shared(choices, without_provider_keys(environment))
    found = {**shared, "TOLLKEEPER_HOST": LOOPBACK, "PYTHONPATH": str(ROOT)}
    return _engine_host((str(python), "-P", "-m", "backends.engine"), found)


def provider_host(choices: Choices, environment: Mapping[str, str], python: Path) -> ChildSpec:
    """Return the process of the provider host: it runs in another Python, with this code's path and providers' keys."""
    found = {**_shared(choices, environment), "PYTHONPATH": str(ROOT)}
    socket = found.get("TOLLKEEPER_PROVIDERS_SOCKET") or choices.data / "run" / "providers.sock"
    return ChildSpec(
        "providers",
        (str(python), "-P", "-m", "backends.providers"),
        found,
        alive_url=f"unix://{Path(socket).absolute()}",
        hung_restart_seconds=choices.hung_restart_seconds,
    )


def _tool_host(environment: Mapping[str, str], hung_seconds: float) -> ChildSpec:
    """Return the process of the tool host, which the gateway reaches by its socket."""
    socket = tools_socket_of(
        Path(environment["TOLLKEEPER_TOOLS_SOCKET"]) if environment.get("TOLLKEEPER_TOOLS_SOCKET") else None,
        Path(environment["TOLLKEEPER_DATA"]),
    )
    return ChildSpec(
        "tools",
        module("backends.tool_host"),
        environment,
        alive_url=f"unix://{socket}",
        hung_restart_seconds=hung_seconds,
    )


def _engine_host(command: tuple[str, ...], environment: Mapping[str, str]) -> ChildSpec:
    data = Path(environment["TOLLKEEPER_DATA"])
    name = environment.get("TOLLKEEPER_ENGINE_NAME") or "default"
    socket = environment.get("TOLLKEEPER_ENGINE_SOCKET") or data / "run" / f"engine-{name}.sock"
    return ChildSpec(
        "engine",
        command,
        environment,
        alive_url=f"unix://{Path(socket).absolute()}",
        hung_restart_seconds=_seconds(
            environment, "TOLLKEEPER_ENGINE_HUNG_RESTART_SECONDS", _ENGINE_HUNG_RESTART_SECONDS
        ),
    )


def _answering(
    name: str, module_name: str, environment: Mapping[str, str], ready: str, alive: str, hung_seconds: float
) -> ChildSpec:
    return ChildSpec(name, module(module_name), environment, ready, alive_url=alive, hung_restart_seconds=hung_seconds)


def _seconds(environment: Mapping[str, str], name: str, default: float) -> float:
    """Parse one of the supervisor's time settings, in seconds. Raises ConfigurationError if it is invalid."""
    text = environment.get(name, "")
    try:
        seconds = float(text) if text else default
    except ValueError:
        seconds = -1.0
    if not 0 <= seconds < math.inf:
        raise ConfigurationError(f"{name} is {text[:50]!r}; it must be a number of seconds, 0 for never")
    return seconds


def without_provider_keys(environment: Mapping[str, str]) -> dict[str, str]:
    """Return the environment without the variables in TOLLKEEPER_PROVIDERS_KEYS: only the provider host gets them."""
    patterns = listed(environment.get("TOLLKEEPER_PROVIDERS_KEYS", ""))
    return {
        name: value
        for name, value in environment.items()
        if not any(fnmatchcase(f"env:{name}", pattern) for pattern in patterns)
    }


def _shared(choices: Choices, environment: Mapping[str, str]) -> dict[str, str]:
    addresses = choices.addresses()
    return {
        **environment,
        **choices.ports.environment(),
        "TOLLKEEPER_DATA": str(choices.data.absolute()),
        "TOLLKEEPER_STORE_URL": addresses["store"],
        "TOLLKEEPER_COLLECTOR_URL": addresses["collector"],
        "TOLLKEEPER_CONTROL_URL": addresses["control"],
        "PYTHONUNBUFFERED": "1",
        **_engine_environment(choices, environment),
    }


def _gateways(choices: Choices, environment: Mapping[str, str], address: str, hung_seconds: float) -> list[ChildSpec]:
    """Return the gateway processes. Raises ConfigurationError for several processes without Redis."""
    workers = choices.workers
    if workers > 1 and not environment.get("TOLLKEEPER_REDIS_URL"):
        raise ConfigurationError(several_need_redis(workers))
    several = {"TOLLKEEPER_WORKERS": str(workers)}
    # The supervisor drains gateways before it stops them, so they need no delay before draining.
    several["TOLLKEEPER_WATCHED_PROCESSES"] = environment.get("TOLLKEEPER_WATCHED_PROCESSES") or _watched(choices)
    several["TOLLKEEPER_DRAIN_NOTICE_SECONDS"] = environment.get("TOLLKEEPER_DRAIN_NOTICE_SECONDS", "0")
    return [
        ChildSpec(
            "gateway" if number == 1 else f"gateway-{number}",
            module("gateway"),
            {**environment, **several, "TOLLKEEPER_WORKER": str(number)},
            f"{address}/ready",
            choices.certificate,
            drains=True,
            # With a shared port it is unknown which process answers a probe; only stopped processes are detected.
            alive_url=f"{address}/health" if workers == 1 else "",
            hung_restart_seconds=hung_seconds,
        )
        for number in range(1, workers + 1)
    ]


def _watched(choices: Choices) -> str:
    """Return the URLs by which gateways monitor the other processes on this machine."""
    addresses = choices.addresses()
    watched = {
        "collector": f"http://{LOOPBACK}:{choices.ports.collector_health}/health",
        "control": f"{addresses['control']}/health",
        "analytics": f"{addresses['analytics']}/health",
    }
    if not choices.store_url:
        watched["store"] = f"{addresses['store']}/ping"
    if choices.has_dashboard:
        watched["dashboard"] = f"{addresses['dashboard']}/_stcore/health"
    return ",".join([f"{name}={url}" for name, url in watched.items()])


def _engine_environment(choices: Choices, environment: Mapping[str, str]) -> dict[str, str]:
    """Return the environment variables of the engine host: its models and its socket."""
    if not choices.has_engine:
        return {}
    named = environment.get("TOLLKEEPER_ENGINE_MODEL", "")
    models = [named or f"{BUILTIN_MODEL}={BUILTIN_PATH}"]
    # A vLLM model uses the whole GPU, so the built-in model is not loaded.
    alone = is_vllm(environment) and not named
    if choices.model:
        models = [choices.model] if alone else [*models, choices.model]
    name = environment.get("TOLLKEEPER_ENGINE_NAME") or "default"
    socket = environment.get("TOLLKEEPER_ENGINE_SOCKET") or choices.data.absolute() / "run" / f"engine-{name}.sock"
    embedder = {"TOLLKEEPER_ENGINE_EMBEDDER": environment.get("TOLLKEEPER_ENGINE_EMBEDDER") or "false"}
    return {
        **(embedder if is_vllm(environment) else {}),
        "TOLLKEEPER_ENGINE_MODEL": ",".join(models),
        "TOLLKEEPER_ENGINE_URL": environment.get("TOLLKEEPER_ENGINE_URL") or f"unix://{Path(socket).absolute()}",
    }


def module(name: str) -> tuple[str, ...]:
    """Return the command that runs a module of this project.

    `-P`: a folder such as `gateway` in the working directory must not shadow the package.
    """
    return (sys.executable, "-P", "-m", name)
