"""`python -m tollkeeper.supply.structure`: prints code metrics that should not grow.

It prints import cycles, functions with many parameters and functions with many branches, the ten worst of each. The
status is always 0; `bench.structure` checks the figures against limits.
"""

import ast
import sys
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parents[2]
PRODUCT: Final = (
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
MAX_PARAMETERS: Final = 10
MAX_COMPLEXITY: Final = 15
_SHOWN: Final = 10
_FunctionNode = ast.FunctionDef | ast.AsyncFunctionDef
_INNER: Final = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef, ast.Lambda)
_BRANCHES: Final = (ast.If, ast.IfExp, ast.For, ast.AsyncFor, ast.While, ast.ExceptHandler, ast.match_case)


@dataclass(frozen=True, slots=True, order=True)
class Function:
    """A function or method. `parameters` does not count `self` and `cls`."""

    file: str
    line: int
    name: str
    parameters: int
    complexity: int

    def __str__(self) -> str:
        return f"{self.file}:{self.line} {self.name}"


def files_of(folders: Iterable[str], root: Path = ROOT) -> list[Path]:
    """Return the Python files of these folders, sorted."""
    return sorted(path for folder in folders for path in (root / folder).rglob("*.py"))


def count_lines(files: Iterable[Path]) -> int:
    """Return the total number of lines of these files, including blank lines and comments."""
    return sum(path.read_bytes().count(b"\n") for path in files)


def count_classes(files: Iterable[Path]) -> int:
    """Return the number of classes in these files, including nested ones."""
    return sum(isinstance(node, ast.ClassDef) for path in files for node in ast.walk(_parsed(path)))


def functions_in(files: Iterable[Path], root: Path = ROOT) -> list[Function]:
    """Return all functions of these files, including nested ones."""
    return [found for path in files for found in _functions(_parsed(path), str(path.relative_to(root)))]


def complexity(function: _FunctionNode) -> int:
    """Compute the cyclomatic complexity: 1, and 1 for each branch, loop, handler, case, condition and `and` or `or`.

    Nested functions and classes are not included; they are measured separately.
    """
    total = 1
    waiting: list[ast.AST] = [*function.body]
    while waiting:
        node = waiting.pop()
        if isinstance(node, _INNER):
            continue
        if isinstance(node, _BRANCHES):
            total += 1
        elif isinstance(node, ast.BoolOp):
            total += len(node.values) - 1
        elif isinstance(node, ast.comprehension):
            total += 1 + len(node.ifs)
        waiting += ast.iter_child_nodes(node)
    return total


def package_entries(files: Iterable[Path], root: Path = ROOT) -> dict[str, int]:
    """Return the number of modules and subpackages of each package that contains one of these files."""
    found: dict[str, int] = {}
    for folder in {path.parent for path in files}:
        modules = [one for one in folder.glob("*.py") if not one.name.startswith("__")]
        packages = [one for one in folder.iterdir() if one.is_dir() and (one / "__init__.py").is_file()]
        found[str(folder.relative_to(root))] = len(modules) + len(packages)
    return found


def import_cycles(files: Iterable[Path], root: Path = ROOT, *, deferred: bool = False) -> list[list[str]]:
    """Return groups of modules with circular imports (direct or indirect), largest first.

    Only imports at module level count. `deferred`: imports in functions and under TYPE_CHECKING count too.
    """
    trees = {module_name(path, root): _parsed(path) for path in files}
    graph = {
        name: sorted(_imported(ast.walk(tree) if deferred else _run_at_import(tree), trees.keys()) - {name})
        for name, tree in trees.items()
    }
    circles = [sorted(group) for group in _components(graph) if len(group) > 1]
    return sorted(circles, key=lambda group: (-len(group), group))


def module_name(path: Path, root: Path = ROOT) -> str:
    """Return a file's dotted module name."""
    parts = path.relative_to(root).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def _parsed(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"), str(path))


def _functions(tree: ast.Module, file: str) -> Iterator[Function]:
    waiting: list[tuple[str, ast.AST]] = [("", tree)]
    while waiting:
        above, node = waiting.pop()
        name = f"{above}.{node.name}".lstrip(".") if isinstance(node, _FunctionNode | ast.ClassDef) else above
        if isinstance(node, _FunctionNode):
            given = [*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs]
            count = sum(one.arg not in ("self", "cls") for one in given)
            yield Function(file, node.lineno, name, count, complexity(node))
        waiting += [(name, child) for child in ast.iter_child_nodes(node)]


def _imported(nodes: Iterable[ast.AST], known: Iterable[str]) -> set[str]:
    modules = set(known)
    found: set[str] = set()
    for node in nodes:
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            for alias in node.names:
                whole = f"{node.module}.{alias.name}"
                found.add(whole if whole in modules else node.module)
    return found & modules


def _run_at_import(tree: ast.Module) -> Iterator[ast.AST]:
    waiting: list[ast.AST] = [*tree.body]
    while waiting:
        node = waiting.pop()
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda):
            continue
        if isinstance(node, ast.If) and ast.unparse(node.test).endswith("TYPE_CHECKING"):
            waiting += node.orelse
            continue
        yield node
        waiting += ast.iter_child_nodes(node)


def _components(graph: Mapping[str, list[str]]) -> list[list[str]]:
    """Return the strongly connected components (Tarjan), without recursion."""
    order: dict[str, int] = {}
    low: dict[str, int] = {}
    stack: list[str] = []
    on_stack: set[str] = set()
    found: list[list[str]] = []
    for start in graph:
        if start in order:
            continue
        order[start] = low[start] = len(order)
        stack.append(start)
        on_stack.add(start)
        work = [(start, iter(graph[start]))]
        while work:
            node, rest = work[-1]
            following = next(rest, None)
            if following is None:
                work.pop()
                if work:
                    low[work[-1][0]] = min(low[work[-1][0]], low[node])
                if low[node] == order[node]:
                    at = stack.index(node)
                    found.append(stack[at:])
                    on_stack -= set(stack[at:])
                    del stack[at:]
            elif following not in order:
                order[following] = low[following] = len(order)
                stack.append(following)
                on_stack.add(following)
                work.append((following, iter(graph[following])))
            elif following in on_stack:
                low[node] = min(low[node], order[following])
    return found


def report() -> list[str]:
    """Return the lines that `make check` prints."""
    files = files_of(PRODUCT)
    functions = functions_in(files)
    circles = import_cycles(files)
    lines = [f"import cycles: {len(circles)}"]
    lines += [f"  {len(circle)} modules: {', '.join(circle)}" for circle in circles[:_SHOWN]]
    wide = sorted((one for one in functions if one.parameters > MAX_PARAMETERS), key=lambda one: -one.parameters)
    lines.append(f"functions with more than {MAX_PARAMETERS} parameters: {len(wide)}")
    lines += [f"  {one.parameters}  {one}" for one in wide[:_SHOWN]]
    deep = sorted((one for one in functions if one.complexity > MAX_COMPLEXITY), key=lambda one: -one.complexity)
    lines.append(f"functions with a cyclomatic complexity above {MAX_COMPLEXITY}: {len(deep)}")
    lines += [f"  {one.complexity}  {one}" for one in deep[:_SHOWN]]
    return lines


def main() -> int:
    """Print the report; return exit status 0."""
    print("structure (reported, not enforced):")
    for line in report():
        print(line)
    return 0


if __name__ == "__main__":
    sys.exit(main())
