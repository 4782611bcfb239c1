"""Pins, advisories and the bill of materials: what is wrong is named, and what could not be checked is said so."""

import datetime
import json
import subprocess
from pathlib import Path
from typing import Any

import pytest

from contracts.errors import ConfigurationError
from tollkeeper.supply.pins import check_direct, check_installed, find_faults, read_pins
from tollkeeper.supply.sbom import make_sbom, validated
from tollkeeper.supply.vulnerabilities import Accepted, Finding, NotChecked, ask, check, judge, read_accepted

TODAY = datetime.date(2026, 11, 22)
FOUND = Finding("base.txt", "example", "1.0", "PYSEC-2026-1", ("CVE-2026-1",), "1.1")


def pins(tmp_path: Path, text: str) -> Any:
    path = tmp_path / "base.txt"
    path.write_text(text)
    return read_pins(path)


def test_this_installation_is_pinned() -> None:
    assert find_faults() == []


@pytest.mark.parametrize(
    "line", ["example", "example>=1.0", "example~=1.0", "example==1.*", "example @ https://h/x.whl", "example==1,<2"]
)
def test_a_line_that_is_no_exact_version_is_named(tmp_path: Path, line: str) -> None:
    (fault,) = pins(tmp_path, f"# a comment\n{line}\n").faults
    assert fault.startswith("base.txt:2: ") and line.split()[0][:7] in fault


def test_a_package_pinned_to_two_versions_is_named(tmp_path: Path) -> None:
    (fault,) = pins(tmp_path, "Some_Thing==1.0\nsome.thing==1.1\n").faults
    assert "some-thing is pinned twice" in fault


def test_what_is_installed_and_not_as_pinned_is_named(tmp_path: Path) -> None:
    listed = pins(tmp_path, "same==1.0\nother==1.0\nbuilt==2.0\n")
    installed = {"same": "1.0", "other": "1.1", "built": "2.0+cpu", "new": "3.0", "pip": "26.0", "tollkeeper": "0.1.0"}
    faults = list(check_installed(installed, listed, ".venv"))
    assert faults == [
        ".venv: new 3.0 is installed and not in base.txt; add new==3.0",
        ".venv: other is 1.1, base.txt says 1.0; install that, or renew the list",
    ]


def test_a_direct_dependency_that_is_not_pinned_is_named(tmp_path: Path) -> None:
    listed = pins(tmp_path, "uvloop==0.23.0\npsycopg==3.2\n")
    asked = ["uvloop", "psycopg[binary]", "tollkeeper[gateway]", "Loose_Thing>=2"]
    assert list(check_direct(asked, listed)) == ["pyproject.toml asks for loose-thing, which base.txt does not pin"]


@pytest.mark.parametrize(
    ("until", "wrong", "lived_with"),
    [(TODAY - datetime.timedelta(1), 1, 0), (TODAY, 1, 0), (TODAY + datetime.timedelta(1), 0, 1)],
)
def test_an_advisory_is_accepted_until_its_day(until: datetime.date, wrong: int, lived_with: int) -> None:
    found = judge([FOUND], [Accepted("CVE-2026-1", "Example", "not called", until)], TODAY)
    assert (len(found[0]), len(found[1])) == (wrong, lived_with)


def test_a_finding_names_package_version_advisory_and_what_is_free_of_it() -> None:
    (line,) = judge([FOUND], [], TODAY)[0]
    assert all(word in line for word in ("example", "1.0", "PYSEC-2026-1", "fixed in 1.1"))


def test_an_acceptance_that_outlived_its_cause_is_named() -> None:
    (line,) = judge([], [Accepted("CVE-2026-1", "example", "not called", TODAY + datetime.timedelta(9))], TODAY)[0]
    assert "not found any more" in line


@pytest.mark.parametrize("missing", ["id", "package", "reason", "until"])
def test_an_acceptance_without_a_reason_or_a_day_is_refused(tmp_path: Path, missing: str) -> None:
    entry = {"id": '"CVE-1"', "package": '"x"', "reason": '"why"', "until": "2026-12-31"}
    lines = [f"{name} = {value}" for name, value in entry.items() if name != missing]
    (tmp_path / "a.toml").write_text("[[advisory]]\n" + "\n".join(lines))
    with pytest.raises(ConfigurationError, match="entry 1"):
        read_accepted(tmp_path / "a.toml")


def answering(stdout: str, stderr: str = "") -> Any:
    return lambda command, **how: subprocess.CompletedProcess(command, 1 if stderr else 0, stdout, stderr)


