"""The Model Context Protocol: tools by which an agent describes models, predicts, explains, adds up and decides.

A tool is a question of the HTTP service in other words: its answer is made shorter, and has units and warnings. So
keys, limits and the queue are those of HTTP. `POST /mcp` asks the service that it belongs to; `murho mcp` speaks over
stdin and stdout, and asks a service of its own or one elsewhere. The schemas of rows are made of those of the models.
Needs the extra `murho[mcp]`.
"""

from __future__ import annotations

import asyncio
import json
import re
from contextlib import AbstractAsyncContextManager, asynccontextmanager, suppress
from contextvars import ContextVar
from copy import deepcopy
from functools import wraps
from importlib.metadata import version
from inspect import getdoc
from typing import TYPE_CHECKING, Annotated, Any

from pydantic import AfterValidator, Field
from starlette.routing import Route

from murho.model.checkpoint.checkpoint import NAME_PATTERN
from murho.model.errors import printable
from murho.model.files import JSON
from murho.service.predict.budgets import whole_body
from murho.service.predict.in_flight import BYTES_PER_ROW_DRAW
from murho.service.predict.json_rows import MAX_LISTED, shorten

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable

    import httpx2
    import mcp_types as types
    from mcp.server.mcpserver import MCPServer
    from starlette.types import ASGIApp, Message, Receive, Scope, Send

    from murho.service.context import ServiceContext

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
IMPORTED = ("httpx2", "mcp_types", "mcp.server.mcpserver", "mcp.server.streamable_http_manager")
"""Modules that messages need; to import them takes a second."""
ASKED_BY: ContextVar[Scope] = ContextVar("asked_by")
"""The request to `/mcp` whose tool is being called."""


def _name(text: str) -> str:
    if not NAME_PATTERN.fullmatch(text):
        raise ValueError("the name of a model, as list_models tells")
    return text


Model = Annotated[str, AfterValidator(_name)]
Rows = Annotated[list[Any], Field(min_length=1, description="null: not known.")]
Interval = Annotated[float, Field(gt=0, lt=1, description="Probability of the interval, or of the set of classes.")]


