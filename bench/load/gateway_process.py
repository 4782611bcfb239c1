"""The gateway that is measured: a process with limits and budgets on, and what its books say afterwards."""

import os
import sys
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import product
from pathlib import Path
from typing import Any, Final, Self

import yaml

from bench.load.peers import Peer
from bench.load.processes import PinnedProcess, get_json
from contracts.recording.records import RequestRecord, decode_record
from gateway.records.journal import Journal, unpack_entry

ROOT: Final = Path(__file__).resolve().parents[2]
_KEY: Final = "tk-" + "L" * 43
_LEVELS: Final = ("tenant", "team", "key")
_MUCH: Final = 10**11  # a minute: nothing is ever refused
_BUDGET_USD: Final = "900000"
_JOURNAL_BYTES: Final = 16 << 30
_READ_ENTRIES: Final = 20_000
_READ_BYTES: Final = 64 << 20


def configuration(model: str, target: Mapping[str, Any]) -> dict[str, Any]:
    """Return a gateway's file: one model, and requests, tokens and money counted at three levels each."""
    limits = [
        {"tenant": "acme", "level": level, "metric": metric, "window": "minute", "amount": _MUCH} | _subject(level)
        for level, metric in product(_LEVELS, ("requests", "tokens"))
    ]
    budgets = [
        {"tenant": "acme", "level": level, "period": "month", "amount_usd": _BUDGET_USD} | _subject(level)
        for level in _LEVELS
    ]
    return {
        "keys": [{"key": _KEY, "tenant": "acme", "team": "core", "project": "apollo", "id": "key_1"}],
        "pools": [{"name": "pool", "targets": [{"name": "target", **target}]}],
        "models": [{"name": model, "pool": "pool"}],
        "prices": [{"model": model, "version": "bench/1", "usd_per_mtok": {"input_text": "1", "output_text": "2"}}],
        "limits": limits,
        "budgets": budgets,
    }


def _subject(level: str) -> dict[str, str]:
    return {} if level == "tenant" else {"subject": "*"}


@dataclass(slots=True)
class Books:
    """What a gateway's journal holds, and what it counted: all over its life."""

    records: int = 0
    not_ok: int = 0
    methods: Counter[str] = field(default_factory=Counter)  # how input and output were counted -> records
    most_input_tokens: int = 0
    recorded: int = 0  # as the gateway itself says
    lost: int = 0  # dropped, corrupt, or rejections without a record

    def add(self, record: RequestRecord) -> None:
        """Count a record."""
        self.records += 1
        self.not_ok += record.outcome != "ok"
        self.methods[record.count_method] += 1
        self.most_input_tokens = max(self.most_input_tokens, record.usage.input_tokens or 0)

    def __add__(self, other: Self) -> Self:
        """Return what two gateways' books hold together."""
        return replace(
            self,
            records=self.records + other.records,
            not_ok=self.not_ok + other.not_ok,
            methods=self.methods + other.methods,
            most_input_tokens=max(self.most_input_tokens, other.most_input_tokens),
            recorded=self.recorded + other.recorded,
            lost=self.lost + other.lost,
        )


class MeasuredGateway:
    """`python -m gateway`, or another module that runs one, with a data directory of its own."""

    def __init__(
        self,
        name: str,
        core: int,
        home: Path,
        config: Mapping[str, Any],
        port: int,
        *,
        command: Sequence[object] = ("-m", "gateway"),
        settings: Mapping[str, str] | None = None,  # further variables of its environment
        checkout: Path = ROOT,  # another one has an environment of its own, in `.venv`
        wheel: Path | None = None,  # an environment with an installed wheel, which runs in place of a checkout
    ) -> None:
        self.data = home / name
        self.data.mkdir(parents=True, exist_ok=True)
        self._port = port
        self._model = str(config["models"][0]["name"])
        file = self.data / "gateway.yaml"
        file.write_text(yaml.safe_dump(dict(config)))
        self._process = PinnedProcess(
            name,
            [_python(checkout, wheel), *command],
            core,
            self.data,
            **environment(self.data, None if wheel else checkout),
            TOLLKEEPER_GATEWAY_CONFIG=str(file),
            TOLLKEEPER_GATEWAY_NAME=name,
            TOLLKEEPER_GATEWAY_PORT=str(port),
            TOLLKEEPER_JOURNAL_MAX_BYTES=str(_JOURNAL_BYTES),
            **(settings or {}),
        )
        self._books = Books()
        self._process.wait_for(self._is_ready)

    @property
    def peer(self) -> Peer:
        """Return how it is asked."""
        headers = {"Authorization": f"Bearer {_KEY}"}
        return Peer(self._process.name, self._port, self._process.pid, self._model, headers)

    def health(self) -> dict[str, Any]:
        """Return what GET /ready shows."""
        found = get_json(self._port, "/ready")
        return found if isinstance(found, dict) else {}

    def wait_until(self, engine: str) -> None:
        """Wait until an engine host's models are loaded. Raises RuntimeError if they are not in time."""
        self._process.wait_for(lambda: self.health()["engines"].get(engine, {}).get("state") == "ready")

    def close_books(self) -> Books:
        """Stop it and read its whole journal."""
        books = self._books
        state = self.health()
        books.recorded = int(state["recorded_requests"])
        books.lost = sum(int(state[name]) for name in ("dropped_records", "unrecorded_rejections"))
        self.stop()
        journal = Journal(self.data / "journal", max_bytes=_JOURNAL_BYTES)
        place = journal.cursor
        try:
            while entries := journal.read(place, max_entries=_READ_ENTRIES, max_bytes=_READ_BYTES):
                for entry in entries:
                    record = decode_record(unpack_entry(entry)[1])
                    if isinstance(record, RequestRecord):
                        books.add(record)
                place = entries[-1].end
            books.lost += journal.corrupt_entries
        finally:
            journal.close()
        return books

    def stop(self) -> None:
        """End it."""
        self._process.stop()

    def _is_ready(self) -> bool:
        try:
            return self.health().get("status") == "ready"
        except OSError:
            return False


def _python(checkout: Path, wheel: Path | None) -> Path:
    if wheel is not None:
        return wheel / "bin" / "python"
    return Path(sys.executable) if checkout == ROOT else checkout / ".venv" / "bin" / "python"


def environment(data: Path, checkout: Path | None = ROOT) -> dict[str, str]:
    """Return the environment of a process of ours: nothing set for another installation reaches it.

    `checkout` has the code; `None`: the interpreter's environment has it.
    """
    kept = {key: value for key, value in os.environ.items() if not key.startswith(("TOLLKEEPER_", "PYTHONPATH"))}
    return {**kept, **({"PYTHONPATH": str(checkout)} if checkout else {}), "TOLLKEEPER_DATA": str(data)}
