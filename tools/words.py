#!/usr/bin/env python3
"""Rewrite the wording of docstrings in plain English. Usage: python3 words.py CHECKOUT [--show N] [--dry-run]

Re-runnable: what is already plain stays. Only docstrings change, never code. What no rule covers is printed at the end.
"""

import ast
import random
import re
import sys
from collections import Counter
from pathlib import Path

ROOMS = ("contracts", "algorithms", "gateway", "backends", "collector", "analytics", "dashboard", "migrations",
         "tollkeeper", "bench", "tests")  # fmt: skip
WIDTH = 120
PRIVATE = re.compile(r"\b(anew|whoever|somebody|so many|is told|someone else)\b")
VERBS = re.compile(r"^(Give|Gives|Say|Says|Tell|Tells|Take|Takes)\b")

# Whole first sentences (from the start), for what no rule makes good English of: "old start" -> "new start".
TABLE_FILE = Path(__file__).with_name("words_table.tsv")


def table() -> dict[str, str]:
    """Return hand-written sentences by "file:function"."""
    if not TABLE_FILE.exists():
        return {}
    rows = (line.split("\t") for line in TABLE_FILE.read_text().splitlines() if line.strip() and line[0] != "#")
    return {key: sentence for key, sentence in rows}


WORDS = [
    (r", whoever (\w+)", r", no matter who \1"),
    (r"\bwhoever\b", "the one that"),
    (r"^Whoever\b", "The one that"),
    (r"\bsomebody\b", "someone"),
    (r"\bSomebody\b", "Someone"),
    (r"\bis begun anew\b", "starts over"),
    (r"\bbegins? anew\b", lambda m: "starts over" if m.group(0).startswith("begins") else "start over"),
    (r"\banew\b", "again"),
    (r"\b(at most|up to|after|than|that takes) so many\b", r"\1 that many"),
    (r"\bevery so many (\w+)", r"every given number of \1"),
    (r"\bso many of\b", "the given number of"),
    (r"\b([Ss])o many (?!that\b|as\b|times\b|more\b)(\w+)", lambda m: ("The" if m.group(1) == "S" else "the") + f" given number of {m.group(2)}"),
    (r"\bso many times\b", "the given number of times"),
    (r"(`None`|`False`|`True`|\bempty|\b0|\bnone|\"\"|''|\bNone|\bzero) where\b", r"\1 if"),
    (r"\b(Raises? [A-Z]\w+(?:(?:,| or| and) [A-Z]\w+)*),? where\b", r"\1 if"),
    (r"\bthe dearest\b", "the most expensive"),
    (r"\bdearer\b", "more expensive"),
    (r"\bthus\b", "so"),
]  # fmt: skip


class Scope:
    """What the rules know of a docstring's owner."""

    def __init__(self, node: ast.AST) -> None:
        self.is_function = isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef))
        self.is_class = isinstance(node, ast.ClassDef)
        self.name = getattr(node, "name", "")
        self.returns = ""
        self.yields = False
        self.is_provider = False
        self.body: list[ast.stmt] = []
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            self.returns = ast.unparse(node.returns) if node.returns else ""
            self.body = node.body[1:]
            self.yields = any(isinstance(one, (ast.Yield, ast.YieldFrom)) for one in own_nodes(node))
            marks = " ".join(ast.unparse(one) for one in node.decorator_list)
            self.is_provider = bool(re.search(r"contextmanager|fixture", marks))
            if not self.returns:
                found = [one for one in own_nodes(node) if isinstance(one, ast.Return) and one.value is not None]
                self.returns = "?" if found else ("Iterator" if self.yields else "None")

    @property
    def gives_nothing(self) -> bool:
        return self.returns in ("None", "NoReturn") and not self.yields

    @property
    def is_true(self) -> bool:
        return len(self.body) == 1 and isinstance(self.body[0], ast.Return) and ast.unparse(self.body[0]) == "return True"

    @property
    def is_false(self) -> bool:
        return len(self.body) == 1 and ast.unparse(self.body[0]) == "return False"

    @property
    def verb(self) -> str:
        if self.is_provider:
            return "Provide"
        return "Yield" if self.yields else "Return"


def own_nodes(function: ast.AST) -> list[ast.AST]:
    found, waiting = [], list(ast.iter_child_nodes(function))
    while waiting:
        node = waiting.pop()
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda, ast.ClassDef)):
            continue
        found.append(node)
        waiting += list(ast.iter_child_nodes(node))
    return found


