"""The embedder's process: reads texts from standard input, writes vectors to standard output, until the input ends."""

import os
import selectors
from typing import Final

from backends.embedder.messages import Answer, Ask, Ready, Unusable, frame, read_ask, take_frames
from contracts.errors import ConfigurationError

_INPUT: Final = 0
_READ_BYTES: Final = 1 << 18
_TURN_TOKENS: Final = 512  # per batch: more would delay short texts, and exceed the processor's cache


def main() -> int:
    """Serve until the other side closes the pipe or ends. Return the exit status."""
    try:
        return _serve()
    except ConnectionError:  # the parent process has ended
        return 0


def _serve() -> int:
    output = os.fdopen(os.dup(1), "wb", buffering=0)
    os.dup2(2, 1)  # output of libraries must not mix with the frames
    try:
        from backends.embedder.minilm import MiniLM  # here, so that its absence can be reported

        model = MiniLM(int(os.environ.get("OMP_NUM_THREADS", "1")))
    except (ConfigurationError, ImportError) as error:
        output.write(frame(Unusable(getattr(error, "message", "") or f"the embedder cannot be loaded: {error}")))
        return 1
    model.embed([model.tokenize("Ready?", 8)[0]])  # the first call is slow: it sets up the libraries
    output.write(frame(Ready(model.identity)))
    buffer = bytearray()
    waiting: list[tuple[Ask, list[int], bool]] = []
    with selectors.DefaultSelector() as selector:
        selector.register(_INPUT, selectors.EVENT_READ)
        while True:
            while selector.select(0 if waiting else None):
                got = os.read(_INPUT, _READ_BYTES)
                if not got:
                    return 0
                buffer += got
                for body in take_frames(buffer):
                    ask = read_ask(body)
                    ids, is_whole = model.tokenize(ask.text.decode(errors="replace"), ask.most_tokens)
                    waiting.append((ask, ids, is_whole))
            turn = _next_turn(waiting)
            vectors = model.embed([ids for _, ids, _ in turn])
            answers = (
                frame(Answer(ask.number, vector, len(ids), is_whole and not ask.is_cut))
                for (ask, ids, is_whole), vector in zip(turn, vectors, strict=True)
            )
            output.write(b"".join(answers))


def _next_turn(waiting: list[tuple[Ask, list[int], bool]]) -> list[tuple[Ask, list[int], bool]]:
    """Return the texts that have waited longest, as many as are embedded at once, and at least one."""
    tokens = count = 0
    for _, ids, _ in waiting:
        tokens += len(ids)
        if count and tokens > _TURN_TOKENS:
            break
        count += 1
    turn = waiting[:count]
    del waiting[:count]
    return turn


if __name__ == "__main__":
    os._exit(main())  # skips the libraries' slow teardown; all output is written
