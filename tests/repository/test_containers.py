"""The Dockerfile and docker-compose.yml, read and held against the code: nothing here starts a container."""

import importlib.util
import json
import re
import tomllib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Annotated, Any, Literal, get_args, get_origin
from xml.etree import ElementTree

import compose_spec
import pytest
import yaml
from pydantic import TypeAdapter, ValidationError
from pydantic.fields import FieldInfo
from pydantic_settings import BaseSettings

from backends.processes.process import require_known_variables
from backends.store.row_policies import POLICIES

ROOT = Path(__file__).resolve().parents[2]
COMPOSE: dict[str, Any] = yaml.safe_load((ROOT / "docker-compose.yml").read_text())
SERVICES: dict[str, dict[str, Any]] = COMPOSE["services"]
DOCKERFILE = (ROOT / "Dockerfile").read_text()
OURS = sorted(name for name, service in SERVICES.items() if "build" in service and name != "backup")
GATEWAYS = ("gateway-1", "gateway-2")
TARGETS = re.findall(r"^FROM \S+ AS ([a-z]+)$", DOCKERFILE, re.MULTILINE)
INTERPOLATION = re.compile(r"\$\{([A-Z_]+)")

PICKER = "gateway.routing.picker"
SIDECAR = "gateway.observability.sidecar"
TOOLS = "backends.tool_host"
# Compose runs a ClickHouse server in place of the first, and has neither an Envoy that would ask the picker, nor a vLLM
# that is somebody else's, nor an image with the programs that an operator chooses.
ELSEWHERE = ("backends.store", PICKER, SIDECAR, TOOLS)
PREFIX = "TOLLKEEPER_"
Settings = Mapping[str, type[BaseSettings]]


def module_of(service: str) -> str:
    """Return the module that a service of ours runs."""
    command = SERVICES[service]["command"]
    assert command[1] == "-m" and command[0] in ("python", "python3"), command
    return str(command[2])


def environment_of(service: str) -> dict[str, str]:
    environment = SERVICES[service].get("environment", {})
    return {name: str(value) for name, value in environment.items()}


def filled(value: str) -> str:
    """Return a value as compose fills it from .env: a secret, or what stands there for none."""
    return re.sub(r"\$\{[A-Z_]+:-([^}]*)\}", r"\1", re.sub(r"\$\{[A-Z_]+:\?[^}]*\}", "secret", value))


def environment_of_image() -> dict[str, str]:
    """Every image has these; those of one image alone are constants of its process."""
    base = re.split(r"^FROM ", DOCKERFILE, flags=re.MULTILINE)[1]
    return dict(re.findall(r"(TOLLKEEPER_[A-Z_]+)=(\S+)", base))


def default_port(classes: Settings, service: str, suffix: str = "port") -> set[int]:
    fields = classes[module_of(service)].model_fields
    return {field.default for name, field in fields.items() if name.endswith(suffix)}


def variables(classes: Settings, module: str) -> set[str]:
    fields = classes[module].model_fields
    return {f"{classes[module].model_config.get('env_prefix', '')}{name}".upper() for name in fields}


def mounts() -> Iterator[tuple[str, str, str]]:
    for name, service in SERVICES.items():
        for mount in service.get("volumes", []):
            source, target = mount.split(":")[:2]
            yield name, source, target


def health_url(service: str) -> tuple[int, str]:
    test = " ".join(SERVICES[service]["healthcheck"]["test"])
    if test.endswith("-m gateway.process.probe"):
        return 8080, "/ready"
    found = re.search(r"http://127\.0\.0\.1:(\d+)(/[\w/]*)", test)
    assert found is not None, service
    return int(found.group(1)), found.group(2)


def test_every_process_has_a_service(settings_classes: Settings) -> None:
    assert {module_of(service) for service in OURS} == set(settings_classes) - set(ELSEWHERE)
    assert {"store", "postgres", "redis", "engine", "proxy", "prometheus", "grafana", "backup"} <= set(SERVICES)
    assert {module_of(service) for service in GATEWAYS} == {"gateway"}


