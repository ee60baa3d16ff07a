"""Where the settings of a service come from: options, the environment, a TOML file, defaults; the first that says goes.

A name that no setting has is refused, wherever it is: a misspelled limit that is passed over is no limit.
"""

from __future__ import annotations

import difflib
import json
import os
import re
import tomllib
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pydantic import ValidationError

from murho.model.errors import OptionError
from murho.service.settings import Settings

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["FILE_VARIABLE", "OF_OTHERS", "Configuration", "read_configuration", "toml_value"]

PREFIX = "MURHO_"
FILE_VARIABLE = "MURHO_CONFIG"
OF_OTHERS = frozenset(
    {
        FILE_VARIABLE,
        "MURHO_URL",  # the client
        "MURHO_API_KEY",  # the client, `murho predict --url`
        "MURHO_PUBLISH",  # docker-compose.yml
        "MURHO_GPU_PUBLISH",  # docker-compose.yml
        "MURHO_PROMETHEUS_PUBLISH",  # docker-compose.yml
        "MURHO_GRAFANA_PUBLISH",  # docker-compose.yml
    }
)
"""Variables that aren't settings of the service but may well be in its environment."""
OF_KUBERNETES = re.compile(
    r"MURHO(_[A-Z0-9_]+)?_(SERVICE_(HOST|PORT)(_[A-Z0-9_]+)?|PORT_[0-9]+_(TCP|UDP|SCTP)(_[A-Z]+)?)"
)
"""What Kubernetes puts into the environment of every pod beside a Service whose name begins with murho."""
LINK = re.compile(r"(tcp|udp|sctp)://")
SECRETS = frozenset({"api_keys"})
MOST_FILE_BYTES = 2**20


@dataclass(frozen=True, slots=True)
class Configuration:
    """The settings, and where each one comes from.

    Attributes:
        settings: The settings.
        sources: For each setting: the option, the variable, the file, or "default".
    """

    settings: Settings
    sources: Mapping[str, str]

    def lines(self) -> list[str]:
        """Returns the settings as lines of a TOML file, each with its source; secrets are hidden."""
        lines = []
        for name in Settings.model_fields:
            value = getattr(self.settings, name)
            if value is None:
                shown = f"# {name} ="
            elif name in SECRETS and value:
                shown = f"# {name} = {len(value)} keys, not shown"
            else:
                shown = f"{name} = {toml_value(value)}"
            lines.append(f"{shown}  # {self.sources[name]}")
        return lines


def toml_value(value: object) -> str:
    """Returns a setting's value as TOML has it."""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, int | float):
        return (f"{value:_}" if value >= 100_000 else str(value)) if isinstance(value, int) else repr(value)
    if isinstance(value, tuple):
        return f"[{', '.join(toml_value(item) for item in value)}]"
    return json.dumps(str(value), ensure_ascii=False)


def read_configuration(
    given: Mapping[str, Any], file: Path | None = None, environment: Mapping[str, str] | None = None
) -> Configuration:
    """Returns the settings of a service.

    Args:
        given: The options of the command line, by the names of their settings.
        file: A TOML file with settings; by default the one that `MURHO_CONFIG` names, if it names one.
        environment: The environment; by default that of the process.

    Raises:
        OptionError: A name is unknown, a value is wrong, or the file can't be read.
    """
    environment = os.environ if environment is None else environment
    variables = _variables(environment)
    if file is None and environment.get(FILE_VARIABLE):
        file = Path(environment[FILE_VARIABLE])
    in_file = {} if file is None else _read(file)
    chosen: dict[str, Any] = {**in_file, **{name: environment[key] for name, key in variables.items()}, **given}
    sources = {
        name: f"--{name.replace('_', '-')}"
        if name in given
        else variables.get(name, f"{name} in {file}" if name in in_file else "default")
        for name in Settings.model_fields
    }
    try:
        settings = Settings(**chosen)
    except ValidationError as error:
        lines = []
        for item in error.errors(include_url=False):
            name = str(item["loc"][0])
            shown = "not shown here" if name in SECRETS else repr(item["input"])
            lines.append(f"{sources[name]} is {shown}: {item['msg'].replace('Input should', 'it should')}.")
        raise OptionError(" ".join(lines)) from None
    return Configuration(settings, sources)


def _variables(environment: Mapping[str, str]) -> dict[str, str]:
    """Returns the variable of each setting that the environment has.

    Raises:
        OptionError: A variable is no setting's.
    """
    found: dict[str, str] = {}
    unknown = []
    for key in sorted(environment):
        upper = key.upper()
        if not upper.startswith(PREFIX) or upper in OF_OTHERS or OF_KUBERNETES.fullmatch(upper):
            continue
        name = upper.removeprefix(PREFIX).lower()
        if LINK.match(environment[key]):
            if name in Settings.model_fields:
                raise OptionError(
                    f"{key} is {environment[key][:80]!r}, which Kubernetes has put there for a Service of this name. "
                    "Say `enableServiceLinks: false` in the pod's spec, or name the Service otherwise."
                )
            continue
        if name in Settings.model_fields:
            found[name] = key
        else:
            unknown.append(f"{key} in the environment is no setting. {_closest(name, PREFIX)}")
    if unknown:
        raise OptionError(" ".join(unknown))
    return found


def _read(file: Path) -> dict[str, Any]:
    """Returns the settings in a file.

    Raises:
        OptionError: The file can't be read, or a name in it is no setting's.
    """
    try:
        with file.open("rb") as stream:
            text = stream.read(MOST_FILE_BYTES).decode()
        document = tomllib.loads(text)
    except OSError as error:
        raise OptionError(f"The configuration file {file} can't be read: {error.strerror or error}.") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise OptionError(f"The configuration file {file} isn't TOML: {error}.") from error
    unknown = [
        f"{name!r} is no setting. {_closest(name, '')}" for name in document if name not in Settings.model_fields
    ]
    if unknown:
        raise OptionError(f"{file}: {' '.join(unknown)}")
    return document


def _closest(name: str, prefix: str) -> str:
    close = difflib.get_close_matches(name.lower().replace("-", "_"), Settings.model_fields, n=1)
    shown = close[0].upper() if prefix and close else "".join(close)
    return f"Did you mean {prefix}{shown}?" if close else "`murho serve --show-settings` lists all of them."
