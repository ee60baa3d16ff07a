"""The settings of a service, and where each comes from: option, environment, TOML file or default; the first that says.

A name that no setting has is refused, wherever it is: a misspelled limit that is passed over is no limit. Units are in
the names or the descriptions. A *row-draw* is one row evaluated under one draw. It is the unit of a request's cost,
rows x max(samples, 1).
"""

import difflib
import json
import os
import re
import ssl
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field
from ipaddress import ip_network
from pathlib import Path
from typing import Annotated, Any, Literal, NamedTuple, Self, TypeAlias, TypeVar

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    FilePath,
    ValidationError,
    ValidationInfo,
    field_validator,
)

from murho.model.checkpoint.checkpoint import NAME_PATTERN, VERSION_PATTERN
from murho.model.checkpoint.stores import place_of
from murho.model.errors import OptionError
from murho.model.predictive.draw_cache import KEPT_BYTES
from murho.model.predictive.prediction import DEFAULT_SAMPLES

PREFIX = "MURHO_"
FILE_VARIABLE = "MURHO_CONFIG"
OF_OTHERS = frozenset(
    {
        FILE_VARIABLE,
        "MURHO_URL",  # the client
        "MURHO_API_KEY",  # the client, `murho predict --url`
        "MURHO_PUBLISH",  # docker-compose.yml
        "MURHO_GPU_PUBLISH",  # docker-compose.yml
        "MURHO_STORE_PUBLISH",  # docker-compose.yml
        "MURHO_STORE_PASSWORD",  # docker-compose.yml
        "MURHO_PROMETHEUS_PUBLISH",  # docker-compose.yml
        "MURHO_GRAFANA_PUBLISH",  # docker-compose.yml
    }
)
"""Variables that aren't settings of the service but may well be in its environment."""
OF_KUBERNETES = re.compile(
    r"MURHO(_[A-Z0-9_]+)?_(SERVICE_(HOST|PORT)(_[A-Z0-9_]+)?=|PORT_[0-9]+_(TCP|UDP|SCTP)(_[A-Z]+)?=|.*=(tcp|udp|sctp)://)"
)
"""What Kubernetes puts into the environment of every pod beside a Service whose name begins with murho."""
SECRETS = frozenset({"api_keys"})
PASSWORD = re.compile(r"(?<=://)[^/@]*@")
"""Name and password in the address of a store."""
MOST_FILE_BYTES = 2**20


def _text(pattern: str, what: str) -> AfterValidator:
    """Return a check of a text, and what it should be, for messages."""

    def check(text: str) -> str:
        if not re.fullmatch(pattern, text):
            raise ValueError(f"expected {what}")
        return text

    return AfterValidator(check)


Whole = Annotated[int, Field(ge=0)]
Count = Annotated[int, Field(ge=1)]
NotNegative = Annotated[float, Field(ge=0)]
Positive = Annotated[float, Field(gt=0)]
_Word = TypeVar("_Word", bound=str)
Words = Annotated[
    tuple[_Word, ...], BeforeValidator(lambda value: re.findall(r"[^,\s]+", value) if isinstance(value, str) else value)
]
"""A list, in the environment separated by commas."""
Host = Annotated[
    str,
    _text(r"[*A-Za-z0-9._-]+|\[?[0-9A-Fa-f:.]+\]?", "a name or an address of a host, without scheme and port"),
    AfterValidator(lambda host: host.strip("[]").lower()),
]
Origin = Annotated[
    str, _text(r"\*|[a-z][a-z0-9+.-]*://[A-Za-z0-9.:\[\]_-]+", "an origin: * or scheme://host[:port], without a path")
]
Network = Annotated[str, AfterValidator(lambda proxy: str(ip_network(proxy, strict=False)))]
"""An address or a network such as 10.0.0.0/8."""
OpenPath = Annotated[str, _text("/.*", "a path that begins with /")]
RootPath = Annotated[str, _text("(/[A-Za-z0-9._~-]+)*", "a path such as /murho, without a slash at its end")]


