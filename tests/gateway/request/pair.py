"""Two gateways that are asked the same, one of which has no plans, and what is compared of them."""

import gc
import re
from typing import Any

import msgspec

from contracts.recording.records import RequestRecord
from gateway.request.dispatch import Dispatcher
from gateway.request.plans.planned_requests import PlannedRequests
from gateway.request.request_state import RequestState

LEVELS = ({"level": "tenant"}, {"level": "team", "subject": "*"}, {"level": "key", "subject": "*"})
RULES: dict[str, list[dict[str, Any]]] = {
    "limits": [
        {"tenant": "acme", "metric": metric, "window": "minute", "amount": 1_000_000, **level}
        for level in LEVELS
        for metric in ("requests", "tokens")
    ],
    "budgets": [{"tenant": "acme", "period": "month", "amount_usd": "100", **level} for level in LEVELS],
}
# What differs from one run to the next.
OWN = ("request_id", "started_at_ns", "duration_ns", "admission_ns", "charge_offsets_ns", "wait_ns", "gateway")
TIMED = (*OWN, "number", "ttft_ns")


def requests_in_memory() -> int:
    """Return how many requests there are that the cycle collector knows of."""
    return sum(isinstance(one, RequestState) for one in gc.get_objects())


class WatchedDispatcher(Dispatcher):
    """Notes which requests have followed a plan."""

    def __init__(self, *args):
        super().__init__(*args)
        self.taken: list[bool] = []
        self.lives: list[Any] | None = None  # of those that are served, where a test looks at them

    def serve(self, *args, **how):
        life = super().serve(*args, **how)
        self.taken.append(life.plan is not None or (life.is_hit and life.task is None))
        if self.lives is not None:
            self.lives.append(life)
        return life


class NoPlans(PlannedRequests):
    """Understands nothing at once: every request goes along all stages."""

    def understand(self, life):
        return False


class Pair:
    """Two gateways that are asked the same, of which one has no plans: there every request goes along all stages."""

    def __init__(self, short, long, monkeypatch):
        self.short, self.long = short, long
        self.taken: list[bool] = short.gateway._dispatcher.taken
        dispatcher = long.gateway._dispatcher
        dispatcher.at_once = NoPlans(dispatcher.stages, dispatcher.clock, dispatcher.plans, dispatcher.hits)

    async def ask(self, **fields):
        """Ask both; return the shorter way's answer, which must be the other's but for ids and times."""
        short, long = [await each.chat(model="mock", **fields) for each in (self.short, self.long)]
        assert (short.status, told(short)) == (long.status, told(long))
        if short.status == 200:
            assert short.body == long.body
        else:
            assert without_times(short.error) == without_times(long.error)
        return short

    def compare_books(self):
        """Hold the two journals, and the counters, against each other."""
        for side in ("requests", "attempts"):
            ours, theirs = (list(map(facts, getattr(each, side)())) for each in (self.short, self.long))
            assert ours == theirs
        assert counters(self.short) == counters(self.long)
        for each in (self.short, self.long):
            gateway = each.gateway
            assert gateway.admission.in_flight == 0
            assert gateway._dispatcher.open_grants == 0


def told(answer):
    """Return an answer's headers, without what tells the time."""
    timed = ["x-request-id", "retry-after", "retry-after-ms"] + ["content-length"] * (answer.status != 200)
    return {name: value for name, value in answer.headers.items() if name not in timed and "-reset-" not in name}


def without_id(body):
    """Return a body without the request's id that an error's message tells."""
    return re.sub(rb" \(request [0-9a-f-]{36}\)", b"", body)


def without_times(error):
    """Return an error without the wait and the request's id that its message tells."""
    said = re.sub(r" \(request [0-9a-f-]{36}\)$", "", error["message"])
    return {**error, "message": re.sub(r"after [\d.hms]+( \(capacity reserved for you\))?$", "", said)}


def facts(record):
    given = msgspec.to_builtins(msgspec.structs.asdict(record))
    left_out = OWN if isinstance(record, RequestRecord) else TIMED
    return {name: value for name, value in given.items() if name not in left_out}


def counters(running):
    """Return what every counter says is used and reserved, by rule and subject."""
    gateway = running.gateway
    snapshot, now_ns = gateway.directory.snapshot, gateway._clock.wall_ns()
    [entry] = snapshot.keys.values()
    lines = gateway._dispatcher.stages.limiter.plans.plan_for(entry.identity, "mock", snapshot).fixed
    found = {}
    for counter, _ in lines.all:
        state = counter.state(now_ns)
        found[counter.rule.scope.level, counter.rule.metric, counter.subject] = (state.used, state.reserved)
    return found
