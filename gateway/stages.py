"""The neighbours that a request passes through, and what it holds on its way."""

from dataclasses import dataclass
from typing import Protocol

from contracts.errors import TollkeeperError
from contracts.generation import Result
from gateway.admission import Admission, Ticket
from gateway.allowance import Allowance
from gateway.directory import Directory
from gateway.grant import Grant
from gateway.guard import Guard
from gateway.identity.authentication import Authenticator
from gateway.limiter import Limiter
from gateway.recorder import Recorder
from gateway.reply import Reply
from gateway.routing import Router
from gateway.scheduling.pool_queue import Place
from gateway.scheduling.pool_queues import PoolQueues
from gateway.settlement import Settlement
from gateway.targets import TargetRegistry


@dataclass(frozen=True, slots=True)
class Stages:
    """The neighbours that a request passes through."""

    directory: Directory
    authenticator: Authenticator
    admission: Admission
    guard: Guard
    router: Router
    targets: TargetRegistry
    settlement: Settlement
    limiter: Limiter
    queues: PoolQueues
    recorder: Recorder


@dataclass(slots=True)
class Passage:
    """What a request holds on its way through the stages; what it holds at the end is given back."""

    reply: Reply | None = None
    ticket: Ticket | None = None
    grant: Grant | None = None
    allowance: Allowance | None = None
    place: Place | None = None  # in the model's pool
    ended_by: TollkeeperError | None = None  # what the answer ran out of, where we ended it


class Begun(Protocol):
    """A first try that was made elsewhere. Times are as an Attempt's."""

    started_at_ns: int
    began_ns: int

    @property
    def was_tried(self) -> bool:
        """Say whether it was made."""

    def result(self, reply: Reply) -> Result:
        """Give its account, and the answer to the reply. Raises what it failed with."""
