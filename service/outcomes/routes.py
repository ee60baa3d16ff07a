"""`/models/{name}/outcomes` and `/quality`: what came true of recorded predictions, and how good they were."""

import math
import struct
from functools import partial
from typing import TYPE_CHECKING, Any

import orjson
import pyarrow as pa
from fastapi import APIRouter, Request
from pydantic import BaseModel, Field

from murho.model.errors import TableError
from murho.model.tables.cells import canonical_category, parse_number
from murho.model.tables.csv_reader import parse_csv, read_header
from murho.service.context import ContextDependency, JSONBytes, ServiceContext
from murho.service.errors import MediaTypeError, TooLargeError, UnknownModelError, wrong
from murho.service.outcomes.types import QualityQuery, VersionFacts
from murho.service.predict.budgets import decompress, whole_body
from murho.service.predict.json_bodies import load_json
from murho.service.predict.json_rows import MAX_LISTED, Problems, pointer, shorten
from murho.service.predict.options import LONGEST_ID, Many, RequestModel, ResponseModel, describe, validate_document
from murho.service.predict.routes import REFERENCE
from murho.service.security import Caller
from murho.service.settings import Settings
from murho.service.tables.arrow_tables import stream_size
from murho.service.tables.table_codec import check_size

if TYPE_CHECKING:
    from murho.service.outcomes.types import Value

# The store is imported where it is used, as SQLAlchemy takes a while.

router = APIRouter(tags=["outcomes"])
COLUMNS = ("id", "value")
MOST_OUTCOMES = 100_000
"""Of one request: they are in memory as Python objects."""
MOST_HEADER_BYTES = 1000
MOST = 1e38
"""Of a value: answers are kept in single precision, and squares of errors are added up."""
KINDS = "application/json, text/csv or application/vnd.apache.arrow.stream"


class Outcome(RequestModel):
    """What came true of a recorded prediction."""

    id: Any = Field(json_schema_extra={"type": "string", "minLength": 1, "maxLength": LONGEST_ID})
    value: Any = Field(json_schema_extra={"type": ["number", "string"]})
    """A number, or the name of a class."""


class OutcomesRequest(RequestModel):
    """What came true of recorded predictions of one model."""

    outcomes: Many[Outcome] = Field(min_length=1)


class UnknownOutcome(ResponseModel):
    """An outcome that was not kept."""

    id: str
    why: str


class OutcomesResponse(ResponseModel):
    """What became of the outcomes."""

    accepted: int
    """Those that are kept now; one that was there already counts, too."""
    revised: int
    """Of these, those that replaced another value."""
    unknown: list[UnknownOutcome]


def _document(model: type[BaseModel]) -> dict[str, Any]:
    return {"application/json": {"schema": {"$ref": REFERENCE.format(model=model.__name__)}}}


@router.post(
    "/models/{name}/outcomes",
    summary="Tell what came true of recorded predictions",
    name="add_outcomes",
    responses={200: {"content": _document(OutcomesResponse)}},
    openapi_extra={"requestBody": {"required": True, "content": _document(OutcomesRequest)}},
)
async def _add_outcomes(request: Request, service: ContextDependency, name: str) -> JSONBytes:
    """Take `{"outcomes": [{"id": "…", "value": 21.5}]}`, or the columns id and value as CSV or Arrow.

    Late, in any order, many at a time, and again: an id and its value count once, another value revises the first.
    """
    from murho.service.outcomes.recorder import LONGEST_WORK

    caller: Caller = request.scope["state"]["caller"]
    service.security.require_outcomes(caller)
    recorder, headers = service.require_recorder(), request.scope["state"]["headers"]
    media_type = headers.get("content-type", "").partition(";")[0].strip().lower()
    if media_type not in READERS:
        raise MediaTypeError(f"{media_type[:80]!r} isn't read here. Send {KINDS}.")
    async with whole_body(service.settings, service.request_budget, request.scope, request.receive) as body:
        coding = headers.get("content-encoding", "")
        adding = partial(_add, service, caller, name, media_type, coding, body)
        return JSONBytes(await recorder.in_thread(adding, LONGEST_WORK))


