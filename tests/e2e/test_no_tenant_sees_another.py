"""Two tenants of one installation: whatever one says, is called or owns, nothing shows the other of it.

One plants words wherever words can be put; the other reads every surface there is. Each check first shows that the
owner is given what the other must not be, so that none of them passes for want of anything to leak.
"""

import json
import subprocess
import sys
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any

import openai
import pytest

from tests.e2e.installation import UNKNOWN_KEY, Installation, wait_until

pytestmark = pytest.mark.e2e

PATIENCE_SECONDS = 120.0
ENGINE_MODEL = "tollkeeper-5m"
SCRIPTED_MODEL = "scripted-1"
KEPT_MODEL = "answers-are-kept"  # every tenant may use it
FREE = {"input_text": "0", "output_text": "0"}
# Long enough for several blocks of keys and values, equal for both: only its owner may be given what was computed.
LONG_PROMPT = "The harbour at dawn holds boats and nets and quiet men. " * 12


@dataclass
class Party:
    """A tenant: how it is reached, and the words that stand in what it owns."""

    id: str
    key: str = ""
    key_id: str = ""
    token: str = ""
    team: str = ""
    request_ids: list[str] = field(default_factory=list)
    owned: dict[str, str] = field(default_factory=dict)

    @property
    def said(self) -> str:
        """The word that stands in its prompts, files and answers."""
        return f"said{self.id}"

    @property
    def names(self) -> tuple[str, ...]:
        """Words that stand in anything about it and in nothing about the other."""
        return (self.id, self.said, self.key, self.key_id, self.team, *self.request_ids, *self.owned.values())


@dataclass
class Both:
    """The installation, who plants, and who looks."""

    installation: Installation
    owner: Party
    other: Party

    def leaked(self, text: str) -> list[str]:
        """Return those of the owner's words that stand in a text."""
        return [word for word in self.owner.names if word and word in text]


def party(installation: Installation, name: str) -> Party:
    found = Party(f"{name}{time.time_ns()}")
    found.team = f"team{found.id}"
    installation.request("POST", "/v1/tenants", {"id": found.id, "name": f"named {found.said}"})
    installation.request("POST", f"/v1/tenants/{found.id}/teams", {"id": found.team, "name": found.said})
    key: Any = installation.request("POST", f"/v1/tenants/{found.id}/keys", {"name": f"app {found.said}"})
    found.key, found.key_id = key["secret"], key["id"]
    token: Any = installation.request(
        "POST", "/v1/tokens", {"name": f"admin of {found.id}", "role": "admin", "tenant": found.id}
    )
    found.token = token["secret"]
    wait_until(lambda: models_of(installation, found), PATIENCE_SECONDS, "the gateway knows the key")
    return found


def client_of(installation: Installation, who: Party) -> openai.OpenAI:
    return openai.OpenAI(base_url=f"{installation.gateway_url}/v1", api_key=who.key, max_retries=0, timeout=30)


def models_of(installation: Installation, who: Party) -> list[str]:
    with client_of(installation, who) as client:
        try:
            return [model.id for model in client.models.list()]
        except UNKNOWN_KEY:
            return []


def is_given(installation: Installation, who: Party, model: str) -> bool:
    return model in models_of(installation, who)


def ask(installation: Installation, who: Party, model: str, text: str, **more: Any) -> Any:
    """Ask and return the raw answer; its id is kept as one of the asker's."""
    message: Any = [{"role": "user", "content": text}]
    with client_of(installation, who) as client:
        answer = client.chat.completions.with_raw_response.create(
            model=model, messages=message, max_tokens=2, temperature=0, **more
        )
    who.request_ids.append(answer.headers["x-request-id"])
    return answer


def fetched(url: str, token: str, body: Any = None) -> tuple[int, str]:
    """Return an answer's status and text, whichever it is."""
    headers = {"authorization": f"Bearer {token}", "content-type": "application/json"}
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(url, data, headers)
    try:
        with urllib.request.urlopen(request, timeout=30) as reply:
            return reply.status, reply.read().decode(errors="replace")
    except urllib.error.HTTPError as refused:
        return refused.code, refused.read().decode(errors="replace")


