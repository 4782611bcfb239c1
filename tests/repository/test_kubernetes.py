"""deploy/kubernetes, rendered by kubectl and held against the API's schemas and against the code."""

import importlib.util
import os
import re
import shutil
import subprocess
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Any

import kubernetes_validate
import pytest
import yaml
from pydantic_settings import BaseSettings

from contracts.serving.discovery import discover_of
from contracts.serving.setting_names import SETTING_NAMES
from gateway.config.file import FileSource

ROOT = Path(__file__).resolve().parents[2]
FOLDER = ROOT / "deploy" / "kubernetes"
OVERLAYS = ("single", "ha", "gpu")
VERSION = "1.37"
OTHERS_KINDS = {
    "ServiceMonitor",
    "ScaledObject",
}  # of the Prometheus operator and KEDA: their schemas are not known here

Settings = Mapping[str, type[BaseSettings]]
pytestmark = [
    pytest.mark.service,
    pytest.mark.skipif(shutil.which("kubectl") is None, reason="needs kubectl (apt-get install kubernetes-client)"),
]


@cache
def rendered(overlay: str) -> tuple[dict[str, Any], ...]:
    command = ["kubectl", "kustomize", str(FOLDER / "overlays" / overlay)]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return tuple(yaml.safe_load_all(done.stdout))


def of_kind(overlay: str, *kinds: str) -> dict[str, dict[str, Any]]:
    return {each["metadata"]["name"]: each for each in rendered(overlay) if each["kind"] in kinds}


def pods(overlay: str) -> dict[str, dict[str, Any]]:
    return {
        name: each["spec"]["template"]["spec"] for name, each in of_kind(overlay, "StatefulSet", "Deployment").items()
    }


def containers(overlay: str) -> Iterator[tuple[str, dict[str, Any]]]:
    for name, pod in pods(overlay).items():
        for container in [*pod.get("initContainers", []), *pod["containers"]]:
            yield name, container


def settings_of(overlay: str) -> dict[str, str]:
    (found,) = of_kind(overlay, "ConfigMap").values()
    return dict(found["data"])


@pytest.mark.parametrize("overlay", OVERLAYS)
def test_every_object_is_valid(overlay: str) -> None:
    found = [each for each in rendered(overlay) if each["kind"] not in OTHERS_KINDS]
    assert len(found) > 15
    for each in found:
        kubernetes_validate.validate(each, VERSION, strict=True)


def test_the_validator_finds_a_misspelt_field() -> None:
    wrong = {**of_kind("single", "StatefulSet")["gateway"]}
    wrong["spec"] = {**wrong["spec"], "replica": 3}
    with pytest.raises(kubernetes_validate.ValidationError):
        kubernetes_validate.validate(wrong, VERSION, strict=True)


@pytest.mark.parametrize("overlay", OVERLAYS)
def test_every_variable_is_a_setting_and_no_secret_is_written_down(overlay: str) -> None:
    assert set(settings_of(overlay)) <= SETTING_NAMES
    assert of_kind(overlay, "Secret") == {}, "secrets are made by the operator and referred to"
    for name, container in containers(overlay):
        for variable in container["env"]:
            assert variable["name"] in SETTING_NAMES | {"HF_HOME"}, f"{name}: {variable['name']}"
            if re.search("PASSWORD|DATABASE_URL|OBJECTS_URL|REDIS_URL", variable["name"]):
                assert "secretKeyRef" in variable["valueFrom"]
        assert container["envFrom"][0]["configMapRef"]["name"] in of_kind(overlay, "ConfigMap")


@pytest.mark.parametrize("overlay", OVERLAYS)
def test_every_pod_is_hardened_and_gets_no_variables_of_services(overlay: str) -> None:
    for name, pod in pods(overlay).items():
        assert pod["enableServiceLinks"] is False, f"{name}: they would be taken for misspelt settings"
        assert pod["automountServiceAccountToken"] is False
        assert pod["securityContext"]["runAsNonRoot"] is True and pod["securityContext"]["runAsUser"] == 10001
        spread = pod["topologySpreadConstraints"][0]["labelSelector"]["matchLabels"]
        assert spread["app.kubernetes.io/component"] == name
    for name, container in containers(overlay):
        secured = container["securityContext"]
        assert secured["readOnlyRootFilesystem"] and not secured["allowPrivilegeEscalation"], name
        assert secured["capabilities"] == {"drop": ["ALL"]}
        assert container["resources"]["limits"]["memory"] and container["resources"]["requests"]["cpu"]


