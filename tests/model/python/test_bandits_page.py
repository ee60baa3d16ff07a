"""The example of docs/bandits.md runs, and learns."""

from __future__ import annotations

import re
from typing import Any

import numpy as np

from tests.support import ROOT


def test_the_example_learns() -> None:
    text = (ROOT / "docs" / "bandits.md").read_text(encoding="utf-8")
    (example,) = re.findall(r"^```python\n(.*?)^```", text, flags=re.MULTILINE | re.DOTALL)
    names: dict[str, Any] = {}
    exec(example, names)  # noqa: S102 - our own page
    contexts = np.random.default_rng(1).normal(size=(200, 2))
    assert np.mean(names["agent"].choose(contexts) == (contexts[:, 0] > 0.0)) > 0.85
