"""The help text of an option follows from its field."""

from __future__ import annotations

from typing import Annotated, Literal

import pytest
from pydantic import Field

from murho.model.training.options import TrainOptions, option_texts


class Further(TrainOptions):
    """An option of every type."""

    whole: int = Field(default=1, ge=1, description="Whole.")
    closed: int | None = Field(default=None, ge=0, le=2**63 - 1, description="Closed.")
    share: Annotated[float, Field(gt=0.0, le=1.0)] | None = Field(
        default=None, description="Share.", json_schema_extra={"unset": "by table size"}
    )
    choice: Literal["one", "two", "three"] = Field(default="two", description="Choice.")
    switch: bool = Field(default=False, description="Switch.")
    widths: tuple[Annotated[int, Field(ge=1)], ...] = Field(default=(5, 5), description="Widths.")
    names: tuple[str, ...] = Field(default=(), description="Names.")


@pytest.mark.parametrize(
    ("name", "kind", "said"),
    [
        ("whole", "integer", "Whole.  [at least 1; default: 1]"),
        ("closed", "integer", "Closed.  [0 to 2^63 - 1]"),
        ("share", "number", "Share.  [above 0, at most 1; default: by table size]"),
        ("choice", "string", "Choice.  [one, two or three; default: two]"),
        ("switch", "boolean", "Switch.  [default: no]"),
        ("widths", "integers", "Widths.  [each at least 1; default: 5,5]"),
        ("names", "strings", "Names."),
    ],
)
def test_range_choices_and_default_are_said(name: str, kind: str, said: str) -> None:
    (text,) = (text for text in option_texts(Further) if text.name == name)
    assert (text.type, text.help) == (kind, said)


def test_every_option_is_described_in_sentences() -> None:
    texts = option_texts()
    assert [text.name for text in texts] == list(TrainOptions.model_fields)
    for text in texts:
        assert text.description[:1].isupper(), text.name
        assert text.description.endswith("."), text.name


def test_what_is_chosen_by_default_is_said() -> None:
    unsaid = [text.name for text in option_texts() if text.default is None and not text.default_text]
    assert unsaid == ["columns", "weight", "noise_sigma"]