def _place(value: Any) -> Any:
    """Read a place of checkpoints; its URL stays a text.

    Raises:
        ValueError: The URL can't be used.
    """
    try:
        return place_of(value) if isinstance(value, str | Path) else value
    except OptionError as error:
        raise ValueError(str(error)) from error


Place = Annotated[Path | str, BeforeValidator(_place)]
"""A directory, or as a text the URL of a storage."""


PolicyName: TypeAlias = Literal["latest", "all", "pinned"]


@dataclass(frozen=True, slots=True)
class VersionPolicy:
    """Which versions are served.

    Attributes:
        every_version: Whether all versions of a name are served, or the highest that can be loaded.
        pins: Name to the only version of it that is served.
    """

    every_version: bool = False
    pins: Mapping[str, str] = field(default_factory=dict)

    @classmethod
    def of(cls, versions: PolicyName, pinned: str = "") -> Self:
        """Return the policy of two settings.

        Args:
            versions: latest, all or pinned.
            pinned: NAME=VERSION pairs, such as `cars=3,rents=1`; for `pinned` alone.

        Raises:
            ValueError: A pair is malformed, a name comes twice, or the pairs don't go with the policy.
        """
        if (versions == "pinned") != bool(pinned.strip()):
            raise ValueError("it takes both, MURHO_VERSIONS=pinned and MURHO_PINNED=NAME=VERSION, or neither")
        pins: dict[str, str] = {}
        for part in re.split(r"\s*,\s*", pinned.strip()) if pinned.strip() else []:
            name, _, version = part.partition("=")
            if not NAME_PATTERN.fullmatch(name) or not VERSION_PATTERN.fullmatch(version):
                raise ValueError(f"{part!r} is no NAME=VERSION, such as cars=3")
            if name in pins:
                raise ValueError(f"{name} is pinned twice")
            pins[name] = version
        return cls(versions == "all", pins)


