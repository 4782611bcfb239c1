"""MCP servers, the settings of their tools, and the rules that state who may use which tool."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from fnmatch import fnmatchcase
from typing import Final, Literal

from contracts.access.identity import Identity
from contracts.errors import ConfigurationError
from contracts.mcp.oauth import CLIENT_SECRET, REFRESH_TOKEN, OAuthSpec

Access = Literal["allow", "deny"]

SEPARATOR: Final = "__"  # between the names of a server and a tool, in the name that clients see
DEFAULT_TIMEOUT_SECONDS: Final = 60.0
MAX_TIMEOUT_SECONDS: Final = 3600.0
DEFAULT_RESULT_BYTES: Final = 256 * 1024
MAX_RESULT_BYTES: Final = 16 * 1024 * 1024
DEFAULT_CONCURRENT: Final = 64
MAX_SERVERS: Final = 500
MAX_TERMS: Final = 500  # per server
MAX_RULES: Final = 10_000
MAX_PATTERNS: Final = 200  # per rule
MAX_PINS: Final = 1000  # per server

STDIO: Final = "stdio:"  # prefix of the url of a server whose program a tool host starts; its name there follows
SERVER_NAME: Final = re.compile(r"[a-z0-9](?:[a-z0-9-]{0,30}[a-z0-9])?")  # without "_": the first "__" ends it
_RULE_NAME: Final = re.compile(r"[a-z0-9][a-z0-9._-]{0,62}")
_REFERENCES: Final = ("env:", "file:", "stored:", "sealed:")
_FINGERPRINT: Final = re.compile(r"[0-9a-f]{32}")
_PATTERN: Final = re.compile(r"[A-Za-z0-9_.*?-]{1,200}")


def full_name(server: str, tool: str) -> str:
    """Return the name by which the gateway's clients call a tool."""
    return f"{server}{SEPARATOR}{tool}"


def is_tool_name(name: str, servers: Mapping[str, object]) -> bool:
    """Return whether a name is a tool name of one of these servers, whether or not the tool exists."""
    server, separator, tool = name.partition(SEPARATOR)
    return bool(separator and tool) and server in servers


@dataclass(frozen=True, slots=True)
class ToolTerms:
    """Settings for the tools of one server whose names match. `None`: the server's."""

    match: str
    price_pico_usd: int | None = None  # per call
    timeout_seconds: float | None = None
    max_result_bytes: int | None = None

    def __post_init__(self) -> None:
        """Raise ConfigurationError on an invalid pattern or bound."""
        _check_pattern(self.match, "match")
        _check_bounds(self.price_pico_usd, self.timeout_seconds, self.max_result_bytes)


