"""The page of a report: one HTML file with everything in it, which asks nothing of a network."""

from __future__ import annotations

import re
from dataclasses import dataclass
from html import escape
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, Self

from murho.model.evaluation.metrics import plus_minus
from murho.model.report.changes import (
    Markup,
    bars,
    changes_section,
    facts_list,
    number,
    percent,
    revision_line,
    table,
    text,
)
from murho.model.report.chart_style import COLOURS, PAPER, named
from murho.model.report.charts import charts
from murho.model.report.training_charts import candidate_name

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from murho.model.report.charts import Chart

__all__ = [
    "HOW_TO_GET_CHARTS",
    "STYLE",
    "Drawing",
    "can_draw",
    "class_cards",
    "class_rows",
    "class_scores_tables",
    "class_target",
    "draw",
    "html_page",
]


STYLE = """
:root { color-scheme: light dark;
  --ink: #1f2a37; --muted: #5b6675; --rule: #e3e7ec; --paper: #ffffff; --panel: #f6f8fa;
  --blue: #1862b0; --orange: #c8590d; --grey: #98a2ae; --band: #cfe0f4; }
@media (prefers-color-scheme: dark) { :root {
  --ink: #e4e8ed; --muted: #a3adb9; --rule: #303944; --paper: #14191f; --panel: #1c232b;
  --blue: #6bb0f5; --orange: #f2995a; --grey: #77828f; --band: #24415f; } }
* { box-sizing: border-box; }
body { margin: 0; background: var(--paper); color: var(--ink);
  font: 16px/1.5 system-ui, -apple-system, "Segoe UI", "DejaVu Sans", sans-serif; }
main { max-width: 860px; margin: 0 auto; padding: 32px 20px 64px; }
h1 { font-size: 28px; line-height: 1.2; margin: 0 0 4px; }
h2 { font-size: 21px; margin: 52px 0 8px; padding-top: 18px; border-top: 1px solid var(--rule); }
h3 { font-size: 16.5px; margin: 34px 0 2px; }
p { margin: 6px 0 12px; max-width: 72ch; }
.muted, figcaption { color: var(--muted); }
figure { margin: 0; }
figcaption { max-width: 76ch; margin: 2px 0 12px; font-size: 15px; }
figure svg { display: block; max-width: 100%; height: auto; }
.cards { display: grid; grid-template-columns: repeat(auto-fit, minmax(148px, 1fr)); gap: 12px; margin: 20px 0 12px; }
.card { background: var(--panel); border-radius: 8px; padding: 10px 14px; }
.card b { display: block; font-size: 23px; font-weight: 600; line-height: 1.3; }
.card small { font-size: 14px; font-weight: 400; color: var(--muted); white-space: nowrap; }
.card span { color: var(--muted); font-size: 14px; }
.note { border-left: 3px solid var(--orange); padding: 2px 0 2px 14px; margin: 14px 0; }
.wide { overflow-x: auto; margin: 12px 0 20px; }
table { border-collapse: collapse; font-size: 14.5px; min-width: 60%; }
th, td { text-align: left; padding: 5px 18px 5px 0; border-bottom: 1px solid var(--rule); vertical-align: top; }
th { color: var(--muted); font-weight: 500; white-space: nowrap; }
.number { text-align: right; font-variant-numeric: tabular-nums; white-space: nowrap; }
.bars { width: 120px; height: 24px; display: block; fill: var(--blue); }
dl { display: grid; grid-template-columns: minmax(150px, max-content) 1fr; gap: 4px 22px; font-size: 15px; }
dt { color: var(--muted); } dd { margin: 0; overflow-wrap: anywhere; }
nav { display: flex; flex-wrap: wrap; gap: 4px 16px; } a { color: var(--blue); }
footer { margin-top: 56px; color: var(--muted); font-size: 14px; }
@media print { h2 { break-after: avoid; } figure, table { break-inside: avoid; } nav { display: none; } }
"""


