"""Which processes one machine runs, in which order, with which settings: the table that `up` supervises."""

import sys
from collections.abc import Mapping
from dataclasses import dataclass
from fnmatch import fnmatchcase
from ipaddress import ip_address
from pathlib import Path
from urllib.parse import urlsplit

from backends.control.bootstrap import BUILTIN_MODEL
from backends.engine.settings import BUILTIN_PATH
from backends.providers.settings import listed
from contracts.errors import ConfigurationError
from gateway.settings import several_need_redis
from tollkeeper.children import ChildSpec
from tollkeeper.own_environment import ROOT
from tollkeeper.ports import Ports, is_free
from tollkeeper.supervisor import Stage

LOOPBACK = "127.0.0.1"
_EVERYWHERE = {"0.0.0.0": LOOPBACK, "::": "[::1]"}  # addresses to listen on, not to connect to


def external_store(store_url: str, ports: Ports) -> str:
    """Return the URL of a store that is not ours to start; "" for none and for the embedded store's own address.

    `.env.example` states that address, and whoever copies it means the embedded store, unless a server answers there.
    """
    try:
        parts = urlsplit(store_url)
        port = parts.port
    except ValueError:  # the processes say what is wrong with it
        return store_url
    is_own = parts.scheme == "http" and parts.hostname in ("127.0.0.1", "localhost") and port == ports.store_http
    return "" if is_own and is_free(LOOPBACK, ports.store_http) else store_url


@dataclass(frozen=True, slots=True)
class Choices:
    """What the operator chose for `up`. `store_url` empty means the embedded store."""

    data: Path
    ports: Ports
    host: str = LOOPBACK
    store_url: str = ""
    has_dashboard: bool = True
    has_engine: bool = True
    workers: int = 1  # data planes that share the port
    model: str = ""  # a directory or hub name that the engine host serves beside the built-in model
    providers_python: str = ""  # of the provider host; empty: .venv-providers, which is set up where it is missing
    vllm_python: str = ""  # of an engine host of kind vllm; empty: .venv-vllm, which is set up where it is missing
    certificate: str = ""  # the gateway's, a PEM file; empty: it speaks plain HTTP

    @property
    def shows_dashboard_to_others(self) -> bool:
        """Whether other machines may reach the dashboard."""
        if not self.has_dashboard or self.host == "localhost":
            return False
        try:
            return not ip_address(self.host).is_loopback
        except ValueError:
            return True  # a name: where it leads is not known here

    def listening(self) -> dict[str, int]:
        """Give the ports that will be listened on, by name."""
        ports = self.ports.by_name()
        names = ["gateway", "control", "analytics", "collector", "otlp_grpc", "collector_health"]
        names += [] if self.store_url else ["store_http", "store_native"]
        names += ["dashboard"] if self.has_dashboard else []
        return {name: ports[name] for name in names}

    def addresses(self) -> dict[str, str]:
        """Give the URLs where the processes answer on this machine."""
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
    """Lay out the stages: store, migrations, then what the gateway needs, then the gateway and the dashboard.

    The store and the collector listen on the loopback interface whatever the host: one holds the books, the
    other writes them, and neither asks its callers who they are.
    """
    addresses = choices.addresses()
    shared = _shared(choices, without_provider_keys(environment))
    if choices.certificate:  # else the dashboard would show a plain URL
        shared.setdefault("TOLLKEEPER_GATEWAY_URL", addresses["gateway"])
    inside = {**shared, "TOLLKEEPER_HOST": LOOPBACK}
    outside = {**shared, "TOLLKEEPER_HOST": choices.host}
    health = f"http://{LOOPBACK}:{choices.ports.collector_health}"
    # Before the gateway, which loads what the first start of the control plane writes, and after it at the end,
    # when the collector takes the gateway's last records.
    standing: tuple[ChildSpec, ...] = (
        ChildSpec("collector", module("collector"), inside, f"{health}/ready"),
        ChildSpec("control", module("gateway.control"), outside, f"{addresses['control']}/ready"),
    )
    serving = _gateways(choices, outside, f"{addresses['gateway']}/ready")
    # Among the last to start and the first to end: it watches the others and nobody waits for it.
    serving.append(ChildSpec("analytics", module("analytics"), outside, f"{addresses['analytics']}/health"))
    if choices.has_engine and not is_vllm(environment):
        # Not waited for: loading takes a while, and the gateway serves everything else meanwhile.
        standing = (*standing, ChildSpec("engine", module("backends.engine"), inside, ends_first=True))
    if choices.has_dashboard:
        ready = f"{addresses['dashboard']}/_stcore/health"
        serving.append(ChildSpec("dashboard", module("dashboard"), outside, ready))
    stages = [
        Stage((ChildSpec("migrations", module("migrations"), inside),), runs_once=True),
        Stage(standing),
        Stage(tuple(serving)),
    ]
    if not choices.store_url:
        stages.insert(0, Stage((ChildSpec("store", module("backends.store"), inside, f"{addresses['store']}/ping"),)))
    return tuple(stages)


