"""The commands `murho outcomes` and `murho quality`: what came true of recorded predictions, and how good they were.

Both ask a running service, or open its store beside it. Imports wait until a command runs.
"""

from __future__ import annotations

import os
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from murho.cli.shared import JsonOption, print_json, print_lines, require_name, say, table_lines
from murho.model.errors import InputError, MurhoError, OptionError, TableError
from murho.model.tables.overrides import AS_IT_IS, FileForm

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from murho_client import Outcomes

    from murho.model.files import JSON
    from murho.service.outcomes.store import Store
    from murho.service.outcomes.types import Accepted, Value

MOST_SAID = 10
UrlOption = Annotated[str | None, typer.Option(help="Address of the service.", metavar="URL")]
StoreOption = Annotated[
    str | None,
    typer.Option(help="Its store: a file, or postgresql+psycopg://…  [default: MURHO_STORE, where that is set]"),
]


def outcomes(
    name: str | None,
    data: Annotated[Path | None, typer.Argument(help="Columns id and value, what came true of each prediction")] = None,
    url: UrlOption = None,
    store: StoreOption = None,
    output: Annotated[
        Path | None, typer.Option(help="Parquet file for predictions with outcomes; takes --store.")
    ] = None,
    forget: Annotated[
        list[str] | None, typer.Option(help="Id of a prediction to delete; again for several; takes --store.")
    ] = None,
    recount: Annotated[
        bool, typer.Option("--recount", help="Count quality, alarm and bands again from all outcomes; takes --store.")
    ] = False,
    json: JsonOption = False,
    form: FileForm = AS_IT_IS,
) -> None:
    """Tell what came true of recorded predictions; export them; forget some; count all again."""
    name = require_name(name)
    if data is None and output is None and not forget and not recount:
        raise OptionError("Nothing to do: give a table of outcomes, --output FILE, --forget ID or --recount")
    store = _store_or_url(url, store)
    if url is not None and (output is not None or forget or recount):
        raise OptionError("--output, --forget and --recount take the store itself: --store")
    done: JSON = {}
    if url is not None and data is not None:
        done = _send(url, name, data, form)
    if url is None:
        opened = _open(str(store))
        if data is not None:
            done = _keep(opened, name, data, form)
        if forget:
            done["forgotten"] = opened.forget(name, forget)
        if recount:
            done["recounted"] = opened.recount(name)
        if output is not None:
            done["exported"] = _export(opened, name, output)
    if json:
        print_json(done)
        return
    for key, count in done.items():
        if key != "unknown":
            say(f"{key}: {count}")
    unknown = done.get("unknown", [])
    for each in unknown[:MOST_SAID]:
        say(f"unknown: {each['id']}: {each['why']}")
    if len(unknown) > MOST_SAID:
        say(f"unknown: {len(unknown) - MOST_SAID} more")


def quality(
    name: str | None,
    url: UrlOption = None,
    store: StoreOption = None,
    window: Annotated[str, typer.Option(help="How far back predictions go: 24h, 30d, 4w.")] = "30d",
    by: Annotated[
        str | None, typer.Option(help="Feature whose groups are told apart; inputs must be recorded.")
    ] = None,
    coverage: Annotated[float | None, typer.Option(help="Of a further central band, such as 0.98.")] = None,
    version: Annotated[str | None, typer.Option(help="The only version; by default all.")] = None,
    json: JsonOption = False,
) -> None:
    """Show how good recorded predictions were, by their outcomes."""
    name = require_name(name)
    store = _store_or_url(url, store)
    asked = {"window": window, "by": by, "coverage": coverage, "version": version}
    asked = {key: value for key, value in asked.items() if value is not None}
    if url is not None:
        from murho.cli.service_scorer import client_errors, connect

        with connect(url) as client, client_errors():
            found = client.quality(name, **asked)  # type: ignore[arg-type]
    else:
        from murho.service.outcomes.quality import quality_of
        from murho.service.outcomes.types import QualityQuery
        from murho.service.predict.options import validate_document

        opened = _open(str(store))
        try:
            found = quality_of(opened, name, _facts(opened, name), validate_document(QualityQuery, asked))
        except InputError as error:
            first = error.problems[0]
            raise OptionError(f"--{first.pointer[1:]}: {first.message}") from None
    if json:
        print_json(found)
    else:
        print_lines(list(_lines(found)))


def _store_or_url(url: str | None, store: str | None) -> str | None:
    """Return the store, if there is no URL."""
    store = store or (os.environ.get("MURHO_STORE") if url is None else None)
    if (url is None) == (store is None):
        raise OptionError("Give --url, the address of the service, or --store, the store itself")
    return store


def _open(store: str) -> Store:
    from murho.service.outcomes.adaptation import AdaptationFollower
    from murho.service.outcomes.quality import AlarmFollower
    from murho.service.outcomes.store import Store

    return Store(store, [AlarmFollower(), AdaptationFollower()], new=False)