TITLES = {
    "accuracy": "accuracy",
    "log_loss": "log loss (nats)",
    "brier": "Brier score",
    "auc": "AUC",
    "ece": "calibration error (ECE)",
}


def class_cards(scores: Mapping[str, Any]) -> list[tuple[str, str | None]]:
    """Title and value of the headline numbers."""
    errors = scores.get("standard_errors", {})

    def shown(key: str) -> str | None:
        return None if scores.get(key) is None else plus_minus(scores[key], errors.get(key))

    sets = scores.get("sets")
    covered = None if not sets else f"{100.0 * sets['coverage']['90']:.1f} %"
    size = None if not sets else f"{sets['size']['90']:.3g}"
    return [
        ("accuracy", shown("accuracy")),
        ("log loss (nats), lower is better", shown("log_loss")),
        ("Brier score, lower is better", shown("brier")),
        ("AUC", shown("auc")),
        ("of rows are in their 90 % prediction set", covered),
        ("classes in such a set, on average", size),
    ]


def class_rows(facts: Mapping[str, Any], rows: Mapping[str, Any]) -> str:
    """The rows whose own class was given the least probability."""
    features = [feature["name"] for feature in facts["table"]["features"]]
    cells = [
        [
            row["row"],
            row["observed"],
            percent(row["probability"], 2 if row["probability"] < 0.01 else 1),
            row["predicted"],
            percent(row["certainty"]),
            *(row["cells"][feature] for feature in features),
        ]
        for row in rows["surprising"]
    ]
    heads = ["row", "observed", "its probability", "predicted", "its probability", *features]
    return (
        "<h3>The most surprising rows</h3><p class='muted'>Rows of your table whose own class was given the least "
        "probability. Those at the top deserve a look: a wrong label, a typing error, or something that the features "
        "do not tell.</p>" + table(heads, cells, texts=0)
    )


def class_target(facts: Mapping[str, Any]) -> str:
    """The classes of the target, with their rows."""
    target = facts["target"]
    counts = target.get("counts")
    if counts is None:
        return f"<p>The target, {text(target['name'])}, has {len(target['classes'])} classes.</p>"
    rows = [[name, f"{count:,}"] for name, count in zip(target["classes"], counts, strict=True)]
    shown = bars(counts, f"rows of each class of {target['name']}")
    listed = table(["class", "rows"], rows)
    return (
        f"<p>The target, {text(target['name'])}, has {len(counts)} classes.</p>{shown}"
        f"<details><summary>Rows of each class</summary>{listed}</details>"
    )


def class_scores_tables(facts: Mapping[str, Any]) -> list[str]:
    """Tables of the scores, of the sets, and of each class."""
    scores = facts["scores"]
    kinds = [kind for kind in ("calibrated", "raw") if scores.get(kind)]
    rows: list[list[object]] = []
    for key, title in TITLES.items():
        values = [scores[kind].get(key) for kind in kinds]
        if any(value is not None for value in values):
            rows.append([title, *(number(value) for value in values)])
    parts: list[str] = ["<h3>Scores</h3>", table(["score", *kinds], rows)]
    if scores.get("sets"):
        sets = scores["sets"]
        heads = ["prediction set", "holds the class", "mean size"]
        lines = [
            [f"{name} %", percent(share), number(sets["size"][name], 3)] for name, share in sets["coverage"].items()
        ]
        parts += ["<h3>Prediction sets</h3>", table(heads, lines)]
    held_out = facts["held_out"]
    if held_out is not None:
        lines = [
            [name, f"{part['n']:,}", percent(part["recall"]), percent(part["precision"])]
            for name, part in held_out["by_class"].items()
        ]
        listed: Markup = table(["class", "rows", "recall", "precision"], lines)
        parts += ["<h3>By class</h3>", listed]
    return parts


HOW_TO_GET_CHARTS = "pip install '.[charts]' in a clone of Murho's repository"


def can_draw() -> bool:
    """Whether the package that draws is installed."""
    return find_spec("vl_convert") is not None


