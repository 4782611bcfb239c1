"""Compiles the hot modules to C and to machine code: `python -m tollkeeper.compile` (make compile).

If this was not done, is not possible, or the sources have changed since, the Python sources run instead.
"""

import contextlib
import io
import json
import os
import shutil
import subprocess
import sys
import sysconfig
import tempfile
from collections.abc import Collection, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, Final

from backends.processes.compiled import FOLDER, LIST, ROOT, digest_of, find_compiled

_GROUP: Final = "tollkeeper"
_SHARED: Final = "__mypyc"  # suffix of the name of the shared library of a group
_PACKAGES: Final = ("contracts", "algorithms", "backends", "gateway", "analytics")
# These analyses take a fifth of the compile time and hardly change the result.
_LESS_ANALYSIS: Final = ("-fno-tree-pta", "-fno-ipa-pure-const", "-fno-ipa-reference")
# -O2 moves unlikely code out of line: a request then runs through a tenth less code, which matters with cold caches.
_FLAGS: Final = tuple("-O2 -fno-plt -fPIC -pthread -w -DNDEBUG -fvisibility=hidden -fno-semantic-interposition".split())

# Libraries that only indirect imports use: reading their types would take twice as long as all the rest, and the C is
# the same. `make check` checks types strictly, with these libraries.
UNREAD: Final = """sqlalchemy numpy cryptography rich markdown_it httpx httpcore jinja2 click opentelemetry google jwt
    anyio yaml h11 attr alembic fastapi starlette pydantic redis""".split()

# The request path and the simulator. Excluded: msgspec structs, and classes with two bases, which mypyc cannot compile.
HOT: Final = tuple(
    """
    algorithms/batching
    algorithms/routing/policy_input
    algorithms/routing/block_map
    algorithms/routing/fleet
    algorithms/routing/pace
    algorithms/routing/policies/cost
    algorithms/routing/policies/waits
    algorithms/routing/prefix_index
    algorithms/routing/replica
    algorithms/routing/sessions
    algorithms/routing/work_book
    analytics/planner/decode_run
    analytics/planner/gap_histogram
    analytics/planner/simulated_cache
    analytics/planner/replica
    analytics/planner/sequence
    analytics/planner/simulation
    analytics/planner/step_variation
    backends/audit/keyed_hash
    backends/counters/server_clock
    backends/http_client/http_connection
    backends/http_client/http_head
    backends/http_client/http_pool
    backends/llm/answer_reader
    backends/llm/http/gemini_reply
    backends/llm/http/http_reply
    backends/llm/media_reply
    backends/llm/http/known_shapes
    backends/llm/http/native_body
    backends/llm/http/native_reply
    backends/llm/http/openai_body
    backends/llm/http/openai_http
    backends/llm/http/quick_target
    backends/llm/http/sse
    backends/llm/http/text_shape
    backends/segment_log/segment_file
    backends/segment_log/segment_frames
    backends/segment_log/segment_numbers
    backends/segment_log/segments
    backends/segment_log/slot_table
    contracts/engine/block_keys
    contracts/guardrails/places
    contracts/metering/gaps
    contracts/metering/leaf_counts
    contracts/metering/native_usage
    contracts/metering/openai_usage
    contracts/metering/plain_counts
    contracts/recording/ids
    contracts/recording/redaction
    contracts/recording/message_text
    gateway/apis/endpoints
    gateway/apis/messages/errors
    gateway/apis/messages/operation
    gateway/apis/messages/reply
    gateway/apis/messages/untranslated
    gateway/apis/native/reach
    gateway/apis/native/reading
    gateway/apis/prompt_marks
    gateway/apis/reading
    gateway/cache/answer_store
    gateway/cache/cache_control
    gateway/config/directory
    gateway/guardrails/answer_filter
    gateway/guardrails/detectors/personal_data
    gateway/guardrails/guardrails
    gateway/guardrails/request_guard
    gateway/guardrails/request_texts
    gateway/guardrails/screening/expression
    gateway/guardrails/screening/screen
    gateway/guardrails/screening/stream_screen
    gateway/request/plans/planned_requests
    gateway/request/endings
    gateway/request/plans/forecast
    gateway/request/plans/cache_hits
    gateway/request/plans/plan
    gateway/request/plans/cache_plan
    gateway/request/plans/plans
    gateway/request/plans/prepared_call
    gateway/request/plans/record_shapes
    gateway/limits/admission
    gateway/limits/budgets/budget
    gateway/limits/budgets/budget_watch
    gateway/limits/clipping
    gateway/limits/counters/base
    gateway/limits/counters/escrow
    gateway/limits/counters/retry_slots
    gateway/limits/counters/lease_grant
    gateway/limits/counters/lease_connection
    gateway/limits/counters/leased_escrow
    gateway/limits/counters/leased_sliding
    gateway/limits/counters/open_charges
    gateway/limits/counters/sliding
    gateway/limits/demand
    gateway/limits/estimates/counting
    gateway/limits/estimates/output_estimates
    gateway/limits/headers
    gateway/limits/limiter
    gateway/limits/limit_plan
    gateway/limits/reservation
    gateway/observability/metrics/histogram
    gateway/observability/metrics/request_counts
    gateway/records/content
    gateway/records/journal
    gateway/records/recorder
    gateway/records/request_audit
    gateway/records/sent_requests
    gateway/replies/allowance
    gateway/replies/answer_facts
    gateway/replies/answer_copy
    gateway/replies/progress
    gateway/replies/relays
    gateway/replies/reply
    gateway/replies/translated_reply
    gateway/request/reserving
    gateway/request/attempt
    gateway/request/charges/charging
    gateway/request/clock
    gateway/request/context
    gateway/request/dispatch
    gateway/request/finish
    gateway/request/guard
    gateway/request/pipeline
    gateway/request/request_state
    gateway/request/stages
    gateway/request/charges/settlement
    gateway/routing/attempts/attempt_run
    gateway/routing/attempts/attempt_sink
    gateway/routing/attempts/caller
    gateway/routing/attempts/retry_budget
    gateway/routing/attempts/trial
    gateway/routing/health/breaker
    gateway/routing/health/health_book
    gateway/routing/health/pool_health
    gateway/routing/health/target_health
    gateway/routing/replicas/router
    gateway/routing/replicas/routing_requests
    gateway/routing/replicas/choice
    gateway/routing/replicas/credit_book
    gateway/wire/exchange
    gateway/wire/http
    gateway/wire/secure_listener
    """.split()
)