class Tools:
    """The tools: each method is one, with its arguments and, as its docstring, what an agent is told of it.

    Args:
        connected: Gives a client of the service that answers.
    """

    def __init__(self, connected: Callable[[], AbstractAsyncContextManager[httpx2.AsyncClient]]) -> None:
        self._connected = connected

    async def ask(self, path: str, body: JSON | None = None, **query: str | None) -> JSON:
        """Return the document that the service answers.

        Raises:
            ValueError: It answers with a problem.
        """
        method, content = "GET", None
        if body is not None:
            method, content = "POST", json.dumps({name: value for name, value in body.items() if value is not None})
        said = {name: value for name, value in query.items() if value is not None}
        async with self._connected() as client:
            response = await client.request(method, path, content=content, params=said or None, headers=HEADERS)
        document: JSON = response.json()
        if response.is_success:
            return document
        errors = [
            f"{each['pointer'].replace('/inputs', '/rows', 1)}: {each['message']}"
            for each in document.get("errors", ())
        ]
        raise ValueError("\n".join(errors) or document.get("detail") or document["title"])

    async def list_models(self) -> JSON:
        """List the models that are served, and what each predicts."""
        models = (await self.ask("/models"))["models"]
        kept = ("name", "version", "target")
        return {"models": [{name: model[name] for name in kept if name in model} for model in models]}

    async def describe_model(self, model: Model) -> JSON:
        """Describe a model: its target, features with kinds, units, ranges and categories, and how good it is."""
        document = await self.ask(f"/models/{model}")
        kept, metrics = ("name", "version", "task", "target", "features"), document["metrics"]
        scores = {name: metrics[name] for name in ("n", "crps", "rmse", "accuracy") if name in metrics}
        if "coverage" in (calibrated := metrics.get("calibrated", {})):
            scores["coverage_of_90_percent_intervals"] = calibrated["coverage"]["90"]
        return {name: document[name] for name in kept} | {"on_held_out_rows": scores}

    async def predict(
        self,
        model: Model,
        rows: Annotated[Rows, Field(max_length=MOST_ROWS)],
        interval: Interval = 0.9,
        threshold: Annotated[float | None, Field(description="Also tell how likely the target exceeds it.")] = None,
    ) -> JSON:
        """Predict rows, with the interval in which a new observation lies, or the probabilities of classes.

        `unsure` where the model does not know, and why.
        """
        target = (await self.ask(f"/models/{model}"))["target"] or {}
        document = await self.ask(
            f"/models/{model}/predict",
            {
                "inputs": rows,
                "percentiles": _levels(interval),
                "coverage": interval if target.get("classes") else None,
                "thresholds": None if threshold is None else [threshold],
            },
        )
        told = _head(document) | {"interval_probability": interval, "unit": target.get("unit")}
        because, general = dict[int, list[str]](), list[str]()
        for warning in document["warnings"]:
            if found := OF_ROW.match(warning["pointer"]):
                because.setdefault(int(found[1]), []).append(warning["message"])
            else:
                general.append(warning["message"])
        told["rows"] = [_row(document, row, because.get(row)) for row in range(len(rows))]
        return told | ({"warnings": general} if general else {})

    async def explain(
        self,
        model: Model,
        rows: Annotated[Rows, Field(max_length=MOST_EXPLAINED)],
    ) -> JSON:
        """Say what the cells of a row do to its prediction and to its spread, beside a row of which nothing is known.

        It describes the model, and claims no cause.
        """
        unit = (await self.ask(f"/models/{model}"))["target"].get("unit")
        document = await self.ask(
            f"/models/{model}/predict", {"inputs": rows, "percentiles": [50.0], "include": ["why"]}
        )
        return _head(document) | {"rows": _shares(document, rows, unit), "warnings": _messages(document)}

    async def aggregate(
        self,
        model: Model,
        rows: Rows,
        interval: Interval = 0.9,
        by: Annotated[list[str] | None, Field(description="Features whose cells say which rows go together.")] = None,
        statistic: Annotated[
            str | None, Field(description="sum (default), mean or count_above; of a classifier count, of each class.")
        ] = None,
        threshold: Annotated[float | None, Field(description="Of count_above, in the target's unit.")] = None,
        weights: Annotated[list[float] | None, Field(description="One number a row, not negative.")] = None,
    ) -> JSON:
        """Add up predictions over rows, in all or by group: a sum, a mean or a count, with its interval.

        Never add up intervals of rows instead.
        """
        body = {"inputs": rows, "by": by, "statistic": statistic, "threshold": threshold, "weights": weights}
        document = await self.ask(f"/models/{model}/aggregate", {**body, "percentiles": _levels(interval)})
        groups = []
        for place, group in enumerate(document["groups"]):
            bands = document["percentiles"]["values"][place]
            several = isinstance(bands[0], list)
            ends = [[each[0], each[-1]] for each in bands] if several else [bands[0], bands[-1]]
            told = {"group": group, "rows": document["rows"][place], "mean": document["mean"][place], "interval": ends}
            groups.append(told)
        kept = {name: document[name] for name in ("statistic", "by", "classes") if name in document}
        share = {"interval_probability": interval}
        return _head(document) | share | kept | {"groups": groups, "warnings": _messages(document)}

    async def decide(
        self,
        model: Model,
        contexts: Annotated[
            list[JSON], Field(min_length=1, description="Rows, with all features that no action sets.")
        ],
        actions: Annotated[
            list[JSON] | None,
            Field(
                description='A list of {"id": …, "inputs": {…}, "cost": …, "utility": {…}}: the features that each '
                "action sets, its cost in the target's unit; of a classifier a utility for each class. Without actions "
                "the classes are the actions."
            ),
        ] = None,
        policy: Annotated[str | None, Field(description="thompson (default), greedy, ucb or threshold.")] = None,
        goal: Annotated[str | None, Field(description="max (default) or min: of the target.")] = None,
        threshold: Annotated[
            float | None, Field(description="Of threshold: what a new observation is to be beyond.")
        ] = None,
        at_least: Annotated[
            float | None, Field(description="Of threshold: the probability of that, 0.9 by default.")
        ] = None,
    ) -> JSON:
        """Choose one of several actions for each context, by what the model expects of them and how sure it is."""
        body = {"contexts": contexts, "actions": actions, "policy": policy, "goal": goal}
        document = await self.ask(f"/models/{model}/decide", {**body, "threshold": threshold, "at_least": at_least})
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

    async def quality(
        self,
        model: Model,
        window: Annotated[str | None, Field(description="How far back, such as 24h, 30d (default) or 4w.")] = None,
        by: Annotated[str | None, Field(description="A feature whose groups are told apart.")] = None,
    ) -> JSON:
        """How good the recorded predictions were, by what came true: coverage, errors, since when they are wrong."""
        document = await self.ask(f"/models/{model}/quality", window=window, by=by)
        for each in document.get("versions", ()):
            for name in LONG & each.keys():
                del each[name]
        return document


