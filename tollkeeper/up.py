"""`tollkeeper up`: starts everything on one machine, prints a key, and runs until Ctrl-C."""

import asyncio
import signal
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, replace
from importlib.util import find_spec
from pathlib import Path

from rich.console import Console
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

from backends.control.bootstrap import BUILTIN_MODEL, DEMO_MODEL
from backends.control.database import ControlDatabase
from backends.control.known_secrets import check_secrets
from backends.processes.process import require_known_variables
from backends.secrets.secret_files import SecretFiles
from backends.store.store_locks import StoreLocks
from contracts.errors import ConfigurationError, ControlUnavailable, TollkeeperError
from contracts.serving.configuration import control_database_url
from tollkeeper.children import Backoff, Child
from tollkeeper.gateway_client import engine_states, first_model, metrics_token, needs_provider_host
from tollkeeper.installation import Installation
from tollkeeper.plan import LOOPBACK, Choices, is_vllm, plan, provider_host, vllm_host
from tollkeeper.ports import is_free, require_free
from tollkeeper.provider_environment import ProviderEnvironment
from tollkeeper.provider_watch import ProviderWatch
from tollkeeper.supervisor import Stage, Supervisor
from tollkeeper.vllm_environment import VllmEnvironment
from tollkeeper.vllm_host import VllmHost

_COLOURS = {
    "store": "yellow",
    "settle": "bright_black",
    "migrations": "bright_black",
    "collector": "magenta",
    "control": "blue",
    "engine": "bright_yellow",
    "providers": "bright_magenta",
    "gateway": "green",
    "analytics": "bright_blue",
    "dashboard": "cyan",
}
AfterReady = Callable[[Mapping[str, str]], Awaitable[None]]  # called with the URLs by process

_EXAMPLE_MODELS = (BUILTIN_MODEL, DEMO_MODEL)
_ENGINE_NEEDS = ("torch", "transformers")
_NOT_YET = frozenset({"away", "loading", "warming"})
_ENGINE_SECONDS = 60.0
_POLL_SECONDS = 0.1
_PROVIDERS_GRACE_SECONDS = 15.0
_GUARDED_DASHBOARD = (
    "the dashboard is listening on {host} and requires sign-in; create accounts with "
    "`tollkeeper accounts add EMAIL --role owner`, and put TLS in front: passwords and sessions are sent in clear text"
)
_INSIDE = frozenset({"store_http", "store_native", "collector", "otlp_grpc", "collector_health"})


def up(
    choices: Choices, environment: Mapping[str, str], console: Console, after_ready: AfterReady | None = None
) -> int:
    """Run the installation until a signal; return the exit status. `after_ready` runs when all processes are ready.

    Raises ConfigurationError before anything is started if the data directory is not writable, another supervisor
    runs, a port is in use, or the secrets do not belong to the installation.
    """
    require_known_variables(environment)
    installation = Installation(choices.data)
    installation.prepare()
    choices, missing = without_missing_engine(choices, environment)
    if missing:
        console.print(_line("tollkeeper", missing))
    chosen, choices = choices, with_own_store(choices, environment)
    stages = plan(choices, environment)
    litellm = ProviderEnvironment(python=choices.providers_python, installs=choices.installs)
    providers = provider_host(choices, environment, litellm.python)
    vllm = VllmEnvironment(python=choices.vllm_python, installs=choices.installs)
    engine = vllm_host(choices, environment, vllm.python)
    has_vllm = choices.has_engine and is_vllm(environment)
    others = {spec.name: spec.command for spec in ((providers, engine) if has_vllm else (providers,))}
    with installation.locked():
        _require_secrets(installation, environment)
        for name in installation.end_leftovers({**_commands(stages), **others}):
            console.print(_line(name, "was left by a supervisor that was killed; ended"))
        choices = unless_taken(choices, chosen)
        stages = plan(replace(choices, settles=_has_insert_in_doubt(choices.data)), environment)
        listening = choices.listening()
        require_free(LOOPBACK, {name: port for name, port in listening.items() if name in _INSIDE})
        require_free(choices.host, {name: port for name, port in listening.items() if name not in _INSIDE})

        def print_line(name: str, line: str) -> None:
            console.print(_line(name, line), soft_wrap=True)

        supervisor = Supervisor(stages, installation.run, print_line)
        watch = ProviderWatch(
            lambda: needs_provider_host(choices.addresses()["gateway"], metrics_token(choices.data)),
            litellm,
            lambda: Child(providers, installation.run, print_line, Backoff()),
            print_line,
        )
        host = VllmHost(vllm, lambda: Child(engine, installation.run, print_line, Backoff()), print_line)
        session = _Session(supervisor, installation, choices, console, after_ready, watch, host if has_vllm else None)
        return asyncio.run(session.run())