class Settings(BaseModel):
    """All settings of a service; each field is also ``MURHO_<FIELD>`` in the environment."""

    model_config = ConfigDict(frozen=True, extra="forbid", use_attribute_docstrings=True)

    checkpoints: Place = Path("checkpoints")
    """Directory of NAME/VERSION checkpoints, or a URL such as s3://BUCKET/PREFIX."""
    host: str = "127.0.0.1"
    """Address to listen on, 0.0.0.0 for every interface."""
    port: int = Field(default=8000, ge=0, le=65535)
    """Port to listen on, 0 for any free one."""
    hosts: Words[Host] = ()
    """Names of the service besides this machine's; another Host gets 421 (by default only without API keys on a
    loopback address)."""
    root_path: RootPath = ""
    """Path below which a proxy shows the service, stripped by the proxy or not."""
    ssl_certfile: FilePath | None = None
    """Certificate chain (PEM), for HTTPS only; a renewed one is read within a second."""
    ssl_keyfile: FilePath | None = Field(default=None, validate_default=True)
    """Private key of ssl_certfile, if it is in another file."""
    metrics_port: int | None = Field(default=None, ge=1, le=65535)
    """Port for /metrics (then only there), /healthz and /readyz, in plain HTTP and without keys."""
    device: Literal["auto", "cpu", "cuda"] = "auto"
    """auto takes a GPU if there is one."""
    default_model: str | None = None
    """Model behind POST /predict; by default the only one that is loaded."""

    versions: PolicyName = "latest"
    """Versions that are served; the latest is the highest that can be loaded."""
    pinned: str = Field(default="", validate_default=True)
    """With versions=pinned: NAME=VERSION pairs; other names serve the latest."""
    watch_seconds: NotNegative | None = None
    """Seconds between looks for new versions (by default 1, in a storage 10); 0: only on request."""

    store: str | None = None
    """File, or postgresql+psycopg://USER:PASSWORD@HOST/DATABASE, that keeps predictions and outcomes; by default
    nothing does."""
    record: Literal["asked", "all"] = "asked"
    """With a store: predictions that it keeps, by request or all."""
    adapt: Literal["off", "rolling", "adaptive"] = "off"
    """With a store: how bands of numbers follow outcomes, rolling by the newest 500, adaptive from the first on."""
    record_inputs: bool = False
    """Keep the cells of recorded rows, for quality by feature and to learn from."""
    record_bytes: Count = 2**26
    """Most bytes of predictions that wait for the store; further ones are not recorded, and responses say so."""
    store_days: Positive | None = None
    """Days after which predictions and outcomes are deleted; sums stay."""
    store_bytes: int | None = Field(default=None, ge=2**20)
    """Most bytes of the store; beyond it the oldest predictions are deleted."""

    samples: Whole = DEFAULT_SAMPLES
    """Draws behind a prediction if the request names no number."""
    max_samples: Count = 4096
    """Most `samples` of a request."""
    max_rows: Count = 1_000_000
    """Most rows of a request."""
    max_draw_values: Count = 5_000_000
    """Most values (rows x samples) that `include: ["draws"]` may list."""
    draws_bytes: Count = KEPT_BYTES
    """Most bytes of draws kept for all models; each request computes others anew."""
    max_body_bytes: Count = 64 * 2**20
    """Most bytes of a request's body, which is read whole; send larger tables in parts."""
    max_json_bytes: Count = 8 * 2**20
    """Most bytes of a request's JSON; send larger tables as Arrow, Parquet or CSV."""

    request_bytes: Count = 2**28
    """Most bytes of memory for the bodies and rows of all requests; more get 429."""
    answer_bytes: Count = 2**29
    """Most bytes of memory for large responses until they are sent; others wait."""

    max_pending: Count = 1_000
    """Most requests that wait or are computed; more get 429."""
    max_pending_cost: Count = 100_000_000
    """Most row-draws that wait or are computed; more get 429, or 413 if they are one request's."""
    max_standing_wait: Positive = 0.5
    """Seconds of small requests' work that may wait once their queue has not been empty for 10 s; more get 429."""
    load_timeout: Positive = 120.0
    """Most seconds to load a version; a slower one is refused."""
    request_timeout: Positive = 60.0
    """Seconds from a request's arrival to its response; then 504."""
    drain_delay: NotNegative = 1.0
    """Seconds after SIGTERM in which the service still serves but is not ready."""
    drain_grace: NotNegative = 20.0
    """Most seconds after drain_delay for requests in flight to finish."""

    # Connections: the HTTP protocol and the process (service/http/connection.py).
    max_connections: Count = 10_000
    """Most open connections; another one gets 503 and is closed."""
    max_header_bytes: int = Field(default=32 * 1024, ge=1024)
    """Most bytes of a request line and its headers; then 431."""
    max_headers: Count = 100
    """Most headers of a request; then 431."""
    max_target_bytes: int = Field(default=16 * 1024, ge=256)
    """Most bytes of a request's path and query; then 414."""
    header_timeout: Positive = 10.0
    """Seconds from a request's first byte to the end of its headers; then 408."""
    idle_timeout: Positive = 65.0
    """Seconds until an idle connection is closed; set more than your load balancer has, often 60."""
    send_timeout: Positive = 60.0
    """Seconds until a client that takes nothing of its response is cut off."""
    engine_silence: Positive = 60.0
    """Seconds in which the engine may have work and be silent; then /healthz returns 503."""

    workers: Annotated[int, Field(ge=1)] | Literal["auto"] = "auto"
    """Front ends, the processes on the port; auto: all processors but one, at least one."""
    threads: Count | None = None
    """Threads of the engine; by default all processors."""
    log_level: Literal["debug", "info", "warning", "error"] = "info"
    """Lowest level that is logged."""
    log_format: Literal["auto", "console", "json"] = "auto"
    """auto: text on a terminal, otherwise one JSON object per line."""

    api_keys: Words[str] = ()
    """API keys as NAME:sha256:HEX, made by `murho key NAME`; without any, everybody may do everything."""
    api_keys_file: Path | None = None
    """File with one API key per line, read again when it changes."""
    open_paths: Words[OpenPath] = ()
    """Paths that need no key; /, /healthz, /readyz, /ping and /v2/health never do."""
    cors_origins: Words[Origin] = ()
    """Origins whose pages may use the service from a browser; * for all, which takes API keys."""
    trusted_proxies: Words[Network] = ()
    """Addresses and networks of proxies whose X-Forwarded-For names the client."""
    requests_per_second: Positive | None = None
    """Average requests per second of one caller (an API key, else an address); more get 429."""
    row_draws_per_second: Positive | None = None
    """Average row-draws per second of one caller; more get 429."""
    burst_seconds: Positive = 10.0
    """Seconds of both limits that a caller may take at once after a pause."""

    @field_validator("ssl_keyfile")
    @classmethod
    def _check_certificate(cls, value: Path | None, info: ValidationInfo) -> Path | None:
        certificate = info.data.get("ssl_certfile")
        if value is not None and certificate is None:
            raise ValueError("a key without ssl_certfile")
        if certificate is not None:
            try:
                ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_cert_chain(certificate, value)
            except OSError as error:
                raise ValueError(f"certificate and key can't be used together: {error}") from None
        return value

    @field_validator("cors_origins")
    @classmethod
    def _has_keys(cls, value: tuple[str, ...], info: ValidationInfo) -> tuple[str, ...]:
        if "*" in value and not info.data.get("api_keys") and info.data.get("api_keys_file") is None:
            raise ValueError("without API keys the pages of all sites could unload models: name the origins")
        return value

    @field_validator("adapt")
    @classmethod
    def _has_a_store(cls, adapt: str, info: ValidationInfo) -> str:
        if adapt != "off" and info.data.get("store") is None:
            raise ValueError("bands can only follow outcomes that are kept: set store, too")
        return adapt

    @field_validator("pinned")
    @classmethod
    def _fits_the_policy(cls, pinned: str, info: ValidationInfo) -> str:
        if "versions" in info.data:  # else that setting is wrong by itself
            VersionPolicy.of(info.data["versions"], pinned)
        return pinned


