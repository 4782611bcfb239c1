"""The neighbours that a request passes through, and what it holds on its way."""

from dataclasses import dataclass, field

from contracts.errors import TollkeeperError
from contracts.routes import RouteSpec
from gateway.admission import Admission, Ticket
from gateway.allowance import Allowance
from gateway.answer_cache.answer_cache import AnswerCache
from gateway.answer_cache.visit import Visit
from gateway.attempts.caller import Caller
from gateway.directory import Directory
from gateway.earlier_answers import EarlierAnswer
from gateway.grant import Grant
from gateway.guard import Guard
from gateway.guardrails.guardrails import Guardrails
from gateway.identity.authentication import Authenticator
from gateway.large_bodies import LargeBodies
from gateway.limiter import Limiter
from gateway.recorder import Recorder
from gateway.reply import Reply
from gateway.rollouts.rollouts import Rollouts
from gateway.routes.guide import RouteGuide
from gateway.routing.router import Router
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
    caller: Caller
    settlement: Settlement
    limiter: Limiter
    queues: PoolQueues
    recorder: Recorder
    answers: AnswerCache
    guide: RouteGuide
    rollouts: Rollouts
    guardrails: Guardrails
    bodies: LargeBodies


@dataclass(slots=True)
class Passage:
    """What a request holds on its way through the stages; what it holds at the end is given back."""

    reply: Reply | None = None
    route: RouteSpec | None = None  # that was asked for; none: a model
    ticket: Ticket | None = None
    grant: Grant | None = None
    allowance: Allowance | None = None
    place: Place | None = None  # in the model's pool
    is_let_go: bool = False  # what it held for a model that it left was given back
    earlier: list[EarlierAnswer] = field(default_factory=list)  # that were not good enough, and are paid for
    visit: Visit | None = None  # to the answer cache, where the model or route keeps answers
    ended_by: TollkeeperError | None = None  # what the answer ran out of, where we ended it
