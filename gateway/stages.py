"""The neighbours that a request passes through, and what it holds on its way."""

from dataclasses import dataclass

from gateway.admission import Admission
from gateway.answer_cache.answer_cache import AnswerCache
from gateway.attempts.caller import Caller
from gateway.directory import Directory
from gateway.guard import Guard
from gateway.guardrails.guardrails import Guardrails
from gateway.identity.authentication import Authenticator
from gateway.large_bodies import LargeBodies
from gateway.limiter import Limiter
from gateway.recorder import Recorder
from gateway.rollouts.rollouts import Rollouts
from gateway.routes.guide import RouteGuide
from gateway.routing.router import Router
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
