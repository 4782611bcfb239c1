"""Traces: the real ones that come along, and files that are not what they claim to be."""

import json
from collections import Counter
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from contracts.errors import ConfigurationError
from tollkeeper.replay.formats import TraceFormat, detect_format, read_trace
from tollkeeper.replay.trace import MAX_TOKENS, MalformedTrace

TRACES = Path(__file__).resolve().parents[2] / "bench" / "traces"
AZURE = TRACES / "azure_llm_2023" / "AzureLLMInferenceTrace_conv.csv"
MOONCAKE = TRACES / "mooncake" / "synthetic_trace.jsonl"
VTC = TRACES / "vtc" / "vtc_real_trace.csv"
SERVEGEN = TRACES / "servegen" / "deepseek-r1"

AZURE_HEAD = "TIMESTAMP,ContextTokens,GeneratedTokens\n"
VTC_HEAD = "arrival_s,client,prompt_tokens,output_tokens\n"
WINDOWS = "0,0,0,,0,0\n600,10,1,Gamma,1.0,0.1\n1200,0,0,,0,0\n"
LENGTHS = {"0": {"input_tokens": "{10: 0.5, 20: 0.5}", "output_tokens": "{7: 1.0}", "reason_ratio": "{}"}}


def servegen(folder: Path, windows: str = WINDOWS, lengths: object = LENGTHS) -> Path:
    (folder / "chunk-3-trace.csv").write_text(windows)
    (folder / "chunk-3-dataset.json").write_text(lengths if isinstance(lengths, str) else json.dumps(lengths))
    return folder


@pytest.mark.parametrize(
    ("path", "format_", "count", "first", "last_seconds", "clients"),
    [
        (AZURE, "azure", 19_366, (374, 44), 3501.72, 0),
        (MOONCAKE, "mooncake", 3_993, (40_160, 6), 1022.025, 0),
        (VTC, "vtc", 1_500, (13, 199), 600.0, 27),
    ],
)
def test_the_real_traces_are_read_whole(
    path: Path, format_: str, count: int, first: tuple[int, int], last_seconds: float, clients: int
) -> None:
    trace = read_trace(path)
    assert (trace.format, len(trace.requests), len(trace.clients)) == (format_, count, clients)
    assert (trace.requests[0].input_tokens, trace.requests[0].output_tokens) == first
    assert trace.requests[0].at_seconds == 0
    assert trace.requests[-1].at_seconds == pytest.approx(last_seconds, abs=0.01)
    assert all(a.at_seconds <= b.at_seconds for a, b in zip(trace.requests, trace.requests[1:], strict=False))


