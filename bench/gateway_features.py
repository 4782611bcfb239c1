"""What features cost a plain chat: replicas, shared counters, guardrails, audit and content, each against none."""

from collections.abc import Callable
from contextlib import ExitStack
from copy import deepcopy
from pathlib import Path
from typing import Any, Final

from bench.fleet.redis_server import RedisServer
from bench.gateway_audit import Audit
from bench.gateway_plan import Plan
from bench.gateway_rows import rate_of
from bench.load.gateway_process import MeasuredGateway, configuration
from bench.load.peers import MODEL
from bench.load.processes import free_ports
from bench.load.rig import Rig
from bench.report import Report

_PLAIN: Final = "gateway_plain"
_CLOSED: Final = 64
_REPLICAS: Final = 3
_GUARDRAILS: Final = [
    {
        "name": "bench",
        "stages": [
            {"name": "pii", "detector": "pii", "direction": "both", "action": "redact"},
            {"name": "secrets", "detector": "secrets", "direction": "both", "action": "redact"},
        ],
    }
]

Change = Callable[[dict[str, Any]], None]


def _replicas(config: dict[str, Any]) -> None:
    """Have the pool's default policy choose among three targets, which are one server."""
    [pool] = config["pools"]
    [target] = pool["targets"]
    pool["targets"] = [{**target, "name": f"target-{number}"} for number in range(_REPLICAS)]


def _guardrails(config: dict[str, Any]) -> None:
    config["guardrails"] = _GUARDRAILS


def _audit_and_content(config: dict[str, Any]) -> None:
    config["tenants"] = [{"id": "acme", "keeps_content": True, "audits_requests": True}]


def _nothing(config: dict[str, Any]) -> None:
    """Change nothing of the file: counters in Redis are a setting of the process."""


# By name: the change of the file, whether counters are in Redis, must and stretch of the rate without the feature.
_FEATURES: Final[dict[str, tuple[tuple[Change, ...], bool, float, float]]] = {
    "replicas": ((_replicas,), False, 0.60, 0.75),
    "redis": ((_nothing,), True, 0.60, 0.75),
    "guardrails": ((_guardrails,), False, 0.35, 0.50),
    "audit_and_content": ((_audit_and_content,), False, 0.45, 0.60),
    "all": ((_replicas, _guardrails, _audit_and_content), True, 0.20, 0.30),
}


def measure_features(report: Report, plan: Plan, rig: Rig, home: Path, audit: Audit) -> None:
    """Ask a gateway with each feature, and one without any, in turn on the same core."""
    for name, (changes, has_redis, must, stretch) in _FEATURES.items():
        metric = f"feature_{name}"
        if has_redis and not RedisServer.is_installed():
            report.add_absent(metric, "x the requests/s without", "there is no redis-server", must=must)
            continue
        with ExitStack() as stack:
            more: dict[str, str] = {}
            if has_redis:
                more["TOLLKEEPER_REDIS_URL"] = stack.enter_context(RedisServer()).url
            config = configuration(MODEL, rig.mock_target)
            changed = deepcopy(config)
            for change in changes:
                change(changed)
            core = rig.cores.measured
            plain = MeasuredGateway(f"{_PLAIN}_beside_{name}", core, home, config, free_ports())
            stack.callback(plain.stop)
            featured = MeasuredGateway(f"gateway_{name}", core, home, changed, free_ports(), settings=more)
            stack.callback(featured.stop)
            for gateway in (plain, featured):
                audit.open(gateway)
            series = rig.alternate([plain.peer, featured.peer], plan.load("closed", _CLOSED), plan.rounds)
            ratio = series.ratio(featured.peer.name, plain.peer.name, rate_of)
            n = len(series.of(featured.peer.name))
            report.add(metric, ratio, "x the requests/s without", must=must, stretch=stretch, n=n)
            for gateway in (plain, featured):
                audit.close(gateway)