def _levels(share: float) -> list[float]:
    return [50.0 - 50.0 * share, 50.0, 50.0 + 50.0 * share]


def _row(document: JSON, row: int, because: list[str] | None) -> JSON:
    """Return what is told of one row of a prediction."""
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
    if because is None:
        because = ["the row is unlike the training rows"] if document["extrapolation"][row] else []
    reasons = [*([doubt] if unsure else []), *because]
    return told | {"unsure": bool(reasons), **({"because": reasons} if reasons else {})}


def _shares(document: JSON, inputs: list[Any], unit: str | None) -> list[JSON]:
    """Return of each row what its cells do to the answer and to its spread, the strongest first."""
    why, rows = document["why"], []
    what, spread, parts = "probability", "entropy", ["entropy"]
    if "mean" in document:
        what, spread, parts = "mean", "variance", ["epistemic_variance", "aleatoric_variance"]
    for row, cells in enumerate(inputs):
        before = sum(why["baseline"][part][row] for part in parts)
        found = []
        for place, (name, share, *doubts) in enumerate(
            zip(why["features"], why[what][row], *(why[part][row] for part in parts), strict=True)
        ):
            doubt, cell = sum(doubts) / before, json.dumps(cells[name] if isinstance(cells, dict) else cells[place])
            words = f"{name} = {cell}: {what} {share:+.3g}{f' {unit}' if unit else ''}, {spread} {doubt:+.0%}"
            found.append((abs(share) / (before**0.5 if what == "mean" else 1.0) + abs(doubt), words))
        answer = "mean" if what == "mean" else "prediction"
        strongest = [words for _, words in sorted(found, reverse=True)[:MOST_SHARES]]
        without = {f"{what}_without_cells": why["baseline"][what][row]}
        rows.append({answer: document[answer][row], **without, "cells": strongest})
    return rows


def _messages(document: JSON) -> list[str]:
    return [warning["message"] for warning in document["warnings"][:MAX_LISTED]]


def _head(document: JSON) -> JSON:
    if not document["samples"]:
        raise ValueError("this service answers without draws (its setting samples is 0), so without error bars")
    return {"model": f"{document['model']['name']} {document['model']['version']}", "target": document["target"]}


def _row_schema(about: JSON) -> JSON:
    """Return the JSON Schema of a row of a model, as `GET /models/{name}` describes it."""
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


