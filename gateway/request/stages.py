"""The neighbours that a request passes through, and what it holds on its way."""

from dataclasses import dataclass, field

from contracts.errors import TollkeeperError
from contracts.serving.routes import RouteSpec
from gateway.cache.answer_cache import AnswerCache
from gateway.cache.visit import Visit
from gateway.config.directory import Directory
from gateway.config.targets import TargetRegistry
from gateway.guardrails.guardrails import Guardrails
from gateway.identity.authentication import Authenticator
from gateway.limits.admission import Admission, Ticket
from gateway.limits.grant import Grant
from gateway.limits.limiter import Limiter
from gateway.limits.queue.pool_queue import Place
from gateway.limits.queue.pool_queues import PoolQueues
from gateway.records.recorder import Recorder
from gateway.replies.allowance import Allowance
from gateway.replies.reply import Reply
from gateway.request.earlier_answers import EarlierAnswer
from gateway.request.guard import Guard
from gateway.request.settlement import Settlement
from gateway.routing.attempts.caller import Caller
from gateway.routing.replicas.router import Router
from gateway.routing.rollouts.rollouts import Rollouts
from gateway.routing.routes.guide import RouteGuide
from gateway.wire.large_bodies import LargeBodies


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
