"""GPU time charged to each request so far, and whether all its steps have arrived."""

from collections.abc import Iterable
from dataclasses import dataclass, field

from algorithms.gpu_time.attribution import RequestTime
from algorithms.gpu_time.step_model import DECODE, ENCODE, StepRow
from backends.engine.vllm_engine.metering.frames import Begun, Ended
from backends.engine.vllm_engine.metering.sequence_names import request_id_of
from backends.engine.vllm_engine.step_metering import Account


@dataclass(slots=True)
class MeteredRequest:
    """One request, with one or several sequences. `is_over`: its account has been returned; later steps count as
    aborted.
    """

    request_id: bytes
    tenant: str
    is_hosted: bool  # whether this host began it and will end it
    payer_id: bytes  # its id in step records
    time: RequestTime = field(default_factory=RequestTime)
    is_over: bool = False
    recompute_tokens: int = 0
    overrun_tokens: int = 0
    wasted_tokens: int = 0
    kv_block_ns: int = 0
    computed_tokens: int | None = None
    keys: set[int] = field(default_factory=set)  # sequences that may be in further steps
    last_step: int = 0  # last step of the sequences that have ended

    def add(self, row: StepRow, part_ns: int, confidence: float, block_ns: int) -> None:
        """Charge one row: `part_ns` of GPU time, and `block_ns` of KV blocks times nanoseconds."""
        self.time.add(row, part_ns, confidence)
        self.kv_block_ns += block_ns
        end = row.context + row.scheduled
        if row.phase == DECODE and row.scheduled == 1 and not row.aborted and not row.recompute:
            self.computed_tokens = end  # the case of nearly every row
            return
        self.recompute_tokens += row.recompute
        self.wasted_tokens += max(0, row.drafted - row.accepted)
        if row.aborted:
            self.overrun_tokens += row.scheduled
        elif row.phase != ENCODE:
            self.computed_tokens = max(self.computed_tokens or 0, end - (row.drafted - row.accepted))

    def account(self) -> Account:
        """Return what has been charged so far."""
        return Account(
            gpu=self.time.share(self.kv_block_ns / 1e9) if self.time.total_ns else None,
            computed_tokens=self.computed_tokens,
            recompute_tokens=self.recompute_tokens,
            overrun_tokens=self.overrun_tokens,
            wasted_tokens=self.wasted_tokens,
        )


class RequestBook:
    """Finds requests by id and by sequence key; removes each one that no further step can concern."""

    def __init__(self) -> None:
        self._requests: dict[bytes, MeteredRequest] = {}
        self._by_key: dict[int, MeteredRequest] = {}
        self._ended: list[Ended] = []  # sequences whose last step has not been recorded

    @property
    def has_live(self) -> bool:
        """Return whether any sequence may be in a further step."""
        return bool(self._requests)

    def begin(self, request_id: bytes, tenant: str, payer_id: bytes = b"") -> None:
        """Register a request before its sequences begin."""
        self._requests[request_id] = MeteredRequest(request_id, tenant, is_hosted=True, payer_id=payer_id or request_id)

    def note_begun(self, begun: Begun) -> None:
        """Register a sequence under its key."""
        request_id = request_id_of(begun.name)
        request = self._requests.get(request_id)
        if request is None:
            request = self._requests[request_id] = MeteredRequest(
                request_id, begun.tenant, is_hosted=False, payer_id=request_id
            )
        request.keys.add(begun.key)
        self._by_key[begun.key] = request

    def note_ended(self, ended: Ended, recorded: int) -> None:
        """Record the end of a sequence; `recorded` is the number of the last recorded step."""
        request = self._by_key.get(ended.key)
        if request is None:
            return
        request.keys.discard(ended.key)
        request.last_step = max(request.last_step, ended.last_step)
        if ended.last_step > recorded:
            self._ended.append(ended)
        else:
            self._forget_key(ended.key)

    def note_recorded(self, recorded: int) -> None:
        """Remove ended sequences whose last step has been recorded."""
        if not self._ended:
            return
        for ended in [one for one in self._ended if one.last_step <= recorded]:
            self._forget_key(ended.key)
        self._ended = [one for one in self._ended if one.last_step > recorded]

    def of_keys(self, keys: Iterable[int]) -> list[MeteredRequest | None]:
        """Return the request of each sequence; `None` if the message of its beginning was lost."""
        return list(map(self._by_key.get, keys))

    def is_settled(self, request_id: bytes, recorded: int) -> bool:
        """Return whether every step of a request has been recorded. True for unknown requests and those that were in no
        step.
        """
        request = self._requests.get(request_id)
        return request is None or (not request.keys and request.last_step <= recorded)

    def end(self, request_id: bytes) -> Account:
        """Return a request's account; later steps of it count as aborted."""
        request = self._requests.get(request_id)
        if request is None:
            return Account()
        request.is_over = True
        self._forget_if_done(request)
        return request.account()

    def _forget_key(self, key: int) -> None:
        request = self._by_key.pop(key, None)
        if request is not None:
            self._forget_if_done(request)

    def _forget_if_done(self, request: MeteredRequest) -> None:
        if request.keys or not (request.is_over or not request.is_hosted):
            return
        if any(one is request for one in map(self._by_key.get, (ended.key for ended in self._ended))):
            return
        self._requests.pop(request.request_id, None)
