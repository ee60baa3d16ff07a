"""The command `murho learn`: outcomes with recorded inputs become rows, and an update the next version, if better.

Imports of numpy and torch wait until the command runs.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, replace
from datetime import datetime
from typing import TYPE_CHECKING, Annotated

import typer

from murho.cli.shared import (
    CheckpointsOption,
    DeviceOption,
    JsonOption,
    find_version,
    print_json,
    print_lines,
    say,
)
from murho.model.errors import MurhoError, OptionError

if TYPE_CHECKING:
    from collections.abc import Sequence

    import pyarrow as pa

    from murho.model.checkpoint.posterior import Posterior
    from murho.model.files import JSON
    from murho.service.outcomes.store import Store

JUDGED_SHARE = 0.25
"""Of the outcomes: the newest ones, by which the versions are compared; the new one has not learned from them."""
FEWEST_JUDGED, FEWEST_LEARNED = 30, 20
HOUR = 3600.0


def learn(
    name: str | None,
    store: Annotated[
        str | None, typer.Option(help="The service's store: a file, or postgresql+psycopg://…", envvar="MURHO_STORE")
    ] = None,
    checkpoints: CheckpointsOption = "checkpoints",
    every: Annotated[
        float | None, typer.Option(help="Learn again after so many hours, until stopped: 24 for every night.")
    ] = None,
    device: DeviceOption = "auto",
    json: JsonOption = False,
) -> None:
    """Learn from recorded outcomes; the next version is written only if it is better on the newest ones."""
    if store is None:
        raise OptionError("--store: give the store of the service, a file or postgresql+psycopg://…")
    if every is not None and not every > 0.0:
        raise OptionError(f"--every: expected a number of hours above 0, not {every:g}")
    from murho.service.outcomes.store import Store

    name, opened = find_version(checkpoints, name, None, device)[1].parent.name, Store(store, new=False)
    while True:
        begun = time.time()
        try:
            found = _learn_once(opened, name, checkpoints, device)
        except MurhoError as error:
            if every is None:
                raise
            say(f"error: {error}")
        else:
            if json:
                print_json(found)
            else:
                print_lines(_lines(found))
        if every is None:
            return
        time.sleep(max(0.0, begun + every * HOUR - time.time()))


def _learn_once(store: Store, name: str, checkpoints: str, device: str) -> JSON:
    """Learn once; return what became of it."""
    from murho.model.checkpoint.posterior import Posterior
    from murho.model.runtime import resolve_device

    place, source = find_version(checkpoints, name, None, device)
    place.check_writable(name)
    old = Posterior.load(source)
    rows, unusable = _rows(store, old)
    facts, better = better_version(old, [row.cells for row in rows], resolve_device(device))
    facts = {"name": name, "from_version": old.version, "outcomes": len(rows), "unusable": unusable, **facts}
    if better is None:
        return facts
    last = rows[facts["learned"] - 1]
    records = {
        **better.spec.records,
        "update": {**better.spec.records["update"], "outcomes_until": [last.came, last.id]},
    }
    written = place.write(name, better.with_spec(replace(better.spec, records=records)))
    return facts | {"version": str(written.version)}


def better_version(old: Posterior, rows: Sequence[JSON], device: str) -> tuple[JSON, Posterior | None]:
    """Return what a version becomes by labelled rows in time, if that is better on the newest; and what became of it.

    Args:
        old: The version.
        rows: Cells by name, with the target.
        device: Device of the fit.
    """
    from murho.model.evaluation.judging import evaluate_table
    from murho.model.python.terminal_reporter import TerminalReporter
    from murho.model.training.options import UpdateOptions
    from murho.model.training.revisions import labelled_rows
    from murho.model.training.updating import update

    judged = max(FEWEST_JUDGED, int(JUDGED_SHARE * len(rows)))
    if len(rows) < judged + FEWEST_LEARNED:
        needed = FEWEST_JUDGED + FEWEST_LEARNED
        why = f"{len(rows)} new outcomes with recorded inputs are too few: it takes {needed}"
        return {"taken": False, "why": why}, None
    learned, newest = (_table(part, old) for part in (rows[:-judged], rows[-judged:]))
    with TerminalReporter() as reporter:
        revised = update(old, labelled_rows(learned, old), UpdateOptions(), reporter=reporter, device=device)
    score = "crps" if old.schema.target.classes is None else "log_loss"
    before, after = (evaluate_table(each, newest)[score] for each in (old, revised.posterior))
    facts = {
        "learned": len(rows) - judged,
        "judged": judged,
        "score": score,
        "before": before,
        "after": after,
        "kl": revised.facts["kl"],
        "moved": revised.facts["moved"],
    }
    if after < before:
        return facts | {"taken": True}, revised.posterior
    why = f"version {old.version} is no worse on the newest {judged} outcomes"
    return facts | {"taken": False, "why": why}, None


@dataclass(frozen=True, slots=True)
class _Row:
    """One outcome: when it came, and its id, which order outcomes; and the row."""

    came: float
    id: str
    cells: JSON


def _since(old: Posterior) -> tuple[float, str]:
    """When the last outcome came that a version has learned from, in seconds since 1970, and its id."""
    known = old.spec.records.get("update", {}).get("outcomes_until")
    if known is not None:
        return float(known[0]), str(known[1])
    return 0.0 if old.spec.created is None else datetime.fromisoformat(old.spec.created).timestamp(), ""


def _rows(store: Store, old: Posterior) -> tuple[list[_Row], int]:
    """Return the outcomes that a version has not learned from, in order, and how many can't be used.

    A cell may be missing where training rows had missing ones: elsewhere the network has no input for it.
    """
    import orjson

    features, target, since = old.schema.features, old.schema.target, _since(old)
    found: list[_Row] = []
    unusable = 0
    for pair in store.pairs(old.name, since=since[0]):
        if (pair.came, pair.id) <= since:
            continue
        cells = {} if pair.inputs is None else orjson.loads(pair.inputs)
        fits = all(each.name in cells and (each.missing or cells[each.name] is not None) for each in features)
        if fits and isinstance(pair.value, str) == (target.classes is not None):
            kept = {each.name: cells[each.name] for each in features}
            found.append(_Row(pair.came, pair.id, {**kept, target.name: pair.value}))
        else:
            unusable += 1
    return found, unusable


def _table(rows: Sequence[JSON], old: Posterior) -> pa.Table:
    """Return the rows as a table; categories are texts, also where all cells of a column are missing."""
    import pyarrow as pa

    from murho.model.tables.schema import FeatureKind

    kinds = {FeatureKind.NUMERIC: pa.float64(), FeatureKind.BOOLEAN: pa.bool_()}
    fields = [(each.name, kinds.get(each.kind, pa.string())) for each in old.schema.features]
    fields.append((old.schema.target.name, pa.float64() if old.schema.target.classes is None else pa.string()))
    return pa.Table.from_pylist(list(rows), pa.schema(fields))


def _lines(found: JSON) -> list[str]:
    lines = [f"{found['name']} version {found['from_version']}: {found['outcomes']:,} new outcomes with inputs"]
    if found["unusable"]:
        lines.append(f"{found['unusable']:,} more can't be used: their inputs were not recorded, or lack a feature")
    if "learned" in found:
        lines += [
            f"learned from {found['learned']:,} of them; the posterior moved by {found['kl']:,.1f} nats, "
            f"{100 * found['moved']:.1f} % of the weights by more than one of their old sigma",
            f"on the newest {found['judged']:,}: {found['score']} {found['before']:.4g} before, "
            f"{found['after']:.4g} now",
        ]
    return [*lines, f"saved version {found['version']}" if found["taken"] else f"nothing is changed: {found['why']}"]
