"""`--quick`: one candidate in a small share of the work, with fewer members; and what the full search would do.

Nothing is searched: each choice has its first value, except the temperature of a small table. The budget is in work,
as that of a full search is (`model.fitting.work`), so the same seed gives the same fit, however busy the machine is.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from murho.model.training.options import TrainOptions

__all__ = ["QUICK_MEMBERS", "QUICK_TEMPERATURE", "FullSearch", "as_quick", "default_budget", "quick_budget"]

QUICK_MEMBERS = 5
"""Members, M: one a fold. Each row is held out by one member."""
QUICK_TEMPERATURE = 0.1
"""Temperature on tables that are too small to find it along the fit: what searches choose most often."""
SHARE_OF_BUDGET = 1.0 / 20.0
"""Share of the full search's work."""
SECONDS_A_MINUTE = 60


@dataclass(frozen=True, slots=True)
class FullSearch:
    """What a training without ``--quick`` would do on the same table.

    Attributes:
        fits: Fits of candidates: trials, the full fit and the settling fit.
        seconds: Most seconds of these fits, at the pace of the quick ones.
    """

    fits: int
    seconds: float

    def line(self) -> str:
        """What it adds, for people."""
        minutes = round(self.seconds / SECONDS_A_MINUTE)
        most = f"{minutes} min" if minutes > 1 else "a minute"
        return (
            f"quick: one candidate, nothing searched. Without --quick: {self.fits} fits of several candidates, "
            f"up to about {most} here"
        )

    def to_json(self) -> dict[str, Any]:
        """For ``model.json``."""
        return asdict(self)


def as_quick(options: TrainOptions) -> TrainOptions:
    """Options with fewer members, unless the user has given their number; unchanged without ``--quick``."""
    if not options.quick or "members" in options.model_fields_set:
        return options
    return options.model_copy(update={"members": QUICK_MEMBERS})


def default_budget(rows: int) -> float:
    """The default budget of a search, in reference seconds (`model.fitting.work`).

    48 up to 1,000 rows, 290 from 10,000 to 50,000 rows, then in proportion to the rows, at most 900. Scoring and
    calibration take up to a minute more.
    """
    small = 48.0 + 242.0 * min(1.0, max(0.0, (rows - 1_000) / 9_000))
    return min(900.0, small * max(1.0, rows / 50_000))


def quick_budget(full: float) -> float:
    """The budget of a quick training, from that of a full search; both in reference seconds."""
    return SHARE_OF_BUDGET * full