def draw(facts: Mapping[str, Any], rows: Mapping[str, Any] | None = None) -> list[Drawing]:
    """The charts of a report; none where the extra ``charts`` is missing.

    Args:
        facts: The facts of the report.
        rows: Rows to show; None: no rows.
    """
    return [Drawing.of(chart) for chart in charts(facts, rows)] if can_draw() else []


@dataclass(frozen=True, slots=True)
class Drawing:
    """A chart that was drawn once, for a page and for a file.

    Attributes:
        chart: The chart.
        picture: An SVG document with its colours and its background.
    """

    chart: Chart
    picture: str

    @classmethod
    def of(cls, chart: Chart) -> Self:
        """Draw a chart."""
        import vl_convert

        return cls(chart, vl_convert.vegalite_to_svg(chart.specification))

    def png(self, *, scale: float = 1.5) -> bytes:
        """The picture as a PNG file, with ``scale`` pixels per pixel of the chart."""
        import vl_convert

        picture: bytes = vl_convert.svg_to_png(self.picture, scale=scale)
        return picture

    def element(self) -> str:
        """An SVG element, without background, for a page that defines the variables of `chart_style.COLOURS`."""
        drawn = re.sub(rf'<rect width="[^"]*" height="[^"]*" fill="{PAPER}"/>', "", self.picture, count=1)
        for colour, name in COLOURS.items():
            drawn = drawn.replace(colour, f"var(--{name})")
        label = f'role="img" aria-label="{escape(self.chart.title)}"'
        size = re.search(r'width="([\d.]+)" height="([\d.]+)"', drawn)
        if size is None:
            return drawn.replace("<svg ", f"<svg {label} ", 1)
        return drawn.replace(size[0], f'style="width:{size[1]}px" {label}', 1)  # it shrinks with the page


POLICY = "default-src 'none'; style-src 'unsafe-inline'; img-src data:"


def html_page(
    name: str,
    facts: Mapping[str, Any],
    drawn: Sequence[Drawing],
    rows: Mapping[str, Any] | None = None,
    *,
    source: str | None = None,
) -> str:
    """The whole page.

    Args:
        name: Name of the checkpoint, and its version if it is known.
        facts: The facts of the report.
        drawn: Its charts.
        rows: Rows to show, `model.report.held_out_facts`; None: no rows.
        source: The file of the rows, where they are not the held-out rows of the training.
    """
    target = named(facts["target"]["name"], facts["target"]["unit"])
    uncertainty = "entropy" if "classes" in facts["target"] else "variance"
    changed = "<a href='#changes'>Changes</a>" if facts.get("revision") else ""
    parts = [
        f"<header><h1>{text(name)}</h1><p class='muted'>{text(_subtitle(facts))}</p></header>",
        _summary(facts, source),
        *_warnings(facts),
        f"<nav>{changed}<a href='#predictions'>Predictions</a><a href='#doubt'>Doubt</a>"
        "<a href='#training'>Training</a><a href='#table'>Table</a><a href='#numbers'>Numbers</a></nav>",
        changes_section(facts, "\n".join(_figures(drawn, "changes"))),
        "<h2 id='predictions'>How good are its predictions?</h2>",
        _without_held_out(facts),
        *_figures(drawn, "predictions"),
        _surprising(facts, rows),
        "<h2 id='doubt'>What does it not know?</h2>",
        f"<p>The predicted {uncertainty} has two parts. Noise (aleatoric) is in the data, and stays. Doubt (epistemic) "
        "is what the networks do not agree on, and more rows make it smaller.</p>",
        *_figures(drawn, "doubt"),
        "<h2 id='training'>How was it trained?</h2>",
        *_figures(drawn, "training"),
        _candidates(facts),
        "<h2 id='table'>The table in short</h2>",
        _table(facts),
        "<h2 id='numbers'>Numbers for a model card</h2>",
        _numbers(facts),
    ]
    return (
        "<!doctype html>\n<html lang='en'>\n<head>\n<meta charset='utf-8'>\n"
        f'<meta http-equiv="Content-Security-Policy" content="{POLICY}">\n'
        "<meta name='viewport' content='width=device-width, initial-scale=1'>\n"
        f"<title>{escape(name)}: {escape(target)}</title>\n<style>{STYLE}</style>\n</head>\n<body>\n<main>\n"
        + "\n".join(part for part in parts if part)
        + f"\n<footer>Made by Murho {text(facts['murho'])}. This file needs no network.</footer>\n</main>\n</body>\n"
        "</html>\n"
    )


