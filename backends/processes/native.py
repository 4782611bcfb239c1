"""Annotations for the mypyc compiler. They have no effect in interpreted code."""

from collections.abc import Callable
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from mypy_extensions import mypyc_attr as mypyc_attr
    from mypy_extensions import trait as trait
else:
    ClassT = TypeVar("ClassT", bound=type)

    def trait(cls: ClassT) -> ClassT:
        """Return the class unchanged. The compiler allows it as an additional base class."""
        return cls

    def mypyc_attr(**options: object) -> Callable[[ClassT], ClassT]:
        """Return a decorator without effect. The compiler recognizes it by name, so mypy_extensions is not needed."""
        return lambda cls: cls
