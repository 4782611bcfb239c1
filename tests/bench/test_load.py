"""The gateway's benchmark where it only computes: what the client reports, which samples count, what follows."""

import json
import shutil
import subprocess
import threading
from collections import Counter
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from bench.gateway_audit import Audit
from bench.gateway_plan import Plan
from bench.load.gateway_process import Books, MeasuredGateway, configuration
from bench.load.machine import Cores, busy_seconds
from bench.load.peers import Peer
from bench.load.processes import free_ports
from bench.load.result import Load, LoadResult, Quantiles, parse_result
from bench.load.rig import Patience, Rig
from bench.load.rivals import RIVALS, environments, install
from bench.load.sample import MOST_FOREIGN, Sample, Series, lag_quantile, slope_per_million
from bench.load.tools import Tools
from bench.report import Report
from contracts.errors import ConfigurationError
from gateway.config.file import FileSource

NONE = Quantiles(n=0, p50=-1, p90=-1, p99=-1, p999=-1, max=-1)
TIMES = {"n": 3, "p50": 1.5, "p90": 2, "p99": 3, "p999": 3, "max": 3.5}
LINE = {"started": 9, "replies": 8, "ok": 7, "err": 1, "bad_streams": 0, "rps": 3.5, "lat_us": TIMES, "mode": "closed"}


def sample(rps: float, *, foreign: float = 0.0, chunks_per_s: float = 0.0) -> Sample:
    result = LoadResult(1, 1, 1, 0, 0, rps, NONE, chunks_per_s=chunks_per_s)
    return Sample(result, measured_cores=0.5, load_cores=0.25, busy=(0.5 + foreign, 0.25), rss_mib=50.0)


def rate(one: Sample) -> float:
    return one.result.rps


def series(**rounds: list[Sample]) -> Series:
    made = Series(list(rounds))
    for peer, samples in rounds.items():
        for one in samples:
            made.add(peer, one)
    return made


def test_the_client_s_line_is_read_whatever_else_it_says() -> None:
    found = parse_result(json.dumps(LINE))
    assert (found.started, found.replies, found.err, found.rps, found.lat_us.p99) == (9, 8, 1, 3.5, 3.0)
    assert found.ttft_us is None
    assert parse_result(json.dumps(LINE | {"ttft_us": TIMES})).ttft_us == found.lat_us


@pytest.mark.parametrize("output", ["", "first error: x", json.dumps({"started": 1}), json.dumps(LINE | {"rps": None})])
def test_a_client_that_reports_nothing_is_an_error_and_no_zero(output: str) -> None:
    with pytest.raises(RuntimeError, match="the load client reports"):
        parse_result(output)


def test_the_client_is_told_only_what_its_mode_has() -> None:
    closed = Load(mode="closed", connections=64, seconds=2, warm_up_seconds=0.5).arguments()
    assert closed == ["-m", "closed", "-c", "64", "-b", "1024", "-n", "64", "-d", "2", "-w", "0.5"]
    assert "-r" in Load(mode="rate", connections=1, seconds=1, warm_up_seconds=0).arguments()
    assert "-g" in Load(mode="stream", connections=1, seconds=1, warm_up_seconds=0).arguments()


@pytest.mark.parametrize(("share", "is_disturbed"), [(0.0, False), (0.0799, False), (0.0801, True), (0.5, True)])
def test_a_sample_is_disturbed_by_what_others_take_of_either_core(share: float, is_disturbed: bool) -> None:
    assert MOST_FOREIGN == 0.08
    assert sample(1.0, foreign=share).is_disturbed is is_disturbed
    quiet = sample(1.0)
    on_the_other_core = Sample(quiet.result, 0.5, 0.25, (0.5, 0.25 + share), 50.0)
    assert on_the_other_core.is_disturbed is is_disturbed


def test_a_process_that_seems_to_use_more_than_its_core_was_busy_is_no_disturbance() -> None:
    assert sample(1.0, foreign=-0.3).foreign == 0.0


def test_disturbed_samples_count_only_where_no_calm_one_is() -> None:
    found = series(a=[sample(10), sample(99, foreign=0.3), sample(20), sample(30)], b=[sample(7, foreign=0.3)])
    assert found.median("a", rate) == 20
    assert found.median("b", rate) == 7
    assert found.disturbed == 2
    assert len(found.every("a")) == 4