def _subtitle(facts: Mapping[str, Any]) -> str:
    training, target = facts["training"], named(facts["target"]["name"], facts["target"]["unit"])
    made = "made" if facts.get("revision") else "trained"
    created = "" if facts["created"] is None else f", {made} {facts['created'][:16].replace('T', ' ')} UTC"
    rows = "" if facts["table"]["rows"] is None else f" on {facts['table']['rows']:,} rows"
    members = training["members"]
    networks = "one Bayesian network" if members == 1 else f"a mixture of {members} Bayesian networks"
    return f"Predicts {target}: {networks}{created}{rows}. {revision_line(facts)}".rstrip()


def _summary(facts: Mapping[str, Any], source: str | None) -> str:
    scores, unit = facts["scores"], facts["target"]["unit"]
    if not scores:
        return "<p>The checkpoint has no scores.</p>"
    errors = scores.get("standard_errors", {})
    suffix = f" {unit}" if unit else ""
    if "classes" in facts["target"]:
        return _cards(class_cards(scores), _basis_of(scores, source))
    kind = "calibrated" if scores.get("calibrated") else "raw"
    bands = scores[kind]
    error = errors.get(kind, {}).get("coverage", {}).get("90")
    cover = f"{100 * bands['coverage']['90']:.1f}{f' ± {100 * error:.1f}' if error else ''} %"
    cards: list[tuple[str, str | None]] = [
        ("RMSE of the mean", plus_minus(scores["rmse"], errors.get("rmse")) + suffix),
        ("CRPS, lower is better", plus_minus(scores["crps"], errors.get("crps")) + suffix),
        (f"covered by {kind} 90 % bands", cover),
        ("mean width of these bands", f"{bands['width']['90']:.4g}{suffix}"),
        ("R², explained variance", None if scores.get("r2") is None else f"{scores['r2']:.3f}"),
    ]
    return _cards(cards, _basis_of(scores, source))


def _cards(cards: Sequence[tuple[str, str | None]], basis: str) -> str:
    shown = "".join(
        f"<div class='card'><b>{_large(value)}</b><span>{text(title)}</span></div>" for title, value in cards if value
    )
    return f"<div class='cards'>{shown}</div><p class='muted'>{text(basis)}</p>"


def _basis_of(scores: Mapping[str, Any], source: str | None) -> str:
    if source is not None:
        return f"On the {scores['n']:,} labelled rows of {source}."
    return f"On {scores['n']:,} rows that the networks behind each prediction have not seen. {_basis(scores)}"


def _large(value: str) -> Markup:
    """A number, with its error and unit in smaller type."""
    head, _, tail = value.partition(" ")
    return Markup(f"{escape(head)} <small>{escape(tail)}</small>")


def _basis(scores: Mapping[str, Any]) -> str:
    described, members = scores.get("members"), scores.get("all_members")
    words = "± is one standard error."
    if "judges" in scores:
        judges = scores["judges"]["members"]
        words = f"Estimated for all {members} networks from the {judges} that have not seen a row; {words}"
    elif described is not None and members is not None and described < members:
        words = f"These are the scores of {described} of the {members} networks, which together do better; {words}"
    if (scores.get("calibrated") or {}).get("coverage"):
        words += " The calibrated coverage is near 90 % by construction; murho evaluate on rows kept aside tells more."
    return words