@pytest.mark.parametrize("overlay", OVERLAYS)
def test_containers_run_modules_of_their_images_and_are_probed_on_their_ports(
    overlay: str, settings_classes: Settings
) -> None:
    dockerfile = (ROOT / "Dockerfile").read_text()
    targets = re.findall(r"^FROM \S+ AS ([a-z]+)$", dockerfile, re.MULTILINE)
    for name, container in containers(overlay):
        module = container["command"][2]
        assert importlib.util.find_spec(module) is not None
        image, _, _ = container["image"].partition(":")
        assert image.removeprefix("tollkeeper-") in targets
        defaults = {field.default for field in settings_classes[module].model_fields.values()}
        ports = {port["name"]: port["containerPort"] for port in container.get("ports", [])}
        assert set(ports.values()) <= defaults | {9400}, f"{name}: {ports}"
        if module == "migrations":
            continue
        for probe in ("startupProbe", "readinessProbe", "livenessProbe"):
            asked = container[probe].get("httpGet") or container[probe]["tcpSocket"]
            assert asked["port"] in ports


@pytest.mark.parametrize("overlay", OVERLAYS)
def test_a_gateway_leaves_its_service_before_it_is_told_to_end(overlay: str, settings_classes: Settings) -> None:
    pod = pods(overlay)["gateway"]
    notice = pod["containers"][0]["lifecycle"]["preStop"]["sleep"]["seconds"]
    probe = pod["containers"][0]["readinessProbe"]
    drain = float(settings_of(overlay)["TOLLKEEPER_DRAIN_SECONDS"])
    assert notice >= 2 * probe["periodSeconds"] * probe["failureThreshold"]
    assert pod["terminationGracePeriodSeconds"] >= notice + drain + 10


@pytest.mark.parametrize("overlay", OVERLAYS)
def test_what_has_a_journal_keeps_it(overlay: str) -> None:
    stateful = of_kind(overlay, "StatefulSet")
    assert {"gateway", "collector", "control"} <= set(stateful)
    services = of_kind(overlay, "Service")
    for name, each in stateful.items():
        assert services[each["spec"]["serviceName"]]["spec"]["clusterIP"] == "None"
        claims = {claim["metadata"]["name"] for claim in each["spec"].get("volumeClaimTemplates", [])}
        assert claims == (set() if name == "engine" else {"data"})


@pytest.mark.parametrize("overlay", OVERLAYS)
def test_services_and_policies_lead_to_pods_and_ports_that_exist(overlay: str) -> None:
    components = set(pods(overlay))
    open_ports = {
        name: {port["containerPort"] for port in pod["containers"][0].get("ports", [])}
        for name, pod in pods(overlay).items()
    }
    names = {
        name: {port["name"] for port in pod["containers"][0].get("ports", [])} for name, pod in pods(overlay).items()
    }
    for each in of_kind(overlay, "Service").values():
        component = each["spec"]["selector"]["app.kubernetes.io/component"]
        assert {port["targetPort"] for port in each["spec"]["ports"]} <= names[component]
    for each in of_kind(overlay, "NetworkPolicy").values():
        component = each["spec"]["podSelector"]["matchLabels"].get("app.kubernetes.io/component")
        for rule in each["spec"].get("ingress", []):
            assert {port["port"] for port in rule["ports"]} <= open_ports[component]
    services = {each["metadata"]["name"] for each in rendered(overlay) if each["kind"] == "Service"}
    for value in settings_of(overlay).values():
        assert set(re.findall(r"https?://([a-z-]+)", value)) <= services | {"clickhouse"}
    assert components <= services | {"engine"}


def test_several_gateways_count_together_and_stand_apart() -> None:
    pod = pods("ha")["gateway"]
    variables = {variable["name"] for variable in pod["containers"][0]["env"]}
    assert "TOLLKEEPER_REDIS_URL" in variables and "TOLLKEEPER_OBJECTS_URL" in variables
    assert pod["topologySpreadConstraints"][0]["whenUnsatisfiable"] == "DoNotSchedule"
    assert of_kind("ha", "StatefulSet")["gateway"]["spec"]["replicas"] >= 2
    assert of_kind("ha", "PodDisruptionBudget")["gateway"]["spec"]["maxUnavailable"] == 1
    scaled = of_kind("ha", "HorizontalPodAutoscaler")["gateway"]["spec"]
    assert scaled["scaleTargetRef"]["kind"] == "StatefulSet" and scaled["minReplicas"] >= 2
    assert "TOLLKEEPER_REDIS_URL" not in {v["name"] for v in pods("single")["gateway"]["containers"][0]["env"]}