@pytest.fixture(scope="module")
def both(installation: Installation) -> Iterator[Both]:
    """Two tenants; the first has spoken, stored and set up all that a tenant can, and its rows are in the store."""
    owner, other = party(installation, "quill"), party(installation, "robin")
    installation.request("POST", "/v1/models", {"id": KEPT_MODEL, "pool": "demo", "cache": {"share": "tenant"}})
    installation.request("POST", "/v1/prices", {"model": KEPT_MODEL, "version": "kept/1", "usd_per_mtok": FREE})
    for who in (owner, other):
        wait_until(partial(is_given, installation, who, KEPT_MODEL), PATIENCE_SECONDS, "the model is served")
    said = owner.said
    with client_of(installation, owner) as client:
        upload = client.files.create(file=("lines.jsonl", f"{said}\n".encode()), purpose="batch")
        stored = client.responses.create(model=SCRIPTED_MODEL, input=f"{said} [[script tokens=3]]", store=True)
    owner.owned = {"file": upload.id, "response": stored.id}
    ask(
        installation,
        owner,
        SCRIPTED_MODEL,
        f"{said} [[script tokens=2]]",
        user=f"user{said}",
        extra_headers={"x-tollkeeper-tags": f"feature={said}", "x-tollkeeper-conversation-id": f"talk{said}"},
    )
    base = f"/v1/tenants/{owner.id}"
    budget: Any = installation.request(
        "POST", f"{base}/budgets", {"level": "tenant", "period": "day", "amount_usd": "7"}
    )
    limit: Any = installation.request(
        "POST", f"{base}/limits", {"level": "tenant", "metric": "requests", "window": "minute", "amount": 5000}
    )
    owner.owned |= {"budget": str(budget["id"]), "limit": str(limit["id"])}
    view = {"name": f"view {said}", "parameters": {"q": f"user:user{said}", "team": owner.team}, "is_shared": True}
    status, text = fetched(f"{installation.control_url}/v1/saved-views", owner.token, view)
    assert status == 201, text
    owner.owned["view"] = json.loads(text)["id"]
    store = installation.store()
    question = "SELECT started_at FROM requests WHERE tenant = {tenant:String}"
    wait_until(lambda: len(store.query(question, {"tenant": owner.id})) >= 2, PATIENCE_SECONDS, "the rows are stored")
    yield Both(installation, owner, other)
    for who in (owner, other):
        installation.request("DELETE", f"/v1/tenants/{who.id}")


def test_what_one_has_computed_is_computed_anew_for_the_other(both: Both) -> None:
    """Keys and values of a prompt, and whole answers, that are kept."""

    def cached(who: Party) -> int:
        details = ask(both.installation, who, ENGINE_MODEL, LONG_PROMPT).parse().usage.prompt_tokens_details
        return 0 if details is None else details.cached_tokens or 0

    assert cached(both.owner) == 0
    assert cached(both.owner) > 0, "nothing is kept, and nothing is shown by this test"
    assert cached(both.other) == 0
    question = f"one question of two tenants {both.owner.id} [[script tokens=2]]"
    seen = [
        ask(both.installation, who, KEPT_MODEL, question).headers["x-cache"]
        for who in (both.owner, both.owner, both.other, both.other)
    ]
    assert seen == ["miss", "hit", "miss", "hit"]


@pytest.mark.parametrize(
    ("noun", "path"),
    [
        ("file", "/v1/files/{id}"),
        ("file", "/v1/files/{id}/content"),
        ("response", "/v1/responses/{id}"),
        ("response", "/v1/responses/{id}/input_items"),
    ],
)
def test_anothers_objects_are_as_if_they_were_not_there(both: Both, noun: str, path: str) -> None:
    identifier, base = both.owner.owned[noun], both.installation.gateway_url
    # An id of the same form that nobody owns: whoever compares the two answers learns nothing.
    nobodys = identifier[:-4] + ("0000" if not identifier.endswith("0000") else "1111")
    status, text = fetched(base + path.format(id=identifier), both.owner.key)
    assert status == 200 and (both.owner.said in text or identifier in text)
    theirs, told = fetched(base + path.format(id=identifier), both.other.key)
    missing, said = fetched(base + path.format(id=nobodys), both.other.key)
    assert theirs == missing == 404
    assert told.replace(identifier, "ID") == said.replace(nobodys, "ID")
    assert both.owner.said not in told


def test_a_response_of_another_is_not_continued_and_lists_are_ones_own(both: Both) -> None:
    with client_of(both.installation, both.other) as client:
        with pytest.raises(openai.NotFoundError) as refused:
            client.responses.create(
                model=SCRIPTED_MODEL, input="go on", previous_response_id=both.owner.owned["response"]
            )
        assert both.owner.said not in str(refused.value.body)
        assert [file.id for file in client.files.list()] == []
        with pytest.raises(openai.NotFoundError):
            client.files.delete(both.owner.owned["file"])
        with pytest.raises(openai.NotFoundError):
            client.responses.delete(both.owner.owned["response"])
    with client_of(both.installation, both.owner) as client:
        assert client.files.content(both.owner.owned["file"]).text == f"{both.owner.said}\n"


# What stands in these paths' braces, and the questions that a path has to be asked with.
def filled(path: str, who: Party) -> str:
    """Fill a path's braces with what one party owns; a noun it owns nothing of, with a name of nobody's."""
    known = {"tenant": who.id, "tenant_id": who.id, "team": who.team, "key": who.key_id, **who.owned}
    for name in path.split("{")[1:]:
        noun = name.partition("}")[0]
        path = path.replace(f"{{{noun}}}", urllib.parse.quote(known.get(noun, "nobodys"), safe=""))
    return path


