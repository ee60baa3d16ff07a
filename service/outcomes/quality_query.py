"""What is asked of the quality of a model."""

import re

from pydantic import Field, field_validator

from murho.model.evaluation.recorded import band_ends
from murho.service.predict.options import Strict

HOURS = {"h": 1, "d": 24, "w": 168}
WINDOW = re.compile(r"[1-9][0-9]{0,5}[hdw]")
COUNTED = "0.05, 0.1, … 0.95, 0.98 or 0.99"


class QualityQuery(Strict):
    """What is asked of the quality of a model."""

    window: str = "30d"
    """How far back predictions go, in hours, days or weeks: 24h, 30d, 4w."""
    by: str | None = None
    """A feature whose groups are told apart; inputs must be recorded."""
    coverage: float | None = Field(None, strict=False, description=f"Of a further central band: {COUNTED}.")
    version: str | None = None
    """The only version; by default all."""

    @property
    def hours(self) -> int:
        """Hours of the window."""
        return int(self.window[:-1]) * HOURS[self.window[-1]]

    @field_validator("window")
    @classmethod
    def _time(cls, window: str) -> str:
        if not WINDOW.fullmatch(window):
            raise ValueError("Expected a number of hours, days or weeks such as 24h, 30d or 4w")
        return window

    @field_validator("coverage")
    @classmethod
    def _counted(cls, coverage: float | None) -> float | None:
        if coverage is not None and (not 0.0 < coverage < 1.0 or len(set(band_ends(coverage))) < 2):
            raise ValueError(f"Expected a share that is counted: {COUNTED}")
        return coverage
