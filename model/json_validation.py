"""The parts of ``model.json``: dataclasses that pydantic reads strictly and writes.

A part is a `Stored` dataclass. Its fields are the keys; their types say what is expected, down to numbers and lists. A
union is told apart by a field ``kind``, ``method`` or ``form``, a Literal. What fields must fulfil together is
checked in ``__post_init__``, which raises a `MisfitError`. Every error has the path of the field that is wrong.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Sequence
from functools import cache, partial
from operator import methodcaller
from typing import Annotated, Any, ClassVar, Self, TypeAlias, cast

import numpy as np
from pydantic import ConfigDict, Field, GetCoreSchemaHandler, GetPydanticSchema, TypeAdapter, ValidationError
from pydantic_core import core_schema

from murho.model.arrays import Doubles, Ints
from murho.model.errors import CheckpointError


class MisfitError(CheckpointError, ValueError):
    """A field of a `Stored` part does not fit the others.

    Args:
        field: Path of the field within the part.
        expected: What was expected there.
        found: What was found.
    """

    def __init__(self, field: str, expected: str, found: object) -> None:
        super().__init__(f"{field}: expected {expected}, found {_show(found)}")


def _show(found: object) -> str:
    shown = json.dumps(found, default=str, ensure_ascii=False)
    return shown if len(shown) <= 200 else f"{shown[:200]}…"


class Stored:
    """A part of ``model.json``; subclasses are dataclasses of types that pydantic knows."""

    __slots__ = ()
    __pydantic_config__: ClassVar[ConfigDict] = {
        "extra": "forbid",
        "allow_inf_nan": False,
        "ser_json_bytes": "base64",
        "val_json_bytes": "base64",
    }

    @classmethod
    def __get_pydantic_core_schema__(cls, source: Any, handler: GetCoreSchemaHandler) -> core_schema.CoreSchema:
        """As of any dataclass, but no field may be absent from data, whatever its default."""
        schema: Any = handler(source)
        for field in schema["schema"]["fields"]:
            if field["schema"]["type"] == "default":
                field["schema"] = field["schema"]["schema"]
        return cast("core_schema.CoreSchema", schema)

    def to_json(self) -> dict[str, Any]:
        """Return the part as JSON data."""
        adapter, plain = _adapter(cast("Any", type(self))), methodcaller("tolist")  # numpy's numbers among facts
        data: dict[str, Any] = adapter.dump_python(self, mode="json", fallback=plain)
        return data

    @classmethod
    def from_json(cls, data: object, where: str = "") -> Self:
        """Read what `to_json` returned.

        Args:
            data: JSON data.
            where: Path of the data, for messages.

        Raises:
            CheckpointError: A field is missing, unknown, of another type or out of range, or does not fit the others;
                the message begins with its path.
        """
        part: Self = read_strictly(cls, data, where)
        return part


@cache
def _adapter(kind: Any) -> TypeAdapter[Any]:
    return TypeAdapter(kind)


def read_strictly(kind: Any, data: object, where: str) -> Any:
    """Read JSON data as a type that pydantic knows, where nothing is converted.

    Args:
        kind: The type.
        data: JSON data.
        where: Path of the data, for messages.

    Raises:
        CheckpointError: The data have another form; the message has the path of the field.
    """
    try:
        return _adapter(kind).validate_json(json.dumps(data), strict=True)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
    path = (where + _path(first["loc"], data, missing=first["type"] == "missing")).removeprefix(".")
    cause = first.get("ctx", {}).get("error")
    if isinstance(cause, MisfitError):
        raise CheckpointError(f"{path}.{cause}".removeprefix("."))
    message = _MESSAGES.get(first["type"]) or first["msg"].removeprefix("Value error, ")
    message = message.replace("Input should be", "expected")
    found = "" if first["type"] in _MESSAGES else f", found {_show(first['input'])}"
    raise CheckpointError(f"{path}: {message}{found}".removeprefix(": "))


_MESSAGES = {"missing": "the field is missing", "unexpected_keyword_argument": "the field is not known"}


def _path(location: Sequence[int | str], data: Any, *, missing: bool) -> str:
    """Return the path of an error, without the kinds that pydantic names beside the fields of a union."""
    path = ""
    for at, part in enumerate(location):
        inside = (
            part in data
            if isinstance(data, dict)
            else isinstance(part, int) and isinstance(data, list) and part < len(data)
        )
        if inside or (missing and at == len(location) - 1):
            path += f"[{part}]" if isinstance(part, int) else f".{part}"
        data = data[part] if inside else data
    return path


def store_as(form: Any, read: Callable[[Any], Any], write: Callable[[Any], Any]) -> GetPydanticSchema:
    """How ``model.json`` holds values of a type that JSON does not have.

    Args:
        form: Type of the JSON data.
        read: Makes the value of valid data; a ValueError says what is wrong.
        write: Makes the data of a value.
    """

    def schema(_source: Any, handler: GetCoreSchemaHandler) -> core_schema.CoreSchema:
        written = core_schema.plain_serializer_function_ser_schema(write, return_schema=handler.generate_schema(form))
        return core_schema.no_info_after_validator_function(read, handler.generate_schema(form), serialization=written)

    return GetPydanticSchema(schema)


def read_as(form: Any) -> GetPydanticSchema:
    """How pydantic reads and writes what the code knows by a wider type, such as a protocol."""
    return GetPydanticSchema(lambda _source, handler: handler.generate_schema(form))


def one_of(*values: str) -> GetPydanticSchema:
    """One of these texts."""
    return GetPydanticSchema(lambda _source, _handler: core_schema.literal_schema(list(values)))


def null_for(infinity: float, form: Any = float) -> GetPydanticSchema:
    """Return a limit that is infinite where the data have null.

    Args:
        infinity: The limit without a limit, inf or -inf.
        form: Type of the data of others.
    """
    return store_as(
        form | None,
        lambda limit: infinity if limit is None else limit,
        lambda limit: limit if math.isfinite(limit) else None,
    )


def _matrix(rows: list[list[float]]) -> Doubles:
    if len({len(row) for row in rows}) > 1:
        raise ValueError("expected lists of the same length")
    return np.array(rows, dtype=np.float64).reshape(len(rows), len(rows[0]) if rows else 0)


Positive: TypeAlias = Annotated[float, Field(gt=0.0)]
NotNegative: TypeAlias = Annotated[float, Field(ge=0.0)]
Share: TypeAlias = Annotated[float, Field(ge=0.0, le=1.0)]
Count: TypeAlias = Annotated[int, Field(ge=0)]

_WHOLE = Annotated[int, Field(ge=0, le=2**53)]
Vector: TypeAlias = Annotated[Doubles, store_as(list[float], partial(np.array, dtype=np.float64), np.ndarray.tolist)]
"""Float64, one axis."""
Counts: TypeAlias = Annotated[Ints, store_as(list[_WHOLE], partial(np.array, dtype=np.int64), np.ndarray.tolist)]
"""Int64, one axis, not negative."""
Matrix: TypeAlias = Annotated[Doubles, store_as(list[list[float]], _matrix, np.ndarray.tolist)]
"""Float64, two axes, row by row."""
Unlimited: TypeAlias = Annotated[float, null_for(math.inf, Positive)]
"""A positive limit; null: there is none."""
