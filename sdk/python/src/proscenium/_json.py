"""JSON of any value that a tool or a framework reports."""

import base64
import dataclasses
import json
import math
import reprlib
from collections.abc import Mapping, Set
from datetime import date, datetime, time
from enum import Enum
from typing import Any

# Deeper values that are not plain JSON become `…`, as a cycle does. The server accepts 64 levels by default.
_DEPTH_MAX = 50


def _plain(value: Any) -> Any:
    """Returns a JSON form of an object, or its `repr`."""
    if hasattr(value, "model_dump"):
        return value.model_dump()
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {field.name: getattr(value, field.name) for field in dataclasses.fields(value)}
    if isinstance(value, Enum):
        return value.value
    if isinstance(value, (datetime, date, time)):
        return value.isoformat()
    if isinstance(value, Mapping):
        return dict(value)
    if isinstance(value, Set):
        return list(value)
    if isinstance(value, (bytes, bytearray)):
        return base64.b64encode(value).decode()
    return repr(value)


def _safe(value: Any, above: tuple[int, ...] = ()) -> Any:
    """Returns a value that JSON can hold: without NaN, infinity, keys that are not text, and without cycles."""
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if value is None or type(value) in (str, int, bool):
        return value
    if id(value) in above or len(above) == _DEPTH_MAX:
        return "…"
    above = (*above, id(value))
    if isinstance(value, Mapping):
        return {str(key): _safe(member, above) for key, member in value.items()}
    if isinstance(value, (list, tuple)):
        return [_safe(item, above) for item in value]
    try:
        return _safe(_plain(value), above)
    except Exception:
        return reprlib.repr(value)


_encode = json.JSONEncoder(default=_plain, allow_nan=False, ensure_ascii=False, separators=(",", ":")).encode


def to_json(value: Any) -> bytes:
    """Returns the value as one line of JSON in UTF-8. It never fails, because a report must not fail its tool."""
    try:
        text = _encode(value)
    except Exception:
        text = _encode(_safe(value))
    # A lone surrogate has no UTF-8.
    return text.encode("utf-8", "replace")
