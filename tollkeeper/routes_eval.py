"""`tollkeeper routes eval`: measures how well a semantic route classifies its own examples and labelled prompts."""

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any

import msgspec
import typer
import yaml
from rich.console import Console
from rich.table import Table
from rich.text import Text

from backends.embedder.child import EmbedderChild
from contracts.errors import ConfigurationError
from contracts.serving.semantic import SemanticSpec, semantic_spec
from gateway.config.file import FileSource
from gateway.routing.semantic.evaluation import Evaluation, LabelledPrompt, evaluate
from gateway.routing.semantic.reports import TrainingReport
from gateway.routing.semantic.tally import Tally
from tollkeeper.control_client import ControlClient
from tollkeeper.options import DEFAULT_DATA, AsJson, ControlUrl, Data
from tollkeeper.printing import one_line_errors, print_json

_KINDS = ("simple", "complex")


class _File(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    prompts: list[LabelledPrompt] = []
    semantic: dict[str, Any] | None = None


def eval_command(
    file: Annotated[
        Path,
        typer.Argument(
            help="YAML or JSON file: `prompts`, each with text, intent, complexity; optional `semantic`, as in a route."
        ),
    ],
    route: Annotated[str, typer.Option(help="The route to evaluate, if the file has no `semantic`.")] = "",
    config: Annotated[
        Path | None, typer.Option(help="A gateway's YAML file to use instead of the control plane.")
    ] = None,
    data: Data = DEFAULT_DATA,
    control_url: ControlUrl = "",
    as_json: AsJson = False,
) -> None:
    """Measure how well a semantic route recognises labelled prompts, and which intents it confuses."""
    with one_line_errors():
        given = _read(file)
        if given.semantic is not None and not route:
            spec = semantic_spec(given.semantic)
        elif not route:
            raise ConfigurationError(f"{file} has no `semantic`; write it there, or name a route with --route")
        elif config is not None:
            spec = _of_config(config, route)
        else:
            with ControlClient.of_installation(data, control_url) as client:
                spec = _of_routes(client.get_all("/v1/routes"), route)
        if spec is None:
            raise ConfigurationError(f"the route {route!r} has no `semantic` block, so it does not classify prompts")
        _check_labels(spec, given.prompts)
        found = asyncio.run(_evaluate(spec, given.prompts))
    if as_json:
        print_json(_plain(spec, found))
    else:
        _print(spec, found)


async def _evaluate(spec: SemanticSpec, prompts: Sequence[LabelledPrompt]) -> Evaluation:
    embedder = EmbedderChild()
    try:
        return await evaluate(spec, prompts, embedder)
    finally:
        await embedder.close()


def _read(file: Path) -> _File:
    """Read the file. Raises ConfigurationError, whose message contains no prompt."""
    try:
        return msgspec.convert(yaml.safe_load(file.read_text(encoding="utf-8")), _File)
    except OSError as error:
        raise ConfigurationError(f"{file} cannot be read: {error.strerror}") from error
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        mark = getattr(error, "problem_mark", None)
        where = "" if mark is None else f", line {mark.line + 1}"
        raise ConfigurationError(f"{file}{where}: neither YAML nor JSON") from error
    except msgspec.ValidationError as error:
        raise ConfigurationError(f"{file}: {error}") from error


def _of_config(config: Path, name: str) -> SemanticSpec | None:
    routes = FileSource(config, b"").serving().routes
    if name not in routes:
        raise ConfigurationError(f"{config} has no route {name!r}; it has: {', '.join(sorted(routes)) or 'none'}")
    return routes[name].semantic


def _of_routes(routes: Iterable[Mapping[str, Any]], name: str) -> SemanticSpec | None:
    rules = {route["id"]: route["rules"] for route in routes}
    if name not in rules:
        raise ConfigurationError(f"there is no route {name!r}; there are: {', '.join(sorted(rules)) or 'none'}")
    return semantic_spec(rules[name].get("semantic"))


def _check_labels(spec: SemanticSpec, prompts: Sequence[LabelledPrompt]) -> None:
    for number, prompt in enumerate(prompts):
        if isinstance(prompt.intent, str) and prompt.intent not in spec.names:
            raise ConfigurationError(
                f"prompts[{number}]: there is no intent {prompt.intent!r}; there are: {', '.join(spec.names) or 'none'}"
            )


def _plain(spec: SemanticSpec, found: Evaluation) -> dict[str, Any]:
    intents, complexity = found.examples.intents, found.examples.complexity
    told: dict[str, Any] = {"examples": {}, "prompts": {}}
    if intents is not None:
        told["examples"]["intents"] = {
            "thresholds": intents.thresholds,
            "calibrated_threshold": intents.calibrated,
            **_figures(intents.held_out, spec.names),
            "others_left_to_default": intents.others,
            "everyday_prompts_left_to_default": intents.everyday,
        }
    if complexity is not None:
        told["examples"]["complexity"] = {
            "threshold": complexity.threshold,
            "is_calibrated": complexity.is_calibrated,
            **_figures(complexity.held_out, _KINDS),
        }
    if found.intents is not None:
        told["prompts"]["intents"] = _figures(found.intents, spec.names)
    if found.complexity is not None:
        told["prompts"]["complexity"] = _figures(found.complexity, _KINDS)
    return told


def _figures(tally: Tally, names: Sequence[str]) -> dict[str, Any]:
    return {
        "count": tally.count,
        "accuracy": tally.accuracy,
        "abstention": tally.abstention,
        "precision": tally.precision,
        "confusion": tally.confusion(names),
    }


def _print(spec: SemanticSpec, found: Evaluation) -> None:
    console = Console()
    _print_examples(console, spec, found.examples)
    for tally, names, what in ((found.intents, spec.names, "intents"), (found.complexity, _KINDS, "complexity")):
        if tally is not None:
            _print_tally(console, f"{tally.count} labelled prompts, {what}", tally, names)


def _print_examples(console: Console, spec: SemanticSpec, report: TrainingReport) -> None:
    intents, complexity = report.intents, report.complexity
    if intents is not None:
        _print_tally(console, f"{intents.held_out.count} examples, each held out", intents.held_out, spec.names)
        stated = {intent.name for intent in spec.intents if intent.threshold is not None}
        for name, line in intents.thresholds.items():
            console.print(Text(f"threshold of {name}: {line:.3f} ({'stated' if name in stated else 'calibrated'})"))
        if intents.others is not None:
            console.print(Text(f"others left to the default: {intents.others:.1%}"))
        if intents.everyday is not None:
            console.print(Text(f"everyday prompts left to the default: {intents.everyday:.1%}"))
        console.print()
    if complexity is not None:
        _print_tally(console, f"{complexity.examples} examples, each held out: complexity", complexity.held_out, _KINDS)
        how = "calibrated" if complexity.is_calibrated else "stated"
        console.print(Text(f"threshold of complex: {complexity.threshold:.3f} ({how})"))
        console.print()


def _print_tally(console: Console, title: str, tally: Tally, names: Sequence[str]) -> None:
    console.print(Text(title, style="bold"))
    shares = (("accuracy", tally.accuracy), ("abstention", tally.abstention), ("precision", tally.precision))
    console.print(Text(", ".join(f"{name} {'-' if share is None else f'{share:.1%}'}" for name, share in shares)))
    confusion = tally.confusion(names)
    table = Table(header_style="bold", box=None, pad_edge=False)
    table.add_column("is / read as")
    shown = [name for name in confusion if name in names or any(row[name] for row in confusion.values())]
    for name in shown:
        table.add_column(Text(name), justify="right")
    for was, row in confusion.items():
        if any(row.values()):
            table.add_row(Text(was), *(str(row[name] or ".") for name in shown))
    console.print(table)