@pytest.mark.parametrize("plane", ["control_url", "analytics_url"])
def test_no_answer_of_an_api_names_another_tenant(both: Both, plane: str) -> None:
    """Every GET that the API's own description lists: as it is, and asked for the other tenant by name."""
    base = getattr(both.installation, plane)
    today = urllib.parse.urlencode(
        {"from": f"{date.today() - timedelta(days=1)}T00:00Z", "to": f"{date.today() + timedelta(days=1)}T00:00Z"}
    )
    status, text = fetched(f"{base}/openapi.json", both.other.token)
    assert status == 200, text
    described = json.loads(text)["paths"]
    paths = [path for path, verbs in described.items() if "get" in verbs]
    assert len(paths) > 10
    leaks: list[str] = []
    shown = 0
    for path in paths:
        asks = [one["name"] for one in described[path]["get"].get("parameters", ()) if one["in"] == "query"]
        period = f"{today}&by=tenant,team,key" if "by" in asks else today if "from" in asks else ""
        plain = f"{base}{filled(path, both.other)}?{period}"
        status, text = fetched(plain, both.other.token)
        leaks += [f"{path}: {status} {word}" for word in both.leaked(text)]
        leaks += [f"{path}: {status}"] if status >= 500 else []
        shown += status == 200 and both.other.id in text
        for asked in (f"{plain}&tenant={both.owner.id}", f"{base}{filled(path, both.owner)}?{period}"):
            status, text = fetched(asked, both.other.token)
            # What was asked with may be said again; nothing else.
            words = set(both.leaked(text)) - {word for word in both.owner.names if word and word in asked}
            leaks += [f"{asked.removeprefix(base)}: {status} {word}" for word in words]
            is_answered = status == 200 and both.owner.id in asked and both.owner.id in text
            leaks += [f"{asked.removeprefix(base)}: answered"] if is_answered else []
    assert not leaks, leaks
    assert shown > 1, "the other is shown nothing of its own either: the test looks at nothing"


def test_the_owners_rows_are_the_owners(both: Both) -> None:
    """What the other is not shown is there: its owner is told of it under the same paths."""
    status, text = fetched(f"{both.installation.control_url}/v1/tenants/{both.owner.id}/keys", both.owner.token)
    assert status == 200 and both.owner.key_id in text and both.owner.key not in text
    for path in ("/v1/saved-views", f"/v1/saved-views/{both.owner.owned['view']}"):
        status, text = fetched(f"{both.installation.control_url}{path}", both.owner.token)
        assert status == 200 and both.owner.owned["view"] in text and both.owner.said in text
    period = urllib.parse.urlencode(
        {"from": f"{date.today()}T00:00Z", "to": f"{date.today() + timedelta(days=1)}T00:00Z"}
    )
    status, text = fetched(f"{both.installation.analytics_url}/v1/costs?{period}&by=tenant,key", both.owner.token)
    assert status == 200 and both.owner.id in text and both.owner.key_id in text, text


def test_errors_say_nothing_of_what_was_asked(both: Both) -> None:
    """Prompts and keys do not come back in a refusal, nor stand in any process's log, nor wherever rows are kept."""
    said = both.owner.said
    with client_of(both.installation, both.owner) as client:
        for wrong in ({"max_tokens": -1}, {"stop": 7}, {"temperature": "warm"}):
            with pytest.raises(openai.BadRequestError) as refused:
                client.chat.completions.create(
                    model=SCRIPTED_MODEL, messages=[{"role": "user", "content": said}], **wrong
                )
            assert said not in json.dumps(refused.value.body), wrong
    output = both.installation.output()
    assert said not in output and both.owner.key not in output and both.owner.token not in output
    data = both.installation.data
    holders = {"objects.db", "control.db"}  # files and stored answers; the names that administrators gave
    kept = [
        path.relative_to(data)
        for folder in ("journal", "spool", "run", "")
        for path in ((data / folder).rglob("*") if folder else data.glob("*"))
        if path.is_file() and path.name.split("-")[0] not in holders
    ]
    assert kept
    leaking = [str(path) for path in kept if f"{said} [[script".encode() in (data / path).read_bytes()]
    assert not leaking, "a prompt lies where records do"
    rows = both.installation.store().query(
        "SELECT count() AS found FROM requests WHERE tenant = {tenant:String} AND positionUTF8(toJSONString("
        "tuple(*)), {prompt:String}) > 0",
        {"tenant": both.owner.id, "prompt": f"{said} [[script"},
    )
    assert rows[0]["found"] == 0


def test_an_export_holds_ones_own_rows_alone(both: Both, tmp_path: Path) -> None:
    ask(both.installation, both.other, SCRIPTED_MODEL, "hello [[script tokens=2]]")
    target = tmp_path / "costs.csv"

    def exported(who: Party) -> str:
        subprocess.run(
            [
                *(sys.executable, "-m", "tollkeeper", "cost", "export", str(target), "--tenant", who.id),
                *("--from", datetime.now(UTC).date().isoformat()),
                *("--data", str(both.installation.data), "--store-url", both.installation.store_url),
            ],
            capture_output=True,
            check=True,
            timeout=60,
        )
        text = target.read_text()
        return text if who.id in text else ""

    assert both.leaked(wait_until(lambda: exported(both.owner), PATIENCE_SECONDS, "the owner's rows are stored"))
    theirs = wait_until(lambda: exported(both.other), PATIENCE_SECONDS, "the other's row is stored")
    assert not both.leaked(theirs)