def give(rest: str, scope: Scope) -> str | None:
    """Return the text of "Give REST" in plain words."""
    v = scope.verb
    if rest.startswith("up to when"):
        return f"{v} until when" + rest[10:]
    if rest.startswith("up to"):
        return f"{v} {rest}"
    if rest.startswith("up:"):
        return f"Abort{rest[2:]}"
    if rest.startswith("up "):
        return f"Release {rest[3:]}"
    if rest.startswith("everything back to the incumbent"):
        return "Roll back to the incumbent" + rest[32:]
    if rest.startswith("back "):
        return f"Release {rest[5:]}"
    back = re.match(r"((?:[\w'`]+ ){1,4})(back|up)\b(.*)", rest, re.S)
    if back and (scope.gives_nothing or back.group(2) == "up") and ":" not in back.group(1):
        return f"Release {back.group(1).strip()}{back.group(3)}"
    if re.match(r"it\b", rest):
        return f"{v} this{rest[2:]}" if rest.startswith("it as") else f"{v} {rest}"
    if rest.startswith("nothing"):
        return ("Do " if scope.gives_nothing else f"{v} ") + rest
    if rest.startswith(("for how long", "in how")):
        return f"{v} how{rest[rest.index('how') + 3:]}"
    if rest.startswith("whether"):
        return f"{v} {rest}"
    if scope.gives_nothing:
        return None
    return f"{v} {rest}"


def say(rest: str, scope: Scope) -> str | None:
    v = scope.verb
    if rest.startswith("no:") or rest.startswith("no."):
        return "Return False" + rest[2:]
    if rest.startswith("yes"):
        return "Return True" + rest[3:]
    if rest.startswith("nothing"):
        return ("Do " if scope.gives_nothing else f"{v} ") + rest
    if rest.startswith("that "):
        if scope.is_true:
            return f"Return True: {rest[5:]}"
        if scope.is_false:
            return f"Return False: {rest[5:]}"
        if scope.gives_nothing:
            return f"Report {rest}"
        if scope.returns == "bool":
            return f"Return whether {rest[5:]}"
        return f"Return the message {rest}"
    if rest.startswith("so"):
        return ("Report this" if scope.gives_nothing else f"{v} this") + rest[2:]
    if re.match(r"(in|on) ", rest):
        return ("Report " if scope.gives_nothing else "Describe ") + rest
    if re.match(r"(whether|if|why|what|how|who|whom|whose|which|where|when|by|for|of|the|a|an|once|at|since|until)\b", rest):
        return ("Report " if scope.gives_nothing else f"{v} ") + rest
    return None


def tell(rest: str, scope: Scope) -> str | None:
    v = scope.verb
    if re.match(r"(whether|what|how|why|which|where|when|by|who)\b", rest):
        return ("Report " if scope.gives_nothing else f"{v} ") + rest
    if re.match(r"(apart)\b", rest):
        return f"Distinguish{rest[5:]}"
    apart = re.match(r"([^.,;:]{1,40}?) from ", rest)
    if apart:
        return f"Separate {rest}"
    found = re.match(r"(again |at once )?(?:of )?(.*)", rest, re.S)
    if found.group(1):
        return f"Report {found.group(1)}{found.group(2)}"
    party = r"(?:(?:the|a|an|every|each|all|other|its|this|one)\b ?)*(?:hosts?|forecast|nobody|gateways?|Redis|servers?|sinks?|clients?|callers?|engines?|collectors?|workers?|vLLM|users?|listeners?|observers?|`\w+`)\b"
    found = re.match(rf"({party})(?: (what|how|which|why|where|whether|when|all)\b)?(.*)", rest, re.S)
    if found and found.group(2):
        return f"Notify {found.group(1)} of {found.group(2)}{found.group(3)}"
    if found:
        return f"Notify {rest}"
    if rest.startswith("of "):
        return f"Report {rest[3:]}"
    if not scope.gives_nothing:
        return f"{v} {rest}"
    return f"Report {rest}"


