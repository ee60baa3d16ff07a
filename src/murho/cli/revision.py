"""The end of `murho update` and `murho prune`: the version written, what changed, and how both versions score."""

from __future__ import annotations

from typing import TYPE_CHECKING

from murho.cli.shared import print_lines, print_written, report_or_warning
from murho.model.evaluation.summary import summary

if TYPE_CHECKING:
    from pathlib import Path

    from murho.model.checkpoint.stores import CheckpointStore
    from murho.model.training.revisions import LabelledRows, Revised


def finish_revision(
    store: CheckpointStore,
    source: Path,
    revised: Revised,
    rows: LabelledRows | None,
    *,
    report: bool,
    report_rows: bool,
    json: bool,
) -> None:
    """Write the next version of a checkpoint, and print what was written.

    Args:
        store: The place of checkpoints.
        source: The version that it was made from.
        revised: The new version.
        rows: The labelled rows that it was judged by; None: there were none.
        report: Whether to draw a report.
        report_rows: Whether it shows rows.
        json: Whether to print one JSON object instead of lines.
    """
    from murho.model.report.reports import revision_report

    name, spec, extras = source.parent.name, revised.posterior.spec, {}
    if report:
        extras = report_or_warning(lambda: revision_report(name, revised, rows, with_rows=report_rows))
    made = store.write(name, revised.posterior, extras=extras)
    if json:
        print_written(made, **{revised.kind: revised.facts}, metrics=spec.metrics)
        return
    interrupted = " (interrupted)" if revised.facts.get("interrupted") else ""
    where = [] if made.report is None else [f"report: {made.report}"]
    print_lines([*_lines(revised), f"saved {made.address}{interrupted}", *where])


def _lines(revised: Revised) -> list[str]:
    """Return what changed, the scores before and after, and what calibrates."""
    facts, spec, before, after = revised.facts, revised.posterior.spec, revised.before, revised.after
    version, unit, updated = facts["from_version"], spec.schema.target.unit, revised.kind == "update"
    if updated:
        lines = [
            f"learned {facts['learned_rows']:,} new rows on top of the "
            f"{facts['total_rows'] - facts['learned_rows']:,} of version {version}, in {facts['seconds']:.1f} s",
            f"the posterior moved by {facts['kl']:,.1f} nats (KL from the one before, mean over members); "
            f"{100 * facts['moved']:.1f} % of the weights by more than one of their old sigma",
        ]
    else:
        lines = [
            f"removed {facts['removed']:,} of {facts['weights'] - facts['held']:,} weights of version {version}: those "
            f"with |mu|/sigma up to {facts['threshold']:.3g}"
        ]
        if facts["held"]:
            lines.append(
                f"held {facts['held']:,} more, of inputs that are zero for every training row: "
                "the epistemic uncertainty beyond the training range"
            )
    pooled = 0
    if before is not None and after is not None:
        (_, old, *_), (_, new, *more) = summary(before, unit), summary(after, unit)
        told = [(f"on {after['n']:,} rows", ""), (f"version {version}", old), ("now", new)]
        lines += ["", *(f"{title:<14}{scores}".rstrip() for title, scores in told), *more]
        losses, pooled = ("log_loss", "brier") if "log_loss" in after else ("nll", "crps"), after["n"]
        if updated and not facts["held_out"]:
            lines.append("(now: on the rows just learned from, so better than new rows would show)")
        elif updated and all(after[score] > before[score] for score in losses):
            lines.append(f"both are worse than before: version {version} may be the one to serve")
    rows = 0 if spec.calibration is None else spec.calibration.rows
    whole = "" if updated else ", which had all its weights; --data FILE with 50 labelled rows or more calibrates anew"
    said = {
        "made": f"calibrated anew on {rows:,} rows",
        "pooled": f"calibrated on {pooled:,} new rows and the {rows - pooled:,} of version {version}",
        "kept": f"calibrated as in version {version}{whole}",
    }
    what = "bands" if spec.schema.target.classes is None else "probabilities and sets"
    return [*lines, "", f"{what} {said.get(facts['calibration'], 'are not calibrated')}"]
