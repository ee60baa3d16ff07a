"""The Model Context Protocol: tools by which an agent describes models, predicts, explains, adds up and decides.

A tool is a question of the HTTP service in other words (`TOOLS`): its answer is made shorter, and has units and
warnings. So keys, limits and the queue are those of HTTP. `POST /mcp` asks the service that it belongs to; `murho mcp`
speaks over stdin and stdout, and asks a service of its own or one elsewhere. The schemas of the tools are made of those
of the models. Needs the extra `murho[mcp]`.
"""

from __future__ import annotations

import asyncio
import json
import re
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from importlib.metadata import version
from typing import TYPE_CHECKING, Any

from starlette.routing import Route

from murho.model.checkpoint.checkpoint import NAME_PATTERN
from murho.model.errors import printable
from murho.service.outcomes.routes import QualityQuery
from murho.service.predict.aggregate import AggregateRequest
from murho.service.predict.bodies import whole_body
from murho.service.predict.decide import DecideRequest
from murho.service.predict.in_flight import BYTES_PER_ROW_DRAW
from murho.service.predict.rows import MAX_LISTED, shorten

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Mapping

    import httpx2
    import mcp_types as types
    from mcp.server.lowlevel import Server
    from pydantic import BaseModel
    from starlette.types import ASGIApp, Message, Receive, Scope, Send

    from murho.model.files import JSON
    from murho.service.parts import Parts

INSTRUCTIONS = (
    "Models of tables that answer with error bars. An answer is a distribution: tell people the interval, not the mean "
    "alone. Where `unsure` is true the model does not know: say so, with the reason, rather than the number. "
    "list_models first, then describe_model, then ask."
)
MESSAGE_BYTES = 2**18
"""Of one message of an agent, about 2,000 rows."""
MOST_ROWS = 200
"""Of one prediction, whose answer an agent reads; totals take more."""
MOST_EXPLAINED, MOST_SHARES = 20, 5
"""Rows of one explanation, and cells that are named of each."""
MOST_MODELS = 20
"""With more models, a schema does not list the features of each."""
MOST_EXAMPLES = 25
DIGITS = 5
OF_ACTIONS = ("mean", "std", "epistemic_std", "probability_best")
LONG = frozenset({"history", "pit", "reliability"})
"""Keys of a quality that are for charts."""
OF_ROW = re.compile(r"/inputs/([0-9]+)(/|$)")
HEADERS = {"content-type": "application/json"}
IMPORTED = ("httpx2", "mcp_types", "mcp.server.lowlevel", "mcp.server.streamable_http_manager")
"""Modules that messages need; to import them takes a second."""
ASKED_BY: ContextVar[Scope] = ContextVar("asked_by")
"""The request to `/mcp` whose tool is being called."""


ROWS: JSON = {"type": "array", "minItems": 1, "description": "null: not known."}
"""Becomes the schema of the rows of the models that there are."""
INTERVAL = {
    "type": "number",
    "exclusiveMinimum": 0,
    "exclusiveMaximum": 1,
    "default": 0.9,
    "description": "Probability of the interval, or of the set of classes.",
}


@dataclass(frozen=True, slots=True)
class Tool:
    """One tool.

    Attributes:
        description: What it does, for the agent.
        path: What is asked; with `{model}` it takes a model.
        answer: Makes the answer of the document and the arguments; these have `about` too, what is told of the model.
        properties: JSON Schemas of its arguments beside `model`; of a GET they are query parameters.
        more: What the body of the request has beside arguments; None: it is a GET.
        most: The most rows, if it predicts rows.
    """

    description: str
    path: str
    answer: Callable[[JSON, JSON], JSON]
    properties: Mapping[str, Any] = field(default_factory=dict)
    more: Mapping[str, Any] | None = None
    most: int | None = None

    @property
    def arguments(self) -> JSON:
        """All its arguments, with their schemas."""
        model = {"model": {"type": "string"}} if "{model}" in self.path else {}
        return {**model, **self.properties}


def _fields(kind: type[BaseModel], *names: str) -> JSON:
    """Returns the schemas of some keys of a request."""
    found = kind.model_json_schema()["properties"]
    return {name: {key: found[name][key] for key in found[name] if key not in ("default", "title")} for name in names}


