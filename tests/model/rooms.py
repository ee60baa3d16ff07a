"""A small table whose target is classes, with names that a file has to quote, and a quick training of it."""

from typing import Any

import numpy as np
import pyarrow as pa

from murho.model.training.options import make_options
from murho.model.training.train import Trained, train
from tests.model.conftest import Notes

CLASSES = ('bath "en suite"', "hall, long", "kitchen|diner")
QUICK: dict[str, Any] = {"epochs": 40, "members": 4, "hidden": (8,), "encoding": "standard", "temperature": 0.3}


def rooms_table(rows: int = 240, seed: int = 0, *, sharpness: float = 2.0) -> pa.Table:
    """Two numbers (one with missing cells), a district and a lift; three kinds of rooms that follow them."""
    generator = np.random.default_rng(seed)
    size, light = generator.normal(size=(2, rows))
    district = generator.choice(["east", "west"], rows)
    logits = sharpness * np.stack([2.0 * size, np.zeros(rows), light + (district == "east")], axis=1)
    drawn = (logits + generator.gumbel(size=logits.shape)).argmax(axis=1)
    known = generator.random(rows) > 0.1
    return pa.table(
        {
            "size": size,
            "light": pa.array(np.where(known, light, np.nan), from_pandas=True),
            "district": district,
            "lift": generator.random(rows) < 0.5,
            "room": np.array(CLASSES)[drawn],
        }
    )


def train_rooms(table: pa.Table, **changes: object) -> Trained:
    """Return a fit that takes about a second."""
    return train(table, "room", make_options(QUICK | changes), reporter=Notes())
