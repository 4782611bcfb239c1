"""The single YAML file a gateway can run from: keys, pools, models, prices; neither database nor store.

What is wrong in it stops the start with the file's line and the field's name.
"""

from collections.abc import Iterator
from datetime import datetime
from decimal import Decimal
from pathlib import Path
from typing import Any, Final, Literal

import yaml
from pydantic import AwareDatetime, BaseModel, ConfigDict, Field, ValidationError

from contracts.configuration import KeyEntry, ModelSpec, PoolSpec, Snapshot, TargetSpec
from contracts.errors import ConfigurationError
from contracts.identity import Identity
from contracts.keys import digest_of, is_well_formed
from contracts.prices import PriceBook, PriceCard, price_card
from contracts.usage import Leaf
from gateway.targets import resolve_key

_ALWAYS: Final = datetime.fromisoformat("1970-01-01T00:00:00+00:00")


class _Entry(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class _Key(_Entry):
    key: str = Field(description="env:NAME, file:PATH, or the key itself")
    id: str = ""
    tenant: str = Field(min_length=1)
    team: str = ""
    project: str = ""
    models: list[str] | None = None
    expires_at: AwareDatetime | None = None


class _Target(_Entry):
    name: str = Field(min_length=1)
    kind: str
    url: str = ""
    model: str = ""
    provider: str = ""
    key: str = ""
    weight: int = Field(default=1, ge=1)
    region: str = ""
    settings: dict[str, Any] = {}


class _Pool(_Entry):
    name: str = Field(min_length=1)
    policy: Literal["round_robin"] = "round_robin"
    targets: list[_Target] = Field(min_length=1)


class _Model(_Entry):
    name: str = Field(min_length=1)
    pool: str
    context_tokens: int | None = Field(default=None, ge=1)


class _Price(_Entry):
    model: str
    version: str
    usd_per_mtok: dict[Leaf, Decimal]
    provider: str = ""
    tenant: str = ""
    valid_from: AwareDatetime = _ALWAYS
    valid_to: AwareDatetime | None = None


class _File(_Entry):
    keys: list[_Key] = Field(min_length=1)
    pools: list[_Pool] = Field(min_length=1)
    models: list[_Model] = Field(min_length=1)
    prices: list[_Price] = []


class FileSource:
    """A snapshot from a file. It is read once; its revision never moves."""

    def __init__(self, path: Path, pepper: bytes) -> None:
        self.path = path
        self._pepper = pepper

    def load(self) -> Snapshot:
        """Read the file. Raises ConfigurationError naming line, field and remedy."""
        parsed = self._parse()
        return Snapshot(
            revision=0,
            keys={entry.digest: entry for entry in map(self._key_entry, parsed.keys)},
            models={
                model.name: ModelSpec(model.name, model.pool, context_tokens=model.context_tokens)
                for model in parsed.models
            },
            pools={pool.name: _pool_spec(pool) for pool in parsed.pools},
            prices=PriceBook(map(_card, parsed.prices)),
        )

    def poll(self, known_revision: int) -> Snapshot | None:
        """Give nothing: a file is read at start."""
        return None

    def _parse(self) -> _File:
        try:
            text = self.path.read_text()
            root = yaml.compose(text, Loader=yaml.SafeLoader)
            content = yaml.safe_load(text)
        except OSError as error:
            raise ConfigurationError(f"configuration file {self.path} cannot be read: {error.strerror}") from error
        except yaml.YAMLError as error:
            mark = getattr(error, "problem_mark", None)
            where = f", line {mark.line + 1}" if mark is not None else ""
            problem = getattr(error, "problem", None) or "not valid YAML"
            raise ConfigurationError(f"{self.path}{where}: {problem}") from error
        except ValueError as error:  # bytes that are not UTF-8, or a date that no calendar has
            raise ConfigurationError(f"{self.path}: {error}") from error
        try:
            parsed = _File.model_validate(content or {})
        except ValidationError as error:
            first = error.errors(include_url=False)[0]
            field = ".".join(str(step) for step in first["loc"]) or "the file"
            line = _line_of(root, first["loc"])
            raise ConfigurationError(f"{self.path}, line {line}: {field}: {first['msg']}") from error
        for place, what, name in _repeated(parsed):
            raise ConfigurationError(f"{self.path}, line {_line_of(root, place)}: {what} {name!r} is given twice")
        return parsed

    def _key_entry(self, given: _Key) -> KeyEntry:
        key = resolve_key(given.key) if given.key.startswith(("env:", "file:")) else given.key
        if not is_well_formed(key):
            raise ConfigurationError(
                f"{self.path}: the key of tenant {given.tenant!r} is malformed; "
                "keys are 'tk-' and 43 letters, digits, '-' or '_'"
            )
        digest = digest_of(key, self._pepper)
        return KeyEntry(
            digest=digest,
            identity=Identity(given.tenant, given.team, given.project, given.id or f"key_{digest.hex()[:12]}"),
            expires_at_ns=None if given.expires_at is None else int(given.expires_at.timestamp()) * 1_000_000_000,
            models=None if given.models is None else frozenset(given.models),
        )


def _repeated(parsed: _File) -> Iterator[tuple[tuple[int | str, ...], str, str]]:
    """Find names given twice: the later entry would silently hide the earlier. Gives (place, kind, name)."""
    lists: list[tuple[tuple[int | str, ...], str, list[str]]] = [
        (("pools",), "pool", [pool.name for pool in parsed.pools]),
        (("models",), "model", [model.name for model in parsed.models]),
        (("prices",), "price version", [price.version for price in parsed.prices]),
    ]
    for number, pool in enumerate(parsed.pools):
        lists.append((("pools", number, "targets"), "target", [target.name for target in pool.targets]))
    for place, what, names in lists:
        for index, name in enumerate(names):
            if name in names[:index]:
                yield (*place, index, "name"), what, name


def _pool_spec(pool: _Pool) -> PoolSpec:
    return PoolSpec(
        id=pool.name,
        policy=pool.policy,
        targets=tuple(
            TargetSpec(
                id=target.name,
                pool=pool.name,
                kind=target.kind,
                url=target.url,
                model=target.model,
                provider=target.provider,
                key_ref=target.key,
                weight=target.weight,
                region=target.region,
                settings=target.settings,
            )
            for target in pool.targets
        ),
    )


def _card(price: _Price) -> PriceCard:
    return price_card(
        price.model,
        price.version,
        price.usd_per_mtok,
        valid_from=price.valid_from,
        valid_to=price.valid_to,
        provider=price.provider,
        tenant=price.tenant,
    )


def _line_of(node: yaml.Node | None, path: tuple[int | str, ...]) -> int:
    """Find the line (from 1) of a field, or of the nearest thing around it that exists."""
    line = 1 if node is None else node.start_mark.line + 1
    for step in path:
        if isinstance(node, yaml.MappingNode):
            key, node = next(((key, value) for key, value in node.value if key.value == step), (None, None))
            line = line if key is None else key.start_mark.line + 1  # the value may begin on a later line
        elif isinstance(node, yaml.SequenceNode) and isinstance(step, int) and step < len(node.value):
            node = node.value[step]
            line = node.start_mark.line + 1
        else:
            break
    return line