def _body(tool: Tool, arguments: JSON, about: JSON) -> JSON:
    """Returns the body of a tool's request.

    Raises:
        ValueError: An argument can't be used.
    """
    body = {name: value for name, value in arguments.items() if name != "model"} | dict(tool.more or {})
    if "rows" in tool.properties:
        rows = body["inputs"] = body.pop("rows", None)
        if tool.most and not (isinstance(rows, list) and len(rows) <= tool.most):
            raise ValueError(f"rows: a list of at most {tool.most}; aggregate takes more")
    if "interval" in tool.properties:
        share = body.pop("interval", 0.9)
        if not isinstance(share, int | float) or not 0.0 < share < 1.0:
            raise ValueError("interval: a probability between 0 and 1")
        body["percentiles"] = [50.0 - 50.0 * share, 50.0, 50.0 + 50.0 * share]
        if tool.most and about["target"].get("classes"):
            body["coverage"] = share
    if tool.most and "threshold" in body:
        body["thresholds"] = [body.pop("threshold")]
    return body


def _tells_models(document: JSON, _: JSON) -> JSON:
    models = [
        {name: model[name] for name in ("name", "version", "target") if name in model} for model in document["models"]
    ]
    return {"models": models}


def _tells_model(document: JSON, _: JSON) -> JSON:
    kept = ("name", "version", "task", "target", "features")
    calibrated = document["metrics"].get("calibrated", {})
    scores = {
        name: document["metrics"][name] for name in ("n", "crps", "rmse", "accuracy") if name in document["metrics"]
    }
    covered = {"coverage_of_90_percent_intervals": calibrated["coverage"]["90"]} if "coverage" in calibrated else {}
    return {name: document[name] for name in kept} | {"on_held_out_rows": scores | covered}


def _tells_rows(document: JSON, arguments: JSON) -> JSON:
    head = _head(document) | {"interval_probability": arguments.get("interval", 0.9)}
    because, general = dict[int, list[str]](), list[str]()
    for warning in document["warnings"]:
        if found := OF_ROW.match(warning["pointer"]):
            because.setdefault(int(found[1]), []).append(warning["message"])
        else:
            general.append(warning["message"])
    rows = []
    for row in range(len(document["mean"] if "mean" in document else document["prediction"])):
        if "mean" in document:
            low, _, high = document["percentiles"]["values"][row]
            told = {"mean": document["mean"][row], "interval": [low, high], "std": document["std"][row]}
            unsure = document["epistemic_std"][row] > document["aleatoric_std"][row]
            if "exceedance" in document:
                told["probability_above_threshold"] = document["exceedance"]["values"][row][0]
            doubt = "the model knows too few rows like this one: its own doubt is larger than the scatter of the data"
        else:
            likely = sorted(zip(document["probabilities"][row], document["classes"], strict=True), reverse=True)[:3]
            told = {"prediction": document["prediction"][row], "set": document["prediction_set"]["values"][row]}
            told["probabilities"] = {name: share for share, name in likely}
            unsure = 2.0 * document["epistemic_entropy"][row] > document["entropy"][row]
            doubt = "the networks disagree about this row"
        warned = because.get(row, ["the row is unlike the training rows"] if document["extrapolation"][row] else [])
        reasons = [*([doubt] if unsure else []), *warned]
        rows.append(told | {"unsure": bool(reasons), **({"because": reasons} if reasons else {})})
    unit = (arguments["about"]["target"] or {}).get("unit")
    return head | {"unit": unit, "rows": rows} | ({"warnings": general} if general else {})


def _tells_why(document: JSON, arguments: JSON) -> JSON:
    """Says of each row what its cells do to the answer and to its spread, the strongest first."""
    why, unit, rows = document["why"], arguments["about"]["target"].get("unit"), []
    what, spread, parts = "probability", "entropy", ["entropy"]
    if "mean" in document:
        what, spread, parts = "mean", "variance", ["epistemic_variance", "aleatoric_variance"]
    for row, cells in enumerate(arguments["rows"]):
        before = sum(why["baseline"][part][row] for part in parts)
        found = []
        for place, (name, share, *doubts) in enumerate(
            zip(why["features"], why[what][row], *(why[part][row] for part in parts), strict=True)
        ):
            doubt, cell = sum(doubts) / before, json.dumps(cells[name] if isinstance(cells, dict) else cells[place])
            words = f"{name} = {cell}: {what} {share:+.3g}{f' {unit}' if unit else ''}, {spread} {doubt:+.0%}"
            found.append((abs(share) / (before**0.5 if what == "mean" else 1.0) + abs(doubt), words))
        answer = document["mean"] if what == "mean" else document["prediction"]
        baseline = why["baseline"][what][row]
        strongest = [words for _, words in sorted(found, reverse=True)[:MOST_SHARES]]
        rows.append(
            {
                what if what == "mean" else "prediction": answer[row],
                f"{what}_without_cells": baseline,
                "cells": strongest,
            }
        )
    return _head(document) | {"rows": rows, "warnings": _messages(document)}


