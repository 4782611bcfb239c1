"""Watches one key: counts its requests by the policy's rules, and reports broken rules."""

from dataclasses import dataclass
from typing import Final

from algorithms.abuse.detection import Detection
from algorithms.abuse.distinct_names import DistinctNames, address_identity, agent_identity, shown_address
from algorithms.abuse.prompt_clusters import PromptClusters
from algorithms.abuse.sketch import Sketch, sketch_of
from algorithms.abuse.spec import AbuseAction, AbuseKind, AbuseSpec, FloodRule, HarvestRule, ProbingRule
from algorithms.abuse.window_count import WindowCount

_MOST_UNLIKE: Final = 32  # earlier prompts that a new one is compared with, to see whether it is different
_MOST_NAMED: Final = 10  # networks or user agents in a detection


@dataclass(frozen=True, slots=True)
class Use:
    """The facts of one request that abuse rules use. `text` is the last message; times are nanoseconds."""

    text: str
    at_ns: int
    address: str = ""
    user_agent: str = ""
    wants_logprobs: bool = False
    output_limit: int | None = None


class KeyWatch:
    """One key's counters. Refused requests are not counted, so that a caller who waits as told is served again."""

    def __init__(self, spec: AbuseSpec) -> None:
        self._spec = spec
        flood, probing, harvest, sharing = spec.flood, spec.probing, spec.harvest, spec.sharing
        self._flood = None if flood is None else PromptClusters(flood.similarity, flood.window_seconds)
        self._probing = None if probing is None else PromptClusters(probing.similarity, probing.window_seconds)
        self._unlike = (
            None if harvest is None else PromptClusters(harvest.similarity, harvest.window_seconds, _MOST_UNLIKE)
        )
        self._harvested = None if harvest is None else WindowCount(harvest.window_seconds)
        self._addresses, self._agents = DistinctNames(0, 1), DistinctNames(0, 1)
        if sharing is not None:
            self._addresses = DistinctNames(sharing.addresses or 0, sharing.window_seconds)
            self._agents = DistinctNames(sharing.user_agents or 0, sharing.window_seconds)

    @property
    def size(self) -> int:
        """Return the number of stored sketches and names, to limit memory."""
        clusters = (each for each in (self._flood, self._probing, self._unlike) if each is not None)
        return sum(map(len, clusters)) + len(self._addresses) + len(self._agents)

    def look(self, use: Use) -> list[Detection]:
        """Count a request, and return the rules that it breaks. After one that throttles, no further rules
        are checked.
        """
        found: list[Detection] = []
        for rule in (self._look_at_faces, self._look_at_prompt):
            found += rule(use)
            if any([each.action == "throttle" for each in found]):
                break
        return found

    def _look_at_faces(self, use: Use) -> list[Detection]:
        sharing = self._spec.sharing
        if sharing is None:
            return []
        found = []
        address, agent = address_identity(use.address), agent_identity(use.user_agent)
        if sharing.addresses is not None and address:
            seen = self._face("address_sharing", self._addresses, address, sharing.addresses, sharing.action, use.at_ns)
            found += [seen] if seen is not None else []
        if sharing.user_agents is not None and agent and not any(each.action == "throttle" for each in found):
            seen = self._face("agent_sharing", self._agents, agent, sharing.user_agents, sharing.action, use.at_ns)
            found += [seen] if seen is not None else []
        return found

    def _face(
        self, kind: AbuseKind, known: DistinctNames, name: str, limit: int, action: AbuseAction, now_ns: int
    ) -> Detection | None:
        """Record a name; return a detection if it is above the limit. Names from before the limit was reached stay
        allowed.
        """
        is_new = known.is_new(name, now_ns)
        observed = known.count(now_ns) + is_new
        is_above = observed > limit and (is_new or action == "alert")
        if not is_above or action == "alert":
            known.add(name, now_ns)
        if not is_above:
            return None
        assert self._spec.sharing is not None
        names = [*known.names(), name] if is_new and action == "throttle" else known.names()
        latest = names[-_MOST_NAMED:]
        shown = list(dict.fromkeys(map(shown_address, latest))) if kind == "address_sharing" else latest
        facts: dict[str, object] = {"networks" if kind == "address_sharing" else "user_agents": shown}
        window = self._spec.sharing.window_seconds
        return Detection(kind, action, observed, limit, window, known.seconds_until_free(now_ns), facts)

    def _look_at_prompt(self, use: Use) -> list[Detection]:
        spec = self._spec
        if not use.text or not spec.watches_prompts:
            return []
        sketch, found = sketch_of(use.text), list[Detection]()
        if spec.flood is not None and self._flood is not None:
            found += self._in_cluster("flood", spec.flood, self._flood, sketch, use)
        if spec.probing is not None and self._probing is not None and not _is_throttled(found):
            found += self._in_cluster("probing", spec.probing, self._probing, sketch, use)
        if spec.harvest is not None and not _is_throttled(found):
            found += self._harvest(spec.harvest, sketch, use)
        return found

    def _in_cluster(
        self, kind: AbuseKind, rule: FloodRule | ProbingRule, clusters: PromptClusters, sketch: Sketch, use: Use
    ) -> list[Detection]:
        cluster = clusters.find(sketch) or clusters.begin(sketch, use.at_ns)
        counted = cluster.members if kind == "flood" else cluster.variants
        text_hash = hash(use.text)
        is_counted = kind == "flood" or not cluster.knows(text_hash)
        observed = counted.count(use.at_ns) + is_counted
        is_above = observed > rule.limit and is_counted
        if not is_above or rule.action == "alert":
            cluster.add(text_hash, use.at_ns)
        if not is_above:
            return []
        wait = counted.seconds_until_below(rule.limit, use.at_ns)
        facts = {"similarity": rule.similarity, "variants": cluster.variants.count(use.at_ns)}
        return [Detection(kind, rule.action, observed, rule.limit, rule.window_seconds, wait, facts)]

    def _harvest(self, rule: HarvestRule, sketch: Sketch, use: Use) -> list[Detection]:
        assert self._unlike is not None and self._harvested is not None
        is_long = use.output_limit is None or use.output_limit >= rule.output_tokens
        if not is_long or (rule.needs_logprobs and not use.wants_logprobs):
            return []
        cluster = self._unlike.find(sketch)
        if cluster is not None:
            cluster.add(hash(use.text), use.at_ns)
            return []
        observed = self._harvested.count(use.at_ns) + 1
        is_above = observed > rule.limit
        if not is_above or rule.action == "alert":
            self._unlike.begin(sketch, use.at_ns).add(hash(use.text), use.at_ns)
            self._harvested.add(use.at_ns)
        if not is_above:
            return []
        wait = self._harvested.seconds_until_below(rule.limit, use.at_ns)
        facts = {"output_tokens": rule.output_tokens, "with_logprobs": use.wants_logprobs}
        return [Detection("harvest", rule.action, observed, rule.limit, rule.window_seconds, wait, facts)]


def _is_throttled(found: list[Detection]) -> bool:
    return any([each.action == "throttle" for each in found])
