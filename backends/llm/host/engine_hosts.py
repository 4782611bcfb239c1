"""All engine hosts of one gateway: a connection each, shared by the targets that name the same URL."""

from backends.llm.encoding_room import EncodingRoom
from backends.llm.host.engine_address import EngineAddress
from backends.llm.host.engine_host import ENGINE_WORDS, EngineHost, HostStatus, HostWords, Taking
from backends.llm.host.engine_room import EngineRoom
from backends.llm.host_inputs.engine_formats import EngineFormats, format_key
from contracts.engine.wire import Hello, ModelHello
from contracts.errors import EngineUnavailable


class EngineHosts:
    """Hands out hosts and takes them back."""

    def __init__(
        self, taking: Taking | None = None, words: HostWords = ENGINE_WORDS, room: EncodingRoom | None = None
    ) -> None:
        self._words = words
        self.encoding = room or EncodingRoom()  # where prompts are encoded
        self.formats = EngineFormats()
        self._taking = taking or Taking()
        self._hosts: dict[str, EngineHost] = {}
        self._users: dict[str, int] = {}

    def join(self, url: str) -> EngineHost:
        """Return the host at a URL, connecting to it if nobody has yet. Raises ConfigurationError on another URL."""
        host = self._hosts.get(url)
        if host is None:
            host = self._hosts[url] = EngineHost(
                EngineAddress.parse(url), self._taking, self._on_hello, self._words, self._has_substitute
            )
        self._users[url] = self._users.get(url, 0) + 1
        return host

    async def leave(self, url: str) -> None:
        """Release a host; the last one who does closes the connection."""
        self._users[url] -= 1
        if not self._users[url]:
            del self._users[url]
            await self._hosts.pop(url).close()

    def room(self, url: str, model: str) -> EngineRoom | None:
        """Return what a model of a host has room for; `None` if it is away, not ready or does not say."""
        host = self._hosts.get(url)
        return None if host is None else host.room(model)

    def is_ready(self, url: str, model: str) -> bool:
        """Return whether a model of a host would take a request now."""
        host = self._hosts.get(url)
        if host is None:
            return False
        try:
            host.model(model)
        except EngineUnavailable:
            return False
        return True

    def status(self) -> dict[str, HostStatus]:
        """Return how each host is, by its name, or its address where two have the same."""
        hosts = self._hosts.values()
        names = [host.address.name for host in hosts]
        return {
            host.address.name if names.count(host.address.name) == 1 else str(host.address): host.status()
            for host in hosts
        }

    def _has_substitute(self, models: list[ModelHello]) -> bool:
        """Return whether hosts that answer have all of these models ready; a hung one has none."""
        wanted = {_identity(model) for model in models}
        there = {_identity(model) for host in self._hosts.values() for model in host.ready_models()}
        return wanted <= there

    def _on_hello(self, hello: Hello) -> None:
        for model in hello.models:
            if model.tokenizer:
                self.formats.prepare(model)


def _identity(model: ModelHello) -> tuple[str, ...]:
    """Return what two models must share for one to continue the other's answers."""
    return (model.weights_hash, *format_key(model))