class CannotCompile(Exception):
    """Compilation is not possible; the text says in one line what is missing."""


def compile_modules(modules: Sequence[str] = HOT, folder: Path = FOLDER) -> None:
    """Compile modules, named by their paths without a suffix, into a folder. Raises CannotCompile."""
    compiler = _compiler()
    with tempfile.TemporaryDirectory() as scratch:
        made = Path(scratch)
        extensions = _to_c(modules, made)
        sources = _sources_of(made, modules)
        digest = digest_of(ROOT, sources)
        built = made / "built"
        built.mkdir()
        files = _to_machine_code(compiler, extensions, made, built)
        if digest_of(ROOT, sources) != digest:
            raise CannotCompile("sources changed meanwhile; run it again")
        (built / LIST).write_text(json.dumps({"digest": digest, "sources": sources, "modules": files}, indent=1))
        _put(built, folder)


def _compiler() -> str:
    compiler = shutil.which(os.environ.get("CC", "cc")) or shutil.which("gcc")
    if compiler is None:
        raise CannotCompile("no C compiler is installed (Debian, Ubuntu: apt install gcc python3-dev)")
    if not (Path(sysconfig.get_path("include")) / "Python.h").is_file():
        raise CannotCompile("Python's headers are not installed (Debian, Ubuntu: apt install python3-dev)")
    return compiler


def _to_c(modules: Sequence[str], made: Path) -> Any:
    """Translate the modules to C with mypyc, which also checks their types. Raises CannotCompile."""
    try:
        from mypyc.build import mypycify
    except ImportError as error:
        raise CannotCompile("mypyc is not installed; it comes with the extra `dev`") from error
    said = io.StringIO()
    settings = made / "mypy.ini"
    settings.write_text(_settings())
    options = ["--config-file", str(settings), "--no-sqlite-cache", "--cache-dir", str(made / "cache")]
    before = Path.cwd()
    os.chdir(ROOT)
    try:
        with contextlib.redirect_stdout(said), contextlib.redirect_stderr(said):
            return mypycify(
                [*options, *(f"{module}.py" for module in modules)],
                group_name=_GROUP,
                multi_file=True,
                target_dir=str(made / "c"),
            )
    except SystemExit as error:
        raise CannotCompile(f"mypyc refused the sources: {said.getvalue().strip() or error}") from error
    finally:
        os.chdir(before)


