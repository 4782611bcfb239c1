"""How many ways a chat can take through the code, and how much code lies on its path: the figures of the rebuild.

Rows are met or not by what the code looks like, not by how fast it is; nothing here depends on the machine.

- **ways**: public entry points of `gateway/` that are handed a chat. An entry point is a constructor, method or
  function without a leading `_` in its name or its class's. It takes the connection to answer on (a parameter annotated
  `Exchange`) together with what is asked on it (a parameter annotated `Operation`, `ChatRequest` or `Request`), and it
  hands nothing back but what can be cancelled: a constructor, one that returns `None`, or one that returns a class with
  a method `cancel`. The request's own class, whose constructor decides nothing, is none, nor is a protocol, which only
  describes another class's method. Each of the others decides for itself about limits, calls, errors and records, so
  each is a way. The names found are printed on standard error. If the types are renamed, `_CONNECTION`, `_ASKED` and
  `_NO_WAYS` change with them.
- **files_KIND**: files of the product with a function that runs for every chat of that kind, on a gateway in this
  process from the sources (a profile hook, `sys.setprofile`), warm, over a kept connection, up to its record. What runs
  for some chats only (plans that are made again every second) or while nobody asks is left out.
- **plain_functions**, **plain_function_lines**: those functions of a plain chat, and the lines that they are written
  on: what is to be read to know what happens to a plain chat.
- **path_**: the modules with a function that runs for any chat, the first one too, of any of the kinds: whole,
  streamed, with a `traceparent`, with tags, by a route, by a cascade, answered from the cache. Lines are all lines of
  those files.
- **import_cycles**: groups of modules whose imports, as they run at import, form a circle (strongly connected
  components). `deferred_import_cycles` counts imports in functions and for type checkers as well.
"""

import ast
import asyncio
import json
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import CodeType, FrameType
from typing import Any, Final

import uvloop
import yaml

from bench.fuzzing.model_server import ModelServer
from bench.report import Report, run_bench
from gateway.process.app import Gateway
from gateway.process.settings import GatewaySettings
from tollkeeper.supply.structure import (
    MAX_COMPLEXITY,
    MAX_PARAMETERS,
    PRODUCT,
    ROOT,
    count_classes,
    count_lines,
    files_of,
    functions_in,
    import_cycles,
    package_entries,
)

WAYS_MUST: Final = 1
FILES_MUST: Final = 30
PATH_LINES_MUST: Final = 3000
ENTRIES_MUST: Final = 15
PRODUCT_LINES_MUST: Final = 141_799

_CONNECTION: Final = frozenset({"Exchange"})
_ASKED: Final = frozenset({"Operation", "ChatRequest", "Request"})
_NO_WAYS: Final = frozenset({"RequestState"})  # the class of a request itself
_IDLE_SECONDS: Final = 2.5
_SETTLE_SECONDS: Final = 0.1
_ANSWER_SECONDS: Final = 10.0
_CHATS: Final = 8  # of each kind
_WARMING: Final = 3  # the first of them: connections, plans and counters are made
_KEY: Final = "tk-" + "S" * 43
_TRACE: Final = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
# By name: the model or route that is asked for, further fields, further headers.
KINDS: Final[dict[str, tuple[str, dict[str, Any], str]]] = {
    "plain": ("model", {}, ""),
    "stream": ("model", {"stream": True}, ""),
    "traceparent": ("model", {}, f"traceparent: {_TRACE}\r\n"),
    "tags": ("model", {}, "x-tollkeeper-tags: feature=search\r\n"),
    "route": ("route", {}, ""),
    "cascade": ("cascade", {}, ""),
    "cache_hit": ("kept", {}, ""),
}


def measure(report: Report) -> None:
    """Count ways, files, lines, classes and functions on a chat's path, import cycles, and lines of all code."""
    found = ways()
    print("ways: " + ", ".join(found), file=sys.stderr)
    if not found:
        raise RuntimeError("no way was found: the types in _CONNECTION and _ASKED are no longer what a chat comes as")
    report.add("ways", len(found), "entry points", must=WAYS_MUST, better="lower")
    with tempfile.TemporaryDirectory(prefix="tollkeeper-bench-") as home:
        by_kind, path = uvloop.run(_executed(Path(home)))
    plain = by_kind["plain"]
    report.add("files_plain", len(_files(plain)), "files", must=FILES_MUST, better="lower")
    report.add("plain_functions", len(plain), "functions", better="lower")
    report.add("plain_function_lines", len(_lines(plain)), "lines", better="lower", n=len(plain))
    for kind in KINDS:
        if kind != "plain":
            report.add(f"files_{kind}", len(_files(by_kind[kind])), "files", better="lower")
    _add_path(report, sorted(_files(path)))
    product = files_of(PRODUCT)
    report.add("import_cycles", len(import_cycles(product)), "cycles", must=0, better="lower", n=len(product))
    deferred = import_cycles(product, deferred=True)
    report.add("deferred_import_cycles", len(deferred), "cycles", better="lower", n=len(product))
    lines = count_lines(_code_outside_tests())
    report.add("product_lines", lines, "lines", must=PRODUCT_LINES_MUST, better="lower")
    report.add("bench_lines", count_lines(files_of(["bench"])), "lines", better="lower")
    report.add("test_lines", count_lines(files_of(["tests"])), "lines", better="lower")