def _has_insert_in_doubt(data: Path) -> bool:
    """Return whether a collector may have been killed during an insert; True if an older version recorded nothing."""
    spool = data / "spool"
    return StoreLocks(data).is_in_doubt or (spool.is_dir() and not (spool / "insert.plan").exists())


def with_own_store(choices: Choices, environment: Mapping[str, str]) -> Choices:
    """Return options that start the embedded store if the store's URL is its own address.

    If a store user is configured too, the URL is a server's.
    """
    if choices.ports.names_own_store(choices.store_url) and not environment.get("TOLLKEEPER_STORE_USER"):
        return replace(choices, store_url="")
    return choices


def without_missing_engine(choices: Choices, environment: Mapping[str, str]) -> tuple[Choices, str]:
    """Return options without an engine host if its packages are not installed, and a message about it.

    Raises ConfigurationError if the operator named a model to serve.
    """
    if not choices.has_engine or is_vllm(environment) or environment.get("TOLLKEEPER_ENGINE_URL"):
        return choices, ""
    missing = [name for name in _ENGINE_NEEDS if find_spec(name) is None]
    if not missing:
        return choices, ""
    lacks = f"{' and '.join(missing)} {'is' if len(missing) == 1 else 'are'} not installed"
    remedy = "install them with the extra `engine` (pip install 'tollkeeper[engine]')"
    if choices.model or environment.get("TOLLKEEPER_ENGINE_MODEL"):
        raise ConfigurationError(f"{lacks}, so no engine host can serve a model; {remedy}, or name no model")
    return replace(choices, has_engine=False), f"{lacks}: {DEMO_MODEL} is served, {BUILTIN_MODEL} is not; {remedy}"


def unless_taken(choices: Choices, chosen: Choices) -> Choices:
    """Return `chosen` if a server already listens on the embedded store's port: it is the operator's own."""
    if choices.store_url != chosen.store_url and not is_free(LOOPBACK, choices.ports.store_http):
        return chosen
    return choices


