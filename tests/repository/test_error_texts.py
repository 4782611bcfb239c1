"""Product code decides by an error's class, code and `param`, never by its text: a text may be reworded at any time.

Looking into a text is: searching it, splitting it, comparing it with a literal, or asking how it begins or ends.
Quoting, shortening and rewriting it for a reader is not. Texts of other libraries' errors are let through where they
are named below, because those libraries give nothing else.
"""

import ast
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Final

import pytest

ROOT = Path(__file__).resolve().parents[2]
PACKAGES = (
    "contracts",
    "algorithms",
    "backends",
    "gateway",
    "collector",
    "analytics",
    "dashboard",
    "migrations",
    "tollkeeper",
)
HELPERS = ("bench", "tests")  # here a test's own assertions on a text are its purpose; helpers are held to the rule

# By file and function: whose text it is, and why nothing better is to be had.
FOREIGN: Final = {
    ("gateway/apis/reading.py", "_malformed"): "msgspec: a DecodeError has its position and reason in its text alone",
    ("gateway/apis/reading.py", "invalid_field"): "msgspec: a ValidationError has its field in its text alone",
    (
        "gateway/apis/batches/input_lines.py",
        "_decoded",
    ): "msgspec: which required field is missing is in its text alone",
    ("backends/telemetry/parquet_files.py", "_cause"): "pyarrow: what an object store answered is in its text alone",
    ("backends/processes/process.py", "run_process"): "pydantic: puts 'Value error, ' before a validator's own text",
    ("backends/engine/vllm_engine/failures.py", "request_failure"): "vLLM: a refused grammar is a plain ValueError",
    (
        "backends/llm/http/streamed_call.py",
        "refuses_stream",
    ): "model servers: refuse a stream by many codes, or by none",
    ("backends/providers/failures.py", "_failure_in"): "LiteLLM: has one class for several causes",
    ("backends/providers/failures.py", "_of_our_setup"): "LiteLLM: has one class for several causes",
    ("backends/providers/failures.py", "_unsupported"): "LiteLLM: names the parameters in its text alone",
    ("backends/providers/failures.py", "_said_in"): "LiteLLM: quotes the provider's JSON in its text",
    ("backends/store/client.py", "_translated"): "ClickHouse: a full disk has no code of its own in some statements",
}

_TEXTS = frozenset({"message", "fault", "msg", "log_message", "quote"})
_ERROR_WORDS = ("error", "exc", "failure", "failed", "fault", "refusal", "refused", "raised", "caught", "cause", "why")
_LOOKS = frozenset(
    {
        "startswith", "endswith", "partition", "rpartition", "split", "rsplit", "removeprefix", "removesuffix",
        "find", "rfind", "index", "rindex", "count",
    }
)  # fmt: skip
_SEARCHES = frozenset({"search", "match", "fullmatch", "findall", "finditer"})
_SHAPES = frozenset(
    {"lower", "upper", "casefold", "strip", "lstrip", "rstrip", "replace"}
)  # of a text: still that text
_Function = ast.FunctionDef | ast.AsyncFunctionDef
_LOOKING = ast.Compare | ast.Call | ast.Subscript


def looks(source: str, *, is_test: bool = False) -> Iterator[tuple[str, int, str]]:
    """Yield the function, line and code of each place that looks into an error's text."""
    readers = [_Reader(function, own) for function, own in _functions(ast.parse(source))]
    _find_texts(readers)
    for reader in readers:
        if is_test and reader.name.startswith("test_"):
            continue
        found = [node for node in reader.own if isinstance(node, _LOOKING) and reader.is_look(node)]
        asserted = [one for node in reader.own if found and isinstance(node, ast.Assert) for one in ast.walk(node)]
        for node in found:
            if not (is_test and node in asserted):
                yield reader.name, node.lineno, ast.unparse(node)


def _functions(tree: ast.AST) -> list[tuple[_Function, list[ast.AST]]]:
    """Return each function with its nodes, without those of functions inside of it."""
    found: list[tuple[_Function, list[ast.AST]]] = []
    waiting: list[tuple[ast.AST, list[ast.AST]]] = [(tree, [])]
    while waiting:
        node, own = waiting.pop()
        for one in node.body if isinstance(node, _Function) else ast.iter_child_nodes(node):
            if isinstance(one, _Function):
                found.append((one, []))
                waiting.append(found[-1])
            else:
                own.append(one)
                waiting.append((one, own))
    return found


