"""The command `murho learn`: outcomes with recorded inputs become rows, and an update the next version, if better.

Imports of numpy and torch wait until the command runs.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, replace
from datetime import datetime
from typing import TYPE_CHECKING, Annotated, Any

import typer

from murho.cli.shared import (
    CheckpointsOption,
    DeviceOption,
    JsonOption,
    NameArgument,
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
    from murho.model.checkpoint.stores import CheckpointStore
    from murho.service.outcomes.store import Store

__all__ = ["learn"]

JUDGED_SHARE = 0.25
"""Of the outcomes: the newest ones, by which the versions are compared; the new one has not learned from them."""
FEWEST_JUDGED, FEWEST_LEARNED = 30, 20
HOUR = 3600.0


def learn(
    name: NameArgument,
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

    name, opened = find_version(checkpoints, name, None, device)[1].parent.name, Store(store)
    while True:
        begun = time.time()
        try:
            found = _learned(opened, name, checkpoints, device)
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


def _learned(store: Store, name: str, checkpoints: str, device: str) -> dict[str, Any]:
    """Learns once; returns what became of it."""
    from murho.model.checkpoint.posterior import Posterior
    from murho.model.evaluation.judging import evaluate_table
    from murho.model.python.progress import TerminalReporter
    from murho.model.runtime import resolve_device, use_threads_for_fitting
    from murho.model.training.options import UpdateOptions
    from murho.model.training.revisions import labelled_rows
    from murho.model.training.updating import update

    place, source = find_version(checkpoints, name, None, device)
    place.check_writable(name)
    old, resolved = Posterior.load(source), resolve_device(device)
    facts: dict[str, Any] = {"name": name, "from_version": old.version}
    rows, unusable = _rows(store, old)
    judged = max(FEWEST_JUDGED, int(JUDGED_SHARE * len(rows)))
    facts |= {"outcomes": len(rows), "unusable": unusable}
    if len(rows) < judged + FEWEST_LEARNED:
        needed = FEWEST_JUDGED + FEWEST_LEARNED
        why = f"{len(rows)} new outcomes with recorded inputs are too few: it takes {needed}"
        return facts | {"taken": False, "why": why}
    learned, newest = (_table(part, old) for part in (rows[:-judged], rows[-judged:]))
    with use_threads_for_fitting(resolved), TerminalReporter() as reporter:
        revised = update(old, labelled_rows(learned, old), UpdateOptions(), reporter=reporter, device=resolved)
    score = "crps" if old.schema.target.classes is None else "log_loss"
    before, after = (evaluate_table(each, newest) for each in (old, revised.posterior))
    facts |= {
        "learned": len(rows) - judged,
        "judged": judged,
        "score": score,
        "before": before[score],
        "after": after[score],
        "kl": revised.facts["kl"],
        "moved": revised.facts["moved"],
    }
    if not after[score] < before[score]:
        return facts | {"taken": False, "why": f"version {old.version} is no worse on the newest {judged} outcomes"}
    return facts | {"taken": True, "version": _written(place, name, revised.posterior, rows[-judged - 1])}


@dataclass(frozen=True, slots=True)
class _Row:
    """One outcome: when it came, and its id, which order outcomes; and the row."""

    came: float
    id: str
    cells: dict[str, Any]


def _since(old: Posterior) -> tuple[float, str]:
    """When the last outcome came that a version has learned from, in seconds since 1970, and its id."""
    known = old.spec.records.get("update", {}).get("outcomes_until")
    if known is not None:
        return float(known[0]), str(known[1])
    return 0.0 if old.spec.created is None else datetime.fromisoformat(old.spec.created).timestamp(), ""


def _rows(store: Store, old: Posterior) -> tuple[list[_Row], int]:
    """The outcomes that a version has not learned from, in the order in which they came; and how many can't be used.

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


def _table(rows: Sequence[_Row], old: Posterior) -> pa.Table:
    """The rows as a table; categories are texts, also where all cells of a column are missing."""
    import pyarrow as pa

    from murho.model.tables.schema import FeatureKind

    kinds = {FeatureKind.NUMERIC: pa.float64(), FeatureKind.BOOLEAN: pa.bool_()}
    fields = [(each.name, kinds.get(each.kind, pa.string())) for each in old.schema.features]
    fields.append((old.schema.target.name, pa.float64() if old.schema.target.classes is None else pa.string()))
    return pa.Table.from_pylist([row.cells for row in rows], pa.schema(fields))


def _written(place: CheckpointStore, name: str, new: Posterior, last: _Row) -> str:
    """Writes the version, with the last outcome that it has learned from; returns its number."""
    records = {**new.spec.records, "update": {**new.spec.records["update"], "outcomes_until": [last.came, last.id]}}
    return str(place.write(name, replace(new.spec, records=records), new.tensors).version)


def _lines(found: dict[str, Any]) -> list[str]:
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
