"""Checks submitted requests and converts them to the engine's requests and sequences."""

from collections.abc import Sequence as Items
from dataclasses import dataclass, field
from itertools import count

from backends.engine.parsers.answer_format import PROMPT_TAIL_TOKENS, AnswerFormat
from backends.engine.torch_engine.block_hash import BlockKeys, root_key
from backends.engine.torch_engine.block_manager import BLOCK_SIZE
from backends.engine.torch_engine.constraint import GrammarCompiler
from backends.engine.torch_engine.detokenizer import TextStream, Vocabulary
from backends.engine.torch_engine.request_check import ModelLimits, check_request
from backends.engine.torch_engine.sampling_state import SamplingState
from backends.engine.torch_engine.sequence import Request, Sequence
from contracts.engine.wire import Submit


@dataclass(slots=True)
class Intake:
    """Builds requests of one model, in the callers' threads, since compiling a grammar may take long."""

    limits: ModelLimits
    vocabulary: Vocabulary
    compiler: GrammarCompiler
    eos_token_ids: tuple[int, ...]
    answers: AnswerFormat
    prefix_cache: bool
    _arrivals: "count[int]" = field(default_factory=count)
    _handles: "count[int]" = field(default_factory=count)

    def accept(self, submit: Submit, adapters: Items[str], now_ns: int) -> Request:
        """Check a request and build its first choice. Raises InvalidRequest or UnknownModel."""
        check_request(submit, self.limits, adapters)
        room = self.limits.context_tokens - len(submit.token_ids)
        request = Request(
            submit=submit,
            arrival=next(self._arrivals),
            arrived_ns=now_ns,
            max_tokens=min(submit.sampling.max_tokens, room),
        )
        keys = BlockKeys(root_key(submit.cache_salt, submit.adapter), BLOCK_SIZE)
        token_ids = [*submit.token_ids, *submit.generated_ids]
        if self.prefix_cache:
            keys.extend(token_ids)
        first = self._sequence(request, 0, token_ids, keys, None)
        grammar = self.answers.grammar(submit)
        if grammar is not None:
            first.constraint = self.compiler.compile(grammar, submit.generated_ids)
        for place, token_id in enumerate(submit.generated_ids, 1):
            # The previous replica returned the text that was certain; what it held back is returned here.
            before = first.text.characters
            piece = first.text.push(token_id, may_stop=place >= submit.sampling.min_tokens)
            if first.parser is not None:
                first.parser.push(piece.text, (first.text.characters - before,), is_given=True)
        request.sequences.append(first)
        return request

    def siblings(self, first: Sequence) -> list[Sequence]:
        """Return sequences for a request's other choices, once the first has computed the prompt; they have no blocks
        yet.
        """
        made = []
        for index in range(1, first.request.submit.sampling.n):
            prompt = first.token_ids[: first.prompt]
            sequence = self._sequence(first.request, index, prompt, first.keys.copy(), first.sampling.seed)
            if first.constraint is not None:
                sequence.constraint = first.constraint.copy()
            made.append(sequence)
        first.request.sequences.extend(made)
        return made

    def _sequence(
        self, request: Request, index: int, token_ids: list[int], keys: BlockKeys, seed: int | None
    ) -> Sequence:
        submit = request.submit
        tail = self.vocabulary.tail(submit.token_ids, PROMPT_TAIL_TOKENS) if self.answers.reasoning else ""
        ends = () if submit.sampling.ignore_eos else self.eos_token_ids
        return Sequence(
            request=request,
            handle=next(self._handles),
            index=index,
            token_ids=token_ids,
            prompt=len(submit.token_ids),
            keys=keys,
            sampling=SamplingState(
                submit.sampling,
                index=index,
                prompt=submit.token_ids,
                given=submit.generated_ids,
                end_ids=ends,
                vocabulary=self.limits.vocabulary,
                seed=seed,
            ),
            text=TextStream(self.vocabulary.stream(submit.token_ids, self.answers.markers(submit)), submit.stop),
            parser=self.answers.parser(submit, index, tail),
        )
