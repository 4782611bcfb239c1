"""What the documents say exists: files that are linked, commands that are shown, code that is quoted."""

import ast
import re
import shlex
import textwrap
from pathlib import Path

import pytest
import typer.main
import yaml

from tollkeeper.cli import app

ROOT = Path(__file__).resolve().parents[2]
README = ROOT / "README.md"
DOCUMENTS = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md"), *(ROOT / "bench").rglob("*.md")])
LINK = re.compile(r"\[[^\]]*\]\(([^)\s]+)\)")
NAMED_FILE = re.compile(r"`((?:[a-z_]+/)+[a-z_.*]*)`")


def name(path: Path) -> str:
    return str(path.relative_to(ROOT))


def blocks(path: Path, language: str) -> list[str]:
    fenced = re.findall(rf"^ *```{language}\n(.*?)^ *```", path.read_text(), re.MULTILINE | re.DOTALL)
    return [textwrap.dedent(block) for block in fenced]


def anchors(path: Path) -> set[str]:
    """Return a document's headings as links spell them: lower case, hyphens for spaces, no punctuation."""
    headings = re.findall(r"^#+ (.+)$", path.read_text(), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def known_commands() -> set[str]:
    return set(getattr(typer.main.get_command(app), "commands", {}))


@pytest.mark.parametrize("document", DOCUMENTS, ids=name)
def test_every_linked_file_exists(document: Path) -> None:
    for target in LINK.findall(document.read_text()):
        if "://" in target or target.startswith("mailto:"):
            continue
        file, _, anchor = target.partition("#")
        linked = (document.parent / file).resolve() if file else document
        assert linked.exists(), f"{name(document)} links to {target}"
        assert linked.is_relative_to(ROOT), f"{name(document)} links out of the repository: {target}"
        assert not anchor or anchor in anchors(linked), f"{name(document)}: no heading for {target}"


@pytest.mark.parametrize("document", [ROOT / "ARCHITECTURE.md", ROOT / "CONTRIBUTING.md"], ids=name)
def test_every_file_or_folder_named_exists(document: Path) -> None:
    in_the_data_directory = {
        "store/",
        "journal/",
        "snapshot/",
        "spool/",
        "run/",
        "secrets/",
        "engine/",
        "audit/",
        "pieces/",
    }
    named = set(NAMED_FILE.findall(document.read_text())) - in_the_data_directory
    assert len(named) > 5, "the pattern finds nothing"
    assert {path for path in named if not (ROOT / path).exists()} == set()


@pytest.mark.parametrize("document", [path for path in DOCUMENTS if blocks(path, "yaml")], ids=name)
def test_every_yaml_example_is_yaml(document: Path) -> None:
    for block in blocks(document, "yaml"):
        assert list(yaml.safe_load_all(block)), f"{name(document)} has an empty example"


def test_every_page_of_decisions_is_listed() -> None:
    folder = ROOT / "docs" / "decisions"
    listed = set(LINK.findall((folder / "README.md").read_text()))
    assert listed == {path.name for path in folder.glob("[0-9]*.md")}


@pytest.mark.parametrize("page", sorted((ROOT / "docs" / "decisions").glob("[0-9]*.md")), ids=name)
def test_every_decision_says_its_context_choice_and_cost_on_one_page(page: Path) -> None:
    text = page.read_text()
    assert re.match(rf"# {page.name[:4]}: ", text)
    assert re.findall(r"^## (.+)$", text, re.MULTILINE) == ["Context", "Decision", "What it costs"]


def test_the_example_in_the_readme_is_python_of_about_ten_lines() -> None:
    (example,) = blocks(README, "python")
    ast.parse(example)
    assert len([line for line in example.splitlines() if line.strip()]) <= 12


@pytest.mark.parametrize("document", DOCUMENTS, ids=name)
def test_every_make_target_shown_exists(document: Path) -> None:
    targets = set(re.findall(r"^([a-z][a-z-]*):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    shown = set(re.findall(r"(?:^|`)make ([a-z][a-z-]*)", document.read_text(), re.MULTILINE))
    assert shown <= targets
    if document == README:
        assert {"up", "test"} <= shown, "the two commands that a newcomer needs"


@pytest.mark.parametrize("document", DOCUMENTS, ids=name)
def test_every_command_shown_exists(document: Path) -> None:
    commands = known_commands()
    text = re.sub(r"^```python.*?^```", "", document.read_text(), flags=re.MULTILINE | re.DOTALL)
    shown = set(re.findall(r"(?:^(?:\.venv/bin/)?|`)tollkeeper ([a-z]+(?:-[a-z]+)*)", text, re.MULTILINE))
    assert shown <= commands, f"known commands: {sorted(commands)}"


def help_pages() -> dict[str, str]:
    """Return the golden help of each command, such as "tollkeeper prices create"."""
    texts = [page.read_text() for page in (ROOT / "tests" / "tollkeeper" / "golden" / "help-120").glob("*.txt")]
    pages = [page.partition("\n") for text in texts for page in re.split(r"^\$ ", text, flags=re.MULTILINE)[1:]]
    return {head.removesuffix(" --help").strip(): body for head, _, body in pages}


def shown_commands(text: str) -> list[list[str]]:
    """Return the words of the commands in a document, in its sentences and on lines of their own."""
    in_sentences = re.findall(r"`(tollkeeper [^`]+)`", re.sub(r"\n\s*", " ", text))
    on_lines = re.findall(r"^ *(tollkeeper .+)$", text.replace("\\\n", " "), re.MULTILINE)
    plain = [re.split(r" #| <| > |&&| \|\|", command)[0] for command in (*in_sentences, *on_lines)]
    return [shlex.split(command) if command.count("'") % 2 == 0 else command.split() for command in plain]


@pytest.mark.parametrize("document", [path for path in DOCUMENTS if "decisions" not in path.parts], ids=name)
def test_every_option_shown_exists(document: Path) -> None:
    pages = help_pages()
    for words in shown_commands(document.read_text()):
        known = [page for page in pages if words[: len(page.split())] == page.split()]
        options = {word.strip("[](),").partition("=")[0] for word in words}
        for option in {word for word in options if re.fullmatch(r"--?[a-z][a-z-]*", word)} - {"--install-completion"}:
            page = pages[max(known, key=len)] if known else ""
            assert re.search(rf"{option}(?![a-z-])", page), f"{name(document)}: {' '.join(words)}"


@pytest.mark.parametrize("document", DOCUMENTS, ids=name)
def test_every_module_shown_exists(document: Path) -> None:
    for module in re.findall(r"`python -m ([a-z_.]+)`", document.read_text()):
        path = ROOT.joinpath(*module.split("."))
        assert path.with_suffix(".py").exists() or (path / "__main__.py").exists(), f"python -m {module}"


def test_every_make_target_is_phony_and_explained() -> None:
    makefile = (ROOT / "Makefile").read_text()
    explained = set(re.findall(r"^([a-z][a-z-]*):.*## \S", makefile, re.MULTILINE))
    phony = re.search(r"^\.PHONY: (.+)$", makefile, re.MULTILINE)
    assert phony is not None
    assert explained == set(phony.group(1).split())


def test_every_command_that_make_runs_exists() -> None:
    used = set(re.findall(r"bin/tollkeeper ([a-z]+)", (ROOT / "Makefile").read_text()))
    assert used
    assert used <= known_commands()
