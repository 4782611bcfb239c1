"""Probable causes in words: what failed or slow requests have in common and others lack. No I/O."""

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final

from analytics.incidents.evidence import Engine, Evidence, Group, TargetTimes

_SILENT: Final = frozenset({"upstream_timeout", "engine_unavailable", "upstream_unreachable", "upstream_broken"})
_LEAST_SLOWER: Final = 2.0  # times the latency before
_LEAST_SLOWER_NS: Final = 200e6  # minimum increase of latency
_LEAST_REQUESTS: Final = 5  # minimum number of answers for a latency
_LEAST_SHARE: Final = 0.5  # minimum share of failures that have it in common
_HUNG_SECONDS: Final = 60.0  # time without a step, while requests are sent to it


@dataclass(frozen=True, slots=True)
class Cause:
    """A probable cause. `search` and `outcome` find its requests on the Requests page; `page` has details."""

    text: str
    kind: str
    search: str = ""
    outcome: str = ""
    page: str = "requests"
    weight: float = 0.0  # share of the failures that it explains, or factor by which latency grew


def causes_of(evidence: Evidence) -> tuple[Cause, ...]:
    """Return probable causes, the most probable first; empty if no request failed, was refused or became slow."""
    found: list[Cause] = []
    failures = evidence.since("error")
    if failures:
        found += _of_failures(evidence, failures)
    found += _of_refusals(evidence, evidence.since("rejected"))
    found += _of_latency(evidence)
    ranks = {"rollout": 4, "hung": 3, "failures": 2, "refusals": 1, "latency": 0}
    failed, refused = _total(failures), _total(evidence.since("rejected"))

    def rank(cause: Cause) -> tuple[bool, int, float]:
        # Refusals come first if they outnumber failures: an exhausted budget makes nothing else fail.
        is_main = cause.kind == "refusals" and refused > failed
        return is_main, ranks[cause.kind], cause.weight

    return tuple(sorted(found, key=rank, reverse=True))


def affected_tenants(evidence: Evidence) -> dict[str, int]:
    """Count failed and refused requests since the incident began, by tenant, most first."""
    counts: Counter[str] = Counter()
    for one in (*evidence.since("error"), *evidence.since("rejected")):
        counts[one.tenant] += one.count
    return dict(counts.most_common())


def error_name(group: Group) -> str:
    """Return an error's name: its code, and the status and type of the target's response."""
    parts = [group.error_code or "no error code"]
    if group.upstream_status is not None:
        parts.append(f"upstream status {group.upstream_status}")
    if group.upstream_error:
        parts.append(group.upstream_error)
    return ", ".join(parts)


def _of_failures(evidence: Evidence, failures: Sequence[Group]) -> list[Cause]:
    total = _total(failures)
    answered = evidence.since("ok")
    (code, status), count = _most(failures, lambda one: (one.error_code, one.upstream_status))
    alike = [one for one in failures if (one.error_code, one.upstream_status) == (code, status)]
    example = max(alike, key=lambda one: (bool(one.upstream_message), one.count))
    first = min(one.minute for one in alike)
    found: list[Cause] = []
    (rollout, arm), on_arm = _most(failures, lambda one: (one.rollout, one.arm))
    if rollout and arm == "candidate" and on_arm >= _LEAST_SHARE * total:
        found += _of_rollout(failures, answered, rollout, error_name(example))
    (pool, target), at_target = _most(alike, lambda one: (one.pool, one.target))
    search = f"error:{code}" + (f" upstream_status:{status}" if status is not None else "")
    if target and at_target >= _LEAST_SHARE * len(alike):
        name = f"target {target} (pool {pool})"
        search += f" replica:{target}"
        hung = _hung(evidence, target, code)
        if hung is not None:
            told = (
                f"The GPU host of {name} hangs: its engine has run no step since {_clock(hung.last_step_at)} "
                f"({hung.model}), and {_of(at_target, total)} ended at it with {error_name(example)}."
            )
            found.append(Cause(told, "hung", search, "error", "gpu", at_target / total))
        where = f"{name}, {_beside_others(failures, answered, target)}"
    else:
        where = "several targets." if target else "no target."
    said = f' It says: "{example.upstream_message}"' if example.upstream_message else ""
    told = (
        f"{_of(count, total)} ended with {error_name(example)} at {where} "
        f"The first was in the minute from {_clock(first)}.{said}"
    )
    found.append(Cause(told, "failures", search, "error", weight=count / total))
    return found + _of_one_key(failures, answered, total)


def _beside_others(failures: Sequence[Group], answered: Sequence[Group], target: str) -> str:
    """Return the share of requests that failed at a target and that at other targets, in words."""
    own = _rate([one for one in failures if one.target == target], [one for one in answered if one.target == target])
    others = [one for one in answered if one.target != target]
    rest = _rate([one for one in failures if one.target != target], others)
    return f"which failed {own} of its requests." + (f" Other targets failed {rest}." if others else "")


def _of_one_key(failures: Sequence[Group], answered: Sequence[Group], total: int) -> list[Cause]:
    """Return the cause if nearly all failures have one API key, and requests of others were answered."""
    key, of_key = _most(failures, lambda one: one.key_id)
    if not key or of_key < 0.9 * total or not {one.key_id for one in answered} - {key}:
        return []
    tenants = {one.tenant for one in failures}
    told = f"{_of(of_key, total)} came with one key, {key} of {next(iter(tenants))}."
    return [Cause(told, "failures", f"key:{key}", "error", weight=0.1)]