def take(rest: str, scope: Scope) -> str | None:
    name = scope.name.lstrip("_")
    if rest.startswith("note of "):
        return f"Record {rest[8:]}"
    if rest.startswith("note"):
        return f"Note{rest[4:]}"
    if rest.startswith("it that"):
        return f"Assume{rest[2:]}"
    if rest.startswith("back "):
        return f"Undo {rest[5:]}"
    if rest.startswith("out "):
        return f"Remove {rest[4:]}"
    if rest.startswith("in ") and not re.match(r"in (the|turn|order)\b", rest):
        return f"Add {rest[3:]}"
    if rest.startswith("over "):
        return f"Adopt {rest[5:]}"
    if rest.startswith("away "):
        return f"Remove {rest[5:]}"
    if rest.startswith("up "):
        return f"Acknowledge {rest[3:]}"
    found = re.match(r"((?:[\w'`-]+ ){1,5}?)out of (.*)", rest, re.S)
    if found:
        return f"Remove {found.group(1)}from {found.group(2)}"
    found = re.match(r"((?:[\w'`-]+ ){0,4}[\w'`-]+) (out|away|off|back|in|apart|over)([,.;: ].*|$)", rest, re.S)
    if found and not (found.group(2) in ("in", "over") and re.match(r" \w", found.group(3))):
        verb = {"out": "Remove", "away": "Remove", "off": "Remove", "back": "Withdraw", "in": "Add", "apart": "Split",
                "over": "Adopt"}[found.group(2)]  # fmt: skip
        return f"{verb} {found.group(1)}{found.group(3)}"
    if name == "__init__":
        return f"Accept {rest}"
    if re.match(r"(note|see|saw|learn|add|record|count|remember|observe|teach|account|look)", name):
        return f"Record {rest}"
    if re.match(r"(reserve|acquire|claim|lease|enter|occupy|take_lease|charge|extend)", name):
        return f"Reserve {rest}"
    if re.match(r"(on_|receive|hear|deliver|data_received|got|message)", name):
        return f"Receive {rest}"
    if re.match(r"(how|what) ", rest):
        return f"Record {rest}"
    if not scope.gives_nothing and name.startswith(("take", "pop", "next", "drain")):
        return f"Remove and return {rest}"
    return f"Accept {rest}"


THIRD = {"Gives": "Returns", "Says": "Reports", "Tells": "Reports", "Takes": "Accepts"}


def first_words(text: str, scope: Scope) -> str | None:
    """Return the text with another first verb; `None` if no rule covers it."""
    match = VERBS.match(text)
    if not match:
        return text
    verb, rest = match.group(1), text[match.end() :].lstrip(" ")
    if text[match.end() : match.end() + 1] != " ":
        return None
    if verb.endswith("s"):
        if rest.startswith("note of "):
            return f"Records {rest[8:]}"
        found = re.match(r"((?:[\w'`-]+ ){1,4}?)(out of|back|up|in|over)\b", rest)
        if found:
            return None
        if rest.startswith("of ") and verb in ("Tells", "Says"):
            return f"Reports {rest[3:]}"
        return f"{THIRD[verb]} {rest}"
    if not scope.is_function:
        return None
    return {"Give": give, "Say": say, "Tell": tell, "Take": take}[verb](rest, scope)


def later_clauses(text: str, scope: Scope) -> str:
    """Return the text with "; give", ", and say whether" and the like as returns."""
    if not scope.is_function or scope.gives_nothing:
        return text
    v = scope.verb.lower()
    text = re.sub(r"([;:,]) (and )?(?:gives?|says) (?!back|up |way|it back)", lambda m: f"{m.group(1)} {m.group(2) or ''}{v} ", text)
    text = re.sub(r" and give (?=what|how|the|whether|a |an |it\b(?! back))", f" and {v} ", text)
    return re.sub(r"([;,]) (and )?(?:say|tell) (?=whether|how|what|why|if)", lambda m: f"{m.group(1)} {m.group(2) or ''}{v} ", text)


def plain_words(text: str) -> str:
    for pattern, new in WORDS:
        text = re.sub(pattern, new, text)
    return text


def rewritten(doc: str, scope: Scope, by_hand: str | None) -> tuple[str, bool]:
    """Return the docstring in plain words and whether its first verb is covered."""
    if by_hand is not None:
        head, _, tail = doc.partition("\n\n")
        return by_hand + (("\n\n" + plain_words(tail)) if tail else ""), True
    new = first_words(doc, scope)
    covered = new is not None
    return plain_words(later_clauses(doc if new is None else new, scope)), covered


