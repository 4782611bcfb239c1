"""`tollkeeper gate`: a test that a quantized model or a newer engine must pass before it replaces the incumbent."""

import asyncio
import contextlib
import os
from collections.abc import Sequence
from dataclasses import fields, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Any, Final

import typer
from rich.console import Console
from rich.text import Text

from analytics.comparison.gate import Bounds, GateReport, judge
from analytics.comparison.pairs import Pair
from backends.control.prices import load_cards
from backends.embedder.child import EmbedderChild
from backends.secrets.secret_files import SecretFiles
from contracts.errors import ConfigurationError, TollkeeperError
from contracts.pricing.prices import PriceBook
from gateway.routing.rollouts.likeness import likeness
from tollkeeper.gate.prompt_sender import PromptSender
from tollkeeper.gate.prompts import MOST_PROMPTS, Prompt, read_prompts, recorded_prompts
from tollkeeper.installation import Installation
from tollkeeper.open_installation import open_control
from tollkeeper.open_store import open_store
from tollkeeper.options import DEFAULT_DATA, AsJson, Data, GatewayUrl, StoreUrl
from tollkeeper.printing import one_line_errors, print_json, print_table, say_nothing
from tollkeeper.replay.command import find_gateway, new_run_id

REFUSED: Final = 1
NOT_JUDGED: Final = 3
_SHOWN_EVERY: Final = 25
_DEFAULTS: Final = ", ".join(
    f"{field.name}={'off' if field.default is None else field.default}" for field in fields(Bounds)
)


def gate_command(
    candidate: Annotated[str, typer.Argument(help="Model or route to test as a replacement.")],
    against: Annotated[
        str, typer.Option("--against", metavar="INCUMBENT", help="Model or route to compare with, which is in use now.")
    ],
    set_file: Annotated[
        Path | None,
        typer.Option(
            "--set", help="JSONL file of prompts: each line has `messages` or `prompt`, or is a line of a batch file."
        ),
    ] = None,
    recorded: Annotated[
        str, typer.Option(metavar="TENANT", help="Use this tenant's stored prompts to the incumbent instead of a file.")
    ] = "",
    hours: Annotated[float, typer.Option(min=0.01, max=168, help="With --recorded: look-back window in hours.")] = 24,
    limit: Annotated[int, typer.Option(min=1, max=MOST_PROMPTS, help="Maximum number of prompts to run.")] = 500,
    bound: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME=NUMBER",
            help="Change a limit that the candidate must meet (off: none); repeat for more. Ratios are candidate over "
            f"incumbent, shares 0 to 1. Defaults: {_DEFAULTS}.",
        ),
    ] = None,
    strict: Annotated[
        bool,
        typer.Option("--strict", help="Require that whole confidence intervals lie within the limits of `--bound`."),
    ] = False,
    by_words: Annotated[bool, typer.Option("--by-words", help="Compare texts by words instead of embeddings.")] = False,
    max_tokens: Annotated[int, typer.Option(min=1, help="Maximum output tokens, if the prompt sets none.")] = 256,
    at_once: Annotated[int, typer.Option(min=1, max=256, help="Maximum number of concurrent prompts.")] = 4,
    key: Annotated[
        str, typer.Option("--key", envvar="TOLLKEEPER_KEY", help="API key to use (default: the installation's own).")
    ] = "",
    gateway_url: GatewayUrl = "",
    data: Data = DEFAULT_DATA,
    store_url: StoreUrl = "",
    as_json: AsJson = False,
) -> None:
    """Compare two models on the same prompts. Status 1 if the candidate is worse.

    Status 0: passed. 1: refused, with the reasons. 2: not run (a wrong option, no gateway). 3: nothing to judge,
    because the incumbent answered nothing.
    """
    with one_line_errors():
        bounds = _bounds(bound or [])
        if (set_file is None) == (not recorded):
            raise ConfigurationError("give either prompts with --set FILE, or a tenant with --recorded TENANT")
        prompts = (
            _recorded(data, store_url, recorded, against, hours, limit)
            if set_file is None
            else read_prompts(set_file, limit)
        )
        asker = PromptSender(
            find_gateway(data, gateway_url),
            key or _own_key(data),
            new_run_id("gate"),
            _prices(data),
            max_tokens=max_tokens,
            at_once=at_once,
        )
        say = say_nothing if as_json else _say
        pairs = asyncio.run(_compared(asker, prompts, against, candidate, say, by_words=by_words))
        report = judge(candidate, against, pairs, bounds, is_strict=strict)
    if as_json:
        print_json(report.as_json())
    else:
        _print(report)
    raise typer.Exit(0 if report.is_passed else REFUSED if report.is_judged else NOT_JUDGED)


