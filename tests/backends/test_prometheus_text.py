"""Prometheus' text format, read from servers that are not ours."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from backends.prometheus_text import Sample, read_samples


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("up 1", Sample("up", {}, 1.0)),
        ("a:b{} 2.5e3 1700000000000", Sample("a:b", {}, 2500.0)),
        ('x{a="1",b="two"} 3', Sample("x", {"a": "1", "b": "two"}, 3.0)),
        ('x{a="1", b="two",} 3', Sample("x", {"a": "1", "b": "two"}, 3.0)),
        ('x{a="q\\"}{,=\\\\\\n"} 4', Sample("x", {"a": 'q"}{,=\\\n'}, 4.0)),
        ('x{a=""} +Inf', Sample("x", {"a": ""}, math.inf)),
    ],
)
def test_a_series_is_read(line: str, expected: Sample) -> None:
    assert list(read_samples(line)) == [expected]


@pytest.mark.parametrize("line", ["", "# HELP x y", "x", "x{", 'x{a="1"', "x{a=1} 2", "x many", "1x 2", "{} 1"])
def test_a_line_that_cannot_be_read_is_passed_over(line: str) -> None:
    assert list(read_samples(f"{line}\nup 1")) == [Sample("up", {}, 1.0)]


def test_only_wanted_names_are_read() -> None:
    assert [one.name for one in read_samples("a_x 1\nb_x 2\na_y 3", ("a_",))] == ["a_x", "a_y"]


@given(st.text())
def test_no_text_breaks_the_reader(text: str) -> None:
    list(read_samples(text))


@given(
    st.dictionaries(
        st.from_regex(r"[a-z_][a-z0-9_]{0,9}", fullmatch=True),
        st.text(alphabet=st.characters(codec="utf-8", exclude_categories=("Cc", "Cs", "Zl", "Zp"))),
    )
)
def test_what_a_label_says_comes_back(labels: dict[str, str]) -> None:
    def escaped(text: str) -> str:
        return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")

    pairs = ",".join(f'{name}="{escaped(value)}"' for name, value in labels.items())
    assert list(read_samples(f"x{{{pairs}}} 1")) == [Sample("x", labels, 1.0)]