def _find_texts(readers: list["_Reader"]) -> None:
    """Find the names that hold an error's text, by function: assigned from one, or given one by a call."""
    by_name = {reader.name: reader for reader in readers}
    changed = True
    while changed:
        before = sum(len(reader.texts) for reader in readers)
        for reader in readers:
            for node in reader.passing:
                if isinstance(node, ast.Assign):
                    for target, value in _pairs(node):
                        if isinstance(target, ast.Name) and reader.is_text(value):
                            reader.texts.add(target.id)
                elif isinstance(node, ast.NamedExpr):
                    if reader.is_text(node.value):
                        reader.texts.add(node.target.id)
                elif isinstance(node.func, ast.Name) and node.func.id in by_name:
                    called = by_name[node.func.id]
                    given = [*zip(called.parameters, node.args, strict=False)]
                    given += [(one.arg, one.value) for one in node.keywords if one.arg]
                    called.texts |= {name for name, value in given if reader.is_text(value)}
        changed = sum(len(reader.texts) for reader in readers) > before


def _pairs(node: ast.Assign) -> list[tuple[ast.expr, ast.expr]]:
    """Return what is assigned to what, several at once each on its own."""
    (target, *_), value = node.targets, node.value
    if isinstance(target, ast.Tuple) and isinstance(value, ast.Tuple):
        return [*zip(target.elts, value.elts, strict=False)]
    return [(one, value) for one in node.targets]


class _Reader:
    """Finds what in one function is an error, an error's text, and a look into it."""

    def __init__(self, function: _Function, own: list[ast.AST]) -> None:
        self.name = function.name
        self.own = own
        self.passing = [node for node in self.own if isinstance(node, ast.Assign | ast.NamedExpr | ast.Call)]
        self.texts: set[str] = set()  # names that hold an error's text
        self.parameters = [one.arg for one in (*function.args.posonlyargs, *function.args.args)]
        arguments = [*function.args.posonlyargs, *function.args.args, *function.args.kwonlyargs]
        self._errors = {one.arg for one in arguments if one.annotation is not None and _is_error_type(one.annotation)}
        self._errors |= {node.name for node in self.own if isinstance(node, ast.ExceptHandler) and node.name}

    def is_error(self, node: ast.AST) -> bool:
        if isinstance(node, ast.Name):
            return node.id in self._errors
        return isinstance(node, ast.Attribute) and node.attr in ("error", "value", "__cause__", "__context__")

    def is_text(self, node: ast.AST) -> bool:
        match node:
            case ast.Name(id=name):
                return name in self.texts
            case ast.Attribute(value=of, attr=attribute) if attribute in _TEXTS:
                return self.is_error(of) or _last_name(of).lower().endswith(_ERROR_WORDS)
            case ast.Attribute(value=of, attr="args"):
                return self.is_error(of)
            case ast.Subscript(value=of, slice=ast.Constant(value="message" | "msg")):
                return _last_name(of).lower().endswith((*_ERROR_WORDS, "first", "said", "answer"))
            case ast.Subscript(value=of):
                return self.is_text(of)
            case ast.Call(func=ast.Name(id="str" | "repr"), args=[given]):
                return self.is_error(given) or self.is_text(given)
            case ast.Call(func=ast.Name(id=name), args=[given, *_]) if name.endswith(("first_line", "_text")):
                return self.is_error(given) or self.is_text(given)
            case ast.Call(func=ast.Attribute(value=of, attr=method)) if method in _SHAPES | _LOOKS:
                return self.is_text(of)
            case ast.JoinedStr(values=values):
                parts = [one.value for one in values if isinstance(one, ast.FormattedValue)]
                return any(self.is_error(one) or self.is_text(one) for one in parts)
            case ast.BoolOp(values=values):
                return any(self.is_text(one) for one in values)
            case ast.IfExp(body=body, orelse=otherwise):
                return self.is_text(body) or self.is_text(otherwise)
        return False

    def is_look(self, node: ast.AST) -> bool:
        match node:
            case ast.Compare(left=left, ops=ops, comparators=others):
                sides = [left, *others]
                return any(
                    self.is_text(right if isinstance(op, ast.In | ast.NotIn) else left)
                    and (isinstance(op, ast.In | ast.NotIn) or isinstance(right, ast.Constant | ast.JoinedStr))
                    and not (isinstance(right, ast.Constant) and not right.value)
                    for op, left, right in zip(ops, sides, others, strict=False)
                )
            case ast.Call(func=ast.Attribute(value=of, attr=method), args=given):
                if method in _LOOKS and self.is_text(of):
                    is_first_line = method in ("partition", "split") and given and ast.unparse(given[0]) == r"'\n'"
                    return bool(given) and not is_first_line
                return method in _SEARCHES and any(self.is_text(one) for one in given)
            case ast.Subscript(value=ast.Attribute(value=of, attr="args")):
                return self.is_error(of)
        return False


