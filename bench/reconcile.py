"""Reconciliation of providers' bills: every injected fault in its right class, and how long matching takes.

Bills of five providers in six files, with 12 kinds of faults, one or two on a line, are made by another process
(`bench.reconcile_plan`) from a seed that this one is not told before all is matched. Precision and recall are of
differences: the right day, model, target, kind of tokens, cause and amount, to the pico-USD. CPU is this process's and
the store's together.
"""

import json
import subprocess
import sys
import tempfile
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any, Final, cast

import pyarrow as pa

from analytics.reconciliation.importing import BillFile, import_bill
from analytics.reconciliation.matching import Found
from analytics.reconciliation.report import Reconciled, reconcile
from backends.control.changes import Author
from backends.control.database import ControlDatabase
from backends.control.prices import create_price
from backends.control.provider_bills import set_bill_names
from backends.store.client import StoreClient
from bench.books import cpu_of
from bench.reconcile_lines import FAULTS, MONTH
from bench.report import Report, run_bench
from bench.store_process import StoreProcess
from contracts.control import Model, Pool, Target
from contracts.metering.usage import Leaf
from contracts.pricing.prices import NewPrice
from migrations.database import migrate_database

LINES: Final = 100_000
REQUESTS: Final = 1_000_000
_SECONDS: Final = 20.0
_ROWS_PER_INSERT: Final = 100_000
_MAKE_SECONDS: Final = 1_800
_TIERS: Final = ("flex", "batch")
_FILES: Final = (
    "openai_costs.json",
    "anthropic_usage.json",
    "anthropic_costs.json",
    "azure_focus.csv",
    "bedrock_cur.csv",
    "vertex.jsonl",
)


def measure(report: Report) -> None:
    """Match bills of which nobody here knows the faults, then compare with the plan."""
    targets, each = (3, 4) if report.quick else (38, 37)
    author = Author("bench", datetime.now(UTC))
    with tempfile.TemporaryDirectory() as bills, tempfile.TemporaryDirectory() as plan, StoreProcess() as store:
        command = [sys.executable, "-m", "bench.reconcile_plan", bills, plan]
        command += ["--targets", str(targets), "--each", str(each)]
        subprocess.run(command, check=True, timeout=_MAKE_SECONDS)
        folder, client = Path(bills), store.client("writer")
        setup = json.loads((folder / "setup.json").read_text())
        requests = sum(_insert(client, folder, name) for name in ("requests", "attempts"))
        database = _control_database(folder, author, setup)
        with cpu_of(store) as scan:
            client.query("SELECT sum(cost_usd), sum(tokens_input_text), uniqExact(tenant, model) FROM requests")
        with cpu_of(store) as importing:
            for name in _FILES:
                import_bill(database, author, BillFile((folder / name).read_bytes(), name, MONTH))
        found: list[Reconciled] = []
        with cpu_of(store) as matching:
            for one in setup["providers"]:
                with database.session() as session:
                    found.append(reconcile(client, session, one["provider"], MONTH, author.at))
        client.close()
        database.close()
        _judge(report, found, json.loads((Path(plan) / "plan.json").read_text()), setup)
    lines = setup["lines"]
    short = "" if lines >= LINES * 0.99 and requests >= REQUESTS else f"{lines:,} lines with {requests:,} requests"
    what = f"s of CPU for {lines:,} lines with {requests:,} requests"
    report.add("scan", scan.seconds, f"{what}: one full scan", better="lower", n=requests)
    report.add("import", importing.seconds, f"{what}: reading and writing the bills", better="lower", n=lines)
    report.add(
        "reconcile",
        importing.seconds + matching.seconds,
        f"{what}: import and match",
        must=_SECONDS,
        stretch=8.0,
        better="lower",
        n=lines,
        unjudged=short,
    )