def _facts(store: Store, name: str) -> JSON:
    facts = store.facts(name)
    if not facts:
        raise MurhoError(f"The store has no predictions of a model {name!r}")
    return dict(facts)


def _send(url: str, name: str, data: Path, form: FileForm) -> JSON:
    from murho.cli.service_scorer import client_errors, connect

    with connect(url) as client, client_errors():
        ids, values = _check(data, form, classes=client.model(name).classes is not None)
        return _summarise(client.outcomes({"id": ids, "value": values}, name))


def _summarise(found: Accepted | Outcomes) -> JSON:
    unknown = [{"id": key, "why": why} for key, why in found.unknown.items()]
    return {"accepted": found.accepted, "revised": found.revised, "unknown": unknown}


def _keep(store: Store, name: str, data: Path, form: FileForm) -> JSON:
    classes = any(each.classes is not None for each in _facts(store, name).values())
    return _summarise(store.add(name, *_check(data, form, classes=classes)))


def _check(data: Path, form: FileForm, *, classes: bool) -> tuple[list[str], list[Value]]:
    """Ids and values of a file; raises a TableError that names the row."""
    from murho.model.tables.table_files import read_table
    from murho.service.outcomes.routes import check_outcomes

    table = read_table(data, form)
    for column in ("id", "value"):
        if column not in table.column_names:
            raise TableError(f"{data}: there is no column {column!r}; it has {', '.join(table.column_names[:20])}")
    ids, values = (table.column(column).to_pylist() for column in ("id", "value"))
    try:
        return check_outcomes([key if key is None else str(key) for key in ids], values, classes=classes, texts=True)
    except InputError as error:
        _, _, row, column = error.problems[0].pointer.split("/")
        raise TableError(f"{data}, row {int(row) + 1}, {column}: {error.problems[0].message}") from None


def _export(store: Store, name: str, output: Path) -> int:
    """Write predictions with their outcomes, some at a time; return how many."""
    import numpy as np
    import pyarrow as pa

    from murho.cli.output_files import ROWS_PER_GROUP, parquet_writer
    from murho.model.evaluation.recorded import LEVELS

    facts, rows = _facts(store, name), 0
    classes = next(iter(facts.values())).classes
    named = [f"p{level:g}" for level in LEVELS] if classes is None else [f"p_{each}" for each in classes]
    pairs = store.pairs(name)
    with parquet_writer(output) as write:
        while part := list(islice(pairs, ROWS_PER_GROUP)):
            rows += len(part)
            answers = np.array([each.answer[: len(named)] for each in part], float)
            if classes is None:
                answers += np.array([each.mean for each in part])[:, None]
            columns = {
                "id": [each.id for each in part],
                "version": [each.version for each in part],
                "predicted": pa.array([int(1e6 * each.at) for each in part], pa.timestamp("us", "UTC")),
                "mean": pa.array([each.mean for each in part], pa.float64()),
                **dict(zip(named, answers.T, strict=True)),
                "inputs": pa.array([each.inputs for each in part], pa.string()),
                "value": [each.value for each in part],
                "came": pa.array([int(1e6 * each.came) for each in part], pa.timestamp("us", "UTC")),
                "pit": [each.pit for each in part],
            }
            write(pa.table(columns))
    return rows


def _lines(found: Mapping[str, Any]) -> Iterator[str]:
    """Yield what is known of each version, and of its groups, as lines for people."""
    if not found["versions"]:
        yield f"no outcomes of {found['model']} since {found['from']}"
    for version in found["versions"]:
        rows = [_title(version)]
        rows += [_cells(found["model"] + " " + version["version"], version)]
        rows += [_cells(f"  {group['group']}", group) for group in version.get("groups", ())]
        yield from table_lines(rows)
        alarm = version["alarm"]
        if alarm is not None and alarm["raised"]:
            yield f"ALARM: since {alarm['since']} outcomes are not as predicted (raised at {alarm['at']})"


def _title(quality: Mapping[str, Any]) -> list[str]:
    if "accuracy" in quality:
        return ["", "outcomes", "accuracy", "log loss", "ECE", "in the set"]
    return ["", "outcomes", *(f"in {level} %" for level in quality["coverage"]), "CRPS", "bias", "width of 90 %"]


def _cells(title: str, quality: Mapping[str, Any]) -> list[str]:
    if "accuracy" in quality:
        numbers = [
            quality["accuracy"]["share"],
            quality["log_loss"],
            quality["ece"],
            quality["sets"]["coverage"]["share"],
        ]
        return [title, str(quality["n"]), *(f"{number:.3f}" for number in numbers)]
    shares = [f"{100.0 * each['share']:.1f} %" for each in quality["coverage"].values()]
    from murho.model.evaluation.summary import significant

    numbers = [quality["crps"], quality["bias"], quality["width"]["90"]]
    return [title, str(quality["n"]), *shares, *map(significant, numbers)]
