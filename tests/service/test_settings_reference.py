from __future__ import annotations

import re
import tomllib
from pathlib import Path

from murho.service.configuration import read_configuration
from murho.service.settings import Settings
from murho.service.settings_reference import EXAMPLE, PAGE, example, with_listing

ROOT = Path(__file__).parents[2]
RENEW = "run `python -m murho.service.settings_reference`"


def test_the_committed_example_has_every_setting_with_its_default(tmp_path: Path) -> None:
    assert (ROOT / EXAMPLE).read_text() == example(), RENEW
    # Every line that has a default can be used as it is.
    text = re.sub(r"^# (\w+ = .*)$", r"\1", example(), flags=re.MULTILINE)
    assert tomllib.loads(text)
    path = tmp_path / "murho.toml"
    path.write_text(text)
    assert read_configuration({}, path, {}).settings == Settings()
    assert set(re.findall(r"^# (\w+) =", example(), flags=re.MULTILINE)) == set(Settings.model_fields)


def test_the_page_on_operations_has_every_setting() -> None:
    page = (ROOT / PAGE).read_text()
    assert page == with_listing(page), RENEW