async def _compared(
    asker: PromptSender, prompts: Sequence[Prompt], incumbent: str, candidate: str, say: Any, *, by_words: bool
) -> list[Pair]:
    def told(done: int) -> None:
        if done % _SHOWN_EVERY == 0 or done == len(prompts):
            say(f"{done} of {len(prompts)} prompts asked")

    pairs = await asker.send_all(prompts, incumbent, candidate, told)
    embedder = None if by_words else EmbedderChild()
    try:
        return [await _with_likeness(pair, embedder) for pair in pairs]
    finally:
        if embedder is not None:
            await embedder.close()


async def _with_likeness(pair: Pair, embedder: EmbedderChild | None) -> Pair:
    if not pair.is_complete:
        return pair
    alike, _ = await likeness(pair.incumbent.text, pair.candidate.text, embedder)
    return replace(pair, similarity=alike)


def _bounds(given: Sequence[str]) -> Bounds:
    known = {field.name for field in fields(Bounds)}
    stated: dict[str, float | None] = {}
    for text in given:
        name, mark, value = text.partition("=")
        if not mark or name not in known:
            raise ConfigurationError(f"--bound is written NAME=NUMBER, not {text!r}; names: {', '.join(sorted(known))}")
        try:
            stated[name] = None if value == "off" else float(value)
        except ValueError as error:
            raise ConfigurationError(f"--bound {name}: {value!r} is neither a number nor off") from error
    return replace(Bounds(), **stated)


def _recorded(data: Path, store_url: str, tenant: str, model: str, hours: float, limit: int) -> list[Prompt]:
    with open_store(data, store_url, os.environ) as (store, _):
        return recorded_prompts(store, tenant, model, datetime.now(UTC), hours, limit)


def _own_key(data: Path) -> str:
    own = SecretFiles(Installation(data).secrets).get("demo_key")
    if own is None:
        raise ConfigurationError(f"{data} has no key; set --key or TOLLKEEPER_KEY")
    return own


def _prices(data: Path) -> PriceBook:
    """Return the installation's price cards; empty without a control database, so that costs are not compared."""
    if not data.is_dir():
        return PriceBook()
    with (
        contextlib.suppress(TollkeeperError),
        open_control(data, os.environ) as database,
        database.session() as session,
    ):
        return PriceBook(load_cards(session))
    return PriceBook()


def _say(line: str) -> None:
    Console(stderr=True).print(Text(line, style="dim"))


def _print(report: GateReport) -> None:
    rows = [
        {
            "measure": measure.name,
            "figure": "" if measure.interval is None else f"{measure.interval.value:.4g}",
            "95 %": "" if measure.interval is None else f"{measure.interval.low:.4g} to {measure.interval.high:.4g}",
            "asked": measure.bound,
            "verdict": measure.verdict,
        }
        for measure in report.measures
    ]
    print_table(
        ("measure", "figure", "95 %", "asked", "verdict"), rows, lambda row, column: str(row[column]), "nothing"
    )
    typer.echo(f"{report.compared} of {report.prompts} prompts were answered by both models")
    for code in report.failures:
        typer.echo(f"the incumbent failed with {code}")
    for measure in report.measures:
        if measure.verdict == "worse":
            typer.echo(f"refused: {measure.reason}")
    if not report.is_judged:
        typer.echo(f"not judged: {report.incumbent} has not answered")
    elif report.is_passed:
        typer.echo(f"passed: {report.candidate} may replace {report.incumbent}")
