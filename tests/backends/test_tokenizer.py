"""A model's prompt format: templates mean what they mean to Jinja, and texts of any length become the library's ids."""

import threading
from typing import Any

import jinja2
import pytest
from jinja2.sandbox import ImmutableSandboxedEnvironment
from tokenizers import Tokenizer

from backends.engine.settings import BUILTIN_PATH
from backends.engine.torch_engine.model_files import read_model_files
from backends.tokenization.tokenizer import PromptFormat
from contracts.errors import InvalidRequest

FILES = read_model_files(BUILTIN_PATH)
MESSAGES: list[dict[str, Any]] = [
    {"role": "system", "content": "Be brief.", "keys": "k", "_own": "o", "items": [1]},
    {"role": "user", "content": "Hi", "tool_calls": [{"function": {"name": "f", "arguments": {"a": 1}}}]},
]
TEMPLATES = [
    "{% for m in messages %}{{ m.role }}:{{ m['content'] }};{% endfor %}",
    "{% for m in messages %}{{ m.name is defined }}{{ m.name }}{{ m.name or 'nobody' }}{% endfor %}",
    "{% for m in messages %}{% for k, v in m.items() %}{{ k }}={{ v }},{% endfor %}{% endfor %}",
    "{{ messages[0].keys() | list }}{{ messages[0]['keys'] }}{{ messages[0]._own }}",
    "{{ messages[0].get('role') }}{{ messages[0].get('none', 'other') }}{{ messages.length }}",
    "{% for c in messages[1].tool_calls %}{{ c.function.name }}({{ c.function.arguments.a }}){% endfor %}",
    "{% set ns = namespace(n=0) %}{% for m in messages %}{% set ns.n = ns.n + 1 %}{% endfor %}{{ ns.n }}",
    "{% for m in messages if m.role == 'user' %}{{ loop.index }}{% endfor %}{{ range(3) | list }}",
    "{% macro say(m) %}<{{ m.role }}>{% endmacro %}{{ say(messages[1]) }}{{ dict(a=1).a }}",
    "{{ bos_token }}{{ eos_token is defined }}{{ extra }}{{ messages is defined }}{{ nothing is defined }}",
]
REFUSED = ["{{ messages[0].__class__ }}{{ messages[0].__class__.__name__ }}", "{{ messages[0].none.deeper }}"]


def with_template(template: str) -> PromptFormat:
    return PromptFormat(FILES.tokenizer, template, {"bos_token": "<s>"})


@pytest.mark.parametrize("template", TEMPLATES)
def test_a_template_renders_as_in_a_plain_sandbox(template):
    plain = ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True).from_string(template)
    expected = plain.render(messages=MESSAGES, bos_token="<s>", extra="more", add_generation_prompt=True)
    form = with_template(template)
    assert [form.render(MESSAGES, extra="more") for _ in range(2)] == [expected, expected]


@pytest.mark.parametrize("template", REFUSED)
def test_what_a_sandbox_refuses_is_refused(template):
    plain = ImmutableSandboxedEnvironment().from_string(template)
    with pytest.raises(jinja2.TemplateError):
        plain.render(messages=MESSAGES)
    with pytest.raises(InvalidRequest):
        with_template(template).render(MESSAGES)


def test_a_template_keeps_nothing_of_a_chat():
    form = with_template("{{ extra is defined }}{% set left = messages %}{{ seen is defined }}{% set seen = 1 %}")
    assert form.render(MESSAGES, extra=1) == "TrueFalse"
    assert form.render(MESSAGES) == "FalseFalse"


@pytest.mark.parametrize("characters", [8191, 8192, 8193, 40_000])
def test_texts_of_every_length_become_the_librarys_ids(characters):
    form = with_template("")
    text = ("the books close when every part sums, 17 times. " * 900)[:characters]
    library = Tokenizer.from_buffer(FILES.tokenizer)
    for _ in range(2):
        assert form.encode(text) == library.encode(text, add_special_tokens=False).ids


def test_several_threads_may_encode_at_once():
    form = with_template("")
    texts = [f"words {chr(97 + place)} and others {chr(122 - place)}, all of them" for place in range(26)]
    library = Tokenizer.from_buffer(FILES.tokenizer)
    expected = [library.encode(text, add_special_tokens=False).ids for text in texts]
    found: list[list[list[int]]] = []
    threads = [threading.Thread(target=lambda: found.append([form.encode(text) for text in texts])) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == [expected] * 4
