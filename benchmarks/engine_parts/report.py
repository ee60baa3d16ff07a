"""The results of the engine benchmark: numbers for ``engine.json``, and tables."""

from __future__ import annotations

import statistics
from typing import TYPE_CHECKING, Any

from benchmarks.results import table

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from benchmarks.engine_parts.cells import Cell, Found, Rates
    from benchmarks.peers.engine_task import EngineTask

__all__ = [
    "LARGEST_ERROR",
    "best_peer_table",
    "memory_table",
    "murho_table",
    "peers_table",
    "with_rates",
    "written",
]

REFERENCE = "murho"
OTHER_CALLS = {
    "fresh": "draws anew",
    "moments": "mean and std",
    "exceedance": "three thresholds too",
    "torch": "torch engine",
    "percentiles": "percentiles too",
}
"""Kinds of call besides the main one, which gives percentiles in Murho, and mean and std alone in the peers."""
LIKE_WITH_LIKE = (("percentiles", "call"), ("call", "moments"))
"""Pairs of a peer's kind of call and Murho's kind of call with the same content."""
LARGEST_ERROR = 4.0
"""Most standard errors at which a mean or a std still agrees."""


def written(task: EngineTask, cell: Cell, found: Mapping[str, Found], left_out: Mapping[str, str]) -> dict[str, Any]:
    """A cell for ``engine.json``: times in milliseconds, one number per round; ratios are medians over the rounds."""
    reference = found.get(REFERENCE)
    systems = {}
    for name, result in found.items():
        entry: dict[str, Any] = {
            "ms": {kind: [round(1e3 * value, 5) for value in values] for kind, values in result.times.items()},
            "first_ms": {kind: round(1e3 * value, 3) for kind, value in result.first.items()},
            "mean_errors": round(result.errors[0], 2),
            "std_errors": round(result.errors[1], 2),
            "agrees": max(result.errors) <= LARGEST_ERROR,
        }
        if reference is not None:
            entry["ratios"] = {
                f"{kind} to {other}": round(_ratio(result.times[kind], reference.times[other]), 4)
                for kind in result.times
                for other in ("call", "fresh", "moments")
                if other in reference.times
            }
        if result.deviation:
            entry["deviation"] = {kind: float(f"{value:.3g}") for kind, value in result.deviation.items()}
            entry["after_forward"] = round(1.0 - _ratio(result.times["network"], result.times["call"]), 4)
        systems[name] = entry
    return {
        "net": f"{len(task.hidden)}x{task.hidden[0]}",
        "hidden": list(task.hidden),
        "samples": cell.samples,
        "batch": cell.batch,
        "flops": task.flops(cell.samples, cell.batch),
        "draw_bytes": 4 * cell.samples * task.parameters,
        "systems": systems,
        "left_out": dict(left_out),
    }


def with_rates(cell: Mapping[str, Any], rates: Rates) -> dict[str, Any]:
    """Adds to a cell its times relative to the rates of the machine.

    For every system ``peak_share``, the share of the rate of matrix products; for Murho with one row ``streams``, the
    time of a call over the time of a copy of all draws. Outputs for learned noise are not counted.
    """
    systems = {}
    for name, entry in cell["systems"].items():
        seconds = statistics.median(entry["ms"]["call"]) / 1e3
        entry = entry | {"peak_share": round(cell["flops"] / seconds / rates.product, 6)}
        if "deviation" in entry and cell["batch"] == 1:
            entry["streams"] = round(seconds / (cell["draw_bytes"] / rates.copy), 3)
        systems[name] = entry
    return {**cell, "systems": systems}


def _ratio(times: Sequence[float], reference: Sequence[float]) -> float:
    return statistics.median(mine / other for mine, other in zip(times, reference, strict=True))


