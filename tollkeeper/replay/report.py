"""Prints a run's summary."""

from rich.console import Console
from rich.table import Table
from rich.text import Text

from tollkeeper.replay.summary import Summary


def print_summary(summary: Summary, console: Console) -> None:
    """Print the run's settings and results."""
    table = Table.grid(padding=(0, 2))
    table.add_column(style="bold")
    table.add_column()
    for name, text in _lines(summary):
        table.add_row(name, Text(text, style="red" if name == "failed" else ""))
    console.print(table)


def describe(summary: Summary) -> str:
    """Return a run's result in one line."""
    by_tenant = ", ".join(f"{tenant} {count}" for tenant, count in summary.by_tenant.items())
    return (
        f"{summary.requests} requests in {summary.duration_s:.0f} s ({by_tenant}): {summary.errors} failed; "
        f"{summary.tokens_in:,} input and {summary.tokens_out:,} output tokens, "
        f"{summary.tokens_out_per_s:,.0f} a second; run id {summary.setting.run_id}"
    )


def _lines(summary: Summary) -> list[tuple[str, str]]:
    setting = summary.setting
    lines = [
        ("run", setting.run_id),
        ("trace", f"{setting.trace} ({setting.format}) at speed {setting.speed:g}, model {setting.model}"),
        ("requests", f"{summary.requests} in {summary.duration_s:,.1f} s, at most {summary.most_in_flight} at once"),
        (
            "tokens",
            f"{summary.tokens_in:,} in ({summary.tokens_cached:,} cached), {summary.tokens_out:,} out, "
            f"{summary.tokens_out_per_s:,.0f} out a second",
        ),
        ("first token", _percentiles(summary.ttft_ms_p50, summary.ttft_ms_p95, summary.ttft_ms_p99)),
        ("inter-token", _percentiles(summary.itl_ms_p50, summary.itl_ms_p95, summary.itl_ms_p99)),
        ("sent late by", _percentiles(summary.lateness_ms_p50, None, summary.lateness_ms_p99)),
        ("tenants", ", ".join(f"{tenant} {count}" for tenant, count in summary.by_tenant.items())),
    ]
    if setting.scale_lengths != 1:
        lines.append(("lengths", f"all scaled by {setting.scale_lengths:g}"))
    if setting.scaled_to_fit:
        said = f"{setting.scaled_to_fit} requests scaled down to fit the context of {setting.context_tokens:,} tokens"
        lines.append(("lengths", said))
    if summary.other_length or summary.without_usage:
        said = f"{summary.other_length} answers have another length than recorded, {summary.without_usage} no usage"
        lines.append(("attention", said))
    if summary.errors or summary.cancelled:
        codes = ", ".join(f"{code} {count}" for code, count in summary.error_codes.items()) or "none"
        lines.append(("failed", f"{summary.errors} ({codes}); left when interrupted: {summary.cancelled}"))
    if summary.stored is not None:
        verdict = "as the clients saw it" if summary.stored_match else "NOT what the clients saw"
        cost = "unpriced" if summary.stored.cost_usd is None else f"{summary.stored.cost_usd} USD"
        lines.append(("store", f"{summary.stored.tokens_out:,} tokens out, {cost}: {verdict}"))
    return lines


def _percentiles(p50: float | None, p95: float | None, p99: float | None) -> str:
    named = (("p50", p50), ("p95", p95), ("p99", p99))
    return ", ".join(f"{name} {value:,.1f} ms" for name, value in named if value is not None) or "none"
