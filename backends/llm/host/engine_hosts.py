"""All engine hosts of one gateway: one connection per URL, shared by the targets that name it."""

from backends.llm.encoding_room import EncodingRoom
from backends.llm.host.engine_address import EngineAddress
from backends.llm.host.engine_room import EngineRoom
from backends.llm.host.host_connection import ENGINE_WORDS, HostConnection, HostStatus, HostWords, Taking
from backends.llm.host_inputs.engine_formats import EngineFormats, format_key
from contracts.engine.wire import Hello, ModelHello
from contracts.errors import EngineUnavailable


class EngineHosts:
    """Creates and closes connections by reference count."""

    def __init__(
        self, taking: Taking | None = None, words: HostWords = ENGINE_WORDS, room: EncodingRoom | None = None
    ) -> None:
        self._words = words
        self.encoding = room or EncodingRoom()  # limits the encoding of large prompts
        self.formats = EngineFormats()
        self._taking = taking or Taking()
        self._hosts: dict[str, HostConnection] = {}
        self._users: dict[str, int] = {}

    def join(self, url: str) -> HostConnection:
        """Return the host at a URL, and connect if needed. Raises ConfigurationError if the URL is invalid."""
        host = self._hosts.get(url)
        if host is None:
            host = self._hosts[url] = HostConnection(
                EngineAddress.parse(url), self._taking, self._on_hello, self._words, self._has_substitute
            )
        self._users[url] = self._users.get(url, 0) + 1
        return host

    async def leave(self, url: str) -> None:
        """Release a host. Its last user closes the connection."""
        self._users[url] -= 1
        if not self._users[url]:
            del self._users[url]
            await self._hosts.pop(url).close()

    def room(self, url: str, model: str) -> EngineRoom | None:
        """Return a model's free capacity; `None` if the host is away, or the model not ready or not reporting it."""
        host = self._hosts.get(url)
        return None if host is None else host.room(model)

    def is_ready(self, url: str, model: str) -> bool:
        """Return whether a model of a host accepts requests now."""
        host = self._hosts.get(url)
        if host is None:
            return False
        try:
            host.model(model)
        except EngineUnavailable:
            return False
        return True

    def status(self) -> dict[str, HostStatus]:
        """Return each host's status by name, or by address if two have the same name."""
        hosts = self._hosts.values()
        names = [host.address.name for host in hosts]
        return {
            host.address.name if names.count(host.address.name) == 1 else str(host.address): host.status()
            for host in hosts
        }

    def _has_substitute(self, models: list[ModelHello]) -> bool:
        """Return whether responding hosts have all of these models ready."""
        wanted = {_identity(model) for model in models}
        there = {_identity(model) for host in self._hosts.values() for model in host.ready_models()}
        return wanted <= there

    def _on_hello(self, hello: Hello) -> None:
        for model in hello.models:
            if model.tokenizer:
                self.formats.prepare(model)


def _identity(model: ModelHello) -> tuple[str, ...]:
    """Return what two models must have in common so that one can continue the other's answers."""
    return (model.weights_hash, *format_key(model))