def _of_rollout(failures: Sequence[Group], answered: Sequence[Group], rollout: str, words: str) -> list[Cause]:
    def of(groups: Iterable[Group], arm: str) -> list[Group]:
        return [one for one in groups if one.rollout == rollout and one.arm == arm]

    candidate = _share(of(failures, "candidate"), of(answered, "candidate"))
    incumbent = _share(of(failures, "incumbent"), of(answered, "incumbent"))
    if candidate <= 2 * incumbent:
        return []
    model = of(failures, "candidate")[0].model
    return [
        Cause(
            f"The candidate {model} of rollout {rollout} fails {candidate:.0%} of its requests ({words}); "
            f"the incumbent fails {incumbent:.0%}.",
            "rollout",
            f"error:{of(failures, 'candidate')[0].error_code}",
            "error",
            "routing",
            1.0,
        )
    ]


def _of_refusals(evidence: Evidence, refused: Sequence[Group]) -> list[Cause]:
    total = _total(refused)
    if not total:
        return []
    (code, limit), count = _most(refused, lambda one: (one.error_code, one.limit))
    alike = [one for one in refused if (one.error_code, one.limit) == (code, limit)]
    tenants = Counter[str]()
    for one in alike:
        tenants[one.tenant] += one.count
    whose = ", ".join(f"{tenant or 'no tenant'} ({each})" for tenant, each in tenants.most_common(3))
    by = f" by {limit}" if limit else ""
    verb = "budget or quota is used up" if code == "insufficient_quota" else "gateway refused them before any model"
    return [
        Cause(
            f"{count:,} of {total:,} refused requests ended with {code}{by}: the {verb}. "
            f"Tenants: {whose}. The first was in the minute from {_clock(min(one.minute for one in alike))}.",
            "refusals",
            f"error:{code}",
            "rejected",
            "budgets" if code == "insufficient_quota" else "requests",
            count / total,
        )
    ]


def _of_latency(evidence: Evidence) -> list[Cause]:
    found: list[Cause] = []
    for one in evidence.times:
        if min(one.before, one.since) < _LEAST_REQUESTS or one.before_p95_ns <= 0:
            continue
        times = one.since_p95_ns / one.before_p95_ns
        if times < _LEAST_SLOWER or one.since_p95_ns - one.before_p95_ns < _LEAST_SLOWER_NS:
            continue
        found.append(
            Cause(
                f"{_slow_name(one)} is slow: p95 time to first token {_seconds(one.since_p95_ns)} since "
                f"{_clock(evidence.began)}, {times:.1f} times the {_seconds(one.before_p95_ns)} before"
                f"{_unlike_others(evidence.times, one)}.",
                "latency",
                f"replica:{one.target}" if one.target else "",
                "",
                "latency",
                times,
            )
        )
    return found


def _slow_name(one: TargetTimes) -> str:
    if one.arm == "candidate":
        return f"The candidate of rollout {one.rollout} (target {one.target}, pool {one.pool})"
    return f"Target {one.target} (pool {one.pool})" if one.target else "The gateway"


def _unlike_others(times: Sequence[TargetTimes], one: TargetTimes) -> str:
    others = [
        other
        for other in times
        if other.target != one.target and other.since >= _LEAST_REQUESTS and other.pool == one.pool
    ]
    if not others:
        return ""
    return f"; the pool's other targets stand at {_seconds(max(other.since_p95_ns for other in others))}"


def _hung(evidence: Evidence, target: str, code: str) -> Engine | None:
    """Return a target's engine if its requests time out and it has run no step for a minute."""
    if code not in _SILENT:
        return None
    mine = [one for one in evidence.engines if one.replica == target]
    if not mine:
        return None
    last = max(mine, key=lambda one: one.last_step_at)
    failing = [one.minute for one in evidence.since("error") if one.target == target]
    silent_until = min(evidence.period.end, max(failing) + timedelta(minutes=1))
    return last if (silent_until - last.last_step_at).total_seconds() >= _HUNG_SECONDS else None


def _most(groups: Iterable[Group], key):  # type: ignore[no-untyped-def]
    counts: Counter[object] = Counter()
    for one in groups:
        counts[key(one)] += one.count
    return counts.most_common(1)[0]


def _total(groups: Iterable[Group]) -> int:
    return sum(one.count for one in groups)


def _share(failed: Sequence[Group], answered: Sequence[Group]) -> float:
    bad, good = _total(failed), _total(answered)
    return bad / (bad + good) if bad + good else 0.0


def _rate(failed: Sequence[Group], answered: Sequence[Group]) -> str:
    return f"{_share(failed, answered):.0%}"


def _of(count: int, total: int) -> str:
    return f"{count:,} of {total:,} failed requests" if total > 1 else "The failed request"


def _clock(moment: datetime) -> str:
    return f"{moment:%H:%M:%S} UTC"


def _seconds(nanoseconds: float) -> str:
    return f"{nanoseconds / 1e9:.2f} s" if nanoseconds >= 1e9 else f"{nanoseconds / 1e6:.0f} ms"