def _warnings(facts: Mapping[str, Any]) -> list[str]:
    notes = [f"Advice: {message}" for message in facts["table"]["advice"] if message]
    if facts["training"]["interrupted"]:
        notes.append("The training was interrupted: this is the best fit up to then.")
    if not can_draw():
        notes.append(f"There are no charts, because the package that draws them is missing: {HOW_TO_GET_CHARTS}.")
    return [f"<p class='note'>{text(note)}</p>" for note in notes]


def _figures(drawn: Sequence[Drawing], section: str) -> list[str]:
    return [
        f"<figure><h3>{text(drawing.chart.title)}</h3><figcaption>{text(drawing.chart.caption)}</figcaption>"
        f"{drawing.element()}</figure>"
        for drawing in drawn
        if drawing.chart.section == section
    ]


def _without_held_out(facts: Mapping[str, Any]) -> str:
    if facts["held_out"] is not None:
        return ""
    return (
        "<p class='note'>This checkpoint keeps no summary of held-out rows. Labelled rows draw these charts: "
        "murho report NAME DATA.</p>"
    )


def _surprising(facts: Mapping[str, Any], rows: Mapping[str, Any] | None) -> str:
    if rows is None or not rows["surprising"]:
        return ""
    if "classes" in facts["target"]:
        return class_rows(facts, rows)
    unit = facts["target"]["unit"]
    features = [feature["name"] for feature in facts["table"]["features"]]
    cells = [
        [
            row["row"],
            number(row["observed"]),
            number(row["predicted"]),
            f"{row['lower']:.4g} to {row['upper']:.4g}",
            f"{row['one_in']:,.0f}" if row["one_in"] < 1e6 else "over a million",
            *(row["cells"][feature] for feature in features),
        ]
        for row in rows["surprising"]
    ]
    heads = ["row", named("observed", unit), "predicted", "90 % band", "one in", *features]
    count = facts["held_out"]["rows"]
    return (
        "<h3>The most surprising rows</h3><p class='muted'>Rows of your table that lie furthest out in their predicted "
        f"distributions: one row in so many should lie as far out. Of {count:,} rows, one is expected at about "
        f"{count:,}; rarer ones deserve a look: a typing error, or something that the features do not tell.</p>"
        + table(heads, cells, texts=0)
    )


def _candidates(facts: Mapping[str, Any]) -> str:
    candidates = facts["training"]["candidates"]
    if not candidates:
        return ""
    rows = [
        [
            place,
            candidate["stage"] + (", kept" if candidate["chosen"] else ""),
            candidate_name(candidate),
            number(candidate["nll"]),
            number(candidate["crps"]),
            None if candidate["seconds"] is None else f"{candidate['seconds']:.1f}",
        ]
        for place, candidate in enumerate(candidates, start=1)
    ]
    shown = table(["", "stage", "candidate", "NLL (nats)", "CRPS", "seconds"], rows, texts=3)
    return f"<details><summary>All candidates with their scores</summary>{shown}</details>"


def _table(facts: Mapping[str, Any]) -> str:
    of_table = facts["table"]
    rows = []
    for feature in of_table["features"]:
        if feature["categories"] is not None:
            values = f"{len(feature['categories'])} categories"
        elif feature["kind"] == "boolean":
            values = "yes or no"
        else:
            low, high = (f"{end:.6g}" if isinstance(end, float) else end for end in (feature["min"], feature["max"]))
            values = f"{low} to {high}" + (f" {feature['unit']}" if feature["unit"] else "")
        rows.append(
            [
                feature["name"],
                feature["kind"],
                values,
                _distribution(feature),
                percent(feature.get("missing_share")),
            ]
        )
    parts: list[str] = [table(["feature", "kind", "values", "distribution", "missing"], rows, texts=4)]
    target = facts["target"]
    if "classes" in target:
        parts.append(class_target(facts))
    if target.get("histogram"):
        spread = f"{target['min']:.4g} to {target['max']:.4g}, median {target['median']:.4g}, std {target['std']:.4g}"
        shown = bars(target["histogram"]["counts"], f"histogram of {target['name']}")
        parts.append(f"<p>The target, {text(named(target['name'], target['unit']))}: {text(spread)}.</p>{shown}")
    if of_table["left_out_rows"]:
        parts.append(f"<p>{of_table['left_out_rows']:,} rows were left out: they have no target, or weight 0.</p>")
    if of_table["left_out"]:
        parts.append("<p>Columns that were left out:</p>")
        parts.append(table(["column", "reason"], list(of_table["left_out"].items()), texts=2))
    return "".join(parts)


