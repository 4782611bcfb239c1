"""Endpoints from SRV records, queried again when their time to live ends."""

import threading
from typing import Final

import dns.exception
import dns.resolver

from backends.endpoints.source import DnsSource, Endpoint
from backends.endpoints.watch import SourceAway, Tell

_LEAST_SECONDS: Final = 0.5
_MOST_SECONDS: Final = 30.0
_ANSWER_SECONDS: Final = 5.0


class DnsReader:
    """Reads SRV records. Of these, the ones with the lowest priority value are used equally; weights are ignored."""

    def __init__(self, source: DnsSource) -> None:
        self._name = source.name
        self._resolver = dns.resolver.Resolver(configure=source.server is None)
        self._resolver.cache = None
        if source.server is not None:
            self._resolver.nameservers = [source.server[0]]
            self._resolver.port = source.server[1]

    def follow(self, tell: Tell, stop: threading.Event) -> None:
        """Report the endpoints after each query. Raises SourceAway if DNS does not answer.

        A name that does not exist, or has no records, has no endpoints: Kubernetes answers so for a headless service
        without ready pods.
        """
        while not stop.is_set():
            endpoints, seconds = self._ask()
            tell(endpoints)
            stop.wait(min(max(seconds, _LEAST_SECONDS), _MOST_SECONDS))

    def interrupt(self) -> None:
        """Do nothing: `follow` waits no longer than for an answer of DNS."""

    def _ask(self) -> tuple[frozenset[Endpoint], float]:
        try:
            answer = self._resolver.resolve(self._name, "SRV", lifetime=_ANSWER_SECONDS)
        except (dns.resolver.NXDOMAIN, dns.resolver.NoAnswer):
            return frozenset(), 1.0
        except dns.exception.DNSException as error:
            raise SourceAway(f"DNS does not answer for {self._name} ({type(error).__name__})") from error
        records = [record for record in answer if record.target.to_text() != "."]
        first = min((record.priority for record in records), default=0)
        found = frozenset(
            (record.target.to_text(omit_final_dot=True), record.port) for record in records if record.priority == first
        )
        return found, float(answer.rrset.ttl if answer.rrset is not None else 1)
