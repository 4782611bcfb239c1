"""Prometheus' text format, read from servers that are not ours."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from backends.telemetry.prometheus_text import read_families, read_samples

# What the parser raises a ValueError on, and what it raises others on: an empty label name, an integer too large.
UNREADABLE = ["", "# HELP x y", "x", "x{", 'x{a="1"', "x{a=1} 2", "x many", "1x 2", "{} 1"]
UNREADABLE += ["# TYPE x odd", 'x{a="1", ="2"} 3', "x 1" + "0" * 400, "x 1 1" + "0" * 400]


@pytest.mark.parametrize("line", UNREADABLE)
def test_a_line_that_cannot_be_read_is_passed_over(line: str) -> None:
    page = f'{line}\n# TYPE up counter\nup{{a="q\\"}}{{,=\\\\\\n"}} 1'
    (family,) = read_families(page)
    assert family.type == "counter"
    assert [(one.labels, one.value) for one in family.samples] == [({"a": 'q"}{,=\\\n'}, 1.0)]


@pytest.mark.parametrize(("length", "found"), [(1 << 14, ["x", "up"]), ((1 << 14) + 1, ["up"])])
def test_a_line_too_long_is_passed_over(length: int, found: list[str]) -> None:
    line = 'x{a="' + "b" * (length - 9) + '"} 1'
    assert len(line) == length
    assert [one.name for one in read_samples(f"{line}\nup 1")] == found


def test_only_wanted_names_are_read_and_stay_as_they_are() -> None:
    assert [one.name for one in read_samples("# TYPE a_x counter\na_x 1\nb_x 2\na_y 3", ("a_",))] == ["a_x", "a_y"]


@given(st.text() | st.text(alphabet='x{}a="\\,1 #_\n'))
def test_no_text_breaks_the_reader(text: str) -> None:
    read_families(text)
    read_families(text, ("x",))
