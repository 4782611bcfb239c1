"""The state of a request and its choices in the engine. A sequence is one choice: one row of a batch."""

from dataclasses import dataclass, field
from enum import Enum

from algorithms.gpu_time.attribution import RequestTime
from backends.engine.parsers.answer import AnswerParser
from backends.engine.torch_engine.block_hash import BlockKeys
from backends.engine.torch_engine.constraint import Constraint
from backends.engine.torch_engine.detokenizer import TextStream
from backends.engine.torch_engine.sampling_state import SamplingState
from contracts.engine.wire import FinishReason, Submit


class State(Enum):
    """The state of a sequence. `DONE` is final: it has neither blocks nor a slot."""

    WAITING = "waiting"
    RUNNING = "running"
    DONE = "done"


@dataclass(slots=True, eq=False)
class Request:
    """A submitted request, with the state that its choices share. Times are the engine's monotonic nanoseconds."""

    submit: Submit
    arrival: int  # order of arrival
    arrived_ns: int
    max_tokens: int  # per choice, including tokens of a continued answer; limited by the context
    scheduled_ns: int | None = None
    first_token_ns: int | None = None
    cached_tokens: int | None = None  # at the first choice's first admission
    is_forked: bool = False
    announced_cached: bool = False
    has_kept: bool = False  # pinning its marked prefixes was attempted
    written_tokens: dict[int, int] = field(default_factory=dict)  # newly pinned tokens, by pinning time in seconds
    recompute_tokens: int = 0
    kv_block_ns: float = 0.0
    time: RequestTime = field(default_factory=RequestTime)
    sequences: list["Sequence"] = field(default_factory=list)

    @property
    def is_done(self) -> bool:
        """Return whether every choice has ended."""
        return len(self.sequences) == self.submit.sampling.n and all(
            sequence.state is State.DONE for sequence in self.sequences
        )

    @property
    def reasoning(self) -> int | None:
        """Return the number of generated reasoning tokens; `None` if reasoning is not parsed."""
        counts = [sequence.parser.reasoning_tokens for sequence in self.sequences if sequence.parser is not None]
        known = [count for count in counts if count is not None]
        return sum(known) if known else None

    @property
    def generated(self) -> int:
        """Return the number of tokens generated here, over all choices, without those of a continued answer."""
        return sum(sequence.generated for sequence in self.sequences)


@dataclass(slots=True, eq=False)
class Sequence:
    """One choice. `token_ids` are prompt, continued and generated tokens; of the first `computed` the KV is
    computed.
    """

    request: Request
    handle: int
    index: int
    token_ids: list[int]
    prompt: int  # prompt tokens in `token_ids`
    keys: BlockKeys
    sampling: SamplingState
    text: TextStream
    parser: AnswerParser | None = None
    constraint: Constraint | None = None
    state: State = State.WAITING
    computed: int = 0
    high_water: int = 0  # most tokens ever computed: up to there, computing is recomputing
    cached: int = 0  # at the last admission
    finish_reason: FinishReason | None = None
    preemptions: int = 0

    @property
    def outputs(self) -> int:
        """Return the number of output tokens, including those of a continued answer: limits and penalties
        count these.
        """
        return len(self.token_ids) - self.prompt

    @property
    def generated(self) -> int:
        """Return the number of tokens generated here."""
        return self.outputs - len(self.request.submit.generated_ids)

    @property
    def remaining(self) -> int:
        """Return the number of tokens whose KV is not computed yet; 1 while decoding."""
        return len(self.token_ids) - self.computed

    @property
    def order(self) -> tuple[int, int, int]:
        """Return the sort key in the queue: priority, arrival, choice."""
        return (self.request.submit.priority, self.request.arrival, self.index)


@dataclass(frozen=True, slots=True)
class Row:
    """A sequence's part of one step: `count` tokens from `start`, as of the time the step was planned.

    `samples`: its last logits choose a token. `is_decode`: it computes only the token generated last. `recompute`: how
    many of its tokens had been computed before a preemption.
    """

    sequence: Sequence
    start: int
    count: int
    samples: bool
    is_decode: bool
    recompute: int

    @classmethod
    def of(cls, sequence: Sequence, count: int) -> "Row":
        """Return the row of a sequence's next `count` tokens."""
        start = sequence.computed
        samples = count == sequence.remaining
        again = min(start + count, sequence.high_water) - start
        return cls(sequence, start, count, samples, count == 1 and samples and sequence.outputs > 0, max(again, 0))