class Configuration(NamedTuple):
    """The settings, and where each one comes from.

    Attributes:
        settings: The settings.
        sources: For each setting: the option, the variable, the file, or "default".
    """

    settings: Settings
    sources: Mapping[str, str]

    def lines(self) -> list[str]:
        """Return the settings as lines of a TOML file, each with its source; secrets are hidden."""
        lines = []
        for name in Settings.model_fields:
            value = getattr(self.settings, name)
            if value is None:
                shown = f"# {name} ="
            elif name in SECRETS and value:
                shown = f"# {name} = {len(value)} keys, not shown"
            else:
                text = toml_value(value)
                shown = f"{name} = {PASSWORD.sub('***@', text) if name == 'store' else text}"
            lines.append(f"{shown}  # {self.sources[name]}")
        return lines


def toml_value(value: object) -> str:
    """Return a setting's value as TOML has it."""
    return json.dumps(value, default=str, ensure_ascii=False)


def read_configuration(
    given: Mapping[str, Any], file: Path | None = None, environment: Mapping[str, str] | None = None
) -> Configuration:
    """Return the settings of a service.

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
            said = item["msg"].removeprefix("Value error, ").replace("Input should", "it should")
            said = said.partition(", unable to parse")[0].replace("a valid integer", "a whole number")
            source = name if sources[name] == "default" else sources[name]
            lines.append(f"{source} is {shown}: {said}.")
        raise OptionError(" ".join(lines)) from None
    return Configuration(settings, sources)


def _variables(environment: Mapping[str, str]) -> dict[str, str]:
    """Return the variable of each setting that the environment has.

    Raises:
        OptionError: A variable is no setting's.
    """
    found: dict[str, str] = {}
    unknown = []
    for key in sorted(environment):
        upper = key.upper()
        if not upper.startswith(PREFIX) or upper in OF_OTHERS or OF_KUBERNETES.match(f"{upper}={environment[key]}"):
            continue
        name = upper.removeprefix(PREFIX).lower()
        if name in Settings.model_fields:
            found[name] = key
        else:
            unknown.append(f"{key} in the environment is no setting. {_closest(name, PREFIX)}")
    if unknown:
        raise OptionError(" ".join(unknown))
    return found


def _read(file: Path) -> dict[str, Any]:
    """Return the settings in a file.

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