def make_server(connected: Callable[[], AbstractAsyncContextManager[httpx2.AsyncClient]]) -> MCPServer[Any]:
    """Make the server of the tools.

    Args:
        connected: Gives a client of the service that answers.
    """
    import httpx2
    import mcp_types as types
    from mcp.server.mcpserver import MCPServer
    from mcp.server.mcpserver.tools import Tool

    def with_result(tool: Callable[..., Awaitable[JSON]]) -> Callable[..., Awaitable[types.CallToolResult]]:
        @wraps(tool)
        async def call(**arguments: Any) -> types.CallToolResult:
            try:
                document = _short(await tool(**arguments))
            except (ValueError, httpx2.HTTPError) as error:
                message = types.TextContent(text=printable(str(error) or type(error).__name__))
                return types.CallToolResult(content=[message], is_error=True)
            text = printable(json.dumps(document, ensure_ascii=False, separators=(",", ":")))
            return types.CallToolResult(content=[types.TextContent(text=text)], structured_content=document)

        return call

    class Server(MCPServer[Any]):
        async def list_tools(self) -> list[types.Tool]:
            """Return the tools, whose rows are those of the models that there are."""
            names, models = list[str](), list[JSON]()
            with suppress(ValueError, httpx2.HTTPError):  # it is not ready, or wants a key: calls will say so
                names = [model["name"] for model in (await tools.ask("/models"))["models"]]
                if len(names) <= MOST_MODELS:
                    models = [await tools.ask(f"/models/{name}") for name in names]
            found = deepcopy(await super().list_tools())
            schemas = [_row_schema(about) for about in models]
            for tool in found:
                properties = tool.input_schema["properties"]
                if "model" in properties and names:
                    properties["model"]["enum"] = names
                if "rows" in properties and schemas:
                    properties["rows"]["items"] = schemas[0] if len(schemas) == 1 else {"anyOf": schemas}
            return found

        async def call_tool(
            self, name: str, arguments: JSON, context: Any = None
        ) -> types.CallToolResult | types.InputRequiredResult:
            """Call a tool; the name of none can be long."""
            return await super().call_tool(shorten(name), arguments, context)

    tools, made = Tools(connected), []
    reads = types.ToolAnnotations(read_only_hint=True, idempotent_hint=True, open_world_hint=False)
    for each in (
        *(tools.list_models, tools.describe_model, tools.predict, tools.explain),
        *(tools.aggregate, tools.decide, tools.quality),
    ):
        tool = Tool.from_function(
            with_result(each), description=getdoc(each), annotations=reads, structured_output=False
        )
        arguments = tool.fn_metadata.arg_model
        arguments.model_config["extra"] = "forbid"
        arguments.model_rebuild(force=True)
        tool.parameters = arguments.model_json_schema()
        made.append(tool)
    return Server("murho", version=version("murho"), instructions=INSTRUCTIONS, tools=made, subscriptions=False)


def _short(value: Any) -> Any:
    """Return the same with fewer digits."""
    if isinstance(value, dict):
        return {name: _short(each) for name, each in value.items()}
    if isinstance(value, list):
        return [_short(each) for each in value]
    return float(f"{value:.{DIGITS}g}") if isinstance(value, float) else value


@asynccontextmanager
async def in_process(app: ASGIApp, scope: Scope) -> AsyncIterator[httpx2.AsyncClient]:
    """Return a client of an application in this process, for who has sent a request to it.

    Args:
        app: The application.
        scope: That request, or what there is of it: the state has the parts and the caller.
    """
    import httpx2

    async def parsed(inner: Scope, receive: Receive, send: Send) -> None:
        headers = {name.decode(): value.decode() for name, value in inner["headers"]}
        state = {**scope["state"], "headers": headers, "arrived": True}
        await app({**inner, "state": state, "app": scope.get("app")}, receive, send)

    async with httpx2.AsyncClient(
        transport=httpx2.ASGITransport(parsed), base_url="http://localhost", timeout=None
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
        """Answer until it is cancelled."""
        await self._wanted.wait()
        from mcp.server.transport_security import TransportSecuritySettings

        # Hosts and origins are checked at the front door.
        allowed = TransportSecuritySettings(enable_dns_rebinding_protection=False)
        server = make_server(lambda: in_process(self.app, ASKED_BY.get()))
        server.streamable_http_app(json_response=True, stateless_http=True, transport_security=allowed)
        self._manager = server.session_manager
        async with self._manager.run():
            self._open.set()
            await asyncio.Event().wait()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one message.

        The library parses it in the event loop, so it may have `MESSAGE_BYTES`, which take some milliseconds.
        """
        service: ServiceContext = scope["state"]["service"]
        service.engine.admission.require_room()
        service.lifecycle.in_flight += 1
        try:
            async with whole_body(service.settings, service.request_budget, scope, receive, MESSAGE_BYTES) as body:
                cost = len(body) / BYTES_PER_ROW_DRAW
                service.security.admit(scope["state"]["caller"], cost, requests=0, reading=True)
                self._wanted.set()
                await self._open.wait()
                whole: list[Message] = [{"type": "http.request", "body": body, "more_body": False}]

                async def replay() -> Message:
                    return whole.pop() if whole else await receive()

                ASKED_BY.set(scope)
                await self._manager.handle_request(scope, replay, send)
        finally:
            service.lifecycle.in_flight -= 1
