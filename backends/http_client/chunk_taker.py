"""Receive a chunked body chunk by chunk, each complete with its framing."""

from backends.processes.native import mypyc_attr


@mypyc_attr(allow_interpreted_subclasses=True)  # tests bring their own
class ChunkTaker:
    """A class where a callable would do: what calls it for every chunk of every stream calls it by its place."""

    __slots__ = ()

    def take(self, framed: bytes) -> bool:
        """Remove and return a chunk; return whether it was. False: it is another than is known here, and comes as any
        does.
        """
        return False