def _messages(document: JSON) -> list[str]:
    return [warning["message"] for warning in document["warnings"][:MAX_LISTED]]


def _tells_decisions(document: JSON, _: JSON) -> JSON:
    decisions = []
    for context, action in enumerate(document["action"]):
        of_actions = [
            {"id": name, **{key: document[key][context][place] for key in OF_ACTIONS}}
            for place, name in enumerate(document["actions"])
        ]
        told = {"action": action, "propensity": document["propensity"][context], "actions": of_actions}
        decisions.append(told)
    how = {name: document[name] for name in ("policy", "goal")}
    return _head(document) | how | {"decisions": decisions, "warnings": _messages(document)}


def _tells_totals(document: JSON, arguments: JSON) -> JSON:
    groups = []
    for place, group in enumerate(document["groups"]):
        told = {"group": group, "rows": document["rows"][place], "mean": document["mean"][place]}
        of_group = document["percentiles"]["values"][place]
        several = isinstance(of_group[0], list)
        told["interval"] = [[each[0], each[-1]] for each in of_group] if several else [of_group[0], of_group[-1]]
        groups.append(told)
    kept = {name: document[name] for name in ("statistic", "by", "classes") if name in document}
    share = {"interval_probability": arguments.get("interval", 0.9)}
    return _head(document) | share | kept | {"groups": groups, "warnings": _messages(document)}


def _tells_quality(document: JSON, _: JSON) -> JSON:
    versions = [
        {name: value for name, value in each.items() if name not in LONG} for each in document.pop("versions", [])
    ]
    return document | {"versions": versions}


def _head(document: JSON) -> JSON:
    if not document["samples"]:
        raise ValueError("this service answers without draws (its setting samples is 0), so without error bars")
    return {"model": f"{document['model']['name']} {document['model']['version']}", "target": document["target"]}


TOOLS: Mapping[str, Tool] = {
    "list_models": Tool("The models that are served, and what each predicts.", "/models", _tells_models),
    "describe_model": Tool(
        "A model: its target with unit, its features with kinds, units, ranges and categories, and how good it is.",
        "/models/{model}",
        _tells_model,
    ),
    "predict": Tool(
        "Predict rows: for each a mean with the interval in which a new observation lies, or classes with "
        "probabilities; `unsure` where the model does not know, and why.",
        "/models/{model}/predict",
        _tells_rows,
        {
            "rows": ROWS,
            "interval": INTERVAL,
            "threshold": {"type": "number", "description": "Also tell how likely the target exceeds it."},
        },
        {},
        MOST_ROWS,
    ),
    "explain": Tool(
        "Say what the cells of a row do to its prediction and to its spread, beside a row of which nothing is known. "
        "It describes the model, and claims no cause.",
        "/models/{model}/predict",
        _tells_why,
        {"rows": ROWS},
        {"percentiles": [50.0], "include": ["why"]},
        MOST_EXPLAINED,
    ),
    "aggregate": Tool(
        "Add up predictions over rows, in all or by group: a sum, a mean or a count, with its interval. Never add up "
        "intervals of rows instead.",
        "/models/{model}/aggregate",
        _tells_totals,
        {"rows": ROWS, "interval": INTERVAL, **_fields(AggregateRequest, "by", "statistic", "threshold", "weights")},
        {},
    ),
    "decide": Tool(
        "Choose one of several actions for each context, by what the model expects of them and how sure it is of that.",
        "/models/{model}/decide",
        _tells_decisions,
        {
            **_fields(DecideRequest, "contexts", "actions", "policy", "goal", "threshold", "at_least"),
            "contexts": {
                "type": "array",
                "minItems": 1,
                "items": {"type": "object"},
                "description": "Rows, with all features that no action sets.",
            },
        },
        {},
    ),
    "quality": Tool(
        "How good the model's recorded predictions were, by what came true: coverage, errors, and since when it is "
        "wrong, if it is.",
        "/models/{model}/quality",
        _tells_quality,
        _fields(QualityQuery, "window", "by"),
    ),
}


