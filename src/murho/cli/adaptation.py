"""The command `murho adaptation`: shows how bands have followed outcomes, and takes up an earlier state of them."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated, Any

import typer

from murho.cli.shared import JsonOption, print_json, print_lines, require_name, table_lines

if TYPE_CHECKING:
    from murho.service.outcomes.types import State

SHOWN = 20


def adaptation(
    name: str | None,
    store: Annotated[str, typer.Option(help="The service's store: a file, or postgresql+psycopg://…")],
    version: Annotated[str | None, typer.Option(help="Its version.  [default: the latest in the store]")] = None,
    back_to: Annotated[
        int | None, typer.Option(help="Take up this state again; 0: the checkpoint's own bands.", min=0)
    ] = None,
    json: JsonOption = False,
) -> None:
    """Show the states of a model's bands that have followed outcomes; or go back to one, in all workers at once."""
    from murho.model.errors import OptionError
    from murho.service.outcomes.adaptation import ADAPTATION, take_up
    from murho.service.outcomes.store import Store

    name, opened = require_name(name), Store(store, new=False)
    try:
        versions = list(opened.facts(name))
        if version is None and not versions:
            raise OptionError(f"the store has no prediction of a model {name!r}")
        version = version or max(versions, key=lambda each: (each.isdecimal(), int(each) if each.isdecimal() else 0))
        if back_to is not None:
            take_up(opened, name, version, back_to)
        states = [_describe(state) for state in opened.states(name, version, ADAPTATION)]
    finally:
        opened.close()
    if json:
        print_json({"name": name, "version": version, "states": states})
        return
    if not states:
        print_lines([f"the bands of {name}/{version} are the checkpoint's: no outcome has moved them"])
        return
    rows = [("STATE", "SINCE", "OUTCOMES", "90 % BAND, IN NORMAL SCORES")]
    for state in states[:SHOWN]:
        band = state["band"]
        shown = "the checkpoint's" if band is None else f"{band[0]:.2f} to {band[1]:.2f}  (untouched: -1.64 to 1.64)"
        rows.append((str(state["state"]), state["since"], f"{state['outcomes']:,}", shown))
    print_lines([*table_lines(rows), *([f"and {len(states) - SHOWN} earlier ones"] if len(states) > SHOWN else [])])


def _describe(state: State) -> dict[str, Any]:
    """Return what there is to say of a state."""
    import torch

    from murho.service.outcomes.adaptation import state_of

    found = state_of(state.document)
    moved = None if found is None else found.drift_map
    levels = torch.special.ndtri(torch.tensor([0.05, 0.95], dtype=torch.float64))
    return {
        "state": state.number,
        "since": datetime.fromtimestamp(state.at, UTC).isoformat(timespec="seconds"),
        "outcomes": 0 if found is None else found.outcomes,
        "method": None if found is None else found.method,
        "band": None if moved is None else moved.calibrate(levels).tolist(),
    }
