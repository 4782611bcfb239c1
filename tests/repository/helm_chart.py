"""The Helm chart as the `ha` overlay has it: what an installation may choose is a value, all else stays as it is."""

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

ROOT = Path(__file__).resolve().parents[2]
CHART = ROOT / "deploy" / "helm" / "tollkeeper"
VERSION = "0.1.0"
_TOKEN = re.compile(r"(QUOTED|PLAIN)zz([A-Za-z_z]+?)zzEND")
_PLACE = re.compile(r"\{\{ \.(Values(?:\.[A-Za-z_]+)+|Release\.Name) \}\}")


def _value(path: str, *, quoted: bool = False) -> str:
    return f"{'QUOTED' if quoted else 'PLAIN'}zz{path.replace('.', 'zz')}zzEND"


def values_of(objects: list[dict[str, Any]]) -> dict[str, Any]:
    """Return the chart's default values: those of the overlay."""
    settings = next(each for each in objects if each["kind"] == "ConfigMap")["data"]
    return {
        "registry": "",
        "version": VERSION,
        "gateway": {"minReplicas": 3, "maxReplicas": 12, "storage": "20Gi"},
        "collector": {"storage": "20Gi"},
        "control": {"storage": "10Gi"},
        "secrets": {
            "installation": "tollkeeper-secrets",
            "databases": "tollkeeper-databases",
            "auditSink": "tollkeeper-audit-sink",
        },
        "settings": dict(settings),
    }


def templates_of(objects: list[dict[str, Any]]) -> dict[str, str]:
    """Return the chart's templates by file, one for each object of the overlay."""
    files: dict[str, str] = {}
    for each in objects:
        made = _templated(each)
        made["metadata"].setdefault("labels", {})["app.kubernetes.io/instance"] = "PLAINzzReleasezzNamezzEND"
        text = yaml.safe_dump(made, sort_keys=False, width=10_000)
        name = f"{each['kind'].lower()}-{made['metadata']['name']}.yaml"
        files[name] = _TOKEN.sub(_written, text)
    return files


def substituted(template: str, values: Mapping[str, Any], release: str) -> str:
    """Return a template with its values, as Helm writes them. Raises KeyError on a value that is not there."""

    def found(place: re.Match[str]) -> str:
        if place[1] == "Release.Name":
            return release
        value: Any = values
        for step in place[1].split(".")[1:]:
            value = value[step]
        return str(value)

    return _PLACE.sub(found, template)


def _written(token: re.Match[str]) -> str:
    path = token[2].replace("zz", ".")
    place = f"{{{{ .{path if path == 'Release.Name' else f'Values.{path}'} }}}}"
    return f'"{place}"' if token[1] == "QUOTED" else place


def _templated(each: dict[str, Any]) -> dict[str, Any]:
    made: dict[str, Any] = _walk(each)
    kind, name = made["kind"], made["metadata"]["name"]
    if kind == "ConfigMap":
        made["data"] = {key: _value(f"settings.{key}", quoted=True) for key in made["data"]}
    elif kind == "HorizontalPodAutoscaler":
        made["spec"]["minReplicas"] = _value("gateway.minReplicas")
        made["spec"]["maxReplicas"] = _value("gateway.maxReplicas")
    elif kind == "StatefulSet":
        if name == "gateway":
            made["spec"]["replicas"] = _value("gateway.minReplicas")
        for claim in made["spec"]["volumeClaimTemplates"]:
            claim["spec"]["resources"]["requests"]["storage"] = _value(f"{name}.storage")
    return made


def _walk(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _walk(one) for key, one in value.items()}
    if isinstance(value, list):
        return [_walk(one) for one in value]
    if not isinstance(value, str):
        return value
    if value.startswith("tollkeeper-settings-"):
        return "tollkeeper-settings"  # kustomize's name has a hash of the content
    if value == "tollkeeper-secrets":
        return _value("secrets.installation")
    if value == "tollkeeper-databases":
        return _value("secrets.databases")
    if value == "tollkeeper-audit-sink":
        return _value("secrets.auditSink")
    image, colon, version = value.partition(":")
    if colon and version == VERSION and image.startswith("tollkeeper-"):
        return f"{_value('registry')}{image}:{_value('version')}"
    return value
