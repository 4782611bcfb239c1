"""What must hold for a model server's bytes, however they are cut, cut short or broken."""

from collections.abc import Sequence
from dataclasses import dataclass

from hypothesis import strategies as st

from bench.fuzzing.answers import Answer, Fault, check_answer, ends_well, error_of, spoken_in
from bench.fuzzing.model_server import Ending
from bench.fuzzing.requests import Splice, cut, cuts, spliced, splices
from bench.fuzzing.rig import SERVED, FuzzRig
from bench.fuzzing.streams import Told, answers
from contracts.recording.records import RequestRecord
from gateway.apis.operations import Operation


@dataclass(frozen=True, slots=True)
class Served:
    """A request, and what the model server answers it with."""

    operation: Operation
    streamed: bool
    told: Told
    shares: Sequence[float]  # where the server's bytes are cut

    def request(self, rig: FuzzRig) -> bytes:
        """Write the request."""
        return rig.request(self.operation, SERVED, stream=self.streamed)


@st.composite
def served(draw: st.DrawFn, rig: FuzzRig) -> Served:
    """Return a request for generated text, and a good answer to it."""
    generating = [
        (operation, streamed)
        for operation, model, streamed in rig.answered
        if model == SERVED and operation.path in ("/chat/completions", "/completions")
    ]
    operation, streamed = draw(st.sampled_from(generating))
    return Served(operation, streamed, draw(answers(operation, streamed)), draw(cuts()))


async def check_served(rig: FuzzRig, example: Served) -> None:
    """A good answer arrives whole, in order, and with its usage, in whatever pieces it comes."""
    told = example.told
    answer = await _ask(rig, example, cut(told.data, example.shares), "close")
    record = rig.record_of(answer)
    check_answer(answer)
    if answer.status != 200 or not ends_well(answer) or record.outcome != "ok":
        raise Fault(f"a good answer became {answer.status}, {record.outcome}: {answer.body[-300:]!r}")
    if spoken_in(answer) != told.text:
        raise Fault(f"the text {told.text!r} became {spoken_in(answer)!r}")
    if told.usage is not None and _reported(record) != told.usage:
        tokens_in, tokens_out = told.usage
        if (tokens_in and (tokens_out or not told.text)) or record.count_method != "estimate":  # a zero is estimated
            raise Fault(f"the usage {told.usage} became {_reported(record)}")
    _check_usage(record, told)


def short_answers(rig: FuzzRig) -> st.SearchStrategy[tuple[Served, float, Ending]]:
    """Return answers, how much of each the server sends, and how it leaves then."""
    return st.tuples(served(rig), st.floats(0, 1), st.sampled_from(("close", "reset")))


async def check_short(rig: FuzzRig, example: tuple[Served, float, Ending]) -> None:
    """An answer that is cut short never passes for a whole one, and is billed for no more than it was."""
    given, share, ending = example
    data = given.told.data[: round(share * len(given.told.data))]
    answer = await _ask(rig, given, cut(data, given.shares), ending)
    _check_damaged(rig, given, answer, is_text_true=True)


async def cut_short_at_every_byte(rig: FuzzRig, given: Served, step: int = 1) -> None:
    """Let the server leave after every byte of an answer, or every so many, in both ways in turn. Raises Fault."""
    for count in range(0, len(given.told.data), step):
        answer = await _ask(rig, given, [given.told.data[:count]], "reset" if count % 2 else "close")
        _check_damaged(rig, given, answer, is_text_true=True)


def broken_answers(rig: FuzzRig) -> st.SearchStrategy[tuple[Served, Sequence[Splice], bool]]:
    """Return answers, what is changed in them, and whether only what stands before the usage is."""
    return st.tuples(served(rig), splices(), st.booleans())


async def check_broken_answer(rig: FuzzRig, example: tuple[Served, Sequence[Splice], bool]) -> None:
    """Whatever a server sends, the client gets an answer or a documented error, and usage that was reported holds."""
    given, changes, is_usage_left = example
    told = given.told
    at = told.counted_from if is_usage_left else len(told.data)
    data = spliced(told.data[:at], changes) + told.data[at:]
    answer = await _ask(rig, given, cut(data, given.shares), "close")
    if is_usage_left:
        _check_damaged(rig, given, answer, is_text_true=False)
    else:
        error_of(answer, given.operation.errors)
        rig.record_of(answer)


async def _ask(rig: FuzzRig, given: Served, pieces: Sequence[bytes], ending: Ending) -> Answer:
    rig.upstream.script = (pieces, ending)
    found = (await rig.converse([given.request(rig)])).answers()
    await rig.settle()
    if len(found) != 1:
        raise Fault(f"{len(found)} answers came to one request")
    check_answer(found[0], (given.operation.errors,), is_passed_on=True)
    return found[0]


def _check_damaged(rig: FuzzRig, given: Served, answer: Answer, *, is_text_true: bool) -> None:
    record, error = rig.record_of(answer), error_of(answer, given.operation.errors)
    is_good = ends_well(answer)
    if is_good == (error is not None) or is_good != (record.outcome == "ok"):
        raise Fault(f"the record says {record.outcome}, the answer ends with {answer.body[-300:]!r}")
    said = spoken_in(answer) if is_text_true and answer.status == 200 else ""
    if is_text_true and not (said == given.told.text if is_good else given.told.text.startswith(said)):
        raise Fault(f"of the text {given.told.text!r} the client has {said!r}")
    _check_usage(record, given.told)


def _check_usage(record: RequestRecord, told: Told) -> None:
    """What is called reported must have been; what is not known is not called so."""
    if record.count_method == "reported" and _reported(record) not in told.reports:
        raise Fault(f"the record says that {_reported(record)} was reported; reported was {told.reports}")
    if record.count_method == "exact":
        raise Fault("tokens behind HTTP are called exact")
    if record.count_method == "none" and record.usage.is_known and record.usage.total_tokens:
        raise Fault(f"usage of no method: {record.usage}")


def _reported(record: RequestRecord) -> tuple[int | None, int | None]:
    return record.usage.input_tokens, record.usage.output_tokens