PARAMETERS = [
    {"name": name, "in": "query", "required": False, "description": said.pop("description"), "schema": said}
    for name, said in QualityQuery.model_json_schema()["properties"].items()
]


@router.get(
    "/models/{name}/quality",
    summary="How good recorded predictions were, by their outcomes",
    name="quality",
    openapi_extra={"parameters": PARAMETERS},
)
async def _quality(request: Request, service: ContextDependency, name: str) -> JSONBytes:
    """Answer coverage, CRPS, bias, width and PITs, or scores of classes, of each version, and its alarm."""
    from murho.service.outcomes.quality import quality_of

    recorder, query = service.require_recorder(), validate_document(QualityQuery, dict(request.query_params))
    return JSONBytes(await recorder.in_thread(lambda: quality_of(recorder.store, name, _facts(service, name), query)))


@router.get("/models/{name}/decisions/{id:path}", summary="A recorded decision, and its outcome", name="decision")
async def _decision(request: Request, service: ContextDependency, name: str, id: str) -> JSONBytes:  # noqa: A002 - in the path
    """Answer what was decided; `request`, sent to this version's `decide`, gives the same to the bit."""
    caller: Caller = request.scope["state"]["caller"]
    service.security.require_outcomes(caller)
    recorder = service.require_recorder()

    def look() -> dict[str, Any]:
        recorder.settle()
        found = recorder.store.prediction(name, caller.stored_id(id)) or recorder.store.prediction(name, id)
        if found is not None and found.decision is not None:
            told = orjson.loads(found.decision)
            if (shared := recorder.store.shared(told.pop("shared", ""))) is not None:
                told["request"] = orjson.loads(shared) | told["request"]
            return {"id": id, "model": {"name": name, "version": found.version}, "at": found.at, **told}
        raise UnknownModelError(f"No decision of {shorten(name)!r} with the id {shorten(id)!r} is recorded.")

    return JSONBytes(await recorder.in_thread(look))


def _facts(service: ServiceContext, name: str) -> "dict[str, VersionFacts]":
    """Return what the store knows of a model's versions; if it was never recorded, what is served.

    Raises:
        UnknownModelError: There is no such model.
    """
    if facts := service.require_recorder().store.facts(name):
        return facts
    served = service.registry.snapshot.find(name, None)
    return {served.version: VersionFacts.of(served.spec)}


def _add(
    service: ServiceContext, caller: Caller, name: str, media_type: str, coding: str, body: bytes
) -> dict[str, Any]:
    recorder, settings = service.require_recorder(), service.settings
    recorder.settle()
    facts = _facts(service, name)
    body = decompress(body, coding, settings.max_body_bytes)
    ids, values = READERS[media_type](body, settings)
    classes = any(each.classes is not None for each in facts.values())
    ids, values = check_outcomes(ids, values, classes=classes, texts=media_type == "text/csv")
    stored = {caller.stored_id(key): key for key in ids}
    known = recorder.store.known(name, [*stored]) if caller.digest else ()
    own = {stored[key]: key for key in known}
    found = recorder.store.add(name, [own.get(key, key) for key in ids], values)
    if service.bands is not None:
        service.bands.refresh()
    others = recorder.store.models_of([*found.unknown][:MAX_LISTED])
    whys = {stored.get(key, key): why for key, why in found.unknown.items()} | {
        key: f"It is of the model {model!r}." for key, model in others.items() if model != name
    }
    unknown = [{"id": key, "why": why} for key, why in whys.items()]
    return {"accepted": found.accepted, "revised": found.revised, "unknown": unknown}


def _from_json(body: bytes, settings: Settings) -> tuple[list[Any], list[Any]]:
    """Return ids and values of a document."""
    outcomes = validate_document(OutcomesRequest, load_json(body, settings.max_json_bytes)).outcomes
    _require_few(len(outcomes))
    return [each.id for each in outcomes], [each.value for each in outcomes]


