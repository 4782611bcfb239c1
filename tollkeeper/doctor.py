"""`tollkeeper doctor`: checks this machine for available and missing parts, and prints how to get them."""

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from importlib import metadata
from pathlib import Path
from typing import Literal

from backends.network.tls import TlsFiles, days_left, server_context
from backends.processes.compiled import find_compiled
from backends.segment_log.pieces import Pieces
from contracts.errors import ConfigurationError, TollkeeperError
from tollkeeper.installation import Installation
from tollkeeper.packaged_files import is_wheel, packaged_file
from tollkeeper.ports import Ports, holder_of, is_free

Status = Literal["ok", "warn", "fail"]

_CONSTRAINTS = packaged_file("constraints/base.txt")
_INSTALLABLE, _ENGINE = ("tollkeeper", "'tollkeeper[engine]'") if is_wheel() else ("-e '.[all]'", "-e '.[engine]'")
_OLDEST, _TOO_NEW = (3, 11), (3, 14)
_GIB = 1024**3
_LOW_DISK_BYTES = 5 * _GIB
_NO_DISK_BYTES = 1 * _GIB
_PROBE_SECONDS = 60
_FEW_DAYS = 14
_ENGINE_PROBE = "import chdb; print(chdb.query('SELECT version()'), end='')"
_BROWSERS = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")


@dataclass(frozen=True, slots=True)
class Check:
    """One finding. Status `fail`: Tollkeeper cannot run; `warn`: an optional part is missing."""

    name: str
    status: Status
    detail: str
    remedy: str = ""


@dataclass(frozen=True, slots=True)
class Report:
    """All findings; `ok` if none failed."""

    checks: tuple[Check, ...]

    @property
    def ok(self) -> bool:
        """Return whether Tollkeeper can run here."""
        return all(check.status != "fail" for check in self.checks)

    def as_json(self) -> dict[str, object]:
        """Return the report for machines: {"ok", "checks": [{"name", "status", "detail", "remedy"}]}."""
        return {"ok": self.ok, "checks": [asdict(check) for check in self.checks]}


def examine(data: Path, ports: Ports, environment: Mapping[str, str]) -> Report:
    """Run all checks and return the report. Takes a second or two, because the store's engine is started, in memory."""
    checks = [
        _check_python(),
        *_check_packages(_CONSTRAINTS),
        *_check_ports(data, ports, environment),
        _check_compiled(environment),
        _check_directory(data),
        _check_disk(data),
        *_check_pieces(data),
        *_check_certificate(environment),
        *_check_channels(data, environment),
        _check_engine(ports, environment),
        _check_model_engine(environment),
        _check_redis(environment),
        _check_postgres(environment),
        _check_browser(),
        _check_gpu(),
    ]
    return Report(tuple(checks))


def _check_python() -> Check:
    version = ".".join(str(part) for part in sys.version_info[:3])
    if _OLDEST <= sys.version_info[:2] < _TOO_NEW:
        return Check("python", "ok", f"{version} at {sys.executable}")
    return Check("python", "fail", f"{version}; needed: >=3.11,<3.14", "create the environment with another Python")


def _check_packages(constraints: Path) -> Iterator[Check]:
    """Compare installed packages with the tested versions: a missing one fails, another version only warns."""
    try:
        pinned = dict(re.findall(r"^([A-Za-z0-9._-]+)==(\S+)", constraints.read_text(), re.MULTILINE))
    except OSError:
        yield Check("packages", "warn", f"{constraints} is not here, so versions are not compared")
        return
    needed = _runtime_requirements()
    different, missing = [], []
    for name, wanted in pinned.items():
        try:
            found = metadata.version(name)
        except metadata.PackageNotFoundError:
            if _normal(name) in needed:
                missing.append(name)
            continue
        if found.partition("+")[0] != wanted:  # "2.13.0+cpu" is a build of 2.13.0
            different.append(f"{name} {found} (known to work: {wanted})")
    remedy = f"pip install {_INSTALLABLE} -c {constraints}"
    if missing:
        yield Check("packages", "fail", f"missing: {', '.join(missing)}", remedy)
    if different:
        yield Check("packages", "warn", f"other versions: {', '.join(different)}", remedy)
    if not missing and not different:
        yield Check("packages", "ok", f"{len(pinned)} pinned versions agree with {constraints.name}")


