"""Which processes `up` runs, and what it tells them of the engine host."""

from pathlib import Path

import pytest

from backends.engine.settings import EngineHostSettings
from contracts.errors import ConfigurationError
from tollkeeper.children import ChildSpec
from tollkeeper.packaged_files import ROOT
from tollkeeper.plan import Choices, plan, vllm_host
from tollkeeper.ports import Ports

DATA = Path("/data/tk")


def children(choices: Choices, environment: dict[str, str] | None = None) -> dict[str, ChildSpec]:
    return {child.name: child for stage in plan(choices, environment or {}) for child in stage.children}


def served(environment: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> list[str]:
    for name, value in environment.items():
        if name.startswith("TOLLKEEPER_ENGINE_"):
            monkeypatch.setenv(name, value)
    return [order.name for order in EngineHostSettings().models]


def test_an_engine_host_with_the_built_in_model_is_the_default(monkeypatch: pytest.MonkeyPatch) -> None:
    found = children(Choices(DATA, Ports()))
    engine = dict(found["engine"].environment)
    assert served(engine, monkeypatch) == ["tollkeeper-5m"]
    assert engine["TOLLKEEPER_ENGINE_URL"] == f"unix://{DATA}/run/engine-default.sock"
    assert found["control"].environment["TOLLKEEPER_ENGINE_URL"] == engine["TOLLKEEPER_ENGINE_URL"]
    assert list(found).index("engine") < list(found).index("gateway")


def test_another_model_is_served_beside_it(monkeypatch: pytest.MonkeyPatch) -> None:
    found = children(Choices(DATA, Ports(), model="mine=/models/llama"))
    assert served(dict(found["engine"].environment), monkeypatch) == ["tollkeeper-5m", "mine"]


def test_without_an_engine_nobody_is_told_of_one() -> None:
    found = children(Choices(DATA, Ports(), has_engine=False))
    assert "engine" not in found
    assert not any("ENGINE" in name for child in found.values() for name in child.environment)


@pytest.mark.parametrize(
    ("host", "shows"),
    [
        ("127.0.0.1", False),
        ("127.9.9.9", False),
        ("::1", False),
        ("localhost", False),
        ("0.0.0.0", True),
        ("::", True),
        ("192.0.2.7", True),
        ("gateway.example", True),
    ],
)
def test_the_dashboard_is_shown_to_others_unless_it_listens_on_the_loopback_interface(host: str, shows: bool) -> None:
    assert Choices(DATA, Ports(), host).shows_dashboard_to_others == shows
    assert not Choices(DATA, Ports(), host, has_dashboard=False).shows_dashboard_to_others


def test_a_named_host_has_its_own_socket() -> None:
    named = children(Choices(DATA, Ports()), {"TOLLKEEPER_ENGINE_NAME": "gpu0"})["control"].environment
    assert named["TOLLKEEPER_ENGINE_URL"] == f"unix://{DATA}/run/engine-gpu0.sock"
    placed = children(Choices(DATA, Ports()), {"TOLLKEEPER_ENGINE_SOCKET": "/run/tk.sock"})["control"].environment
    assert placed["TOLLKEEPER_ENGINE_URL"] == "unix:///run/tk.sock"


def test_several_workers_share_the_port_and_each_knows_which_it_is() -> None:
    found = children(Choices(DATA, Ports(), workers=3), {"TOLLKEEPER_REDIS_URL": "redis://127.0.0.1:6379/0"})
    workers = [found[name].environment for name in ("gateway", "gateway-2", "gateway-3")]
    assert [environment["TOLLKEEPER_WORKER"] for environment in workers] == ["1", "2", "3"]
    assert {environment["TOLLKEEPER_WORKERS"] for environment in workers} == {"3"}
    assert len({environment["TOLLKEEPER_GATEWAY_PORT"] for environment in workers}) == 1


def test_several_workers_without_shared_counters_are_refused() -> None:
    with pytest.raises(ConfigurationError, match="2 workers would each allow the whole.*TOLLKEEPER_REDIS_URL"):
        plan(Choices(DATA, Ports(), workers=2), {})


def test_a_host_of_kind_vllm_has_a_python_of_its_own_and_is_not_waited_for() -> None:
    chosen = Choices(DATA, Ports())
    stated = {"TOLLKEEPER_ENGINE_KIND": "vllm", "OPENAI_API_KEY": "x", "TOLLKEEPER_PROVIDERS_KEYS": "env:OPENAI_*"}
    found = children(chosen, stated)
    assert "engine" not in found
    host = vllm_host(chosen, stated, Path("/opt/vllm/bin/python"))
    assert host.command == ("/opt/vllm/bin/python", "-P", "-m", "backends.engine")
    assert host.environment["PYTHONPATH"] == str(ROOT)
    assert "OPENAI_API_KEY" not in host.environment, "an engine has no use for a provider's key"
    assert host.environment["TOLLKEEPER_ENGINE_URL"] == found["control"].environment["TOLLKEEPER_ENGINE_URL"]


@pytest.mark.parametrize(
    ("stated", "model", "expected"),
    [
        ({}, "", ["tollkeeper-5m"]),
        ({}, "mine=/models/llama", ["mine"]),
        ({"TOLLKEEPER_ENGINE_MODEL": "a=/a,b=/b"}, "mine=/models/llama", ["a", "b", "mine"]),
    ],
)
def test_vllm_takes_the_gpu_for_one_model_unless_several_are_named(
    stated: dict[str, str], model: str, expected: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    environment = {"TOLLKEEPER_ENGINE_KIND": "vllm", **stated}
    host = vllm_host(Choices(DATA, Ports(), model=model), environment, Path("python"))
    assert served(dict(host.environment), monkeypatch) == expected
    control = children(Choices(DATA, Ports(), model=model), environment)["control"].environment
    assert control["TOLLKEEPER_ENGINE_MODEL"] == host.environment["TOLLKEEPER_ENGINE_MODEL"]
    assert control["TOLLKEEPER_ENGINE_EMBEDDER"] == "false", "nothing is offered that the host does not have"


def test_an_insert_in_doubt_is_settled_before_migrations_and_after_a_check_that_writes_nothing() -> None:
    stages = plan(Choices(DATA, Ports(), settles=True), {})
    begun = [(stage.children[0].name, stage.children[0].command[3:], stage.runs_once) for stage in stages[:4]]
    assert begun == [
        ("store", ("backends.store",), False),
        ("migrations", ("migrations", "--check"), True),
        ("settle", ("collector", "--settle"), True),
        ("migrations", ("migrations",), True),
    ]
    assert "settle" not in children(Choices(DATA, Ports()))