def _from_csv(body: bytes, _: Settings) -> tuple[list[Any], list[Any]]:
    """Return ids and values of a text with these two columns."""
    _require_few(body.count(b"\n") - 1)
    if len(body.partition(b"\n")[0]) > MOST_HEADER_BYTES:
        raise wrong("", "Expected a header line with the columns id and value, and no others.")
    try:
        header = read_header(body, "the body")
        _require_columns(pa.schema([(name, pa.string()) for name in header.names]))
        return _of_table(parse_csv(body, "the body", header))
    except TableError as error:
        raise wrong("", f"{shorten(str(error), 500)}.") from None


def _from_arrow(body: bytes, settings: Settings) -> tuple[list[Any], list[Any]]:
    """Return ids and values of a stream with these two columns."""
    try:
        rows, unpacked = stream_size(body)
        check_size(unpacked, settings)
        _require_few(rows)
        reader = pa.ipc.open_stream(pa.py_buffer(body))
        _require_columns(reader.schema)
        table = reader.read_all()
        table.validate(full=True)
    except (pa.ArrowException, OSError, ValueError, struct.error) as error:
        message = f"The body is not a whole Arrow stream: {shorten(str(error), 500)}."
        raise wrong("", message) from None
    return _of_table(table)


def _require_few(count: int) -> None:
    if count > MOST_OUTCOMES:
        raise TooLargeError(f"The request has {count} outcomes; at most {MOST_OUTCOMES} are read. Send parts.")


def _require_columns(schema: pa.Schema) -> None:
    """Check names and types before a cell is read: a few bytes of some types stand for many long texts."""
    if sorted(schema.names[: 1 + len(COLUMNS)]) != sorted(COLUMNS):
        found = shorten(", ".join(schema.names[:10]), 200)
        raise wrong("", f"Expected the columns id and value, and no others; found {found}.")
    fits = (pa.types.is_string, pa.types.is_large_string, pa.types.is_integer, pa.types.is_floating)
    for name, kind in zip(schema.names, schema.types, strict=True):
        if not any(test(kind) for test in fits):
            raise wrong(pointer(name), f"Cells of the type {shorten(str(kind))} can't be used.")


def _of_table(table: pa.Table) -> tuple[list[Any], list[Any]]:
    if not table.num_rows:
        raise wrong("/outcomes", "The table has no rows.")
    ids, values = (table.column(name).to_pylist() for name in COLUMNS)
    return [str(key) if type(key) is int else key for key in ids], values


READERS = {
    **dict.fromkeys(("", "application/json"), _from_json),
    "text/csv": _from_csv,
    "application/vnd.apache.arrow.stream": _from_arrow,
}


def check_outcomes(ids: list[Any], values: list[Any], *, classes: bool, texts: bool) -> "tuple[list[str], list[Value]]":
    """Return ids, and values as a model predicts them.

    Args:
        ids: One each.
        values: A number or the name of a class each.
        classes: Whether the model predicts classes.
        texts: Whether numbers may be texts.

    Raises:
        BadInputError: An id or a value can't be one.
    """
    problems, checked = Problems(), list["Value"]()
    expected = "the name of a class" if classes else "a number within ±1e38"
    for place, (key, value) in enumerate(zip(ids, values, strict=True)):
        if not isinstance(key, str) or not 0 < len(key) <= LONGEST_ID or not key.isprintable():
            message = f"Expected a text of 1 to {LONGEST_ID} printable characters."
            problems.add(place, pointer("outcomes", place, "id"), message)
        try:
            checked.append(canonical_category(value) if classes else _number(value, texts=texts))
        except (ValueError, OverflowError):
            message = f"Expected {expected}, not {describe(value)}."
            problems.add(place, pointer("outcomes", place, "value"), message)
    problems.raise_any()
    return ids, checked


def _number(value: Any, *, texts: bool) -> float:
    number = parse_number(value) if texts and isinstance(value, str) else math.nan
    if type(value) in (int, float):
        number = float(value)
    if not abs(number) < MOST:
        raise ValueError(value)
    return number
