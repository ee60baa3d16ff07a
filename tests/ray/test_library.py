"""Tests of `murho.ray.library`: without Ray, errors say what to install."""

from __future__ import annotations

import subprocess
import sys

import pytest

import murho.ray
from murho.model.errors import OptionError


def test_without_ray_a_first_use_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in sys.modules if name.partition(".")[0] == "ray"]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "ray", None)
    for name in murho.ray.__all__:
        with pytest.raises(OptionError, match=r"pip install 'murho\[ray\]'"):
            getattr(murho.ray, name)


def test_the_package_is_imported_without_ray() -> None:
    code = "import murho.ray, murho.ray.datasets, sys; sys.exit('ray' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
