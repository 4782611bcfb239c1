"""Checks whether a JSON value matches a JSON schema, for the common keywords.

Other keywords (`pattern`, `format`, `not`, `if`, `$ref` out of the schema, ...) count as satisfied, and so does
everything after a bounded number of steps: schemas come from callers, and the check must be cheap for any of them.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Final

_TYPES: Final[Mapping[str, tuple[type, ...]]] = {
    "object": (dict,),
    "array": (list,),
    "string": (str,),
    "boolean": (bool,),
    "null": (type(None),),
    "number": (int, float),
    "integer": (int, float),
}
_MAX_DEPTH: Final = 64
_MAX_STEPS: Final = 20_000  # about 20 ms
_STEP_CHARACTERS: Final = 16  # of a reference, which take about as long to follow as one step


def misfit(schema: object, value: object) -> str:
    """Return where a value (decoded from JSON) violates a schema, as path and keyword; empty if it does not.

    Empty also if that cannot be determined: numbers that are too long, or structures nested too deep.
    """
    try:
        return _Fitting(schema).misfit(schema, value, "$", 0)
    except (ValueError, OverflowError, RecursionError):
        return ""


class _Fitting:
    def __init__(self, root: object) -> None:
        self._root = root
        self._steps = 0

    def misfit(self, schema: object, value: object, path: str, depth: int) -> str:
        if schema is False:
            return f"{path}: nothing is allowed here"
        if not isinstance(schema, Mapping) or depth > _MAX_DEPTH or not self._may_take(1):
            return ""
        reference = schema.get("$ref")
        if isinstance(reference, str):
            found = self._resolved(reference)
            missed = "" if found is None else self.misfit(found, value, path, depth + 1)
            if missed:
                return missed
        return (
            self._own_misfit(schema, value, path)
            or self._branches(schema, value, path, depth)
            or self._members(schema, value, path, depth)
            or self._items(schema, value, path, depth)
        )

    def _may_take(self, steps: int) -> bool:
        """Count further steps; return whether they are within the limit."""
        self._steps += steps
        return self._steps <= _MAX_STEPS

    def _listed(self, value: object) -> Sequence[object]:
        """Return a list of the schema; empty if the value is no list, or too long for the step limit."""
        return value if isinstance(value, list | tuple) and self._may_take(len(value)) else ()

    def _resolved(self, reference: str) -> object:
        """Follow a pointer within the schema; return `None` if it leads outside or nowhere."""
        if not reference.startswith("#") or not self._may_take(len(reference) // _STEP_CHARACTERS):
            return None
        place: object = self._root
        for step in reference[1:].strip("/").split("/"):
            if not step:
                continue
            step = step.replace("~1", "/").replace("~0", "~")
            if isinstance(place, Mapping) and step in place:
                place = place[step]
            elif isinstance(place, list) and step.isdecimal() and int(step) < len(place):
                place = place[int(step)]
            else:
                return None
        return place

    def _branches(self, schema: Mapping[str, object], value: object, path: str, depth: int) -> str:
        for part in self._listed(schema.get("allOf")):
            missed = self.misfit(part, value, path, depth + 1)
            if missed:
                return missed
        # That only one of `oneOf` matches, and none of `not`, cannot be determined without checking all keywords.
        for keyword in ("anyOf", "oneOf"):
            parts = self._listed(schema.get(keyword))
            if parts and all(self.misfit(part, value, path, depth + 1) for part in parts):
                return f"{path}: {keyword}: it keeps none of them"
        return ""

    def _members(self, schema: Mapping[str, object], value: object, path: str, depth: int) -> str:
        if not isinstance(value, dict):
            return ""
        for name in self._listed(schema.get("required")):
            if isinstance(name, str) and name not in value:
                return f"{path}: required: {name!r} is missing"
        known = schema.get("properties")
        properties = known if isinstance(known, Mapping) else {}
        patterns = schema.get("patternProperties")
        further = schema.get("additionalProperties", True)
        for name, member in value.items():
            if self._steps > _MAX_STEPS:
                break
            if name in properties:
                missed = self.misfit(properties[name], member, f"{path}.{name}", depth + 1)
            elif isinstance(patterns, Mapping) and patterns:
                missed = ""  # patterns are not checked
            elif further is False:
                missed = f"{path}: additionalProperties: {name!r} is not allowed"
            else:
                missed = self.misfit(further, member, f"{path}.{name}", depth + 1)
            if missed:
                return missed
        return _count_misfit(schema, len(value), "Properties", path)

    def _items(self, schema: Mapping[str, object], value: object, path: str, depth: int) -> str:
        if not isinstance(value, list):
            return ""
        prefix = self._listed(schema.get("prefixItems"))
        rest = schema.get("items", True)
        for place, item in enumerate(value):
            if self._steps > _MAX_STEPS:
                break
            each = prefix[place] if place < len(prefix) else rest
            missed = self.misfit(each, item, f"{path}[{place}]", depth + 1)
            if missed:
                return missed
        return _count_misfit(schema, len(value), "Items", path)

    def _own_misfit(self, schema: Mapping[str, object], value: object, path: str) -> str:
        """Check the keywords that do not concern the value's parts."""
        types = schema.get("type")
        wanted = (types,) if isinstance(types, str) else self._listed(types)
        if wanted and not any(_is_of(value, name) for name in wanted):
            return f"{path}: type: it must be {' or '.join(map(str, wanted))}"
        if "enum" in schema and not self._is_in(value, schema["enum"]):
            return f"{path}: enum: it is none of the values"
        if "const" in schema and not self._is_same(value, schema["const"]):
            return f"{path}: const: it is another value"
        if isinstance(value, str):
            return _count_misfit(schema, len(value), "Length", path)
        if isinstance(value, int | float) and not isinstance(value, bool):
            return _number_misfit(schema, value, path)
        return ""

    def _is_in(self, value: object, values: object) -> bool:
        """Return whether a value is in a list; true if that is not checked because of the limit."""
        if not isinstance(values, list | tuple) or not self._may_take(len(values)):
            return True
        return any(self._is_same(value, other) for other in values)

    def _is_same(self, one: object, other: object) -> bool:
        """Compare as JSON does, where true is not 1."""
        if isinstance(one, bool) or isinstance(other, bool):
            return one is other
        if isinstance(one, list) and isinstance(other, list):
            if len(one) != len(other):
                return False
            return not self._may_take(len(one)) or all(map(self._is_same, one, other))
        if isinstance(one, dict) and isinstance(other, dict):
            if len(one) != len(other):
                return False
            if not self._may_take(len(one)):
                return True
            return one.keys() == other.keys() and all(self._is_same(one[name], other[name]) for name in one)
        return one == other