def _row_schema(about: JSON) -> JSON:
    """The JSON Schema of a row of a model, as `GET /models/{name}` describes it."""
    kinds = {"numeric": "number", "boolean": "boolean"}
    features: JSON = {}
    for feature in about["features"]:
        said = [f"In {feature['unit']}."] if feature["unit"] else []
        if feature["kind"] == "date":
            said.append("A date, such as 2024-05-31.")
        if feature["min"] is not None and feature["kind"] != "boolean":
            said.append(f"{feature['min']} to {feature['max']} in training.")
        kind = kinds.get(feature["kind"], "string")
        schema: JSON = {"type": [kind, "null"] if feature["missing"] else kind}
        if feature["categories"]:
            schema["examples"] = feature["categories"][:MOST_EXAMPLES]
            said.append("Another value is a category that the model does not know.")
        features[feature["name"]] = schema | ({"description": printable(" ".join(said))} if said else {})
    return {
        "type": "object",
        "title": f"A row of {about['name']}",
        "properties": features,
        "required": list(features),
        "additionalProperties": False,
    }


def _input_schema(tool: Tool, models: list[JSON], names: list[str]) -> JSON:
    """The JSON Schema of a tool's arguments."""
    properties = tool.arguments
    if "model" in properties and names:
        properties["model"] = {"type": "string", "enum": names}
    if "rows" in properties:
        schemas = [_row_schema(about) for about in models]
        items = schemas[0] if len(schemas) == 1 else {"anyOf": schemas} if schemas else {"type": "object"}
        properties["rows"] = ROWS | {"items": items}
    needed = [name for name in ("model", "rows", "contexts") if name in properties]
    return {"type": "object", "properties": properties, "required": needed, "additionalProperties": False}


class _RefusedError(Exception):
    """What the service refused, as the agent is told."""


async def _asked(
    client: httpx2.AsyncClient, path: str, body: JSON | None = None, query: Mapping[str, str] | None = None
) -> JSON:
    """The document that the service answers.

    Raises:
        _RefusedError: It answers with a problem.
    """
    method, content = ("GET", None) if body is None else ("POST", json.dumps(body))
    response = await client.request(method, path, content=content, params=query, headers=HEADERS)
    document: JSON = response.json()
    if response.is_success:
        return document
    errors = [
        f"{each['pointer'].replace('/inputs', '/rows', 1)}: {each['message']}" for each in document.get("errors", ())
    ]
    raise _RefusedError("\n".join(errors) or document.get("detail") or document["title"])


async def _called(client: httpx2.AsyncClient, name: str, arguments: JSON) -> JSON:
    """The answer of a tool.

    Raises:
        _RefusedError: The service refuses it, or there is no such tool.
        ValueError: An argument can't be used.
    """
    if (tool := TOOLS.get(name)) is None:
        raise _RefusedError(f"There is no tool {shorten(name)!r}: {', '.join(TOOLS)}.")
    known = tool.arguments
    if unknown := arguments.keys() - known:
        takes = ", ".join(sorted(known)) or "none"
        raise ValueError(f"{shorten(', '.join(sorted(unknown)))}: no argument of {name}, which takes {takes}")
    given, model = dict(arguments), arguments.get("model")
    if "model" in known and not (isinstance(model, str) and NAME_PATTERN.fullmatch(model)):
        raise ValueError(f"model: the name of a model, as list_models tells, not {shorten(repr(model))}")
    if tool.more is None:
        query = {name: str(given[name]) for name in tool.properties if given.get(name) is not None}
        return tool.answer(await _asked(client, tool.path.format_map(given), query=query or None), given)
    given["about"] = await _asked(client, f"/models/{given['model']}")
    return tool.answer(await _asked(client, tool.path.format_map(given), _body(tool, arguments, given["about"])), given)


