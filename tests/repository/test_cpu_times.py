"""CPU time of tests is counted for their folders."""

from types import SimpleNamespace

from tests.cpu_times import PROPERTY, by_folder, cpu_seconds


def report(nodeid: str, *seconds: float) -> SimpleNamespace:
    return SimpleNamespace(nodeid=nodeid, user_properties=[("other", 9), *((PROPERTY, each) for each in seconds)])


def test_phases_are_added_up_by_folder_to_the_depth_that_is_asked_for() -> None:
    reports = [
        report("tests/a/b/c/test_x.py::test_1", 1.0),
        report("tests/a/b/test_y.py::test_2[1/2]", 2.0, 0.5),
        report("tests/test_z.py::test_3"),
    ]
    assert by_folder(reports) == {"tests/a/b": 3.5, "tests": 0}
    assert by_folder(reports, depth=9) == {"tests/a/b/c": 1.0, "tests/a/b": 2.5, "tests": 0}


def test_time_that_is_used_is_counted() -> None:
    before = cpu_seconds()
    while cpu_seconds() == before:
        pass
    assert cpu_seconds() > before