def wrapped(text: str, indent: int, prefix: str, spare: int = 0) -> str:
    """Return the text laid out as a docstring's body: on one line if it fits, else wrapped."""
    pad = " " * indent
    one = f"{pad}{prefix}\"\"\"{text}\"\"\""
    if "\n" not in text and len(one) <= WIDTH:
        return text
    out: list[str] = []
    for number, block in enumerate(text.split("\n\n")):
        if number:
            out.append("")
        if re.search(r"\n\s+\S|\n[-*|>] |\n\d+\. ", block):  # laid out by hand
            out += [("" if not line else (line if not out else pad + line)) for line in block.split("\n")]
            continue
        words, line = block.split(), ""
        for word in words:
            room = WIDTH - spare - indent - (len(prefix) + 3 if not out else 0)
            if line and len(line) + 1 + len(word) > room:
                out.append(line if not out else pad + line)
                line = word
            else:
                line = f"{line} {word}" if line else word
        out.append(line if not out else pad + line)
    if len(out) == 1 and not spare:  # a formatter would join the closing quotes to it
        return wrapped(text, indent, prefix, 4)
    return "\n".join(out) + "\n" + pad


def work(root: Path, dry: bool) -> tuple[list[tuple[str, str, str]], list[str], Counter[str]]:
    hand, changed, left, remaining = table(), [], [], Counter()
    for file in sorted(root.rglob("*.py")):
        where = file.relative_to(root)
        if where.parts[0] not in ROOMS:
            continue
        source = file.read_text()
        tree = ast.parse(source)
        lines = source.split("\n")
        edits = []
        for node in ast.walk(tree):
            if not isinstance(node, (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)):
                continue
            if not (node.body and isinstance(node.body[0], ast.Expr)):
                continue
            constant = node.body[0].value
            if not (isinstance(constant, ast.Constant) and isinstance(constant.value, str)):
                continue
            begin, end = constant.lineno - 1, constant.end_lineno - 1
            raw = "\n".join(lines[begin : end + 1])
            raw = raw.encode()[: None if begin != end else constant.end_col_offset].decode() if begin == end else raw
            start = raw[constant.col_offset :]
            match = re.match(r'([rR]?)"""(.*?)"""', start, re.S)
            if not match or "\\" in match.group(2):
                continue
            doc = ast.get_docstring(node, clean=True) or ""
            scope = Scope(node)
            key = f"{where}:{scope.name or '<module>'}"
            new, covered = rewritten(doc, scope, hand.get(key) if VERBS.match(doc) or PRIVATE.search(doc) else None)
            if VERBS.match(new):
                remaining[new.split()[0]] += 1
                left.append(f"{key}\t{scope.returns}\t{new.splitlines()[0]}")
            if new == doc:
                continue
            text = wrapped(new, constant.col_offset, match.group(1))
            if len(ast.dump(node.body[0])) and text.rstrip().endswith('"'):
                continue
            edits.append((begin, end, constant.col_offset, match, text))
            changed.append((key, doc, new))
        for begin, end, column, match, text in sorted(edits, key=lambda one: one[0], reverse=True):
            raw = "\n".join(lines[begin : end + 1])
            body = f'{match.group(1)}"""{text}"""'
            raw = raw[:column] + raw[column:].replace(match.group(0), body, 1)
            lines[begin : end + 1] = raw.split("\n")
        if edits and not dry:
            after = "\n".join(lines)
            if shape(ast.parse(after)) != shape(tree):
                print(f"REFUSED: {where} would change beyond docstrings", file=sys.stderr)
                continue
            file.write_text(after)
    return changed, left, remaining


def shape(tree: ast.AST) -> str:
    """Return a tree's dump without docstrings."""
    for node in ast.walk(tree):
        if isinstance(node, (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)) and node.body:
            first = node.body[0]
            if isinstance(first, ast.Expr) and isinstance(first.value, ast.Constant) and isinstance(first.value.value, str):
                first.value.value = ""
    return ast.dump(tree)


def main() -> None:
    root = Path(sys.argv[1])
    dry = "--dry-run" in sys.argv
    changed, left, remaining = work(root, dry)
    if "--show" in sys.argv:
        count = int(sys.argv[sys.argv.index("--show") + 1])
        for key, doc, new in random.Random(7).sample(changed, min(count, len(changed))):
            print(f"{key}\n  - {doc.splitlines()[0]}\n  + {new.splitlines()[0]}")
    print(f"{len(changed)} docstrings {'would be ' if dry else ''}rewritten, {len(left)} still begin with Give/Say/Tell/Take: {dict(remaining)}")
    for line in left:
        print("LEFT", line)


if __name__ == "__main__":
    main()