def _add_path(report: Report, path: list[Path]) -> None:
    functions = functions_in(path)
    report.add("path_files", len(path), "files", better="lower")
    report.add("path_lines", count_lines(path), "lines", must=PATH_LINES_MUST, better="lower", n=len(path))
    report.add("path_classes", count_classes(path), "classes", better="lower", n=len(path))
    complex_ones = [one for one in functions if one.complexity > MAX_COMPLEXITY]
    wide_ones = [one for one in functions if one.parameters > MAX_PARAMETERS]
    count = len(functions)
    report.add("path_complexity_above_15", len(complex_ones), "functions", must=0, better="lower", n=count)
    report.add("path_parameters_above_10", len(wide_ones), "functions", must=0, better="lower", n=count)
    entries = package_entries(path)
    largest = max(entries, key=lambda name: entries[name])
    print(f"largest package on the path: {largest}", file=sys.stderr)
    most = entries[largest]
    report.add("path_package_entries", most, "entries", must=ENTRIES_MUST, better="lower", n=len(entries))


def _code_outside_tests() -> list[Path]:
    skipped = {"bench", "tests"}
    folders = [one.name for one in ROOT.iterdir() if one.is_dir() and not one.name.startswith(".")]
    return files_of(name for name in folders if name not in skipped)


def ways(files: list[Path] | None = None, root: Path = ROOT) -> list[str]:
    """Return the entry points that are handed a chat, as `module.Class.method`; see above for what one is."""
    trees = {path: ast.parse(path.read_text(encoding="utf-8")) for path in files or files_of(["gateway"])}
    classes = [node for tree in trees.values() for node in ast.walk(tree) if isinstance(node, ast.ClassDef)]
    cancelled = {one.name for one in classes if any(_name_of(node) == "cancel" for node in one.body)}
    found = []
    for path, tree in trees.items():
        module = ".".join(path.relative_to(root).with_suffix("").parts)
        classes_here = [one for one in tree.body if isinstance(one, ast.ClassDef) and one.name not in _NO_WAYS]
        holders: list[ast.Module | ast.ClassDef] = [tree, *(one for one in classes_here if not _is_protocol(one))]
        for holder in holders:
            above = f"{holder.name}." if isinstance(holder, ast.ClassDef) else ""
            found += [
                f"{module}.{above}{node.name}"
                for node in holder.body
                if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
                and not above.startswith("_")
                and (node.name == "__init__" or not node.name.startswith("_"))
                and _is_handed_chat(node)
                and _hands_back(node) <= cancelled
            ]
    return sorted(found)


def _is_protocol(node: ast.ClassDef) -> bool:
    return any("Protocol" in _names_in(base) for base in node.bases)


def _name_of(node: ast.AST) -> str:
    return getattr(node, "name", "")


def _is_handed_chat(node: ast.FunctionDef | ast.AsyncFunctionDef) -> bool:
    given = [*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs]
    types = set().union(*(_names_in(one.annotation) for one in given))
    return bool(types & _CONNECTION) and bool(types & _ASKED)


def _hands_back(node: ast.FunctionDef | ast.AsyncFunctionDef) -> set[str]:
    return _names_in(node.returns) - {"None"}


def _names_in(annotation: ast.expr | None) -> set[str]:
    if annotation is None:
        return set()
    if isinstance(annotation, ast.Constant) and isinstance(annotation.value, str):
        annotation = ast.parse(annotation.value, mode="eval").body
    return {node.id for node in ast.walk(annotation) if isinstance(node, ast.Name)}


