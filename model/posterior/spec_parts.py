"""The parts of ``model.json`` that describe the likelihood and the target of a checkpoint."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Self

from murho.model.distributions.limits import Limits
from murho.model.distributions.transforms import Standardisation, transform_from_json
from murho.model.distributions.wide_component import WideRule
from murho.model.json_validation import (
    expect_fields,
    expect_number,
    expect_text,
    expect_whole,
    option_errors_at,
    wrong,
)
from murho.model.likelihoods.registry import KINDS, make_likelihood
from murho.model.posterior.class_shares import ClassShares

if TYPE_CHECKING:
    from collections.abc import Mapping

    from murho.model.data.schema import Target
    from murho.model.likelihoods.likelihood import Likelihood

__all__ = ["LikelihoodSpec", "target_from_json", "target_to_json"]


@dataclass(frozen=True, slots=True)
class LikelihoodSpec:
    """The observation model of a checkpoint.

    Attributes:
        kind: One of `model.likelihoods.registry.KINDS`.
        sigma: Known noise in standardised units, for ``fixed``.
        components: K, for ``mixture``.
        wide: The rule of the wide component; None: there is none.
        shares: Shares of the classes; None: the target is a number.
    """

    kind: str
    sigma: float | None = None
    components: int | None = None
    wide: WideRule | None = None
    shares: ClassShares | None = None

    def make(self, members: int) -> Likelihood:
        """Build the observation model of M members, before its parameters are loaded.

        Raises:
            OptionError: ``sigma`` or ``components`` is out of range, or missing although ``kind`` needs it.
        """
        classes = None if self.shares is None else len(self.shares.values)
        return make_likelihood(
            self.kind, members=members, sigma=self.sigma, components=self.components, classes=classes
        )

    def to_json(self) -> dict[str, Any]:
        """The likelihood as an object of ``model.json``."""
        return {
            "kind": self.kind,
            "sigma": self.sigma,
            "components": self.components,
            "wide": None if self.wide is None else self.wide.to_json(),
            **({} if self.shares is None else {"shares": self.shares.to_json()}),
        }

    @classmethod
    def from_json(cls, data: object) -> Self:
        """The inverse of `to_json`.

        Raises:
            CheckpointError: A field is missing, unknown, of another type or out of range.
        """
        fields = expect_fields(data, "likelihood", ("kind", "sigma", "components", "wide"), optional=("shares",))
        kind = expect_text(fields["kind"], "likelihood.kind")
        if kind not in KINDS:
            raise wrong("likelihood.kind", f"one of {', '.join(KINDS)}", kind)
        sigma, components, shares = (fields.get(name) for name in ("sigma", "components", "shares"))
        spec = cls(
            kind,
            None if sigma is None else expect_number(sigma, "likelihood.sigma"),
            None if components is None else expect_whole(components, "likelihood.components", least=1),
            WideRule.from_json(fields["wide"]),
            None if shares is None else ClassShares.from_json(shares),
        )
        with option_errors_at("likelihood"):
            spec.make(members=1)
        return spec


def target_to_json(target: Target, standardisation: Standardisation) -> dict[str, Any]:
    """The target, its transform and its standardisation as an object of ``model.json``."""
    return {
        "name": target.name,
        "unit": target.unit,
        "transform": standardisation.transform.to_json(),
        "location": standardisation.location,
        "scale": standardisation.scale,
        **(standardisation.limits or Limits()).to_json(),
    }


def target_from_json(data: object, target: Target) -> Standardisation:
    """The inverse of `target_to_json`.

    Raises:
        CheckpointError: A field is missing, unknown, of another type or out of range, or name or unit differ from the
            schema's target.
    """
    fields = expect_fields(data, "target", ("name", "unit", "transform", "location", "scale", "minimum", "maximum"))
    for name in ("name", "unit"):
        known = getattr(target, name)
        if fields[name] != known:
            raise wrong(f"target.{name}", f"{known!r} as in the schema", fields[name])
    location, scale = (expect_number(fields[name], f"target.{name}") for name in ("location", "scale"))
    if scale <= 0.0:
        raise wrong("target.scale", "a number above 0", scale)
    return Standardisation(transform_from_json(fields["transform"]), location, scale, _limits(fields))


def _limits(fields: Mapping[str, Any]) -> Limits | None:
    given = {
        name: expect_number(fields[name], f"target.{name}")
        for name in ("minimum", "maximum")
        if fields[name] is not None
    }
    with option_errors_at("target"):
        return Limits(**given) if given else None
