"""Examples in the help of commands that the table of resources does not declare, by command."""

from typing import Any, Final

EXAMPLES: Final[dict[str, str]] = {
    "up": "tollkeeper up --model ./my-model",
    "demo": "tollkeeper demo --seconds 30 --no-open",
    "doctor": "tollkeeper doctor --json",
    "replay": "tollkeeper replay trace.csv --limit 200 --speed 5",
    "loadtest": "tollkeeper loadtest --slo-ttft-ms 1000 --slo-itl-ms 100",
    "top": "tollkeeper top --once",
    "forecast": "tollkeeper forecast --json",
    "savings": "tollkeeper savings --tenant acme",
    "backup": "tollkeeper backup backups/today",
    "restore": "tollkeeper restore backups/today --data restored",
    "apply": "tollkeeper apply -f config/ --prune --dry-run",
    "diff": "tollkeeper diff -f tollkeeper.yaml",
    "export": "tollkeeper export --section models -o models.yaml",
    "schema": "tollkeeper schema -o tollkeeper.schema.json",
    "audit verify": "tollkeeper audit verify",
    "secrets put": "tollkeeper secrets put openai --file key.txt",
    "secrets list": "tollkeeper secrets list",
    "secrets delete": "tollkeeper secrets delete openai",
    "secrets rotate": "tollkeeper secrets rotate",
    "secrets accept": "tollkeeper secrets accept key_pepper --reason 'disk lost'",
    "rows list": "tollkeeper rows list",
    "rows repair": "tollkeeper rows repair pools small --set 'settings={}'",
    "rows delete": "tollkeeper rows delete pools small",
    "accounts add": "tollkeeper accounts add ann@acme.example --role admin",
    "accounts list": "tollkeeper accounts list",
    "accounts grant": "tollkeeper accounts grant ann@acme.example --role finance --all-tenants",
    "accounts password": "tollkeeper accounts password ann@acme.example",
    "accounts close": "tollkeeper accounts close ann@acme.example",
    "accounts open": "tollkeeper accounts open ann@acme.example",
    "accounts remove": "tollkeeper accounts remove ann@acme.example",
    "alerts test": "tollkeeper alerts test ops",
    "alerts list": "tollkeeper alerts list --all",
    "alerts acknowledge": "tollkeeper alerts acknowledge alt_01a2",
    "alerts deliveries": "tollkeeper alerts deliveries",
    "alerts quality": "tollkeeper alerts quality --hours 24 --model assistant",
    "alerts silences create": "tollkeeper alerts silences create --hours 2 --rule money --comment 'load test'",
    "alerts silences list": "tollkeeper alerts silences list",
    "alerts silences delete": "tollkeeper alerts silences delete sil_01a2",
    "cost report": "tollkeeper cost report --tenant acme",
    "reconcile import": "tollkeeper reconcile import costs.json --month 2026-11",
    "reconcile bills": "tollkeeper reconcile bills --month 2026-11",
    "reconcile names": "tollkeeper reconcile names openai --key proj_abc=gpt-target",
    "reconcile report": "tollkeeper reconcile report openai 2026-11",
    "reconcile show": "tollkeeper reconcile show openai 2026-11 --cause unknown",
    "spool inspect": "tollkeeper spool inspect",
    "store check": "tollkeeper store check",
    "tenants erase": "tollkeeper tenants erase acme",
    "tenants export": "tollkeeper tenants export acme acme-data",
    "keys rotate": "tollkeeper keys rotate key_01a2 --tenant acme --overlap-seconds 3600",
    "routes explain": "tollkeeper routes explain assistant --tenant acme --prompt-tokens 900",
    "rollouts pause": "tollkeeper rollouts pause v2 --reason 'incident'",
    "rollouts resume": "tollkeeper rollouts resume v2",
    "rollouts advance": "tollkeeper rollouts advance v2",
    "rollouts promote": "tollkeeper rollouts promote v2",
    "rollouts abort": "tollkeeper rollouts abort v2",
    "rollouts report": "tollkeeper rollouts report v2 --hours 6",
    "guardrails test": "tollkeeper guardrails test no-cards 'my card is 4111 1111 1111 1111'",
    "guardrails report": "tollkeeper guardrails report --tenant acme",
    "prices show": "tollkeeper prices show openai gpt-4o-mini",
    "prices import": "tollkeeper prices import --dry-run",
    "budgets recount": "tollkeeper budgets recount bud_01a2 --dry-run",
    "slos report": "tollkeeper slos report chat-ttft",
}


def add_examples(command: Any, path: tuple[str, ...]) -> None:
    """Add the examples to a loaded command and all below it."""
    example = EXAMPLES.get(" ".join(path))
    if example is not None and not command.epilog:
        command.epilog = "Example:\n\n  " + example.replace("[", r"\[")
    for name, below in getattr(command, "commands", {}).items():
        add_examples(below, (*path, name))
