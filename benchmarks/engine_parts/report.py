"""What is made of the times: numbers for ``engine.json``, and tables of them."""

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
    "percentiles": "percentiles too",
}
"""Kinds of call beside the main one, which gives percentiles with Murho, and mean and std alone with the others."""
LIKE_WITH_LIKE = (("percentiles", "call"), ("call", "moments"))
"""Kinds of call of a peer, and that of Murho's which gives the same."""
LARGEST_ERROR = 4.0
"""Standard errors beyond which a mean or a std does not agree."""


def written(
    task: EngineTask, cell: Cell, found: Mapping[str, Found], left_out: Mapping[str, str]
) -> dict[str, Any]:
    """A cell for ``engine.json``: times in milliseconds, one number a round; ratios are medians over the rounds."""
    reference = found.get(REFERENCE)
    systems = {}
    for name, one in found.items():
        said: dict[str, Any] = {
            "ms": {kind: [round(1e3 * value, 5) for value in values] for kind, values in one.times.items()},
            "first_ms": {kind: round(1e3 * value, 3) for kind, value in one.first.items()},
            "mean_errors": round(one.errors[0], 2),
            "std_errors": round(one.errors[1], 2),
            "agrees": max(one.errors) <= LARGEST_ERROR,
        }
        if reference is not None:
            said["ratios"] = {
                f"{kind} to {other}": round(_ratio(one.times[kind], reference.times[other]), 4)
                for kind in one.times
                for other in ("call", "fresh", "moments")
                if other in reference.times
            }
        if one.deviation:
            said["deviation"] = {kind: float(f"{value:.3g}") for kind, value in one.deviation.items()}
            said["after_forward"] = round(1.0 - _ratio(one.times["network"], one.times["call"]), 4)
        systems[name] = said
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
    """A cell with what its times are of the machine's best.

    For every system ``peak_share``, of the rate of matrix products; for Murho with one row ``streams``, how often its
    draws could be copied past in the time of a call. Further outputs (of noise that is learned) are not counted.
    """
    systems = {}
    for name, said in cell["systems"].items():
        seconds = statistics.median(said["ms"]["call"]) / 1e3
        said = said | {"peak_share": round(cell["flops"] / seconds / rates.product, 6)}
        if "deviation" in said and cell["batch"] == 1:
            said["streams"] = round(seconds / (cell["draw_bytes"] / rates.copy), 3)
        systems[name] = said
    return {**cell, "systems": systems}


def _ratio(times: Sequence[float], reference: Sequence[float]) -> float:
    return statistics.median(mine / other for mine, other in zip(times, reference, strict=True))


def murho_table(cells: Sequence[Mapping[str, Any]], titles: Mapping[str, str]) -> str:
    """Murho by itself, a line a cell and kind of noise."""
    rows = []
    for cell in cells:
        for name, said in cell["systems"].items():
            if "deviation" not in said:
                continue
            ms = {kind: statistics.median(values) for kind, values in said["ms"].items()}
            rows.append(
                [
                    f"{cell['net']}, {titles[name]}",
                    str(cell["samples"]),
                    str(cell["batch"]),
                    f"{ms['call']:.3g}",
                    f"{ms['fresh']:.3g}",
                    f"{said['peak_share']:.1%}",
                    f"{said['streams']:.2f}" if "streams" in said else "",
                    f"{said['after_forward']:.0%}",
                    *(f"{said['deviation'][kind]:.0e}" for kind in ("mean", "std", "percentiles")),
                ]
            )
    headers = ["network", "S", "B", "ms", "draws anew", "of peak", "streams", "after forward"]
    return table([*headers, "mean", "std", "percentiles"], rows)


def best_peer_table(cells: Sequence[Mapping[str, Any]], titles: Mapping[str, str]) -> str:
    """Murho beside the fastest peer that agrees, a line a cell: how many times as long that takes.

    Like with like: once mean, std and percentiles, once mean and std alone.
    """
    rows = []
    for cell in cells:
        mine = cell["systems"].get(REFERENCE)
        peers = {
            name: one["ms"]
            for name, one in cell["systems"].items()
            if "deviation" not in one and one["agrees"]
        }
        if mine is None or not peers:
            continue
        row = [cell["net"], str(cell["samples"]), str(cell["batch"])]
        for kind, own in LIKE_WITH_LIKE:
            medians = {name: statistics.median(ms[kind]) for name, ms in peers.items()}
            best = min(medians, key=medians.__getitem__)
            row += [f"{statistics.median(mine['ms'][own]):.3g}", f"{medians[best]:.3g}", titles[best]]
            row.append(f"{_ratio(peers[best][kind], mine['ms'][own]):.2g}")
        rows.append(row)
    headers = ["network", "S", "B", "Murho, ms", "best, ms", "which", "ratio"]
    return table([*headers, "mean, std", "best, ms", "which", "ratio"], rows)


def peers_table(cells: Sequence[Mapping[str, Any]], titles: Mapping[str, str]) -> str:
    """Every system, for the batches of one network and one S; a cell that a system is left out of is empty.

    Beside the times, of all batches the worst: seconds of the first call, and the errors of mean and std.
    """
    names = [name for name in titles if any(name in cell["systems"] for cell in cells)]
    rows = []
    for name in names:
        said = [cell["systems"].get(name) for cell in cells]
        known = [one for one in said if one is not None]
        line = [
            titles[name],
            *_line(said, "call"),
            f"{max(one['first_ms']['call'] for one in known) / 1e3:.2g}",
        ]
        line += [f"{max(one[kind] for one in known):.1f}" for kind in ("mean_errors", "std_errors")]
        rows.append([*line, "yes" if all(one["agrees"] for one in known) else "NO"])
        for kind, what in OTHER_CALLS.items():
            if kind in known[0]["ms"]:
                rows.append([f"{titles[name]}, {what}", *_line(said, kind), "", "", "", ""])
    headers = ["system"]
    for cell in cells:
        headers += [f"B={cell['batch']}, ms", "ratio"]
    return table([*headers, "first, s", "mean, s.e.", "std, s.e.", "agrees"], rows)


def _line(said: Sequence[Mapping[str, Any] | None], kind: str) -> list[str]:
    """Milliseconds in each batch, and their ratio to Murho's with kept draws."""
    line = []
    for one in said:
        if one is None or kind not in one["ms"]:
            line += ["", ""]
            continue
        ratio = one.get("ratios", {}).get(f"{kind} to call")
        line += [f"{statistics.median(one['ms'][kind]):.3g}", "" if ratio is None else f"{ratio:.3g}"]
    return line


def memory_table(cells: Sequence[Mapping[str, Any]]) -> str:
    """Memory of one call above the bare process."""
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
