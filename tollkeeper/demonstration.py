"""`tollkeeper demo`: fills a running installation with a month's history of three tenants and a minute of traffic."""

import asyncio
import os
import webbrowser
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

from rich.console import Console
from rich.text import Text

from backends.control.bootstrap import DEMO_MODEL
from backends.secrets.secret_files import SecretFiles
from tollkeeper.control_client import ControlClient
from tollkeeper.demo_incident import Incident
from tollkeeper.demo_slos import end_slos, make_slos
from tollkeeper.installation import Installation
from tollkeeper.packaged_files import packaged_file
from tollkeeper.replay.command import new_run_id
from tollkeeper.replay.composer import AT_ONCE, Pace
from tollkeeper.replay.formats import read_trace
from tollkeeper.replay.payers import Assignment, Payer, create_payers, revoke_payers
from tollkeeper.replay.report import describe
from tollkeeper.replay.served_model import choose_model
from tollkeeper.replay.session import Run, replay
from tollkeeper.replay.trace import Trace
from tollkeeper.showcase.fill import fill_showcase, has_showcase
from tollkeeper.slack_receiver import SlackReceiver

TRACE: Final = packaged_file("bench/traces/azure_llm_2023/AzureLLMInferenceTrace_conv.csv")
# About as fast as a small model on a small machine, so that the pages show realistic times.
_SCRIPTED_PACE: Final = Pace(first_ms=60, first_ms_per_input_token=0.05, gap_ms=12)
# The trace was recorded on large GPUs. With lengths scaled by this, the built-in model on two cores keeps up with its
# request rate, at about half of its capacity.
_BUILT_IN_SCALE: Final = 0.15
_DISPLAYS: Final = ("DISPLAY", "WAYLAND_DISPLAY")


@dataclass(frozen=True, slots=True)
class Demonstration:
    """The demo's options: duration of the traffic, speed-up of the trace, Slack webhook."""

    data: Path
    console: Console
    seconds: float = 60.0
    speed: float = 1.0
    opens_browser: bool = True
    trace: Path = TRACE
    slack: str = ""  # incoming webhook for budget and SLO alerts; empty: a local receiver

    async def __call__(self, addresses: Mapping[str, str]) -> None:
        """Play the traffic and print the results. Raises ConfigurationError if the gateway does not accept it."""
        self._show_pages(addresses)
        token = SecretFiles(Installation(self.data).secrets).get_or_create("admin_token")
        with (
            ControlClient(addresses["control"], token) as control,
            ControlClient(addresses["analytics"], token) as analytics,
            self._slack() as slack,
        ):
            await asyncio.to_thread(self._tell, control)
            model = await asyncio.to_thread(choose_model, control)
            trace = self._traffic()
            assignment = Assignment.of(trace, None)
            run_id, now = new_run_id("demo"), datetime.now(UTC)
            payers = await asyncio.to_thread(
                create_payers, control, assignment.places, model.id, run_id, now, self.seconds
            )
            slos: list[str] = []
            try:
                incident = Incident(
                    control, analytics, addresses["gateway"], assignment.places[-1], DEMO_MODEL, run_id, self._say
                )
                slos = await asyncio.to_thread(self._make_slos, control, incident, slack)
                run = Run(
                    run_id,
                    addresses["gateway"],
                    model,
                    self.speed,
                    scale_lengths=1.0 if model.is_scripted else _BUILT_IN_SCALE,
                    pace=_SCRIPTED_PACE if model.is_scripted else AT_ONCE,
                )
                await self._play(run, trace, assignment, payers, incident if slos else None)
            finally:
                # Shielded: the keys are revoked also if Ctrl-C ends the demo.
                await asyncio.shield(asyncio.to_thread(revoke_payers, control, payers))
                await asyncio.shield(asyncio.to_thread(end_slos, control, slos))

    def _tell(self, control: ControlClient) -> None:
        """Write the demo's thirty days of history, once; `demo --reset` removes them."""
        if has_showcase(control):
            self._say("The demo's history exists already; tollkeeper demo --reset removes it")
            return
        rows = fill_showcase(Installation(self.data), has_gpus=True)
        self._say(
            f"Thirty days of acme, globex and initech: {len(rows.requests):,} requests, budgets, SLOs, agents, "
            "a rollout, and a provider account that has failed for forty minutes; tollkeeper demo --reset removes them"
        )

    def _make_slos(self, control: ControlClient, incident: Incident, slack: str) -> list[str]:
        """Create the objective that the incident misses; return its paths, empty if its model is not served."""
        tenant, model = incident.place.tenant, incident.model
        if not any(row["id"] == model and row["is_active"] for row in control.get_all("/v1/models")):
            self._say(f"{model} is not served: the SLO incident is skipped")
            return []
        made = make_slos(control, tenant, model, incident.run_id, slack)
        self._say(
            f"Slack is notified when {tenant} has spent half of its budget, and when half of {model}'s answers are late"
        )
        return made

    @contextmanager
    def _slack(self) -> Iterator[str]:
        """Yield the webhook to notify: the chosen one, or a local receiver that prints the calls."""
        if self.slack:
            yield self.slack
            return
        with SlackReceiver(lambda text: self._say(f"Slack is called: {text}")) as receiver:
            yield receiver.url
            self._say(f"Slack was called {len(receiver.messages)} times")

    async def _play(
        self, run: Run, trace: Trace, assignment: Assignment, payers: list[Payer], incident: Incident | None
    ) -> None:
        names = ", ".join(place.tenant for place in assignment.places)
        self._say(
            f"{names} send requests to {run.model.id} for {self.seconds:g} s with the timing of a real service: "
            f"{len(trace.requests)} requests of {trace.name}, lengths x {run.scale_lengths:g}"
        )
        beside = None if incident is None else asyncio.create_task(incident.play())
        try:
            summary = await replay(run, trace, assignment, payers, asyncio.Event(), lambda player: None)
            self._say(describe(summary))
            if beside is not None:
                await beside
        finally:
            if beside is not None:
                beside.cancel()
                await asyncio.gather(beside, return_exceptions=True)

    def _traffic(self) -> Trace:
        whole = read_trace(self.trace)
        requests = tuple(request for request in whole.requests if request.at_seconds < self.seconds * self.speed)
        return Trace(whole.name, whole.format, requests, whole.block_tokens)

    def _show_pages(self, addresses: Mapping[str, str]) -> None:
        dashboard = addresses.get("dashboard")
        pages = {"dashboard": dashboard, "control plane": f"{addresses['control']}/docs"}
        self._say("Pages to look at:")
        for name, url in pages.items():
            if url is not None:
                self._say(f"  {name:<14} {url}")
        if dashboard is not None and self.opens_browser and has_display(os.environ):
            open_page(dashboard)

    def _say(self, line: str) -> None:
        self.console.print(Text(line), soft_wrap=True)


def watchful(environment: Mapping[str, str]) -> dict[str, str]:
    """Return the environment for a demo: alert rules are evaluated often, and webhooks may be on this machine.

    Variables that the operator has set take precedence.
    """
    return {"TOLLKEEPER_ALERTS_EVALUATE_SECONDS": "3", "TOLLKEEPER_ALERTS_INWARD": "127.0.0.0/8", **environment}


def has_display(environment: Mapping[str, str]) -> bool:
    """Return whether there is a graphical display; without one, a text browser would take over the terminal."""
    return any(environment.get(name) for name in _DISPLAYS)


def open_page(url: str) -> None:
    """Open a page in the browser, if there is one."""
    try:
        webbrowser.open(url)
    except webbrowser.Error:
        pass  # no browser is installed
