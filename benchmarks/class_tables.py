"""The tables of the classification benchmark. Their splits are `benchmarks.datasets.splits`: five times 80/20."""

from __future__ import annotations

from benchmarks.datasets import UCI_REPOSITORY, DataSet

__all__ = ["CLASSES"]

OPENML = "OpenML, https://www.openml.org/d/"
MUSHROOM_COLUMNS = (
    "class",
    "cap_shape",
    "cap_surface",
    "cap_color",
    "bruises",
    "odor",
    "gill_attachment",
    "gill_spacing",
    "gill_size",
    "gill_color",
    "stalk_shape",
    "stalk_root",
    "stalk_surface_above_ring",
    "stalk_surface_below_ring",
    "stalk_color_above_ring",
    "stalk_color_below_ring",
    "veil_type",
    "veil_color",
    "ring_number",
    "ring_type",
    "spore_print_color",
    "population",
    "habitat",
)


def _set(name: str, rows: int, target: str, source: str) -> DataSet:
    more = ", as CSV with a header, missing cells empty and the target as the last column"
    return DataSet(name, f"classification/{name}.csv", rows, target, f"{source}{more}")


CLASSES: dict[str, DataSet] = {
    dataset.name: dataset
    for dataset in (
        _set("wheat_seeds", 210, "variety", f"{UCI_REPOSITORY}236 (Seeds)"),
        _set("breast_cancer_recurrence", 286, "recurrence", f"{UCI_REPOSITORY}14 (Breast Cancer, Ljubljana)"),
        _set("haberman", 306, "survival", f"{UCI_REPOSITORY}43 (Haberman's Survival)"),
        _set("ecoli", 336, "site", f"{UCI_REPOSITORY}39 (Ecoli), without the names of the sequences"),
        _set("ionosphere", 351, "signal", f"{UCI_REPOSITORY}52 (Ionosphere)"),
        _set("banknote", 1_372, "kind", f"{UCI_REPOSITORY}267 (Banknote Authentication)"),
        _set("phoneme", 5_404, "sound", f"{OPENML}1489 (phoneme)"),
        DataSet(
            "mushroom",
            "mushroom/agaricus-lepiota.data",
            8_124,
            "class",
            f"agaricus-lepiota.data of {UCI_REPOSITORY}73 (Mushroom), as it is",
            header=MUSHROOM_COLUMNS,
        ),
        _set("mammography", 11_183, "calcification", f"{OPENML}310 (mammography)"),
        _set("adult", 32_561, "income", f"adult.data of {UCI_REPOSITORY}2 (Adult)"),
    )
}
"""The sets, the smallest first."""