@pytest.mark.parametrize("service", OURS)
def test_every_command_is_a_module_that_runs(service: str) -> None:
    module = module_of(service)
    spec = importlib.util.find_spec(module)
    assert spec is not None
    if spec.submodule_search_locations is not None:
        assert importlib.util.find_spec(f"{module}.__main__") is not None


def test_the_image_starts_with_a_module_that_runs() -> None:
    found = re.findall(r'^CMD \["python3?", "-m", "([a-z.]+)"\]$', DOCKERFILE, re.MULTILINE)
    assert len(found) == 7
    for module in found:
        assert importlib.util.find_spec(f"{module}.__main__") is not None


@pytest.mark.parametrize("service", OURS)
def test_every_variable_is_a_setting_of_its_process(service: str, settings_classes: Settings) -> None:
    known = variables(settings_classes, module_of(service))
    # Beside its settings, the data plane reads what the control database names as the place of a target's key.
    bootstrap = (ROOT / "gateway" / "control" / "app.py").read_text()
    named_keys = set(re.findall(r'"env:(TOLLKEEPER_[A-Z_]+)"', bootstrap)) if service in GATEWAYS else set()
    assert set(environment_of(service)) - {"HF_HOME"} <= known | named_keys


@pytest.mark.parametrize("service", OURS)
def test_every_value_is_one_that_its_process_takes(
    service: str, settings_classes: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in (environment_of_image() | environment_of(service)).items():
        monkeypatch.setenv(name, filled(value))
    settings_classes[module_of(service)]()


def test_the_image_s_variables_are_settings(settings_classes: Settings) -> None:
    known = set().union(*(variables(settings_classes, module) for module in settings_classes))
    assert environment_of_image()
    assert set(environment_of_image()) <= known


def test_processes_find_each_other(settings_classes: Settings) -> None:
    """Every host in a URL is a service, on the port that it listens on."""
    listening = {name: default_port(settings_classes, name) for name in OURS if name not in ("migrations", "vllm")}
    listening |= {"store": {8123, 9000}, "postgres": {5432}, "redis": {6379}}
    found = 0
    for service in OURS:
        for name, value in environment_of(service).items():
            for host, port in re.findall(r"(?:://|@)([a-z][a-z0-9-]*):(\d+)(?:/|,|$)", value):
                assert int(port) in listening[host], f"{service}: {name}"
                found += 1
    assert found > 15


# What docker-compose.yml says about where the services are; it wins over tollkeeper.env.
WIRED = {
    "DATABASE_URL OBJECTS_URL STORE_URL STORE_PASSWORD COLLECTOR_URL CONTROL_URL GATEWAY_URL GATEWAY_NAME REDIS_URL",
    "PROVIDERS_URL PROVIDERS_SOCKET PROVIDERS_KEYS ENGINE_URL ENGINE_SOCKET ENGINE_NAME ENGINE_MODEL ENGINE_KIND",
    "METRICS_TOKEN TRUSTED_PROXIES WATCHED_PROCESSES",
}


# Values of settings for which no guess by their type will do.
VALUES = {
    "TOLLKEEPER_ALERTS_INWARD": "10.0.0.0/8",
    "TOLLKEEPER_ALERTS_SMTP_FROM": "alerts@example.org",
    "TOLLKEEPER_COLLECTOR_REDACT": "emails",
    "TOLLKEEPER_COLLECTOR_TENANT_QUOTAS": "acme=5",
    "TOLLKEEPER_DASHBOARD_CURRENCY": "EUR",
    "TOLLKEEPER_DASHBOARD_LOCALE": "de",
    "TOLLKEEPER_ENGINE_ADAPTERS": "other=/other/place",
    "TOLLKEEPER_ENGINE_SLEEP_AFTER_SECONDS": "2",
    "TOLLKEEPER_STORE_MEMORY_BYTES": "1000000000",
    "TOLLKEEPER_FORWARD_OTLP_HEADERS": "x-key=value",
    "TOLLKEEPER_GUARDRAILS_INWARD": "10.0.0.0/8",
    "TOLLKEEPER_KUBERNETES_URL": "https://api.example.org:6443",
    "TOLLKEEPER_PROVIDERS_INWARD": "10.0.0.0/8",
    "TOLLKEEPER_RECORD_SIGNING_KEY": "k" * 40,
    "TOLLKEEPER_ANSWER_CACHE_REDIS_URL": "rediss+sentinel://s1,s2/main",
}
GUESSES = ("true", "false", "3", "2", "40", "7.5", "0.25", "200", "70000", "20000000", "other", "/other/place")


def other_value(name: str, field: FieldInfo) -> str:
    """Return a value that a setting takes and that is not its default."""
    if name in VALUES:
        return VALUES[name]
    default = field.get_default(call_default_factory=True)
    kinds = [field.annotation, *get_args(field.annotation)]
    words = [str(word) for each in kinds if get_origin(each) is Literal for word in get_args(each)]
    kind: Any = Annotated[field.annotation, field]
    read: TypeAdapter[Any] = TypeAdapter(kind)
    for guess in (*words, *GUESSES):
        try:
            if read.validate_strings(guess) != default:
                return guess
        except ValidationError:
            continue
    raise AssertionError(f"no value is known for {name}; add one to VALUES")


@pytest.mark.filterwarnings("ignore::pydantic.warnings.UnsupportedFieldAttributeWarning")
@pytest.mark.parametrize("service", OURS)
def test_every_setting_of_the_file_is_seen_inside_its_process(
    service: str, settings_classes: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As compose does it: the image's variables, then tollkeeper.env, then `environment`, the last one counts."""
    files = [entry["path"] for entry in SERVICES[service]["env_file"]]
    assert files == ["tollkeeper.env"], "a copy of .env.example, whose settings are all there are"
    chosen = chosen_values(settings_classes[module_of(service)])
    wired = {f"{PREFIX}{name}" for line in WIRED for name in line.split()}
    assert set(environment_of(service)) & set(chosen) <= wired, "tollkeeper.env cannot set them"
    for variable, value in {**environment_of_image(), **chosen, **environment_of(service)}.items():
        monkeypatch.setenv(variable, filled(value))
    assert unseen(settings_classes[module_of(service)]) <= wired


@pytest.mark.filterwarnings("ignore::pydantic.warnings.UnsupportedFieldAttributeWarning")
@pytest.mark.parametrize("module", ELSEWHERE)
def test_every_setting_is_seen_inside_the_processes_that_compose_does_not_run(
    module: str, settings_classes: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    chosen = chosen_values(settings_classes[module])
    assert len(chosen) > 5
    for variable, value in chosen.items():
        monkeypatch.setenv(variable, value)
    assert unseen(settings_classes[module]) == set()


def chosen_values(settings: type[BaseSettings]) -> dict[str, str]:
    """Return a value for every setting of a process that is not its default; each is one of .env.example."""
    chosen = {f"{PREFIX}{name}".upper(): field for name, field in settings.model_fields.items()}
    written = set(re.findall(r"^#?(TOLLKEEPER_[A-Z0-9_]+)=", (ROOT / ".env.example").read_text(), re.MULTILINE))
    assert set(chosen) <= written
    return {variable: other_value(variable, field) for variable, field in chosen.items()}


def unseen(settings: type[BaseSettings]) -> set[str]:
    """Return the variables whose setting has its default inside the process."""
    require_known_variables()
    inside = settings()
    return {
        f"{PREFIX}{name}".upper()
        for name, field in settings.model_fields.items()
        if getattr(inside, name) == field.get_default(call_default_factory=True)
    }


def test_all_settings_together_reach_some_service(settings_classes: Settings) -> None:
    reached = set().union(*(variables(settings_classes, module_of(service)) for service in OURS))
    everywhere = set().union(*(variables(settings_classes, module) for module in settings_classes))
    elsewhere = set().union(*(variables(settings_classes, module) for module in ELSEWHERE))
    assert everywhere - elsewhere <= reached and len(reached) > 170


def test_the_file_is_what_compose_takes() -> None:
    """Read by a parser of the Compose specification that refuses unknown keys and impossible values."""
    parsed = compose_spec.PyCompose.from_json(json.dumps(COMPOSE))
    assert set(parsed.service_names()) == set(SERVICES)
    wrong = {**COMPOSE, "services": {**SERVICES, "redis": {**SERVICES["redis"], "stop_grace_perod": "1s"}}}
    with pytest.raises(ValueError, match="stop_grace_perod"):
        compose_spec.PyCompose.from_json(json.dumps(wrong))


@pytest.mark.parametrize("service", SERVICES)
def test_every_service_is_bounded_and_has_time_to_stop(service: str) -> None:
    found = SERVICES[service]
    assert found["deploy"]["resources"]["limits"]["memory"]
    assert found["stop_grace_period"] in ("30s", "60s") and found["logging"]["options"]["max-size"]
    assert "no-new-privileges:true" in found["security_opt"]
    assert found["read_only"] is True and found["cap_drop"] == ["ALL"] and "privileged" not in found
    assert service == "store" or "cap_add" not in found
    assert any(mount.startswith("/tmp") for mount in found["tmpfs"])


# What these images write beside /tmp, and as whom: their start scripts become this user if they are started as root.
WRITTEN = {
    "postgres": ("postgres", {"/var/lib/postgresql/data", "/var/run/postgresql"}),
    "redis": ("redis", {"/data"}),
    "store": ("101:101", {"/var/lib/clickhouse", "/var/log/clickhouse-server", "/etc/clickhouse-server/users.d"}),
    "prometheus": (None, {"/prometheus"}),
    "grafana": (None, {"/var/lib/grafana"}),
}


@pytest.mark.parametrize("service", WRITTEN)
def test_what_the_databases_write_is_writable_though_their_root_is_not(service: str) -> None:
    found, (user, written) = SERVICES[service], WRITTEN[service]
    volumes = {mount.split(":")[1] for mount in found["volumes"] if not mount.endswith(":ro")}
    memory = {mount.split(":")[0] for mount in found["tmpfs"]}
    assert volumes | memory == written | {"/tmp"}
    assert found.get("user") == user


@pytest.mark.parametrize("service", [name for name in SERVICES if "build" in SERVICES[name]])
def test_what_a_process_writes_lies_on_a_volume_or_in_memory(service: str) -> None:
    places = {mount.split(":")[1] for mount in SERVICES[service].get("volumes", [])}
    places |= {mount.split(":")[0] for mount in SERVICES[service].get("tmpfs", [])}
    assert "/tmp" in places
    assert "/data" in places or service in ("control", "migrations"), "the data directory is not writable"


def test_gateways_share_what_makes_them_one_and_nothing_else() -> None:
    first, second = (environment_of(name) for name in GATEWAYS)
    assert {name for name in first if first[name] != second[name]} == {"TOLLKEEPER_GATEWAY_NAME"}
    assert first["TOLLKEEPER_REDIS_URL"] and first["TOLLKEEPER_OBJECTS_URL"].startswith("postgresql://")
    journals = [source for name, source, target in mounts() if name in GATEWAYS and target == "/data"]
    assert len(set(journals)) == 2, "a journal has one writer"


def test_stopping_takes_less_than_the_grace_period(settings_classes: Settings) -> None:
    drain = settings_classes["gateway"].model_fields["drain_seconds"].default
    for name in GATEWAYS:
        assert float(SERVICES[name]["stop_grace_period"].removesuffix("s")) >= 3 * drain


def test_prometheus_asks_the_services() -> None:
    asked = yaml.safe_load((ROOT / "deploy" / "grafana" / "prometheus.yml").read_text())
    hosts = {
        target.split(":")[0]
        for job in asked["scrape_configs"]
        for each in job["static_configs"]
        for target in each["targets"]
    }
    assert hosts == {*GATEWAYS, "collector", "analytics"}


@pytest.mark.parametrize("service", [name for name in OURS if "ports" in SERVICES[name]])
def test_published_ports_are_the_settings_defaults(service: str, settings_classes: Settings) -> None:
    published = {int(port.split(":")[-1]) for port in SERVICES[service]["ports"]}
    assert published <= default_port(settings_classes, service)
    exposed = {int(port) for line in re.findall(r"^EXPOSE (.+)$", DOCKERFILE, re.MULTILINE) for port in line.split()}
    assert published <= exposed


def test_only_the_data_plane_is_published_beyond_this_host() -> None:
    open_ports = [name for name in SERVICES for port in SERVICES[name].get("ports", []) if port.count(":") == 1]
    assert open_ports == ["proxy"], "in TLS"


@pytest.mark.parametrize(
    "service", sorted(set(OURS) - {"migrations", "engine", "providers", "vllm"})
)  # hosts answer on sockets
def test_health_is_asked_where_the_process_answers(service: str, settings_classes: Settings) -> None:
    port, path = health_url(service)
    assert port in default_port(settings_classes, service)
    if service == "dashboard":
        return  # the path is Streamlit's own
    package = ROOT.joinpath(*module_of(service).split("."))
    sources = " ".join(file.read_text() for file in package.rglob("*.py"))
    assert f'"{path}"' in sources


def test_every_service_that_runs_on_has_a_health_check() -> None:
    assert {name for name in SERVICES if "healthcheck" not in SERVICES[name]} == {"migrations"}


def test_what_a_service_waits_for_exists_and_can_come_true() -> None:
    for name, service in SERVICES.items():
        for needed, how in service.get("depends_on", {}).items():
            assert needed in SERVICES, f"{name} waits for {needed}"
            assert "profiles" not in SERVICES[needed], f"{name} waits for {needed}, which a profile may leave out"
            if how["condition"] == "service_healthy":
                assert "healthcheck" in SERVICES[needed]
            else:
                assert SERVICES[needed]["restart"] in ("no", "on-failure"), f"{needed} never completes"


def test_volumes_are_declared_and_used() -> None:
    named = {source for _, source, _ in mounts() if not source.startswith(".")}
    assert named == set(COMPOSE["volumes"])
    for name, source, _ in mounts():
        is_there = not source.startswith(".") or (ROOT / source).exists()
        assert is_there or source == "./certificates", f"{name} mounts {source}"


def test_volumes_of_ours_lie_on_directories_that_the_user_of_the_image_owns() -> None:
    owned = set(re.findall(r"install --directory .*?((?: /\S+)+)$", DOCKERFILE, re.MULTILINE)[0].split())
    of_vllm = set(re.findall(r"install --directory .*?((?: /\S+)+)$", DOCKERFILE, re.MULTILINE)[1].split())
    for name, _, target in mounts():
        if "build" in SERVICES[name]:
            assert target in (of_vllm if name == "vllm" else owned), f"{name}: {target}"
    assert environment_of_image()["TOLLKEEPER_DATA"] in owned


def test_no_secret_stands_in_the_files() -> None:
    for name in SERVICES:
        for variable, value in environment_of(name).items():
            if re.search(r"PASSWORD|SECRET|TOKEN|(^|_)KEY$", variable):
                assert re.fullmatch(r"\$\{[A-Z_]+:(\?[^}]+|-)\}", value), f"{name}: {variable}"
            if "@" in value:
                assert re.search(r"://\w+:\$\{[A-Z_]+:\?[^}]+\}@", value), f"{name}: {variable}"
    assert not re.search(r"PASSWORD|SECRET|TOKEN", DOCKERFILE)


def test_every_variable_taken_from_the_environment_is_explained() -> None:
    taken = set(INTERPOLATION.findall((ROOT / "docker-compose.yml").read_text()))
    explained = set(re.findall(r"^#?([A-Z_]+)=", (ROOT / ".env.example").read_text(), re.MULTILINE))
    assert taken <= explained


def test_every_image_is_pinned() -> None:
    images = [service["image"] for service in SERVICES.values()]
    images += re.findall(r"^ARG (?:BASE|VLLM)=(\S+)$", DOCKERFILE, re.MULTILINE)
    for image in images:
        assert re.search(r":v?\d+(\.\d+)*(-[a-z]+)?$", image), image
    started = set(re.findall(r"^FROM (\S+)", DOCKERFILE, re.MULTILINE))
    assert started <= {"${BASE}", "${VLLM}", "base", "build", "fonts"}


def test_the_stores_and_engines_are_the_versions_that_are_tested() -> None:
    pins = (ROOT / "constraints" / "base.txt").read_text()
    engine = re.search(r"^chdb-core==(\d+\.\d+)\.", pins, re.MULTILINE)
    assert engine is not None
    assert SERVICES["store"]["image"] == f"clickhouse/clickhouse-server:{engine.group(1)}"
    vllm = re.search(r"^vllm==(\S+)$", (ROOT / "constraints" / "vllm.txt").read_text(), re.MULTILINE)
    assert vllm is not None
    assert f"ARG VLLM=vllm/vllm-openai:v{vllm.group(1)}\n" in DOCKERFILE


def test_images_have_our_version_and_the_parts_of_their_processes() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    for name, service in SERVICES.items():
        if "build" in service:
            target = service["build"]["target"]
            assert target in TARGETS and service["image"] == f"tollkeeper-{target}:{project['version']}", name
    installed = re.findall(r"^RUN deploy/images/install.sh (\S+)$", DOCKERFILE, re.MULTILINE)
    assert len(installed) == 6
    for parts in installed:
        assert set(parts.split(",")) <= set(project["optional-dependencies"]) or parts == "providers"
    assert (ROOT / "deploy" / "images" / "install.sh").stat().st_mode & 0o111


def test_what_the_images_copy_exists_and_none_runs_as_root() -> None:
    for sources in re.findall(r"^COPY (?!--from)(.+) \S+$", DOCKERFILE, re.MULTILINE):
        assert all((ROOT / source).exists() for source in sources.split())
    served = [stage for stage in re.split(r"^FROM ", DOCKERFILE, flags=re.MULTILINE)[1:] if "\nCMD " in stage]
    assert len(served) == 7
    for stage in served:
        assert re.findall(r"^USER (\S+)", stage, re.MULTILINE) == ["tollkeeper"], stage[:60]


def test_the_build_does_not_see_secrets_or_environments() -> None:
    ignored = (ROOT / ".dockerignore").read_text().split()
    assert {".env", "tollkeeper.env", "certificates", ".tollkeeper", ".git", ".venv"} <= set(ignored)


def test_the_server_s_users_have_the_embedded_store_s_rights() -> None:
    """What runs against the embedded store's users runs against the server's, too."""
    users = ElementTree.parse(ROOT / "deploy" / "clickhouse" / "users.xml").getroot()
    embedded = (ROOT / "backends" / "store" / "engine_files.py").read_text().replace("{database}", "tollkeeper")
    granted = {
        name: [query.text or "" for query in users.findall(f"users/{name}/grants/query")]
        for name in ("writer", "reader")
    }
    assert granted["writer"] and granted["reader"]
    for grant in granted["writer"] + granted["reader"]:
        assert grant in embedded
    for name in granted:
        password = users.find(f"users/{name}/password")
        assert password is not None and password.text is None
        assert password.get("from_env") in environment_of("store")
    assert users.findtext("profiles/default/async_insert") == "0"
    assert users.findtext("profiles/reading/readonly") == "2"


def test_the_server_s_bound_readers_have_the_embedded_store_s_policies() -> None:
    """Who is bound to a tenant or team is held by a server as by the embedded store."""
    users = ElementTree.parse(ROOT / "deploy" / "clickhouse" / "users.xml").getroot()
    for name, policies in POLICIES.items():
        user = users.find(f"users/{name}")
        assert user is not None and user.findtext("profile") == "reading"
        granted = [query.text for query in user.findall("grants/query")]
        assert granted == [f"GRANT SELECT ON tollkeeper.`{table}`" for table in policies]
        filters = {table.tag: table.findtext("filter") for table in user.findall("databases/tollkeeper/*")}
        assert filters == policies


@pytest.mark.parametrize("place", ["/data/audit", "/data/secrets"])
def test_what_vouches_for_the_audit_outlives_the_control_planes_container(place: str) -> None:
    mounted = {volume.split(":")[1]: volume.split(":")[0] for volume in SERVICES["control"]["volumes"]}
    assert mounted[place] in COMPOSE["volumes"]