def _distribution(feature: Mapping[str, Any]) -> Markup | None:
    label = f"distribution of {feature['name']}"
    if feature.get("histogram"):
        return bars(feature["histogram"]["counts"], label)
    if feature.get("counts"):
        return bars([part["rows"] for part in feature["counts"]], label)
    return None


def _numbers(facts: Mapping[str, Any]) -> str:
    scores, training = facts["scores"], facts["training"]
    temperature = training["temperature"]
    meaning = "1: Bayes' rule" if temperature == 1.0 else "below 1: sharper than Bayes' rule, chosen on rows not seen"
    facts_of_model = {
        "target": named(facts["target"]["name"], facts["target"]["unit"]),
        "rows learned from": facts["table"]["rows"],
        "rows for calibration": training["calibration_rows"],
        "networks": training["members"],
        "hidden layers": " x ".join(str(width) for width in training["hidden"]) or "none",
        "parameters": f"{training['parameters']:,} (mu and rho)",
        "likelihood" if "classes" in facts["target"] else "noise": training["noise"],
        "transform of the target": None if "classes" in facts["target"] else training["transform"],
        "encoding": training["encoding"],
        "prior": training["prior"],
        "temperature": f"{temperature:.3g} ({meaning if temperature <= 1.0 else 'above 1: more cautious'})",
        "seed": training["seed"],
        "training": None if training["seconds"] is None else f"{training['seconds']:.0f} s",
        "made": f"{facts['created']}, Murho {facts['murho']}",
    }
    parts: list[str] = [facts_list(facts_of_model)]
    if scores and "classes" in facts["target"]:
        return "".join([*parts, *class_scores_tables(facts)])
    if scores:
        parts += ["<h3>Scores</h3>", _score_table(scores), "<h3>Bands</h3>", _band_table(scores)]
    if "judges" in scores:
        judges = scores["judges"]
        rows = [[title, number(judges[key])] for key, title in (("rmse", "RMSE"), ("nll", "NLL"), ("crps", "CRPS"))]
        rows += [[f"raw {level} % bands cover", percent(share)] for level, share in judges["raw"]["coverage"].items()]
        parts += [
            "<h3>The judges alone</h3>",
            f"<p class='muted'>What the {judges['members']} networks that have not seen a row score together, without "
            "calibration. The estimates above start from these numbers; nobody is served them.</p>",
            table(["", "value"], rows),
        ]
    return "".join(parts)


def _score_table(scores: Mapping[str, Any]) -> Markup:
    errors = scores.get("standard_errors", {})
    titles = {"rmse": "RMSE", "mae": "MAE", "r2": "R²", "nll": "NLL (nats)", "crps": "CRPS"}
    rows = [
        [title, None if scores.get(key) is None else plus_minus(scores[key], errors.get(key))]
        for key, title in titles.items()
    ]
    return table(["score", "value"], rows)


def _band_table(scores: Mapping[str, Any]) -> Markup:
    kinds = [kind for kind in ("calibrated", "raw") if scores.get(kind)]
    heads = ["central band", *(f"{kind}: {what}" for kind in kinds for what in ("covers", "mean width"))]
    rows = []
    for level in scores[kinds[0]]["coverage"]:
        row: list[object] = [f"{level} %"]
        for kind in kinds:
            row += [percent(scores[kind]["coverage"][level]), number(scores[kind]["width"][level])]
        rows.append(row)
    return table(heads, rows)