@dataclass(frozen=True, slots=True)
class _Session:
    supervisor: Supervisor
    installation: Installation
    choices: Choices
    console: Console
    after_ready: AfterReady | None
    providers: ProviderWatch | None = None
    vllm: VllmHost | None = None

    async def run(self) -> int:
        signalled = asyncio.Event()
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            asyncio.get_running_loop().add_signal_handler(number, signalled.set)
        self.installation.write_addresses(self.choices.addresses())
        try:
            await self._work_until(signalled)
            return 0
        except TollkeeperError as error:
            self.console.print(_line("tollkeeper", error.message), style="red", soft_wrap=True)
            return 2
        finally:
            self.installation.forget_addresses()
            await self._stop(signalled)
            self.console.print(_line("tollkeeper", "stopped"))

    async def _work_until(self, signalled: asyncio.Event) -> None:
        stop = asyncio.create_task(signalled.wait())
        work = asyncio.create_task(self._work())
        try:
            await asyncio.wait((stop, work), return_when=asyncio.FIRST_COMPLETED)
            if work.done():
                work.result()  # raises the error
        finally:
            for task in (stop, work):
                task.cancel()
            await asyncio.gather(stop, work, return_exceptions=True)

    async def _work(self) -> None:
        await self.supervisor.start()
        beside = [one.run() for one in (self.providers, self.vllm) if one is not None]
        watching = [asyncio.create_task(one, name="beside") for one in beside]
        try:
            await self._serve()
        finally:
            for task in watching:
                task.cancel()
            await asyncio.gather(*watching, return_exceptions=True)

    async def _serve(self) -> None:
        addresses = self.choices.addresses()
        key = SecretFiles(self.installation.secrets).get("demo_key")
        if self.choices.has_engine:
            await self._await_engine(addresses["gateway"])
        model = None if key is None else await first_model(addresses["gateway"], key, _EXAMPLE_MODELS)
        for part in _welcome(addresses, key, model):
            self.console.print(part, soft_wrap=True)
        if self.choices.shows_dashboard_to_others:
            warning = _GUARDED_DASHBOARD.format(host=self.choices.host)
            self.console.print(_line("tollkeeper", warning), style="yellow", soft_wrap=True)
        if self.after_ready is not None:
            await self.after_ready(addresses)
        await self.supervisor.wait_for_failure()

    async def _await_engine(self, gateway: str) -> None:
        """Wait for the engine host's models, so that the printed example works; everything else serves already."""
        deadline = asyncio.get_running_loop().time() + _ENGINE_SECONDS
        while _NOT_YET.intersection((await engine_states(gateway, metrics_token(self.choices.data))).values()):
            if asyncio.get_running_loop().time() > deadline:
                self.console.print(_line("tollkeeper", "the engine is still loading; its models answer 503 until then"))
                return
            await asyncio.sleep(_POLL_SECONDS)

    async def _stop(self, signalled: asyncio.Event) -> None:
        signalled.clear()
        stopping = asyncio.create_task(self._stop_all())
        hurry = asyncio.create_task(signalled.wait())
        await asyncio.wait((stopping, hurry), return_when=asyncio.FIRST_COMPLETED)
        if not stopping.done():  # second signal: stop immediately
            await self._stop_all(grace_seconds=0)
        await stopping
        hurry.cancel()

    async def _stop_all(self, *, grace_seconds: float | None = None) -> None:
        """Drain the gateways, stop engine hosts while gateways still receive their last records, then stop the rest."""
        grace = _PROVIDERS_GRACE_SECONDS if grace_seconds is None else grace_seconds
        if grace_seconds is None:
            await self.supervisor.drain()
        if self.vllm is not None:
            await self.vllm.stop(grace)
        await self.supervisor.stop(grace_seconds=grace_seconds)
        if self.providers is not None:
            await self.providers.stop(grace)


def _require_secrets(installation: Installation, environment: Mapping[str, str]) -> None:
    """Raise ConfigurationError if secrets are missing or wrong, before a process creates new ones.

    If the control database does not answer, its processes report that.
    """
    database = ControlDatabase(control_database_url(environment.get("TOLLKEEPER_DATABASE_URL", ""), installation.data))
    try:
        if database.is_there:
            check_secrets(database, SecretFiles(installation.secrets))
    except ControlUnavailable:
        pass
    finally:
        database.close()


def _welcome(addresses: Mapping[str, str], key: str | None, model: str | None) -> list[Panel | Text]:
    table = Table.grid(padding=(0, 2))
    table.add_column(style="bold")
    table.add_column(overflow="fold")
    table.add_row("gateway", f"{addresses['gateway']}/v1")
    if "dashboard" in addresses:
        table.add_row("dashboard", addresses["dashboard"])
    table.add_row("control plane", f"{addresses['control']}/docs")
    table.add_row("analytics", f"{addresses['analytics']}/docs")
    if key is not None and model is not None:
        table.add_row("key", key)
    panel = Panel(table, title="Tollkeeper is ready", title_align="left", expand=False, border_style="green")
    if key is None or model is None:
        hint = "Create a key: tollkeeper tenants create ID, then tollkeeper keys create --tenant ID --name NAME"
        return [panel, Text(hint)]
    example = f"""
export OPENAI_BASE_URL={addresses["gateway"]}/v1
export OPENAI_API_KEY={key}
curl -sN $OPENAI_BASE_URL/chat/completions -H "Authorization: Bearer $OPENAI_API_KEY" \\
  -H "Content-Type: application/json" \\
  -d '{{"model": "{model}", "stream": true, "messages": [{{"role": "user", "content": "Hello"}}]}}'
"""
    return [panel, Text("Paste this into another terminal; Ctrl-C here stops everything."), Text(example)]


def _commands(stages: tuple[Stage, ...]) -> dict[str, tuple[str, ...]]:
    return {spec.name: spec.command for stage in stages for spec in stage.children}


def _line(name: str, line: str) -> Text:
    # Text, not markup: a log line may contain square brackets.
    return Text.assemble((f"{name:<10} | ", _COLOURS.get(name, "white")), line)