def make_server(connected: Callable[[], AbstractAsyncContextManager[httpx2.AsyncClient]]) -> Server[Any]:
    """Makes the server of the tools.

    Args:
        connected: Gives a client of the service that answers.
    """
    import httpx2
    import mcp_types as types
    from mcp.server.lowlevel import Server

    async def list_tools(_context: Any, _params: types.PaginatedRequestParams | None) -> types.ListToolsResult:
        try:
            async with connected() as client:
                names = [model["name"] for model in (await _asked(client, "/models"))["models"]]
                models = [await _asked(client, f"/models/{name}") for name in names[: MOST_MODELS + 1]]
        except (_RefusedError, httpx2.HTTPError):  # it is not ready, or wants a key: calls will say so
            names, models = [], []
        few = models if len(models) <= MOST_MODELS else []
        tools = [
            types.Tool(
                name=name,
                description=tool.description,
                input_schema=_input_schema(tool, few, names),
                annotations=types.ToolAnnotations(read_only_hint=True, idempotent_hint=True, open_world_hint=False),
            )
            for name, tool in TOOLS.items()
        ]
        return types.ListToolsResult(tools=tools)

    async def call_tool(_context: Any, params: types.CallToolRequestParams) -> types.CallToolResult:
        try:
            async with connected() as client:
                told = _short(await _called(client, params.name, params.arguments or {}))
        except (_RefusedError, ValueError, httpx2.HTTPError) as error:
            message = str(error) or type(error).__name__
            return types.CallToolResult(content=[types.TextContent(text=printable(message))], is_error=True)
        text = printable(json.dumps(told, ensure_ascii=False, separators=(",", ":")))
        return types.CallToolResult(content=[types.TextContent(text=text)], structured_content=told)

    return Server(
        "murho", version=version("murho"), instructions=INSTRUCTIONS, on_list_tools=list_tools, on_call_tool=call_tool
    )


def _short(value: Any) -> Any:
    """The same with fewer digits."""
    if isinstance(value, dict):
        return {name: _short(each) for name, each in value.items()}
    if isinstance(value, list):
        return [_short(each) for each in value]
    return float(f"{value:.{DIGITS}g}") if isinstance(value, float) else value


@asynccontextmanager
async def in_process(app: ASGIApp, scope: Scope) -> AsyncIterator[httpx2.AsyncClient]:
    """A client of an application in this process, for who has sent a request to it.

    Args:
        app: The application.
        scope: That request, or what there is of it: the state has the parts and the caller.
    """
    import httpx2

    async def asked(inner: Scope, receive: Receive, send: Send) -> None:
        headers = {name.decode(): value.decode() for name, value in inner["headers"]}
        state = {**scope["state"], "headers": headers, "arrived": True}
        await app({**inner, "state": state, "app": scope.get("app")}, receive, send)

    async with httpx2.AsyncClient(
        transport=httpx2.ASGITransport(asked), base_url="http://localhost", timeout=None
    ) as client:
        yield client


class AgentDoor:
    """`POST /mcp`: streamable HTTP without sessions, each message answered by one JSON document.

    Args:
        app: Answers what tools ask; the caller is known by then.
    """

    def __init__(self, app: ASGIApp) -> None:
        self.app = app
        self.route = Route("/mcp", self, methods=["POST"])
        self._wanted, self._open = asyncio.Event(), asyncio.Event()
        self._manager: Any = None

    async def run(self) -> None:
        """Answers until it is cancelled."""
        await self._wanted.wait()
        from mcp.server.streamable_http_manager import StreamableHTTPSessionManager
        from mcp.server.transport_security import TransportSecuritySettings

        # Hosts and origins are checked at the front door.
        allowed = TransportSecuritySettings(enable_dns_rebinding_protection=False)
        server = make_server(lambda: in_process(self.app, ASKED_BY.get()))
        self._manager = StreamableHTTPSessionManager(
            server, json_response=True, stateless=True, security_settings=allowed
        )
        async with self._manager.run():
            self._open.set()
            await asyncio.Event().wait()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answers one message.

        The library parses it in the event loop, so it may have `MESSAGE_BYTES`, which take some milliseconds.
        """
        parts: Parts = scope["state"]["parts"]
        parts.scheduler.admission.require_room()
        parts.lifecycle.in_flight += 1
        try:
            async with whole_body(parts, scope, receive, MESSAGE_BYTES) as body:
                cost = len(body) / BYTES_PER_ROW_DRAW
                parts.security.admit(scope["state"]["caller"], cost, requests=0, reading=True)
                self._wanted.set()
                await self._open.wait()
                whole: list[Message] = [{"type": "http.request", "body": body, "more_body": False}]

                async def replay() -> Message:
                    return whole.pop() if whole else await receive()

                ASKED_BY.set(scope)
                await self._manager.handle_request(scope, replay, send)
        finally:
            parts.lifecycle.in_flight -= 1
