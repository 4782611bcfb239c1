"""Dependencies of detectors besides their settings."""

from dataclasses import dataclass, field
from random import Random, SystemRandom
from typing import TYPE_CHECKING

from gateway.request.clock import Clock

if TYPE_CHECKING:
    from backends.channels.question import Questions
    from backends.secrets.credential_references import ReferenceRules
    from gateway.identity.abuse.incidents import IncidentBook
    from gateway.routing.semantic.reader import PromptEmbedder


@dataclass(frozen=True, slots=True)
class DetectorDependencies:
    """The gateway's services for detectors. `embedder` computes embeddings; `None`: there is none."""

    clock: Clock = field(default_factory=Clock)
    random: Random = field(default_factory=SystemRandom)
    pepper: bytes = b""  # a secret of this installation
    embedder: "PromptEmbedder | None" = None
    webhook_secret: bytes = field(default=b"", repr=False)  # that calls of webhooks are signed with
    questions: "Questions | None" = None  # asks webhooks
    incidents: "IncidentBook | None" = None  # where abuse is written down
    rules: "ReferenceRules | None" = None  # for references to credentials; none: all are the operator's own
    only_checks: bool = False  # no request is served: what only gateways have, such as keys, is not read