def test_mooncake_s_blocks_come_again() -> None:
    trace = read_trace(MOONCAKE)
    blocks = [block for request in trace.requests for block in request.prefix_blocks]
    assert 1 - len(set(blocks)) / len(blocks) == pytest.approx(0.64, abs=0.01)
    assert trace.block_tokens == 512
    assert all(len(each.prefix_blocks) == -(-each.input_tokens // 512) for each in trace.requests)


def test_servegen_s_requests_are_drawn_the_same_every_time_at_the_recorded_rate() -> None:
    first = read_trace(SERVEGEN, limit=9_000, from_seconds=76_800)
    assert first.requests[:50] == read_trace(SERVEGEN, limit=50, from_seconds=76_800).requests
    assert set(first.clients) == {"11", "12", "13", "28", "47", "54"}
    # Recorded, requests per second in the window from 76,800 s on: client 12 7.08, client 47 1.95, client 28 1.02.
    assert first.requests[-1].at_seconds > 600
    counted = Counter(each.client for each in first.requests if each.at_seconds < 600)
    assert counted["12"] / 600 == pytest.approx(7.08, rel=0.15)
    assert counted["12"] > counted["47"] > counted["28"] > counted["13"]


def test_servegen_s_mean_rate_and_lengths_are_the_files(tmp_path: Path) -> None:
    trace = read_trace(servegen(tmp_path))
    assert trace.format == "servegen"
    assert len(trace.requests) / 600 == pytest.approx(10, rel=0.05)
    assert Counter(each.output_tokens for each in trace.requests).keys() == {7}
    shares = Counter(each.input_tokens for each in trace.requests)
    assert shares.keys() == {10, 20} and shares[10] == pytest.approx(shares[20], rel=0.1)
    assert trace.clients == ("3",)


@pytest.mark.parametrize("shape", [0.3, 1.0, 3.0])
@pytest.mark.parametrize("distribution", ["Gamma", "Weibull"])
def test_a_window_s_arrivals_have_the_recorded_rate_whatever_their_shape(
    tmp_path: Path, distribution: str, shape: float
) -> None:
    windows = f"0,5,1,{distribution},{shape},123.0\n4000,0,0,,0,0\n"
    assert len(read_trace(servegen(tmp_path, windows)).requests) / 4_000 == pytest.approx(5, rel=0.15)


def test_a_limit_and_a_beginning_choose_a_part() -> None:
    whole = read_trace(VTC)
    assert read_trace(VTC, limit=3).requests == whole.requests[:3]
    later = read_trace(VTC, limit=2, from_seconds=300)
    place = next(number for number, each in enumerate(whole.requests) if each.at_seconds >= 300)
    assert [each.output_tokens for each in later.requests] == [
        each.output_tokens for each in whole.requests[place : place + 2]
    ]
    assert later.requests[0].at_seconds == 0
    with pytest.raises(ConfigurationError, match="no request 700 s after its beginning"):
        read_trace(VTC, from_seconds=700)


def test_what_lies_beyond_the_limit_is_not_judged(tmp_path: Path) -> None:
    path = tmp_path / "trace.csv"
    path.write_text(AZURE_HEAD + "2023-11-16 18:15:46.6805900,374,44\nnonsense,1,1\n")
    assert len(read_trace(path, limit=1).requests) == 1
    with pytest.raises(MalformedTrace, match=r"trace\.csv, line 3: TIMESTAMP"):
        read_trace(path)


def test_requests_out_of_order_are_played_in_order(tmp_path: Path) -> None:
    path = tmp_path / "trace.csv"
    path.write_text(VTC_HEAD + "5.0,a,1,1\n4.0,b,2,2\n6.0,a,3,3\n")
    trace = read_trace(path)
    assert [(each.at_seconds, each.client) for each in trace.requests] == [(0.0, "b"), (1.0, "a"), (2.0, "a")]


def test_a_byte_order_mark_windows_line_ends_and_time_zones_do_no_harm(tmp_path: Path) -> None:
    path = tmp_path / "trace.csv"
    rows = "2024-05-10 00:00:00.5+00:00,10,2\r\n2024-05-10 01:00:02.000000+01:00,11,3\r\n"
    path.write_bytes(("\ufeff" + AZURE_HEAD.replace("\n", "\r\n") + rows).encode())
    assert [each.at_seconds for each in read_trace(path).requests] == [0.0, 1.5]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (AZURE_HEAD + "2023-11-16 18:15:46,abc,44\n", r"line 2: ContextTokens is 'abc'; it must be a whole number"),
        (AZURE_HEAD + "2023-11-16 18:15:46,-1,44\n", "line 2: ContextTokens is '-1'"),
        (AZURE_HEAD + "2023-11-16 18:15:46,1.5,44\n", "line 2: ContextTokens is '1.5'"),
        (AZURE_HEAD + "2023-11-16 18:15:46,1\n", "line 2: GeneratedTokens is missing"),
        (AZURE_HEAD + "2023-11-16 18:15:46,1,2,3\n", "line 2: it has more than 3 values"),
        (AZURE_HEAD + f"2023-11-16 18:15:46,{MAX_TOKENS + 1},1\n", "line 2: ContextTokens is '100000001'"),
        (AZURE_HEAD + "18:15 on Thursday,1,1\n", "line 2: TIMESTAMP is '18:15 on Thursday'"),
        (AZURE_HEAD, "has no requests"),
        (VTC_HEAD + "nan,a,1,1\n", "line 2: arrival_s is 'nan'; it must be a number of 0 or more"),
        (VTC_HEAD + "-0.5,a,1,1\n", "line 2: arrival_s is '-0.5'"),
        (VTC_HEAD + "1e999,a,1,1\n", "line 2: arrival_s is '1e999'"),
        (VTC_HEAD + "0,,1,1\n", "line 2: client must have 1 to 40 characters, not 0"),
        ('{"timestamp": 0, "input_length": 1, "output_length": 1}\n{"input_length"\n', "line 2: "),
        ('{"timestamp": 0, "input_length": "1", "output_length": 1}\n', "line 1: Expected `int`"),
        ('{"timestamp": 0, "input_length": 1}\n', "line 1: Object missing required field `output_length`"),
        ('{"timestamp": -1, "input_length": 1, "output_length": 1}\n', "line 1: timestamp is -1.0"),
    ],
)
def test_a_row_that_is_wrong_is_named_by_its_line(tmp_path: Path, text: str, message: str) -> None:
    path = tmp_path / "bad.trace"
    path.write_text(text)
    with pytest.raises(MalformedTrace, match=message) as raised:
        read_trace(path)
    assert raised.value.message.startswith("bad.trace")
    assert "\n" not in raised.value.message


@pytest.mark.parametrize("data", [AZURE_HEAD.encode() + b"\xff\xfe,1,1\n", AZURE_HEAD.encode() + b"\x00" * 4000])
def test_bytes_that_are_no_text_are_refused(tmp_path: Path, data: bytes) -> None:
    path = tmp_path / "bytes.csv"
    path.write_bytes(data)
    with pytest.raises(MalformedTrace, match=r"bytes\.csv"):
        read_trace(path)


