"""Build Arrow arrays for table columns from buffers: `pyarrow.array` would load pandas (40 MB) for any list."""

import math
from array import array
from datetime import UTC, datetime, timedelta
from itertools import accumulate
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    import pyarrow

_EPOCH: Final = datetime(1970, 1, 1)
_MICROSECOND: Final = timedelta(microseconds=1)
_INT64: Final = range(-(1 << 63), 1 << 63)


def is_missing(value: object) -> bool:
    """Return whether a cell is empty: `None` or NaN."""
    return value is None or (isinstance(value, float) and math.isnan(value))


def arrow_column(values: list[Any]) -> "pyarrow.Array":
    """Return an array of the values' type, with null for missing values. Mixed types become text."""
    import pyarrow as pa  # imported here: it loads slowly, and most commands do not need it

    known = [value for value in values if not is_missing(value)]
    gaps = None if len(known) == len(values) else pa.py_buffer(_bits([not is_missing(value) for value in values]))
    if not known:
        return pa.nulls(len(values))
    kinds = {type(value) for value in known}
    found = _numbers(values, known, kinds, gaps) if kinds <= {bool, int, float} else None
    if found is None and kinds == {datetime}:
        found = _times(values, known, gaps)
    if found is not None:
        return found
    return _others(values, kinds, gaps)


def _others(values: list[Any], kinds: set[type], gaps: Any) -> "pyarrow.Array":
    """Return an array of another type, such as decimals in exports; of text if Arrow has no such type."""
    import pyarrow as pa  # here: see above

    if not any(issubclass(kind, (str, int, datetime)) for kind in kinds):
        try:
            return pa.array(values, from_pandas=True)
        except (pa.ArrowInvalid, pa.ArrowTypeError):
            pass  # mixed types
    return _text(["" if is_missing(value) else _written(value) for value in values], gaps)


def _numbers(values: list[Any], known: list[Any], kinds: set[type], gaps: Any) -> "pyarrow.Array | None":
    """Return an array of booleans, integers or floats; `None` if the types are mixed or a number is too large."""
    import pyarrow as pa  # here: see above

    if kinds == {bool}:
        held = pa.py_buffer(_bits([value is True for value in values]))
        return pa.Array.from_buffers(pa.bool_(), len(values), [gaps, held])
    if kinds == {int} and all(value in _INT64 for value in known):
        return _fixed(pa.int64(), array("q", [0 if value is None else int(value) for value in values]), gaps)
    if float in kinds and bool not in kinds:
        return _fixed(pa.float64(), array("d", [0.0 if value is None else float(value) for value in values]), gaps)
    return None


def _times(values: list[Any], known: list[datetime], gaps: Any) -> "pyarrow.Array | None":
    """Return an array of times; `None` if only some have a time zone."""
    import pyarrow as pa  # here: see above

    zones = {value.utcoffset() is None for value in known}
    if len(zones) != 1:
        return None
    zone = None if zones.pop() else _zone_name(known[0])
    held = array("q", [0 if is_missing(value) else _microseconds(value) for value in values])
    return _fixed(pa.timestamp("us", zone), held, gaps)


def _fixed(kind: "pyarrow.DataType", held: "array[Any]", gaps: "pyarrow.Buffer | None") -> "pyarrow.Array":
    import pyarrow as pa  # as above

    return pa.Array.from_buffers(kind, len(held), [gaps, pa.py_buffer(held)])


def _text(words: list[str], gaps: "pyarrow.Buffer | None") -> "pyarrow.Array":
    import pyarrow as pa  # as above

    encoded = [word.encode("utf-8", "replace") for word in words]
    ends = array("i", [0, *accumulate(map(len, encoded))])
    return pa.Array.from_buffers(pa.string(), len(words), [gaps, pa.py_buffer(ends), pa.py_buffer(b"".join(encoded))])


def _written(value: object) -> str:
    return str.__str__(value) if isinstance(value, str) else str(value)  # of an enumeration's member, its value


def _bits(truths: list[bool]) -> bytes:
    """Return booleans as a bitmap, least significant bit first (Arrow columnar format, "Validity bitmaps")."""
    number = sum(1 << place for place, truth in enumerate(truths) if truth)
    return number.to_bytes(-(-len(truths) // 8), "little")


def _microseconds(moment: datetime) -> int:
    plain = moment if moment.utcoffset() is None else moment.astimezone(UTC).replace(tzinfo=None)
    return (plain - _EPOCH) // _MICROSECOND


def _zone_name(moment: datetime) -> str:
    """Return the time zone's name for Arrow; `UTC` if the time has only an offset."""
    return str(getattr(moment.tzinfo, "key", "UTC"))