def test_of_every_process_two_run_and_one_stays_while_nodes_are_drained() -> None:
    found = of_kind("ha", "StatefulSet", "Deployment")
    assert {name for name, each in found.items() if each["spec"]["replicas"] >= 2} == set(found)
    budgets = of_kind("ha", "PodDisruptionBudget")
    for name in found:
        spec = budgets[name]["spec"]
        assert spec["maxUnavailable"] == 1 and spec["selector"]["matchLabels"]["app.kubernetes.io/component"] == name
    (control,) = pods("ha")["control"]["containers"]
    assert {"secretRef": {"name": "tollkeeper-audit-sink"}} in control["envFrom"], "each finds the other's audit there"
    assert found["control"]["spec"]["podManagementPolicy"] == "OrderedReady", "two do not migrate at once"
    assert of_kind("ha", "Service")["dashboard"]["spec"]["sessionAffinity"] == "ClientIP"
    assert pods("ha")["collector"]["containers"][0]["readinessProbe"]["httpGet"]["path"] == "/ready"


def test_what_others_kinds_ask_exists() -> None:
    documented = (ROOT / "docs" / "metrics.md").read_text()
    services = of_kind("gpu", "Service")
    for monitor in of_kind("gpu", "ServiceMonitor").values():
        labels = monitor["spec"]["selector"]["matchLabels"].items()
        matched = [each for each in services.values() if labels <= each["metadata"]["labels"].items()]
        ports = {port["name"] for each in matched for port in each["spec"]["ports"]}
        assert monitor["spec"]["endpoints"][0]["port"] in ports
    (scaled,) = of_kind("gpu", "ScaledObject").values()
    assert scaled["spec"]["scaleTargetRef"]["name"] in of_kind("gpu", "StatefulSet")
    for trigger in scaled["spec"]["triggers"]:
        assert trigger["type"] == "prometheus"
        for metric in re.findall(r"tollkeeper_\w+", trigger["metadata"]["query"]):
            assert f"`{metric}`" in documented


def test_gateways_that_find_endpoints_may_watch_them_and_nothing_else(tmp_path: Path) -> None:
    parts = {"resources": ["overlays/ha"], "components": ["components/discovery"]}
    relative = {kind: [os.path.relpath(FOLDER / name, tmp_path) for name in names] for kind, names in parts.items()}
    (tmp_path / "kustomization.yaml").write_text(yaml.safe_dump(relative))
    done = subprocess.run(["kubectl", "kustomize", str(tmp_path)], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    found = {(each["kind"], each["metadata"]["name"]): each for each in yaml.safe_load_all(done.stdout)}
    for kind in ("ServiceAccount", "Role", "RoleBinding"):
        for each in (one for (name, _), one in found.items() if name == kind):
            kubernetes_validate.validate(each, VERSION, strict=True)
    pod = found["StatefulSet", "gateway"]["spec"]["template"]["spec"]
    assert pod["serviceAccountName"] == "gateway" and pod["automountServiceAccountToken"] is True
    assert found["Role", "endpoints-reader"]["rules"] == [
        {"apiGroups": ["discovery.k8s.io"], "resources": ["endpointslices"], "verbs": ["get", "list", "watch"]}
    ]
    control = found["StatefulSet", "control"]["spec"]["template"]["spec"]
    assert control["automountServiceAccountToken"] is False


def test_the_picker_of_a_foreign_gateway_starts_with_the_configuration_that_it_is_given(
    settings_classes: Settings, tmp_path: Path
) -> None:
    found = {(each["kind"], each["metadata"]["name"]): each for each in rendered("picker")}
    for each in found.values():
        kubernetes_validate.validate(each, VERSION, strict=True)
    pod = found["Deployment", "picker"]["spec"]["template"]["spec"]
    (container,) = pod["containers"]
    settings = {variable["name"]: variable["value"] for variable in container["env"]}
    assert set(settings) <= SETTING_NAMES
    assert (
        container["ports"][0]["containerPort"]
        == settings_classes[container["command"][2]].model_fields["picker_port"].default
    )
    (name,) = (name for kind, name in found if kind == "ConfigMap")
    assert pod["volumes"][0]["configMap"]["name"] == name
    mounted = Path(container["volumeMounts"][0]["mountPath"])
    assert Path(settings["TOLLKEEPER_GATEWAY_CONFIG"]).parent == mounted
    file = tmp_path / "picker.yaml"
    file.write_text(found["ConfigMap", name]["data"][Path(settings["TOLLKEEPER_GATEWAY_CONFIG"]).name])
    snapshot = FileSource(file, b"", has_callers=False).load()
    sources = [discover_of(spec) for pool in snapshot.pools.values() for spec in pool.targets]
    assert sources and all(source.startswith("inferencepool:") for source in sources)
    watched = {rule["resources"][0] for rule in found["ClusterRole", "tollkeeper-picker"]["rules"]}
    assert watched == {"inferencepools", "pods"}