def test_a_ratio_is_taken_within_each_round() -> None:
    ours, nginxs = [sample(30), sample(10), sample(50)], [sample(60), sample(40), sample(50)]
    assert series(a=ours, b=nginxs).ratio("a", "b", rate) == 0.5, "not the ratio of medians, 0.6"
    assert series(a=ours, b=nginxs).added("a", "b", rate) == -30


def test_a_round_with_one_disturbed_side_gives_no_ratio() -> None:
    ours, nginxs = [sample(30), sample(10), sample(10)], [sample(60), sample(10), sample(10, foreign=0.3)]
    assert series(a=ours[:2], b=nginxs[:2]).ratio("a", "b", rate) == 0.75
    assert series(a=ours, b=nginxs).ratio("a", "b", rate) == 0.75
    assert series(a=ours[2:], b=nginxs[2:]).ratio("a", "b", rate) == 1.0, "better one disturbed than none"


def test_series_of_several_processes_are_one() -> None:
    whole = series(a=[sample(30), sample(10)], b=[sample(60), sample(40)])
    whole.extend(series(a=[sample(50), sample(1, foreign=0.3)], b=[sample(50), sample(2)]))
    assert whole.ratio("a", "b", rate) == 0.5
    assert (len(whole.every("a")), len(whole.every("b")), whole.disturbed) == (4, 4, 1)
    with pytest.raises(KeyError):
        whole.extend(series(c=[sample(1)]))


def test_books_of_several_gateways_are_added() -> None:
    one = Books(3, 1, Counter(reported=3), 7, 3, 0)
    two = Books(5, 0, Counter(reported=4, estimated=1), 2, 6, 2)
    assert one + two == two + one == Books(8, 1, Counter(reported=7, estimated=1), 7, 9, 2)
    assert one == Books(3, 1, Counter(reported=3), 7, 3, 0)


class ClosedGateway(MeasuredGateway):
    """One of which only the books are left."""

    def __init__(self, books: Books) -> None:
        self._left = books

    @property
    def peer(self) -> Peer:
        return Peer("gateway", 1, None)

    def close_books(self) -> Books:
        return self._left


@pytest.mark.parametrize(
    ("records", "different"), [((3, 5), 0), ((4, 4), 2), ((3, 4), 1), ((0, 5), 3)], ids=lambda value: str(value)
)
def test_books_are_held_against_what_each_gateway_was_asked(
    tmp_path: Path, records: tuple[int, int], different: int
) -> None:
    report = Report("x")
    rig = Rig(Cores(0, 1), tmp_path, Patience(0, 0.0))
    audit = Audit(report, rig)
    lost = ClosedGateway(Books())  # whose samples broke off: its requests are nobody else's
    audit.open(lost)
    rig.started["gateway"] += 7
    for asked, found in zip((3, 5), records, strict=True):
        gateway = ClosedGateway(Books(records=found, recorded=found))
        audit.open(gateway)
        rig.started["gateway"] += asked
        assert audit.close(gateway).records == found
    audit.add_rows()
    rows = {row.metric: row.value for row in report.rows}
    assert rows["records_not_one_per_reply"] == different, "one too few and one too many do not make it right"


def test_chunks_cost_the_processor_time_used_while_they_came() -> None:
    assert sample(1.0, chunks_per_s=10_000).cpu_ms_per_1k_chunks == pytest.approx(50)
    assert sample(1.0).cpu_ms_per_1k_chunks == float("inf"), "no chunk is not free"


def test_a_slope_is_mib_for_a_million_requests() -> None:
    assert slope_per_million([(0, 80.0), (100_000, 80.5), (200_000, 81.0)]) == pytest.approx(5.0)
    assert slope_per_million([(0, 80.0), (100_000, 80.0)]) == 0.0
    with pytest.raises(ValueError, match="two points"):
        slope_per_million([(0, 80.0)])


def test_beats_that_a_stall_passed_over_count_as_late_as_they_were() -> None:
    step = 10
    steady = [(due, due) for due in range(0, 1000, step)]
    assert lag_quantile(steady, step, 0.99) == 0
    stalled = [*steady, (1000, 1500)]  # 51 beats came due meanwhile, 500 to 0 late
    assert lag_quantile(stalled, step, 1.0) == 500
    assert lag_quantile(stalled, step, 0.9) == pytest.approx(350, abs=10)
    with pytest.raises(ValueError, match="no beats"):
        lag_quantile([], step, 0.5)