def murho_table(cells: Sequence[Mapping[str, Any]], titles: Mapping[str, str]) -> str:
    """The table of Murho alone: one line per cell and kind of noise."""
    rows = []
    for cell in cells:
        for name, entry in cell["systems"].items():
            if "deviation" not in entry:
                continue
            ms = {kind: statistics.median(values) for kind, values in entry["ms"].items()}
            rows.append(
                [
                    f"{cell['net']}, {titles[name]}",
                    str(cell["samples"]),
                    str(cell["batch"]),
                    f"{ms['call']:.3g}",
                    f"{ms['fresh']:.3g}",
                    f"{entry['peak_share']:.1%}",
                    f"{entry['streams']:.2f}" if "streams" in entry else "",
                    f"{entry['after_forward']:.0%}",
                    *(f"{entry['deviation'][kind]:.0e}" for kind in ("mean", "std", "percentiles")),
                ]
            )
    headers = ["network", "S", "B", "ms", "draws anew", "of peak", "streams", "after forward"]
    return table([*headers, "mean", "std", "percentiles"], rows)


def best_peer_table(cells: Sequence[Mapping[str, Any]], titles: Mapping[str, str]) -> str:
    """The table of Murho and the fastest peer that agrees: one line per cell, with the ratio of the peer's time.

    Equal contents are compared: once mean, std and percentiles, once mean and std alone.
    """
    rows = []
    for cell in cells:
        murho = cell["systems"].get(REFERENCE)
        peers = {
            name: entry["ms"] for name, entry in cell["systems"].items() if "deviation" not in entry and entry["agrees"]
        }
        if murho is None or not peers:
            continue
        row = [cell["net"], str(cell["samples"]), str(cell["batch"])]
        for kind, murho_kind in LIKE_WITH_LIKE:
            medians = {name: statistics.median(ms[kind]) for name, ms in peers.items()}
            best = min(medians, key=medians.__getitem__)
            row += [f"{statistics.median(murho['ms'][murho_kind]):.3g}", f"{medians[best]:.3g}", titles[best]]
            row.append(f"{_ratio(peers[best][kind], murho['ms'][murho_kind]):.2g}")
        rows.append(row)
    headers = ["network", "S", "B", "Murho, ms", "best, ms", "which", "ratio"]
    return table([*headers, "mean, std", "best, ms", "which", "ratio"], rows)


def peers_table(cells: Sequence[Mapping[str, Any]], titles: Mapping[str, str]) -> str:
    """The table of all systems, for the batches of one network and one S; empty where a system is left out.

    Seconds of the first call and errors of mean and std are those of the worst batch.
    """
    names = [name for name in titles if any(name in cell["systems"] for cell in cells)]
    rows = []
    for name in names:
        entries = [cell["systems"].get(name) for cell in cells]
        known = [entry for entry in entries if entry is not None]
        line = [
            titles[name],
            *_line(entries, "call"),
            f"{max(entry['first_ms']['call'] for entry in known) / 1e3:.2g}",
        ]
        line += [f"{max(entry[kind] for entry in known):.1f}" for kind in ("mean_errors", "std_errors")]
        rows.append([*line, "yes" if all(entry["agrees"] for entry in known) else "NO"])
        for kind, what in OTHER_CALLS.items():
            if kind in known[0]["ms"]:
                rows.append([f"{titles[name]}, {what}", *_line(entries, kind), "", "", "", ""])
    headers = ["system"]
    for cell in cells:
        headers += [f"B={cell['batch']}, ms", "ratio"]
    return table([*headers, "first, s", "mean, s.e.", "std, s.e.", "agrees"], rows)


def _line(entries: Sequence[Mapping[str, Any] | None], kind: str) -> list[str]:
    """Milliseconds in each batch, and their ratio to Murho's call with kept draws."""
    line = []
    for entry in entries:
        if entry is None or kind not in entry["ms"]:
            line += ["", ""]
            continue
        ratio = entry.get("ratios", {}).get(f"{kind} to call")
        line += [f"{statistics.median(entry['ms'][kind]):.3g}", "" if ratio is None else f"{ratio:.3g}"]
    return line


def memory_table(cells: Sequence[Mapping[str, Any]]) -> str:
    """The table of the memory of one call above the bare process."""
    return table(
        ["network", "S", "B", "S x B", "draws, MiB", "peak above bare, MiB"],
        [
            [
                cell["net"],
                str(cell["samples"]),
                str(cell["batch"]),
                f"{cell['samples'] * cell['batch']:.2g}",
                f"{cell['draw_bytes'] / 2**20:.1f}",
                f"{cell['memory_bytes'] / 2**20:.1f}",
            ]
            for cell in cells
        ],
    )