def _settings() -> str:
    unread = ",".join(f"{library}.*" for library in UNREAD)
    everywhere = "explicit_package_bases = true\nignore_missing_imports = true\nfollow_imports = silent"
    return f"[mypy]\n{everywhere}\n[mypy-{unread}]\nfollow_imports = skip\n"


def _sources_of(made: Path, modules: Sequence[str]) -> list[str]:
    """Return the source files that the machine code depends on: the modules, and project modules they import."""
    found = {f"{module}.py" for module in modules}
    for kept in (made / "cache").rglob("*.meta.*"):
        parts = kept.relative_to(made / "cache").parts[1:]  # below the Python version
        name = "/".join(parts).partition(".meta.")[0] + ".py"
        if parts[0] in _PACKAGES:
            found.add(name)
    return sorted(name for name in found if (ROOT / name).is_file())


def _to_machine_code(compiler: str, extensions: Any, made: Path, built: Path) -> dict[str, str]:
    """Compile and link each extension; return the files by module."""
    import mypyc

    suffix = str(sysconfig.get_config_var("EXT_SUFFIX"))
    includes = {sysconfig.get_path("include"), str(Path(mypyc.__file__).parent / "lib-rt")}
    includes.update(str(ROOT / path) for extension in extensions for path in extension.include_dirs)
    less = [flag for flag in _LESS_ANALYSIS if _takes(compiler, flag, made)]
    options = [*_FLAGS, *less, *(f"-I{path}" for path in sorted(includes))]

    def compiled(source: str) -> str:
        path = ROOT / source  # absolute ones stay as they are
        target = made / f"{abs(hash(source))}.o"
        _run(compiler, *options, "-c", str(path), "-o", str(target))
        return str(target)

    files: dict[str, str] = {}
    with ThreadPoolExecutor(os.cpu_count()) as threads:
        for extension in extensions:
            objects = list(threads.map(compiled, extension.sources))
            files[extension.name] = extension.name + suffix
            _run(compiler, "-shared", "-pthread", *objects, "-o", str(built / files[extension.name]))
    return files


def _takes(compiler: str, flag: str, made: Path) -> bool:
    """Return whether the C compiler supports a flag of GCC."""
    empty = made / "empty.c"
    empty.write_text("")
    command = (compiler, "-Werror", flag, "-c", str(empty), "-o", str(made / "empty.o"))
    return subprocess.run(command, capture_output=True).returncode == 0


def _run(*command: str) -> None:
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        last = (done.stderr.strip() or "no message").splitlines()[-1]
        raise CannotCompile(f"{command[0]} failed: {last}")


def _put(built: Path, folder: Path) -> None:
    """Replace the folder by the built files. Running processes keep the old files open."""
    fresh, old = folder.with_name(folder.name + ".new"), folder.with_name(folder.name + ".old")
    for left in (fresh, old):
        shutil.rmtree(left, ignore_errors=True)
    shutil.copytree(built, fresh)
    if folder.exists():
        folder.rename(old)
    fresh.rename(folder)
    shutil.rmtree(old, ignore_errors=True)


def has_modules(files: Collection[str], modules: Sequence[str]) -> bool:
    """Return whether the compiled files are those of exactly these modules, besides the shared library."""
    return {name for name in files if not name.endswith(_SHARED)} == {module.replace("/", ".") for module in modules}


def main() -> int:
    """Compile the hot modules unless they are up to date; print the result. Returns 0 even if that fails."""
    found = find_compiled(environment={})
    if found.state != "compiled" or not has_modules(found.files, HOT):
        print("compiling the gateway's hot modules, less than a minute on two cores", flush=True)
        try:
            compile_modules()
        except CannotCompile as error:
            print(f"the gateway's hot modules run interpreted: {error}")
            return 0
        except Exception as error:  # such as a full disk or a compiler error: everything also runs interpreted
            print(f"the gateway's hot modules run interpreted: {type(error).__name__}: {error}")
            return 0
        found = find_compiled(environment={})
    print(f"the gateway's hot modules are compiled: {found.reason}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
