"""The rate of a plain chat against that of an earlier commit's gateway, on the same core in the same run."""

from contextlib import ExitStack
from pathlib import Path
from typing import Final

from bench.gateway_audit import Audit
from bench.gateway_plan import Plan
from bench.gateway_rows import rate_of
from bench.load.gateway_process import MeasuredGateway, configuration
from bench.load.peers import MODEL
from bench.load.processes import free_ports
from bench.load.rig import Rig
from bench.report import Report

_METRIC: Final = "chat_1kb_to_earlier"
_UNIT: Final = "x the earlier code"
_MUST: Final = 0.90
_STRETCH: Final = 1.1
_CLOSED: Final = 64


def measure_earlier(report: Report, plan: Plan, rig: Rig, home: Path, audit: Audit) -> None:
    """Ask this gateway and that of the checkout `--earlier` in turn. The books of the earlier one are not read."""
    given: str | None = getattr(report.options, "earlier", None)
    if given is None:
        report.add_absent(_METRIC, _UNIT, "--earlier names no checkout", must=_MUST)
        return
    checkout = Path(given).absolute()
    with ExitStack() as stack:
        core, config = rig.cores.measured, configuration(MODEL, rig.mock_target)
        ours = MeasuredGateway("gateway_now", core, home, config, free_ports())
        stack.callback(ours.stop)
        earlier = MeasuredGateway("gateway_earlier", core, home, config, free_ports(), checkout=checkout)
        stack.callback(earlier.stop)
        audit.open(ours)
        series = rig.alternate([ours.peer, earlier.peer], plan.load("closed", _CLOSED), plan.rounds)
        ratio = series.ratio("gateway_now", "gateway_earlier", rate_of)
        report.add(_METRIC, ratio, _UNIT, must=_MUST, stretch=_STRETCH, n=len(series.of("gateway_now")))
        audit.close(ours)
