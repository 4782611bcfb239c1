"""Annotations for the mypyc compiler; without effect if nothing is compiled."""

from collections.abc import Callable
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from mypy_extensions import mypyc_attr as mypyc_attr
    from mypy_extensions import trait as trait
else:
    ClassT = TypeVar("ClassT", bound=type)

    def trait(cls: ClassT) -> ClassT:
        """Return the class as it is. Compiled, it may stand beside another base, and overrides nothing of it."""
        return cls

    def mypyc_attr(**options: object) -> Callable[[ClassT], ClassT]:
        """Return the class as it is. The compiler knows it by its name: it is not a package that a process needs."""
        return lambda cls: cls