@dataclass(frozen=True, slots=True)
class McpServerSpec:
    """One MCP server and how it is reached.

    `default` says whether callers that no rule covers may use its tools. `settings` holds `headers` and `tls` as a
    target's do. The first of `tools` that matches a tool sets its terms; what that leaves out is the server's. If
    there are `pins`, only these tools are offered, and each only while its definition has that fingerprint.
    """

    id: str
    url: str = ""  # http://..., https://..., or stdio:NAME of a tool host's program
    key_ref: str = ""  # "env:NAME", "file:PATH" or "stored:NAME", sent as a bearer token
    settings: Mapping[str, object] = field(default_factory=dict)
    oauth: OAuthSpec | None = None  # how access tokens are obtained; their secrets are in `settings["credentials"]`
    default: Access = "allow"
    price_pico_usd: int | None = None  # per call; none: unpriced
    timeout_seconds: float = DEFAULT_TIMEOUT_SECONDS
    max_result_bytes: int = DEFAULT_RESULT_BYTES
    max_concurrent: int = DEFAULT_CONCURRENT
    tools: tuple[ToolTerms, ...] = ()
    pins: Mapping[str, str] = field(
        default_factory=dict
    )  # fingerprints of approved definitions, by the tool's own name

    def __post_init__(self) -> None:
        """Raise ConfigurationError, naming the field at fault."""
        about = f"MCP server {self.id[:60]!r}"
        if SERVER_NAME.fullmatch(self.id) is None:
            raise ConfigurationError(
                "a name is 1 to 32 of a-z, 0-9 and '-', and begins and ends with a letter or digit",
                about=about,
                param="name",
            )
        if self.is_stdio:
            self._check_stdio(about)
        elif not self.url.startswith(("http://", "https://")):
            raise ConfigurationError(
                "it needs a url that begins with http:// or https://, or is stdio:NAME", about=about, param="url"
            )
        if self.oauth is not None:
            self._check_oauth(about)
        if not 1 <= self.max_concurrent <= 10_000:
            raise ConfigurationError(
                f"max_concurrent must be 1 to 10000, not {self.max_concurrent}", about=about, param="max_concurrent"
            )
        self._check_pins(about)
        if len(self.tools) > MAX_TERMS:
            raise ConfigurationError(
                f"it has {len(self.tools)} entries in tools; the maximum is {MAX_TERMS}", about=about
            )
        try:
            _check_bounds(self.price_pico_usd, self.timeout_seconds, self.max_result_bytes)
        except ConfigurationError as error:
            raise ConfigurationError(error.message, about=about, param=error.param) from error

    @property
    def is_stdio(self) -> bool:
        """Return whether the server is a program that a tool host starts."""
        return self.url.startswith(STDIO)

    def _check_pins(self, about: str) -> None:
        if len(self.pins) > MAX_PINS:
            raise ConfigurationError(f"it has {len(self.pins)} pins; {MAX_PINS} is the most", about=about, param="pins")
        for tool, fingerprint in self.pins.items():
            if _FINGERPRINT.fullmatch(fingerprint) is None:
                raise ConfigurationError(
                    f"the pin of {tool[:60]!r} is no fingerprint of a definition: 32 of 0-9 and a-f, as "
                    f"/mcp/{self.id} lists them",
                    about=about,
                    param="pins",
                )

    def _check_stdio(self, about: str) -> None:
        if SERVER_NAME.fullmatch(self.url.removeprefix(STDIO)) is None:
            raise ConfigurationError(
                "its url names no program of a tool host: stdio: and 1 to 32 of a-z, 0-9 and '-'",
                about=about,
                param="url",
            )
        if self.settings:
            raise ConfigurationError(
                "a program of a tool host has no headers and no tls; configure it in the tool host's file",
                about=about,
                param=next(iter(self.settings)),
            )

    def credential(self, name: str) -> str:
        """Return the reference of one of OAuth's secrets; empty if there is none."""
        given = self.settings.get("credentials")
        found = given.get(name) if isinstance(given, Mapping) else None
        return found if isinstance(found, str) else ""

    def _check_oauth(self, about: str) -> None:
        if self.is_stdio:
            raise ConfigurationError("a program of a tool host has no oauth", about=about, param="oauth")
        headers = self.settings.get("headers")
        names = {str(name).lower() for name in headers} if isinstance(headers, Mapping) else set()
        if self.key_ref or "authorization" in names:
            raise ConfigurationError(
                "oauth supplies the access token: leave out key and the header authorization",
                about=about,
                param="oauth",
            )
        for name in (CLIENT_SECRET, REFRESH_TOKEN):
            reference = self.credential(name)
            if reference and not reference.startswith(_REFERENCES):
                raise ConfigurationError(
                    f"{name} says where the secret is: stored:NAME, env:NAME or file:PATH",
                    about=about,
                    param=f"oauth.{name}",
                )
        if not self.credential(CLIENT_SECRET) and not self.credential(REFRESH_TOKEN):
            raise ConfigurationError(
                "oauth needs a client_secret (client credentials) or a refresh_token", about=about, param="oauth"
            )

    def terms_of(self, tool: str) -> ToolTerms:
        """Return the settings of a tool, by the server's own name for it, complete except for the price."""
        found = next((terms for terms in self.tools if fnmatchcase(tool, terms.match)), None)
        own = ToolTerms("*", self.price_pico_usd, self.timeout_seconds, self.max_result_bytes)
        if found is None:
            return own
        return replace(
            own,
            price_pico_usd=own.price_pico_usd if found.price_pico_usd is None else found.price_pico_usd,
            timeout_seconds=found.timeout_seconds or own.timeout_seconds,
            max_result_bytes=found.max_result_bytes or own.max_result_bytes,
        )

    @property
    def longest_timeout_seconds(self) -> float:
        """Return the longest timeout of any of its tools."""
        return max([self.timeout_seconds, *(terms.timeout_seconds or 0.0 for terms in self.tools)])