def _runtime_requirements() -> frozenset[str]:
    try:
        requirements = metadata.requires("tollkeeper") or []
    except metadata.PackageNotFoundError:
        return frozenset()
    # A plain installation of the wheel has no extras; a checkout has all but the development tools.
    left_out = r"extra\s*==" if is_wheel() else r"extra\s*==\s*['\"]dev['\"]"
    runtime = [line for line in requirements if not re.search(left_out, line)]
    return frozenset(_normal(re.split(r"[^A-Za-z0-9._-]", line, maxsplit=1)[0]) for line in runtime)


def _normal(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def _check_ports(data: Path, ports: Ports, environment: Mapping[str, str]) -> Iterator[Check]:
    host = environment.get("TOLLKEEPER_HOST", "") or "127.0.0.1"
    is_running = Installation(data).is_supervised()
    taken = {name: port for name, port in ports.by_name().items() if not is_free(host, port)}
    for name, port in taken.items():
        detail = f"{port} ({name}) is held by {holder_of(port)}"
        if is_running:
            yield Check("ports", "ok", f"{detail}; `tollkeeper up` is running")
        else:
            yield Check("ports", "fail", detail, "stop it, or start with `tollkeeper up --port-base 18080`")
    if not taken:
        yield Check("ports", "ok", f"all free: {', '.join(str(port) for port in ports.by_name().values())}")


def _check_compiled(environment: Mapping[str, str]) -> Check:
    """Check whether the gateway's hot modules are compiled. Without that it runs a quarter slower."""
    found = find_compiled(environment=environment)
    if found.state in ("compiled", "off"):
        return Check("compiled modules", "ok", found.reason if found.state == "compiled" else f"off: {found.reason}")
    remedy = (
        "install the wheel that was built for this Python and platform"
        if is_wheel()
        else "make compile, with a C compiler and Python's headers (Debian, Ubuntu: apt install gcc python3-dev)"
    )
    return Check("compiled modules", "warn", f"interpreted: {found.reason}", remedy)


def _check_directory(data: Path) -> Check:
    """Check whether the data directory is writable, without creating it."""
    place = data.absolute()
    while not place.exists():
        place = place.parent
    if place.is_dir() and os.access(place, os.W_OK | os.X_OK):
        return Check("data directory", "ok", f"{data.absolute()} is writable")
    return Check("data directory", "fail", f"{place} is not writable", "choose another with --data or TOLLKEEPER_DATA")


def _check_disk(data: Path) -> Check:
    place = data.absolute()
    while not place.exists():
        place = place.parent
    free = shutil.disk_usage(place).free
    detail = f"{free / _GIB:.1f} GiB free at {place}"
    if free < _NO_DISK_BYTES:
        return Check("disk", "fail", detail, "free at least 1 GiB: the store refuses writes on a full disk")
    if free < _LOW_DISK_BYTES:
        return Check("disk", "warn", detail, "free 5 GiB or choose another --data")
    return Check("disk", "ok", detail)


def _check_pieces(data: Path) -> Iterator[Check]:
    """Yield a finding for data that was missing at an earlier start and was created again."""
    for loss in Pieces(data).losses():
        yield Check("data", "warn", loss.sentence, "once it is settled: tollkeeper doctor --forget-losses")


def _check_certificate(environment: Mapping[str, str]) -> Iterator[Check]:
    """Check the gateway's certificate, if it has one."""
    certificate, key = environment.get("TOLLKEEPER_TLS_CERTIFICATE"), environment.get("TOLLKEEPER_TLS_KEY")
    if not certificate and not key:
        return
    remedy = "set TOLLKEEPER_TLS_CERTIFICATE and TOLLKEEPER_TLS_KEY to a certificate in PEM and its key"
    if not certificate or not key:
        yield Check("certificate", "fail", "only one of certificate and key is set", remedy)
        return
    try:
        server_context(TlsFiles(Path(certificate), Path(key)))
        days = days_left(Path(certificate))
    except ConfigurationError as error:
        yield Check("certificate", "fail", error.message, remedy)
        return
    detail = f"{certificate} is valid for {days:.0f} more days"
    if days > _FEW_DAYS:
        yield Check("certificate", "ok", detail)
    else:
        yield Check(
            "certificate",
            "warn",
            detail if days > 0 else f"{certificate} has expired",
            "renew it: a running gateway reloads the files",
        )


def _check_channels(data: Path, environment: Mapping[str, str]) -> Iterator[Check]:
    """Yield alert channels whose latest notification was not delivered; none without a control database."""
    url = environment.get("TOLLKEEPER_DATABASE_URL", "")
    if not url and not (data / "control.db").exists():
        return
    from backends.control.alert_outbox import channel_faults  # imported here: no other check needs a database
    from backends.control.database import ControlDatabase
    from contracts.serving.configuration import control_database_url

    try:
        database = ControlDatabase(control_database_url(url, data))
        try:
            database.check_schema()
            with database.session() as session:
                faults = channel_faults(session)
        finally:
            database.close()
    except TollkeeperError as error:
        yield Check("alert channels", "warn", f"cannot be checked: {error.message}", "start with `tollkeeper up`")
        return
    for fault in faults:
        yield Check(
            "alert channels",
            "warn",
            f"{fault.channel} ({fault.kind}) did not receive its last notification of {fault.at:%Y-%m-%d %H:%M} UTC "
            f"({fault.state}): {fault.fault}",
            f"tollkeeper channels set {fault.channel} --address ADDRESS, then tollkeeper alerts test {fault.channel}",
        )


def _check_engine(ports: Ports, environment: Mapping[str, str]) -> Check:
    store_url = environment.get("TOLLKEEPER_STORE_URL", "")
    if store_url and not ports.names_own_store(store_url):
        return Check("store engine", "ok", "not needed: TOLLKEEPER_STORE_URL names a ClickHouse server")
    remedy = "install chdb as in constraints/base.txt, or set TOLLKEEPER_STORE_URL to a ClickHouse server"
    output = _output_of(sys.executable, "-P", "-c", _ENGINE_PROBE)
    if output is None:
        return Check("store engine", "fail", "the engine of the chdb wheel does not start", remedy)
    return Check("store engine", "ok", f"ClickHouse {output.strip().strip(chr(34))} from chdb {_version('chdb')}")


def _check_model_engine(environment: Mapping[str, str]) -> Check:
    remedy = f"pip install {_ENGINE} -c {_CONSTRAINTS}, or start with `tollkeeper up --no-engine`"
    try:
        found = metadata.version("torch")
    except metadata.PackageNotFoundError:
        return Check("model engine", "warn", "torch is not installed, so the built-in model is not served", remedy)
    models = environment.get("TOLLKEEPER_ENGINE_MODEL") or "the built-in model"
    return Check("model engine", "ok", f"torch {found}; serves {models}")


def _check_redis(environment: Mapping[str, str]) -> Check:
    if environment.get("TOLLKEEPER_REDIS_URL"):
        return Check("redis", "ok", "TOLLKEEPER_REDIS_URL is set")
    found = shutil.which("redis-server")
    if found:
        return Check("redis", "ok", found)
    return Check("redis", "warn", "not found; needed for several gateways only", "apt install redis-server")


def _check_postgres(environment: Mapping[str, str]) -> Check:
    if environment.get("TOLLKEEPER_DATABASE_URL", "").startswith("postgres"):
        return Check("postgresql", "ok", "TOLLKEEPER_DATABASE_URL names a PostgreSQL server")
    found = shutil.which("postgres") or next(iter(sorted(Path("/usr/lib/postgresql").glob("*/bin/postgres"))), None)
    if found:
        return Check("postgresql", "ok", str(found))
    return Check("postgresql", "warn", "not found; SQLite serves one machine", "apt install postgresql")


def _check_browser() -> Check:
    found = next((path for name in _BROWSERS if (path := shutil.which(name))), None)
    if found:
        return Check("chromium", "ok", found)
    return Check("chromium", "warn", "not found; needed for the dashboard's tests only", "apt install chromium")


def _check_gpu() -> Check:
    tool = shutil.which("nvidia-smi")
    query = "--query-gpu=name,memory.total,driver_version"
    output = _output_of(tool, query, "--format=csv,noheader") if tool else None
    if output:
        return Check("gpu", "ok", "; ".join(line.strip() for line in output.splitlines()))
    detail = "nvidia-smi finds no GPU" if tool else "no NVIDIA driver found"
    return Check("gpu", "warn", f"{detail}; engines run on the CPU", "install NVIDIA's driver, then the engine's wheel")


def _output_of(*command: str) -> str | None:
    """Return a command's output; `None` if it fails, is missing or takes too long."""
    try:
        finished = subprocess.run(command, capture_output=True, text=True, timeout=_PROBE_SECONDS, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return None
    return finished.stdout if finished.returncode == 0 else None


def _version(distribution: str) -> str:
    try:
        return metadata.version(distribution)
    except metadata.PackageNotFoundError as error:
        raise ConfigurationError(f"{distribution} runs but has no metadata; install it again") from error