async def _executed(home: Path) -> tuple[dict[str, set[CodeType]], set[CodeType]]:
    """Return the functions that run for every chat of a kind, by the kind, and those that run for any chat."""
    server = ModelServer()
    await server.start()
    file = home / "gateway.yaml"
    file.write_text(yaml.safe_dump(_configuration(server.url)))
    settings = GatewaySettings(data=home / "data", gateway_config=file, gateway_port=0, drain_seconds=0.2)
    gateway = Gateway(settings)
    await gateway.start()
    client = _Client(gateway.port)
    try:
        await client.connect()
        with _profiled() as idle:
            await asyncio.sleep(_IDLE_SECONDS)
        found = {kind: [await _seen(client, kind) for _ in range(_CHATS)] for kind in KINDS}
        with _profiled() as after:  # what is charged is written down later, whoever asks next
            await asyncio.sleep(_IDLE_SECONDS)
        idle |= after
    finally:
        await client.close()
        await gateway.stop()
        await server.stop()
    for kind, chats in found.items():
        if not chats[0]:
            raise RuntimeError(f"nothing was seen of {kind}: this needs the sources, not compiled modules")
    always = {kind: set.intersection(*chats[_WARMING:]) - idle for kind, chats in found.items()}
    return always, set().union(*(chat for chats in found.values() for chat in chats)) - idle


async def _seen(client: "_Client", kind: str) -> set[CodeType]:
    with _profiled() as seen:
        await client.ask(kind)
        await asyncio.sleep(_SETTLE_SECONDS)
    return seen


def _files(functions: set[CodeType]) -> set[Path]:
    return {Path(code.co_filename) for code in functions}


def _lines(functions: set[CodeType]) -> set[tuple[str, int]]:
    """Return the lines that functions are written on, from the first decorator to the last statement."""
    return {
        (code.co_filename, line)
        for code in functions
        for line in range(code.co_firstlineno, max(at for _, _, at in code.co_lines() if at is not None) + 1)
    }


@contextmanager
def _profiled() -> "Iterator[set[CodeType]]":
    """Record which functions of the product run on this thread; module and class bodies are no functions."""
    roots = tuple(f"{ROOT / package}/" for package in PRODUCT)
    seen: set[CodeType] = set()

    def note(frame: FrameType, event: str, _: object) -> None:
        code = frame.f_code
        if event == "call" and code.co_filename.startswith(roots) and code.co_flags & 0x0002:  # CO_NEWLOCALS
            seen.add(code)

    sys.setprofile(note)
    try:
        yield seen
    finally:
        sys.setprofile(None)


class _Client:
    """A client with one kept connection."""

    def __init__(self, port: int) -> None:
        self._port = port
        self._reader: asyncio.StreamReader
        self._writer: asyncio.StreamWriter

    async def connect(self) -> None:
        self._reader, self._writer = await asyncio.open_connection("127.0.0.1", self._port)

    async def close(self) -> None:
        self._writer.close()
        await asyncio.gather(self._writer.wait_closed(), return_exceptions=True)

    async def ask(self, kind: str) -> None:
        """Send one chat and read its answer. Raises RuntimeError on any but a good one of its kind."""
        model, fields, headers = KINDS[kind]
        body = json.dumps({"model": model, "messages": [{"role": "user", "content": "Hello"}], **fields})
        self._writer.write(
            f"POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {_KEY}\r\n{headers}"
            f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n{body}".encode()
        )
        async with asyncio.timeout(_ANSWER_SECONDS):
            head = (await self._reader.readuntil(b"\r\n\r\n")).decode("latin-1").lower()
            if "content-length: " in head:
                await self._reader.readexactly(int(head.partition("content-length: ")[2].partition("\r\n")[0]))
            else:
                await self._reader.readuntil(b"\r\n0\r\n\r\n")
        if " 200 " not in head.partition("\r\n")[0]:
            raise RuntimeError(f"a chat of kind {kind} was answered {head.partition(chr(13))[0]}")


def _configuration(url: str) -> dict[str, Any]:
    """Return a gateway's file: a model, one with an exact cache, a route and a cascade, limits and a budget."""
    names = ("model", "other", "kept")
    money = {"input_text": "1", "output_text": "2"}
    limit = {"tenant": "acme", "level": "key", "subject": "*", "window": "minute", "amount": 10**9}
    return {
        "keys": [{"key": _KEY, "tenant": "acme", "team": "core", "project": "apollo", "id": "key_1"}],
        "pools": [
            {"name": name, "policy": "round_robin", "targets": [{"name": "t", "kind": "openai_http", "url": url}]}
            for name in names
        ],
        "models": [
            {"name": name, "pool": name} | ({"cache": {"mode": "exact"}} if name == "kept" else {}) for name in names
        ],
        "routes": [
            {"name": "route", "choose": [{"model": "model"}], "fallbacks": [{"model": "other"}]},
            {"name": "cascade", "choose": [{"model": "model"}, {"model": "other"}], "cascade": {"on_refusal": True}},
        ],
        "prices": [{"model": name, "version": f"{name}/1", "usd_per_mtok": money} for name in names],
        "limits": [{**limit, "metric": metric} for metric in ("requests", "tokens")],
        "budgets": [{"tenant": "acme", "level": "tenant", "period": "month", "amount_usd": "900000"}],
    }


if __name__ == "__main__":
    sys.exit(run_bench("structure", measure))
