"""Checks that a tag such as v1.0.0 is the version of both distributions and of the chart; exits with 1 if it isn't.

python scripts/release_version.py TAG
"""

from __future__ import annotations

import re
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PLACES = {
    "pyproject.toml": r'^version = "(.+)"$',
    "client/murho_client/_transport.py": r'^__version__ = "(.+)"$',
    "deploy/kubernetes/chart/Chart.yaml": r'^appVersion: "?([^"\n]+)"?$',
}


def versions() -> dict[str, str]:
    """Return the version that each file says."""
    found = {place: re.search(form, (ROOT / place).read_text(), re.MULTILINE) for place, form in PLACES.items()}
    return {place: "nothing" if match is None else match[1] for place, match in found.items()}


if __name__ == "__main__":
    wrong = {place: said for place, said in versions().items() if f"v{said}" != sys.argv[1]}
    for place, said in wrong.items():
        sys.stderr.write(f"{place} says {said}, and the tag is {sys.argv[1]}: change one of them\n")
    sys.exit(1 if wrong else 0)