def _number_misfit(schema: Mapping[str, object], value: int | float, path: str) -> str:
    bounds: tuple[tuple[str, Callable[[float], bool]], ...] = (
        ("minimum", lambda bound: value >= bound),
        ("maximum", lambda bound: value <= bound),
        ("exclusiveMinimum", lambda bound: value > bound),
        ("exclusiveMaximum", lambda bound: value < bound),
    )
    for keyword, is_kept in bounds:
        bound = schema.get(keyword)
        if isinstance(bound, int | float) and not isinstance(bound, bool) and not is_kept(bound):
            return f"{path}: {keyword}: {bound} is not kept"
    return ""


def _count_misfit(schema: Mapping[str, object], count: int, of: str, path: str) -> str:
    least, most = schema.get(f"min{of}"), schema.get(f"max{of}")
    if isinstance(least, int) and count < least:
        return f"{path}: min{of}: {count} of {least}"
    if isinstance(most, int) and count > most:
        return f"{path}: max{of}: {count} of {most}"
    return ""


def _is_of(value: object, name: object) -> bool:
    kinds = _TYPES.get(name) if isinstance(name, str) else None
    if kinds is None:
        return True
    if isinstance(value, bool) or not isinstance(value, kinds):
        return isinstance(value, bool) and name == "boolean"
    return name != "integer" or isinstance(value, int) or (isinstance(value, float) and value.is_integer())