def _is_error_type(annotation: ast.AST) -> bool:
    return _names_error(ast.unparse(annotation))


@cache
def _names_error(annotation: str) -> bool:
    named = annotation.replace("'", "").replace("|", " ").split()
    return any(name.rpartition(".")[2].endswith(("Error", "Exception", *_own_errors())) for name in named)


@cache
def _own_errors() -> tuple[str, ...]:
    tree = ast.parse((ROOT / "contracts" / "errors.py").read_text())
    return tuple(node.name for node in tree.body if isinstance(node, ast.ClassDef))


def _last_name(node: ast.AST) -> str:
    """Return the last name of a chain: `error` for `run.error`, and for `answer["error"]`."""
    match node:
        case ast.Name(id=name) | ast.Attribute(attr=name):
            return name
        case ast.Subscript(slice=ast.Constant(value=str(name))):
            return name
    return ""


def _found() -> dict[tuple[str, str], list[str]]:
    found: dict[tuple[str, str], list[str]] = {}
    for package in (*PACKAGES, *HELPERS):
        for path in sorted((ROOT / package).rglob("*.py")):
            file = str(path.relative_to(ROOT))
            for function, line, code in looks(path.read_text(encoding="utf-8"), is_test=package == "tests"):
                found.setdefault((file, function), []).append(f"{file}:{line} {code[:100]}")
    return found


def test_no_error_is_known_by_its_text() -> None:
    found = _found()
    assert [place for where, places in found.items() if where not in FOREIGN for place in places] == []
    assert set(FOREIGN) - set(found) == set(), "these look no longer: take them off the list"


@pytest.mark.parametrize(
    "body",
    [
        "    if 'window' in error.message: pass",
        "    if 'window' in str(error): pass",
        "    text = str(error)\n    if text.startswith('limit '): pass",
        "    return error.message.removeprefix('limit ')",
        "    return error.args[0]",
        "    return error.message == 'gone'",
        "    return re.search('x', f'{error}')",
        "    return PATTERN.search(error.message)",
        "    return 'x' in error.message.lower()",
        "    return other.error.message.partition(': ')[2]",
        "    return 'x' in answer['error']['message']",
        "    said, field = str(answer['error']['message']), answer['error']['param']\n    return field in said",
        "    return _blamed(error.message)\ndef _blamed(said: str) -> str:\n    return 'a' if 'x' in said else 'b'",
    ],
)
def test_a_look_into_a_text_is_recognised(body: str) -> None:
    assert [*looks(f"def handle(error: InvalidRequest) -> object:\n{body}\n")]


@pytest.mark.parametrize(
    "body",
    [
        "    return f'refused: {error.message}'",
        "    return error.message[:200]",
        "    return str(error).splitlines()[0]",
        "    return str(error).partition('\\n')[0]",
        "    return ' '.join(error.message.split())",
        "    return error.message != self.fault",
        "    return error.message.replace(secret, '***')",
        "    return error.error_code == 'conflict' and error.param in ('window',)",
        "    return 'user' in chat['messages']",
    ],
)
def test_quoting_or_shortening_a_text_is_no_look(body: str) -> None:
    assert [*looks(f"def handle(error: InvalidRequest) -> object:\n{body}\n")] == []