@dataclass(frozen=True, slots=True)
class ToolRule:
    """Allows or denies tools to callers. An empty `tenant`, `team`, `project` or `key` means any.

    `tools` are patterns of full names, such as "github__create_*" or "*__delete_*".
    """

    id: str
    effect: Access
    tools: tuple[str, ...]
    tenant: str = ""
    team: str = ""
    project: str = ""
    key: str = ""

    def __post_init__(self) -> None:
        """Raise ConfigurationError, naming the field at fault."""
        about = f"tool rule {self.id[:60]!r}"
        if _RULE_NAME.fullmatch(self.id) is None:
            raise ConfigurationError(
                "a name is 1 to 63 of a-z, 0-9, '.', '_' and '-', and begins with a letter or digit",
                about=about,
                param="name",
            )
        if self.effect not in ("allow", "deny"):
            raise ConfigurationError(f"effect is allow or deny, not {self.effect!r}", about=about, param="effect")
        if not 1 <= len(self.tools) <= MAX_PATTERNS:
            raise ConfigurationError(
                f"it has {len(self.tools)} patterns in tools; use 1 to {MAX_PATTERNS}", about=about, param="tools"
            )
        if (self.team or self.project or self.key) and not self.tenant:
            raise ConfigurationError("a team, project or key needs its tenant", about=about, param="tenant")
        for pattern in self.tools:
            _check_pattern(pattern, "tools")

    def covers(self, who: Identity) -> bool:
        """Return whether the rule applies to a caller."""
        return (
            (not self.tenant or self.tenant == who.tenant)
            and (not self.team or self.team == who.team)
            and (not self.project or self.project == who.project)
            and (not self.key or self.key == who.key_id)
        )

    def matches(self, name: str) -> bool:
        """Return whether the rule applies to a tool, by its full name."""
        return any(fnmatchcase(name, pattern) for pattern in self.tools)


class ToolAccess:
    """The tools that one caller may use: a denying rule takes precedence over an allowing one, and that over the
    default.
    """

    def __init__(self, rules: tuple[ToolRule, ...], who: Identity) -> None:
        covering = [rule for rule in rules if rule.covers(who)]
        self._allowing = [rule for rule in covering if rule.effect == "allow"]
        self._denying = [rule for rule in covering if rule.effect == "deny"]

    def allows(self, server: McpServerSpec, name: str) -> bool:
        """Return whether the caller may use a tool of a server, by its full name."""
        if any(rule.matches(name) for rule in self._denying):
            return False
        return server.default == "allow" or any(rule.matches(name) for rule in self._allowing)


def _check_pattern(pattern: str, param: str) -> None:
    if _PATTERN.fullmatch(pattern) is None:
        raise ConfigurationError(
            f"{pattern[:60]!r} is not a pattern of tool names: 1 to 200 letters, digits, '_', '.', '-', '*' and '?'",
            param=param,
        )


def _check_bounds(price: int | None, timeout_seconds: float | None, result_bytes: int | None) -> None:
    if price is not None and price < 0:
        raise ConfigurationError("a price is 0 USD or more", param="price_usd")
    if timeout_seconds is not None and not 0 < timeout_seconds <= MAX_TIMEOUT_SECONDS:
        raise ConfigurationError(
            f"timeout_seconds must be above 0 and at most {MAX_TIMEOUT_SECONDS:g}, not {timeout_seconds:g}",
            param="timeout_seconds",
        )
    if result_bytes is not None and not 1024 <= result_bytes <= MAX_RESULT_BYTES:
        raise ConfigurationError(
            f"max_result_bytes must be 1024 to {MAX_RESULT_BYTES}, not {result_bytes}", param="max_result_bytes"
        )
