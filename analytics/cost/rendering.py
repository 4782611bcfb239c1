"""Converts a cost report to JSON types: lines of every level, money as decimal text, `null` for unknown values."""

from analytics.cost.report import CostLine, CostReport
from analytics.cost.sums import CostSum
from contracts.pricing.money import usd


def sum_as_json(sums: CostSum, *, has_attempts: bool = False) -> dict[str, object]:
    """Return a group's sums by name. `cost_usd`: recorded cost plus booked corrections; `null` if nothing has a price.

    Without `has_attempts`, additional attempts and units other than tokens are `null`.
    """
    return {
        "requests": sums.requests,
        "rejected_requests": sums.rejected,
        "input_tokens": sums.input_tokens,
        "cached_input_tokens": sums.cached_input_tokens,
        "output_tokens": sums.output_tokens,
        "cost_usd": None if sums.cost_usd is None else format(sums.cost_usd, "f"),
        "cost_pico_usd": sums.cost_pico_usd,
        "recorded_usd": format(usd(sums.recorded_pico_usd), "f"),
        "corrections_usd": format(usd(sums.corrected_pico_usd), "f"),
        "charged_usd": format(usd(sums.charged_pico_usd), "f"),
        "estimated_usd": format(usd(sums.estimated_pico_usd), "f"),
        "estimated_requests": sums.estimated_requests,
        "failed_requests": sums.failed_requests,
        "unpriced_requests": sums.unpriced_requests,
        "partly_unpriced_requests": sums.partly_unpriced_requests,
        "unpriced_tokens": sums.unpriced_tokens,
        "unknown_usage_requests": sums.unknown_usage_requests,
        "gpu_ns": sums.gpu_ns,
        "units": {word: f"{used:f}" for word, used in sums.units_used.items()} if has_attempts else None,
        "further_attempts": sums.further_attempts if has_attempts else None,
        "further_attempts_usd": format(usd(sums.further_pico_usd), "f") if has_attempts else None,
        "further_attempts_unpriced": sums.further_unpriced if has_attempts else None,
    }


def report_as_json(report: CostReport) -> dict[str, object]:
    """Return a report: the question, the total, and the lines of every level, outermost first."""
    question = report.question
    return {
        "from": question.start.astimezone(question.zone).isoformat(),
        "to": question.end.astimezone(question.zone).isoformat(),
        "time_zone": question.zone.key,
        "by": list(question.by),
        "grain": question.grain,
        "tenant": question.tenant,
        "team": question.team,
        "project": question.project,
        "model": question.model,
        "source": report.source,
        "total": sum_as_json(report.total, has_attempts=report.has_attempts),
        "levels": [
            {"by": list(question.by[:depth]), "lines": [_line(line, report) for line in report.level(depth)]}
            for depth in range(1 if question.grain is None else 0, len(question.by) + 1)
        ],
    }


def _line(line: CostLine, report: CostReport) -> dict[str, object]:
    question = report.question
    return {
        **dict(zip(question.by, line.path, strict=False)),
        "from": line.period.start.astimezone(question.zone).isoformat(),
        "to": line.period.end.astimezone(question.zone).isoformat(),
        **sum_as_json(line.sums, has_attempts=report.has_attempts),
    }
