"""The results of `murho prune` and `murho update` as text: what changed, and how both versions score."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

from murho.cli.shared import table_lines
from murho.model.evaluation.summary import per_cent

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from murho.model.checkpoint.stores import CheckpointStore, WrittenVersion
    from murho.model.training.pruning import Cut, Pruned
    from murho.model.training.revisions import Revision
    from murho.model.training.updating import PosteriorShift, Updated

__all__ = [
    "histogram_lines",
    "pruned_lines",
    "report_line",
    "updated_lines",
    "write_revision",
]


def write_revision(
    store: CheckpointStore,
    name: str,
    written: Revision,
    report: Callable[[], dict[str, bytes]] | None,
) -> WrittenVersion:
    """Write the next version of a checkpoint; returns what was written.

    A report that can't be made is a warning: it must never cost the version.

    Args:
        store: The place of checkpoints.
        name: Name of the checkpoint.
        written: The version.
        report: Makes the files of the report, by path; None: without a report.
    """
    extras: dict[str, bytes] = {}
    if report is not None:
        try:
            extras = report()
        except Exception as error:
            sys.stderr.write(f"warning: the report could not be made: {type(error).__name__}: {error}\n")
    return store.write(name, written.spec, written.tensors, extras=extras)


def report_line(made: WrittenVersion) -> list[str]:
    """The line that says where the report is; none without a report."""
    return [] if made.report is None else [f"report: {made.report}"]


BAR = 40
"""Characters of the longest bar."""
REMOVED, KEPT = "·", "█"
BINS_PER_LINE = 4


def pruned_lines(pruned: Pruned, unit: str | None) -> list[str]:
    """The removed weights, by layer and by signal-to-noise ratio, and the scores before and after."""
    cut, version = pruned.cut, pruned.revision.spec.records["pruning"]["from_version"]
    what = _calibrated_thing(pruned.revision)
    free = cut.total("weights") - cut.total("held")
    lines = [
        f"removed {cut.total('removed'):,} of {free:,} weights of version {version}: "
        f"those with |mu|/sigma up to {cut.threshold:.3g}"
    ]
    if cut.total("held"):
        lines.append(
            f"held {cut.total('held'):,} more, of inputs that are zero for every training row: "
            "the epistemic uncertainty beyond the training range"
        )
    rows = [
        [layer.name, f"{layer.weights:,}", f"{layer.held:,}", f"{layer.removed:,}", f"{layer.kept:,}"]
        for layer in cut.layers
    ]
    lines += ["", *table_lines([("layer", "weights", "held", "removed", "kept"), *rows]), ""]
    lines += [*histogram_lines(cut), ""]
    if pruned.before is not None and pruned.after is not None:
        lines += [*_comparison(pruned.before, pruned.after, version, unit), ""]
    match pruned.calibration:
        case "made anew":
            lines.append(f"{what} calibrated anew on {pruned.revision.spec.records['pruning']['rows']} rows")
        case "kept":
            lines.append(
                f"{what} calibrated as in version {version}, which had all its weights; "
                "--data FILE with 50 labelled rows or more calibrates them anew"
            )
        case _:
            lines.append(f"{what} are not calibrated")
    return lines


def histogram_lines(cut: Cut) -> list[str]:
    """Histogram of the weights that are not held, by signal-to-noise ratio, in half powers of ten."""
    edges = cut.to_json()["histogram"]["edges"]
    starts = range(0, len(cut.removed), BINS_PER_LINE)
    removed = [sum(cut.removed[start : start + BINS_PER_LINE]) for start in starts]
    kept = [sum(cut.kept[start : start + BINS_PER_LINE]) for start in starts]
    longest = max(gone + left for gone, left in zip(removed, kept, strict=True))
    lines = [f"|mu|/sigma        weights ({REMOVED} removed, {KEPT} kept)"]
    for start, gone, left in zip(starts, removed, kept, strict=True):
        lower, upper = edges[start], edges[start + BINS_PER_LINE]
        if start == 0:
            label = f"below {upper:.2g}"
        elif start + BINS_PER_LINE == len(cut.removed):
            label = f"above {lower:.2g}"
        else:
            label = f"{lower:.2g} to {upper:.2g}"
        whole = _width(gone + left, longest)
        dots = min(_width(gone, longest), whole - bool(left))
        bar = REMOVED * dots + KEPT * (whole - dots)
        lines.append(f"{label:<16}  {bar} {gone + left:,}".rstrip() if whole else f"{label:<16}  0")
    return lines


def updated_lines(updated: Updated, unit: str | None) -> list[str]:
    """The shift of the posterior, and the scores on the new rows before and after."""
    facts = updated.revision.spec.records["update"]
    version, what = facts["from_version"], _calibrated_thing(updated.revision)
    learned = facts["learned_rows"]
    lines = [
        f"learned {learned:,} new rows on top of the {facts['total_rows'] - learned:,} of version {version}, "
        f"in {facts['seconds']:.1f} s",
        *_shift(updated.shift),
        "",
        *_comparison(updated.before, updated.after, version, unit),
    ]
    if updated.held_out:
        lines.append(_scored_by(updated.after))
        if all(updated.after[score] > updated.before[score] for score in _two_losses(updated.after)):
            lines.append(f"both are worse than before: version {version} may be the one to serve")
    else:
        lines.append("(after: on the rows just learned from, so better than new rows would show)")
    conformal = updated.revision.spec.calibration
    if updated.calibration == "made" and conformal is not None:
        lines.append(f"{what} calibrated on {conformal.rows} new rows")
    elif updated.calibration == "pooled" and conformal is not None:
        new = updated.after["n"]
        lines.append(f"{what} calibrated on {new:,} new rows and the {conformal.rows - new:,} of version {version}")
    elif updated.calibration == "kept":
        lines.append(f"{what} calibrated as in version {version}")
    else:
        lines.append(f"{what} are not calibrated")
    return lines


def _calibrated_thing(revision: Revision) -> str:
    return "bands" if revision.spec.schema.target.classes is None else "probabilities and sets"


def _two_losses(report: Mapping[str, Any]) -> tuple[str, str]:
    return ("log_loss", "brier") if "log_loss" in report else ("nll", "crps")


def _scored_by(report: Mapping[str, Any]) -> str:
    members = report["all_members"]
    if "log_loss" in report and report["members"] < members:
        judges = report["members"]
        who = "a single member that has" if judges == 1 else f"the {judges} of {members} members that have"
        return f"(scores of {who} not learned the row)"
    if members == 1:
        return "(judged on new rows that were held out)"
    return "(what all members would score, estimated from those that have not learned the row)"


def _shift(shift: PosteriorShift) -> list[str]:
    rows = [[layer.name, f"{layer.shift:.3f}", f"{100 * layer.moved:.1f} %"] for layer in shift.layers]
    return [
        f"the posterior moved by {shift.kl:,.1f} nats (KL from the one before, mean over members); "
        f"{100 * shift.moved:.1f} % of the weights by more than one of their old sigma",
        "",
        *table_lines([("layer", "mean |shift| / sigma", "beyond one sigma"), *rows]),
    ]


def _comparison(before: Mapping[str, Any], after: Mapping[str, Any], version: str, unit: str | None) -> list[str]:
    """The scores of both versions, a line each."""
    of_classes, suffix = "log_loss" in after, f" ({unit})" if unit else ""
    heads = ["NLL (nats)", f"CRPS{suffix}", f"RMSE{suffix}", "90 % bands cover"]
    if of_classes:
        heads = ["log loss (nats)", "Brier score", "accuracy", "in 90 % set", "classes in it"]
    told = _of_classes if of_classes else _of_numbers
    rows = [[label, *told(scores)] for label, scores in ((f"version {version}", before), ("now", after))]
    return table_lines([[f"on {after['n']:,} rows", *heads], *rows])


def _of_numbers(scores: Mapping[str, Any]) -> list[str]:
    coverage = [
        f"{per_cent(scores[kind]['coverage']['90'])} {kind}" for kind in ("raw", "calibrated") if scores.get(kind)
    ]
    return [f"{scores['nll']:.3f}", f"{scores['crps']:.4g}", f"{scores['rmse']:.4g}", ", ".join(coverage)]


def _of_classes(scores: Mapping[str, Any]) -> list[str]:
    sets = scores.get("sets")
    held = [per_cent(sets["coverage"]["90"]), f"{sets['size']['90']:.2f}"] if sets else ["", ""]
    return [f"{scores['log_loss']:.4f}", f"{scores['brier']:.4f}", per_cent(scores["accuracy"]), *held]


def _width(count: int, longest: int) -> int:
    """Characters of a bar; at least one unless the count is 0."""
    return max(1, round(BAR * count / longest)) if count else 0
