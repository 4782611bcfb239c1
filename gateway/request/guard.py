"""Check whether a request is allowed by its key's scopes and its model's context length.

What is inspected within texts is in `gateway/guardrails`.
"""

from dataclasses import dataclass
from typing import Final

from contracts.api.chat import ChatRequest, ReasoningEffort, asked_effort, clip_effort
from contracts.api.requests import AnyRequest
from contracts.errors import InvalidRequest, PermissionDenied, UnknownModel
from contracts.serving.configuration import KeyEntry, ModelSpec, Snapshot
from contracts.serving.routes import RouteSpec


@dataclass(frozen=True, slots=True)
class Bounds:
    """Changes by a key's policy: the reasoning effort sent to the model (`None`: as requested), and headers that report
    it.
    """

    reasoning_effort: ReasoningEffort | None = None
    headers: tuple[tuple[bytes, bytes], ...] = ()


_UNBOUND: Final = Bounds()


class Guard:
    """Checks whether a key may use a model for an operation, before the model is called."""

    def find(self, key: KeyEntry, request: AnyRequest, api: str, snapshot: Snapshot) -> ModelSpec | RouteSpec:
        """Return the model or route that a request names. Raise the same errors as `before`.

        A key that may use a route may use every model that the route leads to.
        """
        route = snapshot.routes.get(request.model) if snapshot.routes else None
        if route is None:
            return self.before(key, request, api, snapshot)
        _check_endpoint(key, api)
        if key.models is not None and route.id not in key.models:
            raise _unknown(request.model)
        return route

    def before(self, key: KeyEntry, request: AnyRequest, api: str, snapshot: Snapshot) -> ModelSpec:
        """Return the model that a request names, after checking the key's scopes and the model's context length.

        Raise UnknownModel, PermissionDenied or InvalidRequest.
        """
        _check_endpoint(key, api)
        model = snapshot.models.get(request.model)
        if model is None or not _may_use(key, model):
            raise _unknown(request.model)
        limit = None if model.context_tokens is None else request.output_limit
        if limit is not None and model.context_tokens is not None and limit > model.context_tokens:
            raise InvalidRequest(
                f"max_tokens is {limit}; the context of {model.id!r} is {model.context_tokens} tokens",
                param="max_tokens",
            )
        return model

    def admits(self, key: KeyEntry, model: ModelSpec, api: str) -> bool:
        """Return whether a key may use a model by an API. The other checks of `before` depend on the request."""
        return _may_use(key, model) and (key.endpoints is None or api in key.endpoints)

    def bounds(self, key: KeyEntry | None, request: AnyRequest | None, model: ModelSpec | None = None) -> Bounds:
        """Return the reasoning effort for a chat: clipped to the key's maximum, or as the model's route pins it."""
        cap = key.policy.max_reasoning_effort if key is not None else None
        pinned = model.sampling.pinned_effort if model is not None and model.sampling is not None else None
        if (cap is None and pinned is None) or not isinstance(request, ChatRequest):
            return _UNBOUND
        asked = pinned or asked_effort(request)
        effort = clip_effort(asked, cap)
        if effort is None:
            return _UNBOUND
        # Told also where it is what was asked: a body may ask for another in a second place.
        said = ((b"x-tollkeeper-reasoning-effort", effort.encode()),) if effort != asked else ()
        return Bounds(effort, said)


def _check_endpoint(key: KeyEntry, api: str) -> None:
    if key.endpoints is not None and api not in key.endpoints:
        raise PermissionDenied(f"this key may not use {api}; it may use {', '.join(sorted(key.endpoints))}")


def _may_use(key: KeyEntry, model: ModelSpec) -> bool:
    return key.models is None or model.id in key.models


def _unknown(name: str) -> UnknownModel:
    # The same answer whether it is not there or not for this key, which does not learn of models it may not use.
    return UnknownModel(
        f"the model {name[:80]!r} does not exist or is not for this key; GET /v1/models lists yours", param="model"
    )
