"""The README as package indexes show it: links and pictures lead to the repository. All else is in pyproject.toml."""

import re
import tomllib
from pathlib import Path

from setuptools import setup

ROOT = Path(__file__).parent
SOURCE = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["urls"]["Source"]


def absolute(link: re.Match[str]) -> str:
    """Return a link with an address of its own; a picture is the file itself."""
    return f"{link[1]}{SOURCE}/{'raw' if link[1].startswith('!') else 'blob'}/main/{link[2]}"


setup(
    long_description=re.sub(r"(!?\[[^\]]*\]\()(?!https?:|#)([^)]+)", absolute, (ROOT / "README.md").read_text()),
    long_description_content_type="text/markdown",
)