def _judge(report: Report, found: list[Reconciled], plan: dict[str, Any], setup: dict[str, Any]) -> None:
    ids = {
        (one["provider"], _plain(model["upstream"])): model["id"]
        for one in setup["providers"]
        for model in one["models"]
    }
    planned = {_key(one): one["pico_usd"] for one in plan["differences"]}
    seen: dict[tuple[str, ...], int] = {}
    for reconciled in found:
        for one in reconciled.matched.found:
            if one.amount:
                key = _found_key(reconciled.provider, one, ids)
                seen[key] = seen.get(key, 0) + one.amount
    right = sum(planned.get(key) == amount for key, amount in seen.items())
    lines: dict[tuple[str, ...], set[str]] = {}
    for key in planned:
        lines.setdefault(key[:-1], set()).add(key[-1])
    both = sum(len(causes) > 1 for causes in lines.values())
    causes = {key[-1] for key in planned}
    report.add("precision", right / len(seen), f"of {len(seen):,} differences found", must=1.0, n=len(seen))
    report.add(
        "recall",
        right / len(planned),
        f"of {len(planned):,} differences planned, {len(FAULTS)} kinds of faults "
        f"in {len(causes)} causes, {both:,} lines with two or more",
        must=1.0,
        n=len(planned),
    )
    unknown = sum(one.unknown for one in found)
    report.add("unknown", unknown / 1e12, "USD without a cause", must=0.0, better="lower", n=len(seen))
    rest = sum(one.matched.difference - sum(each.amount for each in one.matched.found) for one in found) + sum(
        abs(int(sum(bill.billed_usd for bill in one.bills) * 10**12) - one.matched.billed) for one in found
    )
    report.add(
        "unexplained",
        rest / 1e12,
        "USD between the bills and the sum of records and causes",
        must=0.0,
        better="lower",
        n=len(found),
    )
    wrong = {key for key in {*planned, *seen} if planned.get(key) != seen.get(key)}
    for key in sorted(wrong)[:20]:
        print(f"planned {planned.get(key)}, found {seen.get(key)}: {' '.join(key)}", file=sys.stderr)
    if wrong:
        print(f"seed {plan['seed']}", file=sys.stderr)


def _key(one: dict[str, Any]) -> tuple[str, ...]:
    return (one["provider"], one["day"], one["model"], one["target"], one["kind"], one["cause"])


def _found_key(provider: str, one: Found, ids: dict[tuple[str, str], str]) -> tuple[str, ...]:
    apart = one.cause in ("tax", "credit")
    model = (
        ""
        if apart
        else next(
            (
                each
                for (name, form), each in ids.items()
                if name == provider and _plain(one.bucket.model) in (form, _plain(each))
            ),
            one.bucket.model,
        )
    )
    return (provider, one.bucket.day, model, "" if apart else one.bucket.target, one.cell.kind, one.cause)


def _plain(name: str) -> str:
    """Return a provider's name of a model without dates; those of the plan are told apart by what is left."""
    kept = name.lower()
    for date in ("-2025-04-14", "-2024-08-06", "-2024-07-18", "-2025-04-16"):
        kept = kept.removesuffix(date)
    return kept.replace(" ", "-")


def _insert(client: StoreClient, folder: Path, name: str) -> int:
    with pa.memory_map(str(folder / f"{name}.arrow")) as file:
        table = pa.ipc.open_file(file).read_all()
        for first in range(0, table.num_rows, _ROWS_PER_INSERT):
            part = table.slice(first, _ROWS_PER_INSERT).combine_chunks()
            client.insert_arrow(name, part, deduplication_token=f"{name} {first}")
        return cast(int, table.num_rows)


def _control_database(folder: Path, author: Author, setup: dict[str, Any]) -> ControlDatabase:
    url = f"sqlite:///{folder / 'control.db'}"
    migrate_database(url, say=lambda line: None)
    database = ControlDatabase(url)
    with database.session() as session:
        for one in setup["providers"]:
            provider = one["provider"]
            for model in one["models"]:
                rates = {cast(Leaf, kind): Decimal(rate) / 10**6 for kind, rate in model["rates"].items()}
                tiers = {tier: {kind: rate / 2 for kind, rate in rates.items()} for tier in _TIERS}
                create_price(session, author, NewPrice(model["id"], f"card-{model['id']}", rates, service_tiers=tiers))
                session.add(Pool(id=model["id"][:63].replace(":", "-"), created_at=author.at))
            pool = one["models"][0]["id"][:63].replace(":", "-")
            session.add(Model(id=one["models"][0]["id"], pool_id=pool, created_at=author.at))
            session.flush()
            for target in sorted(set(one["keys"].values())):
                session.add(Target(pool_id=pool, id=target, kind="litellm", provider=provider))
            session.flush()
            set_bill_names(session, author, provider, "key", one["keys"])
    return database


if __name__ == "__main__":
    sys.exit(run_bench("reconcile", measure))