def test_a_core_s_busy_time_is_without_idle_and_with_what_the_host_took() -> None:
    text = "cpu  9 9 9 9 9 9 9 9 0 0\ncpu0 100 0 100 5000 700 0 0 0 0 0\ncpu1 10 20 30 5000 700 40 50 60 0 0\n"
    assert busy_seconds(text, 1) == pytest.approx(210 / 100)
    assert busy_seconds(text, 0) == pytest.approx(200 / 100)
    with pytest.raises(RuntimeError, match="no core 2"):
        busy_seconds(text, 2)


def test_the_gateway_is_measured_with_requests_tokens_and_money_at_three_levels(tmp_path: Path) -> None:
    found = configuration("m", {"kind": "scripted"})
    assert sorted((one["level"], one["metric"]) for one in found["limits"]) == [
        (level, metric) for level in ("key", "team", "tenant") for metric in ("requests", "tokens")
    ]
    assert sorted(one["level"] for one in found["budgets"]) == ["key", "team", "tenant"]
    file = tmp_path / "gateway.yaml"
    file.write_text(json.dumps(found))
    snapshot = FileSource(file, b"p" * 32).load()
    assert (len(snapshot.limits), len(snapshot.budgets)) == (6, 3)
    file.write_text(json.dumps(found | {"keys": "none"}))
    with pytest.raises(ConfigurationError):
        FileSource(file, b"p" * 32).load()


def test_a_full_run_takes_three_rounds_or_more_and_alone_asks_for_rivals() -> None:
    quick, full = Plan.of(Report("x", quick=True)), Plan.of(Report("x"))
    assert min(full.rounds, full.slow_rounds, full.processes) >= 3
    assert full.rounds_each >= 2, "in both orders"
    assert full.with_rivals and not quick.with_rivals
    assert full.slope_requests == 1_000_000


def test_consecutive_ports_are_given() -> None:
    assert 0 < free_ports(4) <= 65535 - 3


def test_a_rival_that_is_installed_is_not_installed_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr("subprocess.run", lambda *_, **__: pytest.fail("nothing is to be run"))
    for name in RIVALS:
        home = environments() / name
        home.mkdir(parents=True)
        pins = (Path(__file__).resolve().parents[2] / "constraints" / "rivals.txt").read_text().splitlines()
        (home / ".installed").write_text(next(pin for pin in pins if pin.startswith(f"{name}==")))
        assert install(name) == home


def test_a_rival_that_cannot_be_had_says_why(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise FileNotFoundError("no python")

    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr("subprocess.run", refuse)
    with pytest.raises(RuntimeError, match=r"vllm-router==\S+ cannot be installed: no python"):
        install("vllm-router")


def test_without_a_compiler_the_benchmark_says_what_to_install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shutil, "which", lambda _: None)
    with pytest.raises(RuntimeError, match="apt-get install gcc"):
        Tools.build(tmp_path)


@pytest.mark.service
def test_every_prompt_differs_and_every_request_is_read_to_its_end(tmp_path: Path, require_service) -> None:
    require_service("a C compiler", shutil.which("gcc") or shutil.which("cc"), "apt-get install gcc libc6-dev")
    bodies: list[bytes] = []

    class Upstream(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            bodies.append(self.rfile.read(int(self.headers["content-length"])))
            self.send_response(200)
            self.send_header("content-length", "2")
            self.end_headers()
            self.wfile.write(b"{}")

        def log_message(self, *_: object) -> None:
            """Do nothing."""

    client = Tools.build(tmp_path).client
    load = Load(mode="closed", connections=4, seconds=0.3, warm_up_seconds=0.1)
    with ThreadingHTTPServer(("127.0.0.1", 0), Upstream) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        command = [str(client), "-P", str(server.server_port), *load.arguments()]
        output = [subprocess.run(command, capture_output=True, text=True, timeout=60).stdout for _ in range(2)]
        server.shutdown()
        thread.join()
    found = [parse_result(line) for line in output]
    assert sum(one.started for one in found) == sum(one.replies for one in found) == len(bodies) > 8
    prompts = [json.loads(body)["messages"][1]["content"] for body in bodies]
    assert len(set(prompts)) == len(prompts), "also over two runs"
    assert all(1000 < len(prompt) < 1100 for prompt in prompts)
