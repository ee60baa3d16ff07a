"""A model as the list of the service has it: in short, without its features."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["ModelSummary"]


@dataclass(frozen=True)
class ModelSummary:
    """A model in the list of the service. `Client.model` describes it in full.

    Attributes:
        name: Name of the model.
        version: Its latest version.
        versions: All versions that can be asked for.
        task: `regression` or `classification`.
        target: Name of the predicted column.
        unit: Unit of the target, if one is known.
        classes: The classes of a classifier; None for a regression.
        metrics: Figures on held-out rows.
        raw: All that the list says about the model.
    """

    name: str
    version: str
    versions: tuple[str, ...]
    task: str | None
    target: str | None
    unit: str | None
    classes: tuple[str, ...] | None
    metrics: Mapping[str, Any] | None = field(repr=False)
    raw: Mapping[str, Any] = field(repr=False)

    @classmethod
    def of(cls, listed: Mapping[str, Any]) -> ModelSummary:
        """Reads one entry of the answer of `GET /models`.

        Raises:
            ValueError: A key is missing, or its value has another form.
        """
        try:
            target = listed.get("target") or {}
            classes = target.get("classes")
            return cls(
                name=str(listed["name"]),
                version=str(listed["version"]),
                versions=tuple(map(str, listed.get("versions") or [listed["version"]])),
                task=_text(listed.get("task")),
                target=_text(target.get("name")),
                unit=_text(target.get("unit")),
                classes=None if classes is None else tuple(map(str, classes)),
                metrics=listed.get("metrics"),
                raw=listed,
            )
        except KeyError as error:
            raise ValueError(f"the key {error} is missing") from None
        except (AttributeError, TypeError) as error:
            raise ValueError(f"a value has another form than expected: {error}") from None


def _text(value: Any) -> str | None:
    return None if value is None else str(value)