def test_what_the_service_tells_is_read() -> None:
    vulnerability = {"id": "PYSEC-2026-1", "aliases": ["CVE-2026-1"], "fix_versions": ["1.1"], "description": "..."}
    answer = {
        "dependencies": [{"name": "example", "version": "1.0", "vulns": [vulnerability]}, {"name": "b", "version": "2"}]
    }
    assert ask(Path("base.txt"), answering(json.dumps(answer))) == [FOUND]


def test_without_the_service_it_says_that_nothing_was_checked_and_does_not_fail(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def away(path: Path) -> list[Finding]:
        return ask(path, answering("", "Traceback ...\nConnectionError: Failed to establish a new connection"))

    assert check(tmp_path, TODAY, away) == 0
    assert "NOT CHECKED" in capsys.readouterr().out


def test_what_was_found_before_the_service_went_away_fails_all_the_same(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def asked(path: Path) -> list[Finding]:
        if path.name != "base.txt":
            raise NotChecked("gone")
        return [FOUND]

    (tmp_path / "constraints").mkdir()
    other = '[[advisory]]\nid = "CVE-1"\npackage = "x"\nreason = "why"\nuntil = 2027-12-31\n'
    (tmp_path / "constraints" / "advisories.toml").write_text(other)
    assert check(tmp_path, TODAY, asked) == 1
    told = capsys.readouterr()
    assert "NOT CHECKED" in told.out and "PYSEC-2026-1" in told.err
    assert "CVE-1" not in told.err, "it was not asked about, so that nobody can say it is not found any more"


def test_any_other_failure_is_one(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert check(tmp_path, TODAY, lambda path: ask(path, answering("", "No module named pip_audit"))) == 2
    assert "No module named pip_audit" in capsys.readouterr().err


def test_findings_fail_the_check(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert check(tmp_path, TODAY, lambda path: [FOUND] if path.name == "base.txt" else []) == 1
    assert "example 1.0 has PYSEC-2026-1" in capsys.readouterr().err


def test_a_service_that_takes_too_long_is_away() -> None:
    def slow(command: list[str], **how: Any) -> Any:
        raise subprocess.TimeoutExpired(command, 1)

    with pytest.raises(NotChecked):
        ask(Path("base.txt"), slow)


@pytest.mark.parametrize(("bill", "complaint"), [({}, "no CycloneDX"), ({"components": []}, "is empty")])
def test_a_bill_of_materials_that_is_none_is_refused(bill: dict[str, Any], complaint: str) -> None:
    stated = {"bomFormat": "CycloneDX", "specVersion": "1.6", **bill} if bill else {}
    with pytest.raises(ConfigurationError, match=complaint):
        validated(json.dumps(stated))


def test_a_bill_of_materials_is_counted() -> None:
    component = {"type": "library", "name": "example", "version": "1.0"}
    assert validated(json.dumps({"bomFormat": "CycloneDX", "specVersion": "1.6", "components": [component]})) == 1


_BILL = json.dumps(
    {"bomFormat": "CycloneDX", "specVersion": "1.6", "components": [{"type": "library", "name": "a", "version": "1"}]}
)


@pytest.mark.parametrize(
    ("done", "complaint"),
    [
        (subprocess.CompletedProcess([], 1, "", "first\nNo module named cyclonedx_py"), "No module named cyclonedx_py"),
        (subprocess.CompletedProcess([], 0, "{}", ""), "no CycloneDX"),
        (subprocess.TimeoutExpired([], 1), "not made within"),
    ],
)
def test_a_bill_that_cannot_be_made_leaves_no_file(
    done: Any, complaint: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def run(command: list[str], **how: Any) -> Any:
        if isinstance(done, Exception):
            raise done
        return done

    monkeypatch.setattr(subprocess, "run", run)
    with pytest.raises(ConfigurationError, match=complaint):
        make_sbom(tmp_path / "sbom.json")
    assert not (tmp_path / "sbom.json").exists()


def test_a_bill_of_an_environment_is_kept_as_it_was_made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[list[str]] = []

    def run(command: list[str], **how: Any) -> Any:
        asked.append(command)
        return subprocess.CompletedProcess(command, 0, _BILL, "")

    monkeypatch.setattr(subprocess, "run", run)
    to = tmp_path / "dist" / "sbom.json"
    assert make_sbom(to, "/elsewhere/bin/python") == 1 and to.read_text() == _BILL
    assert asked[0][-1] == "/elsewhere/bin/python" and "environment" in asked[0]
