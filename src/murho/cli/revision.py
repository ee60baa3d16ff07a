"""The end of `murho update` and `murho prune`: the version written, what changed, and how both versions score."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from murho.cli.shared import print_lines, print_written, report_or_warning, table_lines
from murho.model.evaluation.summary import summary

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

    from murho.model.checkpoint.posterior import Posterior
    from murho.model.checkpoint.stores import CheckpointStore
    from murho.model.training.pruning import Pruned
    from murho.model.training.updating import Updated

__all__ = [
    "finish_revision",
    "pruned_lines",
    "updated_lines",
]


def finish_revision(
    store: CheckpointStore,
    source: Path,
    posterior: Posterior,
    record: str,
    lines: list[str],
    report: Callable[[dict[str, Any]], dict[str, bytes]] | None,
    *,
    json: bool,
) -> None:
    """Write the next version of a checkpoint, and print what was written.

    Args:
        store: The place of checkpoints.
        source: The version that it was made from.
        posterior: The new version.
        record: Key of the facts about the revision: ``pruning`` or ``update``.
        lines: What changed, for people.
        report: Makes the files of the report from the facts of the source; None: without a report.
        json: Whether to print one JSON object instead of the lines.
    """
    from murho.model.report.facts import report_facts

    extras = {} if report is None else report_or_warning(lambda: report(report_facts(source)))
    made = store.write(source.parent.name, posterior.spec, posterior.tensors, extras=extras)
    facts = posterior.spec.records[record]
    if json:
        print_written(made, **{record: facts}, metrics=posterior.spec.metrics)
        return
    interrupted = " (interrupted)" if facts.get("interrupted") else ""
    where = [] if made.report is None else [f"report: {made.report}"]
    print_lines([*lines, f"saved {made.address}{interrupted}", *where])


def pruned_lines(pruned: Pruned) -> list[str]:
    """The removed weights, by layer, and the scores before and after."""
    cut, facts, what = pruned.cut, pruned.posterior.spec.records["pruning"], _calibrated_thing(pruned.posterior)
    lines = [
        f"removed {cut.removed:,} of {cut.weights - cut.held:,} weights of version "
        f"{facts['from_version']}: those with |mu|/sigma up to {cut.threshold:.3g}"
    ]
    if cut.held:
        lines.append(
            f"held {cut.held:,} more, of inputs that are zero for every training row: "
            "the epistemic uncertainty beyond the training range"
        )
    counts = ("weights", "held", "removed", "kept")
    rows = [[layer.name, *(f"{getattr(layer, count):,}" for count in counts)] for layer in cut.layers]
    lines += ["", *table_lines([("layer", *counts), *rows]), ""]
    if pruned.before is not None and pruned.after is not None:
        lines += [*_comparison(pruned.posterior, pruned.before, pruned.after, facts["from_version"]), ""]
    said = {
        "made anew": f"calibrated anew on {facts.get('rows')} rows",
        "kept": f"calibrated as in version {facts['from_version']}, which had all its weights; --data FILE with 50 "
        "labelled rows or more calibrates them anew",
    }
    return [*lines, f"{what} {said.get(pruned.calibration, 'are not calibrated')}"]


def updated_lines(updated: Updated) -> list[str]:
    """The shift of the posterior, and the scores on the new rows before and after."""
    facts, shift, after = updated.posterior.spec.records["update"], updated.shift, updated.after
    version, learned, conformal = facts["from_version"], facts["learned_rows"], updated.posterior.spec.calibration
    rows = [[layer.name, f"{layer.shift:.3f}", f"{100 * layer.moved:.1f} %"] for layer in shift.layers]
    lines = [
        f"learned {learned:,} new rows on top of the {facts['total_rows'] - learned:,} of version {version}, "
        f"in {facts['seconds']:.1f} s",
        f"the posterior moved by {shift.kl:,.1f} nats (KL from the one before, mean over members); "
        f"{100 * shift.moved:.1f} % of the weights by more than one of their old sigma",
        "",
        *table_lines([("layer", "mean |shift| / sigma", "beyond one sigma"), *rows]),
        "",
        *_comparison(updated.posterior, updated.before, after, version),
    ]
    if not updated.held_out:
        lines.append("(after: on the rows just learned from, so better than new rows would show)")
    losses = ("log_loss", "brier") if "log_loss" in after else ("nll", "crps")
    if updated.held_out and all(after[score] > updated.before[score] for score in losses):
        lines.append(f"both are worse than before: version {version} may be the one to serve")
    judged = 0 if conformal is None else conformal.rows
    said = {
        "made": f"calibrated on {judged} new rows",
        "pooled": f"calibrated on {after['n']:,} new rows and the {judged - after['n']:,} of version {version}",
        "kept": f"calibrated as in version {version}",
    }
    return [*lines, f"{_calibrated_thing(updated.posterior)} {said.get(updated.calibration, 'are not calibrated')}"]


def _calibrated_thing(posterior: Posterior) -> str:
    return "bands" if posterior.spec.schema.target.classes is None else "probabilities and sets"


def _comparison(posterior: Posterior, before: Mapping[str, Any], after: Mapping[str, Any], version: str) -> list[str]:
    """The scores of both versions, then what more there is to tell of the new one."""
    unit = posterior.spec.schema.target.unit
    (old, *_), (new, *more) = summary(before, unit), summary(after, unit)
    rows = [(f"on {after['n']:,} rows", ""), (f"version {version}", old), ("now", new)]
    return [*(f"{title:<14}{scores}".rstrip() for title, scores in rows), *more]
