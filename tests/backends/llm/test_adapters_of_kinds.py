"""Each kind of target has its adapter, and each kind that takes settings has their form."""

from backends.llm.base import ADAPTERS
from backends.llm.stored_settings import SHAPES
from contracts.serving.pool_choices import TARGET_KINDS


def test_each_kind_of_target_has_an_adapter() -> None:
    assert set(ADAPTERS) == set(TARGET_KINDS), "ADAPTERS of backends/llm/base.py has each TargetKind"
    assert set(SHAPES) <= set(TARGET_KINDS), "SHAPES of backends/llm/stored_settings.py names kinds that there are"
