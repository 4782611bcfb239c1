"""deploy/helm/tollkeeper: the `ha` overlay as a chart, substituted as Helm would and validated."""

import os
import re
import shutil
from typing import Any

import kubernetes_validate
import pytest
import yaml

from contracts.serving.setting_names import SETTING_NAMES
from tests.repository.helm_chart import CHART, substituted, templates_of, values_of
from tests.repository.test_kubernetes import OTHERS_KINDS, VERSION, rendered

pytestmark = [
    pytest.mark.service,
    pytest.mark.skipif(shutil.which("kubectl") is None, reason="needs kubectl (apt-get install kubernetes-client)"),
]

RELEASE = "books"
IS_UPDATED = os.environ.get("UPDATE_GOLDEN") == "1"


@pytest.fixture(scope="module")
def overlay() -> list[dict[str, Any]]:
    return list(rendered("ha"))


@pytest.fixture(scope="module")
def values(overlay: list[dict[str, Any]]) -> dict[str, Any]:
    file = CHART / "values.yaml"
    if IS_UPDATED:
        head = file.read_text().split("\n\n", 1)[0] if file.exists() else "# Values of the chart."
        file.write_text(head + "\n\n" + yaml.safe_dump(values_of(overlay), sort_keys=False, width=10_000))
    found: dict[str, Any] = yaml.safe_load(file.read_text())
    return found


@pytest.fixture(scope="module")
def templates(overlay: list[dict[str, Any]]) -> dict[str, str]:
    folder = CHART / "templates"
    if IS_UPDATED:
        for file in folder.glob("*.yaml"):
            file.unlink()
        for name, text in templates_of(overlay).items():
            (folder / name).write_text(text)
    return {file.name: file.read_text() for file in sorted(folder.iterdir())}


def objects(templates: dict[str, str], values: dict[str, Any]) -> list[dict[str, Any]]:
    return [yaml.safe_load(substituted(text, values, RELEASE)) for text in templates.values()]


def test_the_chart_is_the_overlay_with_values(
    overlay: list[dict[str, Any]], templates: dict[str, str], values: dict[str, Any]
) -> None:
    assert values == values_of(overlay), "run with UPDATE_GOLDEN=1 and read the diff"
    assert templates == templates_of(overlay), "run with UPDATE_GOLDEN=1 and read the diff"


def test_templates_use_values_and_the_releases_name_alone(templates: dict[str, str], values: dict[str, Any]) -> None:
    for name, text in templates.items():
        left = substituted(text, values, RELEASE)
        assert "{{" not in left and "}}" not in left, f"{name} uses more of Helm than values"
    used = {path for text in templates.values() for path in re.findall(r"\{\{ \.Values\.([\w.]+) \}\}", text)}
    given = {
        f"{name}.{key}" if isinstance(value, dict) else name
        for name, value in values.items()
        for key in (value if isinstance(value, dict) else [""])
    }
    assert used == given, "a value without a use, or a use without a value"


def test_every_object_of_the_chart_is_valid_and_of_the_release(
    templates: dict[str, str], values: dict[str, Any]
) -> None:
    changed = {
        **values,
        "registry": "registry.example/team/",
        "version": "1.2.3",
        "gateway": {"minReplicas": 5, "maxReplicas": 9, "storage": "50Gi"},
    }
    found = objects(templates, changed)
    assert len(found) > 20
    for each in found:
        assert each["metadata"]["labels"]["app.kubernetes.io/instance"] == RELEASE
        if each["kind"] not in OTHERS_KINDS:
            kubernetes_validate.validate(each, VERSION, strict=True)
    gateway = next(each for each in found if each["kind"] == "StatefulSet" and each["metadata"]["name"] == "gateway")
    assert gateway["spec"]["replicas"] == 5
    assert (
        gateway["spec"]["template"]["spec"]["containers"][0]["image"]
        == "registry.example/team/tollkeeper-gateway:1.2.3"
    )


def test_every_setting_of_the_chart_is_one_and_arrives_as_text(
    templates: dict[str, str], values: dict[str, Any]
) -> None:
    (settings,) = (each for each in objects(templates, values) if each["kind"] == "ConfigMap")
    assert set(settings["data"]) <= SETTING_NAMES
    assert all(isinstance(value, str) for value in settings["data"].values())


def test_the_chart_names_its_version() -> None:
    chart = yaml.safe_load((CHART / "Chart.yaml").read_text())
    assert chart["apiVersion"] == "v2" and chart["name"] == "tollkeeper" and chart["version"] == chart["appVersion"]