@pytest.mark.parametrize(
    ("windows", "lengths", "message"),
    [
        ("0,1,1,Gamma,1\n", LENGTHS, "line 1: it has 5 values; a window has 6"),
        ("0,1,1,Pareto,1,1\n", LENGTHS, "line 1: the distribution is 'Pareto'"),
        ("0,1,1,Weibull,0.01,1\n", LENGTHS, "line 1: the shape is 0.01"),
        ("0,-1,1,Gamma,1,1\n", LENGTHS, "line 1: the rate is '-1'"),
        ("0,1,1,Gamma,1,1\n0,1,1,Gamma,1,1\n", LENGTHS, "line 1: the next window does not begin after this one"),
        (WINDOWS, "[]", "not a JSON object of windows"),
        (WINDOWS, {"x": {}}, "not a JSON object of windows"),
        (WINDOWS, {"0": {"input_tokens": "{1: 1.0}"}}, "window 0: output_tokens is not a histogram"),
        (WINDOWS, {"0": {"input_tokens": "{1: 1.0", "output_tokens": "{}"}}, "window 0: input_tokens is not a hist"),
        (WINDOWS, {"0": {"input_tokens": "{1: 0}", "output_tokens": "{}"}}, "window 0: the shares .* are all 0"),
        (WINDOWS, {"0": {"input_tokens": "{'a': 1}", "output_tokens": "{}"}}, "window 0: input_tokens is 'a'"),
        (WINDOWS, {"0": {"input_tokens": "{1: 'a'}", "output_tokens": "{}"}}, "window 0: the share of 1 in input_tok"),
    ],
)
def test_servegen_s_files_are_checked(tmp_path: Path, windows: str, lengths: object, message: str) -> None:
    with pytest.raises(MalformedTrace, match=message):
        read_trace(servegen(tmp_path, windows, lengths))


def test_a_histogram_is_data_and_never_run(tmp_path: Path) -> None:
    witness = tmp_path / "witness"
    text = f"__import__('pathlib').Path({str(witness)!r}).touch() or {{1: 1.0}}"
    with pytest.raises(MalformedTrace, match="not a histogram"):
        read_trace(servegen(tmp_path, lengths={"0": {"input_tokens": text, "output_tokens": "{1: 1.0}"}}))
    assert not witness.exists()


def test_a_client_without_lengths_is_named(tmp_path: Path) -> None:
    (tmp_path / "chunk-3-trace.csv").write_text(WINDOWS)
    with pytest.raises(MalformedTrace, match=r"chunk-3-dataset\.json is missing"):
        read_trace(tmp_path)


@pytest.mark.parametrize("path", [AZURE, MOONCAKE, VTC, SERVEGEN, SERVEGEN / "chunk-13-trace.csv"])
def test_formats_are_told_from_the_files(path: Path) -> None:
    expected = {AZURE: "azure", MOONCAKE: "mooncake", VTC: "vtc"}.get(path, "servegen")
    assert detect_format(path) == expected


@pytest.mark.parametrize("text", ["", "\n\n", "a,b,c\n1,2,3\n", '{"prompt": "x"}\n', "# notes\n"])
def test_a_format_that_cannot_be_told_asks_for_its_name(tmp_path: Path, text: str) -> None:
    path = tmp_path / "notes.txt"
    path.write_text(text)
    with pytest.raises(
        ConfigurationError, match=r"notes\.txt cannot be told .* --format azure, mooncake, vtc, servegen"
    ):
        read_trace(path)


def test_a_format_that_is_named_is_not_guessed() -> None:
    with pytest.raises(MalformedTrace, match="line 1: the header lacks arrival_s, client, prompt_tokens"):
        read_trace(AZURE, TraceFormat.VTC)


def test_a_missing_file_and_a_folder_of_something_else_are_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="there is no trace .*nowhere"):
        read_trace(tmp_path / "nowhere")
    with pytest.raises(ConfigurationError, match="a folder without ServeGen's"):
        read_trace(tmp_path)
    with pytest.raises(ConfigurationError, match="cannot be read: Is a directory"):
        read_trace(tmp_path, TraceFormat.AZURE)


@given(text=st.text(max_size=300), format_=st.sampled_from([*TraceFormat][:3]))
def test_whatever_a_file_holds_it_is_read_or_refused_in_a_sentence(
    tmp_path_factory: pytest.TempPathFactory, text: str, format_: TraceFormat
) -> None:
    path = tmp_path_factory.getbasetemp() / f"any-{format_}"
    head = {TraceFormat.AZURE: AZURE_HEAD, TraceFormat.VTC: VTC_HEAD, TraceFormat.MOONCAKE: ""}[format_]
    path.write_bytes((head + text).encode("utf-8", "surrogatepass"))
    try:
        assert read_trace(path, format_).requests
    except MalformedTrace as error:
        assert error.message


def test_every_trace_comes_with_its_licence_and_stays_small() -> None:
    folders = [folder for folder in TRACES.iterdir() if folder.is_dir() and folder.name != "gpu_steps"]
    assert {folder.name for folder in folders} == {"azure_llm_2023", "mooncake", "vtc", "servegen"}
    for folder in folders:
        assert "License" in (folder / "LICENSE").read_text(encoding="utf-8-sig")
    assert sum(path.stat().st_size for path in TRACES.rglob("*") if path.is_file()) < 4_000_000
