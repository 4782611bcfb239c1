"""The rate of a plain chat at this checkout against another form of the gateway, on the same core in the same run: an
earlier commit's checkout, and an installed wheel.
"""

from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from bench.gateway_audit import Audit
from bench.gateway_plan import Plan
from bench.gateway_rows import rate_of
from bench.load.gateway_process import ROOT, MeasuredGateway, configuration
from bench.load.peers import MODEL
from bench.load.processes import free_ports
from bench.load.rig import Rig
from bench.load.sample import Series
from bench.report import Report

_CLOSED: Final = 64


@dataclass(frozen=True, slots=True)
class _Form:
    """A form of the gateway: this checkout, an earlier one, or the environment of a wheel."""

    name: str
    checkout: Path = ROOT
    wheel: Path | None = None

    def start(self, rig: Rig, home: Path) -> MeasuredGateway:
        """Start a gateway of this form, with its data in a directory of `home`."""
        core, config = rig.cores.measured, configuration(MODEL, rig.mock_target)
        return MeasuredGateway(self.name, core, home, config, free_ports(), checkout=self.checkout, wheel=self.wheel)


_OURS: Final = _Form("gateway_now")


def measure_earlier(report: Report, plan: Plan, rig: Rig, home: Path, audit: Audit) -> None:
    """Compare with the checkout `--earlier`, whose records are not read: their format may be another."""
    metric, unit, must = "chat_1kb_to_earlier", "x the earlier code", 0.90
    given: str | None = getattr(report.options, "earlier", None)
    if given is None:
        report.add_absent(metric, unit, "--earlier names no checkout", must=must)
        return
    other = _Form("gateway_earlier", checkout=Path(given).absolute())
    series = _series(other, plan, rig, home, audit)
    ratio = series.ratio(_OURS.name, other.name, rate_of)
    report.add(metric, ratio, unit, must=must, stretch=1.1, n=len(series.of(_OURS.name)))


def measure_wheel(report: Report, plan: Plan, rig: Rig, home: Path, audit: Audit) -> None:
    """Compare with the wheel that is installed in the environment `--wheel`."""
    metric, unit, must = "chat_1kb_wheel_to_checkout", "x this checkout", 0.90
    given: str | None = getattr(report.options, "wheel", None)
    if given is None:
        report.add_absent(metric, unit, "--wheel names no environment with an installed wheel", must=must)
        return
    environment = Path(given).absolute()
    if not (environment / "bin" / "python").exists():
        report.add_absent(metric, unit, f"--wheel: {environment} has no bin/python", must=must)
        return
    other = _Form("gateway_wheel", wheel=environment)
    series = _series(other, plan, rig, home, audit)
    ratio = series.ratio(other.name, _OURS.name, rate_of)
    report.add(metric, ratio, unit, must=must, stretch=1.0, n=len(series.of(other.name)))


def _series(other: _Form, plan: Plan, rig: Rig, home: Path, audit: Audit) -> Series:
    """Ask both in turn, each round with processes started anew: two starts of the same machine code differ by several
    percent, by where their memory lies.
    """
    series = Series([_OURS.name, other.name])
    for turn in range(plan.rounds):
        place = home / f"{other.name}_{turn}"
        place.mkdir()
        with ExitStack() as stack:
            ours = _OURS.start(rig, place)
            stack.callback(ours.stop)
            theirs = other.start(rig, place)
            stack.callback(theirs.stop)
            audited = [ours, theirs] if other.checkout == ROOT else [ours]  # another commit's records may differ
            for gateway in audited:
                audit.open(gateway)
            pair = [ours.peer, theirs.peer]
            series.extend(rig.alternate(pair if turn % 2 == 0 else pair[::-1], plan.load("closed", _CLOSED), 1))
            for gateway in audited:
                audit.close(gateway)
    return series
