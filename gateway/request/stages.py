"""The components that a request passes through, and its reserved resources."""

from dataclasses import dataclass

from gateway.cache.answer_cache import AnswerCache
from gateway.config.directory import Directory
from gateway.config.targets import TargetRegistry
from gateway.guardrails.guardrails import Guardrails
from gateway.identity.authentication import Authenticator
from gateway.limits.admission import Admission
from gateway.limits.limiter import Limiter
from gateway.limits.queue.pool_queue import PoolQueues
from gateway.records.recorder import Recorder
from gateway.request.charges.settlement import Settlement
from gateway.request.guard import Guard
from gateway.routing.attempts.caller import Caller
from gateway.routing.replicas.router import Router
from gateway.routing.rollouts.rollouts import Rollouts
from gateway.routing.routes.guide import RouteGuide
from gateway.wire.large_bodies import LargeBodies


@dataclass(frozen=True, slots=True)
class Stages:
    """The components that a request passes through."""

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
