"""Compares both arms of a rollout from the store: latency, cost, length, failures, refusals, similarity."""

import json
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final

from analytics.comparison.arms import ArmsRead, ReportLine, RolloutReport, read_arms
from analytics.comparison.intervals import mean, mean_ratio, quantile_ratio, share, share_difference
from analytics.rows import text_of
from backends.store.client import StoreClient

_TAIL: Final = 0.95
Sample = Sequence[float]


@dataclass(frozen=True, slots=True)
class _Request:
    arm: str
    is_ok: bool
    ttft_ms: float | None
    duration_ms: float | None
    gap_ms: float | None
    output_tokens: float | None
    cost_usd: float | None
    is_refused: bool | None
    shadow: Mapping[str, Any]


def rollout_report(
    store: StoreClient, rollout: str, start: datetime, end: datetime, tenant: str | None = None
) -> RolloutReport:
    """Compare the arms of a rollout over a period. Raises StoreUnavailable.

    `tenant`: only this tenant's requests, without shadow copies, which belong to the installation.
    """
    return compare_arms(read_arms(store, rollout, start, end, tenant))


def compare_arms(arms: ArmsRead) -> RolloutReport:
    """Compare the arms. Takes tenths of a second; the first time in a process, seconds and 100 MB.

    A request that was answered by another model than its arm's counts as failed.
    """
    served = Counter(text_of(row["model_name"]) for row in arms.rows if row["arm"] == "incumbent")
    usual = next((model for model, _ in served.most_common(1)), None)
    requests = [_request(row, usual) for row in arms.rows]
    old = [one for one in requests if one.arm == "incumbent"]
    new = [one for one in requests if one.arm == "candidate"]
    copies = [one for one in requests if one.arm == "shadow"]
    lines = (*_arms(old, new), *_copies(copies))
    return RolloutReport(arms.rollout, arms.start, arms.end, len(old), len(new), len(copies), lines)


def _request(row: Mapping[str, object], incumbent: str | None) -> _Request:
    arm = text_of(row["arm"])
    was_answered_for = bool(row["has_failed"]) or (arm == "candidate" and row["model_name"] == incumbent)
    shadow = text_of(row["shadow_json"])
    return _Request(
        arm=arm,
        is_ok=row["outcome_label"] == "ok" and not was_answered_for,
        ttft_ms=_scaled(row["ttft_ns"], 1e-6),
        duration_ms=_scaled(row["duration_ns"], 1e-6),
        gap_ms=_scaled(row["gap_ms"], 1.0),
        output_tokens=_scaled(row["output_tokens"], 1.0),
        cost_usd=_scaled(row["cost"], 1.0),
        is_refused=None if row["is_refused"] is None else bool(row["is_refused"]),
        shadow=json.loads(shadow) if shadow else {},
    )


def _arms(old: Sequence[_Request], new: Sequence[_Request]) -> list[ReportLine]:
    failed = [sum(not one.is_ok for one in arm) for arm in (old, new)]
    lines = [_shares("error rate", "arms", (failed[0], len(old)), (failed[1], len(new)))]
    refused = [[one.is_refused for one in arm if one.is_ok and one.is_refused is not None] for arm in (old, new)]
    lines.append(_shares("refusal rate", "arms", *((sum(arm), len(arm)) for arm in refused)))
    times: tuple[tuple[str, Callable[[_Request], float | None]], ...] = (
        ("ttft (ms)", lambda one: one.ttft_ms),
        ("inter-token (ms)", lambda one: one.gap_ms),
        ("duration (ms)", lambda one: one.duration_ms),
    )
    for name, read in times:
        before, after = _read(old, read), _read(new, read)
        lines.append(_means(name, "arms", before, after))
        tails = quantile_ratio(after, before, _TAIL)
        lines.append(ReportLine(f"{name} p95", "arms", _quantile(before), _quantile(after), tails, "ratio"))
    lines.append(_means("output tokens", "arms", _read(old, _length), _read(new, _length)))
    lines.append(_means("cost (USD)", "arms", _read(old, _cost), _read(new, _cost)))
    return lines


def _copies(copies: Sequence[_Request]) -> list[ReportLine]:
    good = [one for one in copies if one.is_ok]
    lines = [_share_line("error rate", len(copies) - len(good), len(copies))]
    pairs: tuple[tuple[str, str, Callable[[_Request], float | None]], ...] = (
        ("ttft (ms)", "ttft_ms", lambda one: _scaled(one.shadow.get("own_ttft_ms"), 1.0)),
        ("duration (ms)", "duration_ms", lambda one: _scaled(one.shadow.get("own_duration_ms"), 1.0)),
        ("output tokens", "output_tokens", _length),
        ("cost (USD)", "cost_usd", _cost),
    )
    for name, field, read in pairs:
        both = [(_scaled(one.shadow.get(field), 1.0), read(one)) for one in good]
        known = [(before, after) for before, after in both if before is not None and after is not None]
        lines.append(
            _means(name, "copies", [before for before, _ in known], [after for _, after in known], is_paired=True)
        )
    judged = [one.shadow for one in good if None not in (one.shadow.get("refused"), one.shadow.get("own_refused"))]
    refused = [sum(bool(one[name]) for one in judged) for name in ("refused", "own_refused")]
    lines.append(_shares("refusal rate", "copies", (refused[0], len(judged)), (refused[1], len(judged))))
    same = [bool(one.shadow["same"]) for one in good if "same" in one.shadow]
    lines.append(_share_line("same text", sum(same), len(same)))
    for by in ("words", "meaning"):
        alike = [float(one.shadow["similarity"]) for one in good if one.shadow.get("by") == by]
        found = mean(alike)
        lines.append(
            ReportLine(f"similarity by {by}", "copies", None, None if found is None else found.value, found, "mean")
        )
    return lines


def _share_line(measure: str, some: int, all_: int) -> ReportLine:
    return ReportLine(measure, "copies", None, _part(some, all_), share(some, all_), "share")


def _shares(measure: str, of: str, old: tuple[int, int], new: tuple[int, int]) -> ReportLine:
    return ReportLine(measure, of, _part(*old), _part(*new), share_difference(new, old), "difference")


def _means(measure: str, of: str, old: Sample, new: Sample, *, is_paired: bool = False) -> ReportLine:
    found = mean_ratio(new, old, is_paired=is_paired)
    return ReportLine(measure, of, _mean(old), _mean(new), found, "ratio")


def _read(requests: Sequence[_Request], read: Callable[[_Request], float | None]) -> list[float]:
    return [value for one in requests if one.is_ok and (value := read(one)) is not None]


def _length(request: _Request) -> float | None:
    return request.output_tokens


def _cost(request: _Request) -> float | None:
    return request.cost_usd


def _mean(sample: Sample) -> float | None:
    return sum(sample) / len(sample) if sample else None


def _quantile(sample: Sample) -> float | None:
    return sorted(sample)[min(int(len(sample) * _TAIL), len(sample) - 1)] if sample else None


def _part(some: int, all_: int) -> float | None:
    return some / all_ if all_ else None


def _scaled(value: object, by: float) -> float | None:
    return float(value) * by if isinstance(value, int | float) else None