def is_vllm(environment: Mapping[str, str]) -> bool:
    """Say whether the operator wants the engine host to be of kind vllm: it has a Python of its own."""
    return environment.get("TOLLKEEPER_ENGINE_KIND", "") == "vllm"


def vllm_host(choices: Choices, environment: Mapping[str, str], python: Path) -> ChildSpec:
    """Lay out an engine host of kind vllm: another Python, which finds our code by its path."""
    shared = _shared(choices, without_provider_keys(environment))
    found = {**shared, "TOLLKEEPER_HOST": LOOPBACK, "PYTHONPATH": str(ROOT)}
    return ChildSpec("engine", (str(python), "-P", "-m", "backends.engine"), found)


def provider_host(choices: Choices, environment: Mapping[str, str], python: Path) -> ChildSpec:
    """Lay out the provider host: another Python, which finds our code by its path, and the providers' keys."""
    found = {**_shared(choices, environment), "PYTHONPATH": str(ROOT)}
    return ChildSpec("providers", (str(python), "-P", "-m", "backends.providers"), found)


def without_provider_keys(environment: Mapping[str, str]) -> dict[str, str]:
    """Leave out the variables that TOLLKEEPER_PROVIDERS_KEYS names: they are for the provider host alone."""
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


def _gateways(choices: Choices, environment: Mapping[str, str], ready: str) -> list[ChildSpec]:
    """Lay out the data planes. Raises ConfigurationError where several have nothing to count in together."""
    workers = choices.workers
    if workers > 1 and not environment.get("TOLLKEEPER_REDIS_URL"):
        raise ConfigurationError(several_need_redis(workers))
    several = {"TOLLKEEPER_WORKERS": str(workers)}
    # The supervisor drains them before it stops them: there is nobody left to tell.
    several["TOLLKEEPER_DRAIN_NOTICE_SECONDS"] = environment.get("TOLLKEEPER_DRAIN_NOTICE_SECONDS", "0")
    return [
        ChildSpec(
            "gateway" if number == 1 else f"gateway-{number}",
            module("gateway"),
            {**environment, **several, "TOLLKEEPER_WORKER": str(number)},
            ready,
            choices.certificate,
            drains=True,
        )
        for number in range(1, workers + 1)
    ]


def _engine_environment(choices: Choices, environment: Mapping[str, str]) -> dict[str, str]:
    """Say what the engine host serves, and to the control plane where that is."""
    if not choices.has_engine:
        return {}
    named = environment.get("TOLLKEEPER_ENGINE_MODEL", "")
    models = [named or f"{BUILTIN_MODEL}={BUILTIN_PATH}"]
    alone = is_vllm(environment) and not named  # vLLM takes the whole GPU for a model, so the example gives way
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
    """Give the command that runs a process of ours.

    `-P`: a folder `gateway` where the operator happens to stand must not go before the package.
    """
    return (sys.executable, "-P", "-m", name)
