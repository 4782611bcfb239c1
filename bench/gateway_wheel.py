"""The rate of a plain chat at an installed wheel against that of this checkout, on the same core in the same run."""

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

_METRIC: Final = "chat_1kb_wheel_to_checkout"
_UNIT: Final = "x this checkout"
_MUST: Final = 0.90
_STRETCH: Final = 1.0
_CLOSED: Final = 64


def measure_wheel(report: Report, plan: Plan, rig: Rig, home: Path, audit: Audit) -> None:
    """Ask the gateway of the wheel that is installed in the environment `--wheel`, and this checkout's, in turn."""
    given: str | None = getattr(report.options, "wheel", None)
    if given is None:
        report.add_absent(_METRIC, _UNIT, "--wheel names no environment with an installed wheel", must=_MUST)
        return
    environment = Path(given).absolute()
    if not (environment / "bin" / "python").exists():
        report.add_absent(_METRIC, _UNIT, f"--wheel: {environment} has no bin/python", must=_MUST)
        return
    with ExitStack() as stack:
        core, config = rig.cores.measured, configuration(MODEL, rig.mock_target)
        ours = MeasuredGateway("gateway_checkout", core, home, config, free_ports())
        stack.callback(ours.stop)
        installed = MeasuredGateway("gateway_wheel", core, home, config, free_ports(), wheel=environment)
        stack.callback(installed.stop)
        for gateway in (ours, installed):
            audit.open(gateway)
        series = rig.alternate([ours.peer, installed.peer], plan.load("closed", _CLOSED), plan.rounds)
        ratio = series.ratio("gateway_wheel", "gateway_checkout", rate_of)
        report.add(_METRIC, ratio, _UNIT, must=_MUST, stretch=_STRETCH, n=len(series.of("gateway_wheel")))
        for gateway in (ours, installed):
            audit.close(gateway)
