"""`python -m tollkeeper.supply.vulnerabilities`: checks pinned versions for security advisories with pip-audit.

Status 1: there are advisories; each is printed with package, version and the fixed version. If the advisory service
does not answer, a message is printed and the status is 0. constraints/advisories.toml lists accepted advisories, each
with a reason and the day until which it is accepted.
"""

import datetime
import json
import subprocess
import sys
import tomllib
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from contracts.errors import ConfigurationError
from tollkeeper.supply.pins import ENVIRONMENTS, ROOT

ACCEPTED_FILE: Final = "advisories.toml"
_TIMEOUT_SECONDS: Final = 15
_WHOLE_SECONDS: Final = 600
_AWAY: Final = (
    *("ConnectionError", "Max retries", "timed out", "Timeout", "Failed to establish", "Name or service", "ProxyError"),
    *("SSLError", "ServiceError", "Temporary failure", "Network is unreachable", "HTTPError", "RemoteDisconnected"),
)


@dataclass(frozen=True, slots=True)
class Finding:
    """An advisory about a pinned version. `fixed` is empty if there is no fixed version."""

    source: str
    package: str
    version: str
    advisory: str
    aliases: tuple[str, ...] = ()
    fixed: str = ""

    def __str__(self) -> str:
        fix = f"fixed in {self.fixed}" if self.fixed else "no version is free of it yet"
        return f"{self.source}: {self.package} {self.version} has {self.advisory}, {fix}"


@dataclass(frozen=True, slots=True)
class Accepted:
    """An accepted advisory with its reason. It counts again from the day `until` on."""

    advisory: str
    package: str
    reason: str
    until: datetime.date


class NotChecked(Exception):
    """The advisory service did not answer; the text has the reason."""


def read_accepted(path: Path) -> list[Accepted]:
    """Parse the list of accepted advisories. Raises ConfigurationError for an entry without a reason or a day."""
    if not path.exists():
        return []
    found = []
    for number, entry in enumerate(tomllib.loads(path.read_text()).get("advisory", ()), 1):
        until, texts = entry.get("until"), [entry.get(name) for name in ("id", "package", "reason")]
        if not all(isinstance(text, str) and text.strip() for text in texts) or not isinstance(until, datetime.date):
            raise ConfigurationError(f"{path.name}, entry {number}: give id, package, reason and until, a day")
        found.append(Accepted(texts[0], texts[1], texts[2], until))
    return found


def judge(
    findings: Iterable[Finding], accepted: Sequence[Accepted], today: datetime.date
) -> tuple[list[str], list[str]]:
    """Return lines about advisories to act on, and lines about accepted ones."""
    wrong, lived_with, met = [], [], set()
    for finding in findings:
        of_it = [
            each
            for each in accepted
            if each.package.lower() == finding.package.lower() and each.advisory in (finding.advisory, *finding.aliases)
        ]
        met.update(of_it)
        if not of_it:
            wrong.append(str(finding))
        elif of_it[0].until <= today:
            wrong.append(f"{finding}; it was accepted until {of_it[0].until}: look at it again ({of_it[0].reason})")
        else:
            lived_with.append(f"{finding}; accepted until {of_it[0].until}: {of_it[0].reason}")
    wrong += [
        f"{each.advisory} of {each.package} is accepted and not found any more; remove it"
        for each in accepted
        if each not in met
    ]
    return wrong, lived_with


def ask(constraints: Path, run: Callable[..., "subprocess.CompletedProcess[str]"] = subprocess.run) -> list[Finding]:
    """Return the advisories about the versions of a list. Raises NotChecked if the service does not answer."""
    command = [sys.executable, "-m", "pip_audit", "--requirement", str(constraints), "--no-deps", "--disable-pip"]
    command += ["--format", "json", "--progress-spinner", "off", "--timeout", str(_TIMEOUT_SECONDS)]
    try:
        done = run(command, capture_output=True, text=True, timeout=_WHOLE_SECONDS, check=False)
    except subprocess.TimeoutExpired as error:
        raise NotChecked(f"no answer within {_WHOLE_SECONDS} seconds") from error
    try:
        answer = json.loads(done.stdout)
    except ValueError as error:
        last = (done.stderr.strip().splitlines() or ["it printed nothing"])[-1]
        if any(word in done.stderr for word in _AWAY):
            raise NotChecked(last[:200]) from error
        raise ConfigurationError(f"pip-audit failed on {constraints.name}: {last[:300]}") from error
    return [
        Finding(
            source=constraints.name,
            package=each["name"],
            version=each.get("version", ""),
            advisory=advisory["id"],
            aliases=tuple(advisory.get("aliases", ())),
            fixed=", ".join(advisory.get("fix_versions", ())),
        )
        for each in answer["dependencies"]
        for advisory in each.get("vulns", ())
    ]


def check(root: Path, today: datetime.date, asked: Callable[[Path], list[Finding]] = ask) -> int:
    """Check all lists, print the findings, and return the exit status."""
    findings: list[Finding] = []
    away: NotChecked | None = None
    try:
        accepted = read_accepted(root / "constraints" / ACCEPTED_FILE)
        for name in ENVIRONMENTS.values():
            findings += asked(root / "constraints" / name)
    except NotChecked as error:
        away = error
        print(f"vulnerabilities: NOT CHECKED, as the advisories' service does not answer: {error}")
    except ConfigurationError as error:
        print(f"vulnerabilities: {error.message}", file=sys.stderr)
        return 2
    if away is not None:
        if not findings:
            return 0
        known = {name for each in findings for name in (each.advisory, *each.aliases)}
        accepted = [each for each in accepted if each.advisory in known]  # the other lists were not checked
    wrong, lived_with = judge(findings, accepted, today)
    for line in lived_with:
        print(line)
    for line in wrong:
        print(line, file=sys.stderr)
    print(f"vulnerabilities: {len(wrong)} to act on, {len(lived_with)} accepted")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(check(ROOT, datetime.datetime.now(datetime.UTC).date()))
