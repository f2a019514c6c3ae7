"""Pages of the viewer: convert requests to HTML.

Before, the token and the host name of a request are checked.

The server renders pages without scripts, and the content security policy blocks all scripts. Links and forms are GET
requests that only read. Templates escape every value.
"""

from __future__ import annotations

import functools
import itertools
import re
import secrets
import time
import urllib.parse
from collections.abc import Awaitable, Callable, Mapping, MutableMapping, Sequence
from pathlib import Path
from typing import Any, TypeAlias

import jinja2
import numpy as np
from starlette.applications import Starlette
from starlette.datastructures import Headers, MutableHeaders, QueryParams
from starlette.requests import HTTPConnection, Request
from starlette.responses import FileResponse, HTMLResponse, PlainTextResponse, Response
from starlette.routing import Route

from petastore.dataset import Dataset
from petastore.errors import InvalidArgumentError, PetastoreError
from petastore.expressions.text import parse_filter_text
from petastore.forks import Lock
from petastore.plan.report.explanation import counted, size_for_people
from petastore.readers.reader import Reader
from petastore.schema.field import UnischemaField
from petastore.view.cells import full_image, value_of
from petastore.view.column_figures import column_summaries, row_group_lines, row_group_map
from petastore.view.order_page import BOXES, DEFAULTS, simulate
from petastore.view.sample_rows import RowPosition, bytes_per_row, cells_of, matching_places, places_from, stored_rows

__all__ = ["make_app"]

_HERE = Path(__file__).parent
_ROWS, _COLUMNS, _SUMMARIES, _FIELDS, _GROUPS = 20, 16, 12, 200, 100
"""Maximum items on one page: rows, columns of rows, column summaries, fields, and row groups."""

_MOST_IMAGE_BYTES = 64 * 1024 * 1024
"""Maximum bytes that are read for one image."""

_MOST_CHARACTERS = 2000
"""Maximum characters of an error message on a page; some messages name all columns."""

_HOSTS = re.compile(r"(127\.0\.0\.1|localhost)(:[0-9]{1,5})?", re.IGNORECASE)
"""Accepted `Host` headers: this machine with any port, because a tunnel may have another port."""

_HEADERS = {
    "Content-Security-Policy": "default-src 'none'; img-src data: 'self'; style-src 'self'; "
    "form-action 'self'; base-uri 'none'; frame-ancestors 'none'",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cache-Control": "no-store",
}

_Message: TypeAlias = MutableMapping[str, Any]
_Receive: TypeAlias = Callable[[], Awaitable[_Message]]
_Send: TypeAlias = Callable[[_Message], Awaitable[None]]
_App: TypeAlias = Callable[[_Message, _Receive, _Send], Awaitable[None]]


def make_app(dataset: Dataset, reader: Reader | None, *, token: str, port: int) -> Any:
    """Return the ASGI application.

    Args:
        dataset: The dataset to show.
        reader: Reader whose metrics are shown; None shows none.
        token: Secret that the first request has in its query, and later ones in a cookie.
        port: Port of the server, which is part of the cookie's name: browsers share cookies among ports.
    """
    pages = _Pages(dataset, reader)
    names = ["schema", "row-groups", "columns", "order", *(["reader"] if reader is not None else [])]
    routes = [Route("/", pages.page("rows"))]
    routes += [Route(f"/{name}", pages.page(name)) for name in names]
    routes += [Route("/cell", pages.cell), Route("/view.css", _style)]
    return _Guard(Starlette(routes=routes), token, f"petastore-view-{port}")


class _Guard:
    """ASGI middleware that rejects requests for other host names or without the token.

    It adds security headers to every response.
    """

    def __init__(self, app: _App, token: str, cookie: str) -> None:
        self._app, self._token, self._cookie = app, token, cookie

    async def __call__(self, scope: _Message, receive: _Receive, send: _Send) -> None:
        async def send_guarded(message: _Message) -> None:
            if message["type"] == "http.response.start":
                MutableHeaders(scope=message).update(_HEADERS)
            await send(message)

        await (self._refusal(scope) or self._app)(scope, receive, send_guarded)

    def _refusal(self, scope: _Message) -> _App | None:
        # DNS rebinding: the host name of a foreign page may resolve to 127.0.0.1, but the browser sends that name as
        # Host.
        if not _HOSTS.fullmatch(Headers(scope=scope).get("host", "")):
            return PlainTextResponse("The host must be 127.0.0.1 or localhost.", 403)
        if scope["method"] not in ("GET", "HEAD"):
            return PlainTextResponse("The method must be GET.", 405)
        if self._is_token(HTTPConnection(scope).cookies.get(self._cookie, "")):
            return None
        query = dict(QueryParams(scope["query_string"]))
        if not self._is_token(query.pop("token", "")):
            return PlainTextResponse("The token is missing or wrong. Open the URL that `petastore view` printed.", 403)
        # The browser loads the page again, with the cookie and without the token in its address.
        path = f"/{urllib.parse.quote(scope['path'].lstrip('/'), safe='')}?{urllib.parse.urlencode(query)}"
        first = HTMLResponse("<!doctype html><title>petastore</title>", headers={"Refresh": f"0; url={path}"})
        first.set_cookie(self._cookie, self._token, httponly=True, samesite="strict")
        return first

    def _is_token(self, text: str) -> bool:
        return secrets.compare_digest(text.encode(), self._token.encode())


class _Pages:
    """Request handlers of the pages.

    The values of one page are computed at a time, so that memory stays bounded.
    """

    def __init__(self, dataset: Dataset, reader: Reader | None) -> None:
        self._dataset, self._reader = dataset, reader
        self._fields: tuple[UnischemaField, ...] = tuple(dataset.schema)
        self._lock = Lock()
        self._metrics: tuple[float, dict[str, Any]] | None = None
        self._templates = jinja2.Environment(
            loader=jinja2.FileSystemLoader(_HERE / "templates"), autoescape=True, undefined=jinja2.StrictUndefined
        )
        self._templates.filters["repr"] = repr
        self._templates.filters["size"] = size_for_people
        self._templates.filters["counted"] = counted

    def page(self, name: str) -> Callable[[Request], Response]:
        """Return the request handler of a page.

        The method `show_<name>` computes the values, and the template `<name>.html` renders them. Errors are rendered
        by `error.html`.
        """
        make: Callable[[QueryParams], dict[str, Any]] = getattr(self, f"show_{name.replace('-', '_')}")

        def handler(request: Request) -> Response:
            query = request.query_params
            status, problem, values = 200, "", {}
            with self._lock:
                try:
                    values = make(query)
                except PetastoreError as error:
                    status, problem = 400, str(error)[:_MOST_CHARACTERS]
            template = "error" if problem else name
            html = self._templates.get_template(f"{template}.html").render(
                dataset=self._dataset, page=name, has_reader=self._reader is not None, problem=problem, query=query,
                link=functools.partial(_link, query), **values,
            )  # fmt: skip
            headers = {"Refresh": "2"} if name == "reader" else None
            return HTMLResponse(html.encode("utf-8", "replace"), status, headers=headers)

        return handler

    def show_rows(self, query: QueryParams) -> dict[str, Any]:
        """Return the template values for a page of rows."""
        dataset = self._dataset
        fields, column_pages = self._paged_fields(query, _COLUMNS)
        first = _whole(query, "row", dataset.inventory.num_rows)
        problem, looked_at, following = "", 0, None
        places: list[RowPosition] = []
        if query.get("filter", "").strip():
            try:
                begin = RowPosition(_whole(query, "group", dataset.inventory.num_row_groups), _whole(query, "in_group"))
                places, following, looked_at = matching_places(
                    dataset, parse_filter_text(query["filter"]), begin, _ROWS
                )
            except InvalidArgumentError as error:
                problem = str(error)[:_MOST_CHARACTERS]
        else:
            places = places_from(dataset.inventory, first, _ROWS)
        cells = cells_of(dataset, fields, places)
        return {
            "fields": fields, "column_pages": column_pages, "rows": list(zip(places, cells, strict=True)),
            "first": first, "count": _ROWS, "filter_problem": problem, "following": following, "looked_at": looked_at,
            "is_filtered": bool(query.get("filter", "").strip()),
        }  # fmt: skip

    def show_schema(self, query: QueryParams) -> dict[str, Any]:
        """Return the template values for a page of the schema's fields."""
        fields, pages = self._paged_fields(query, _FIELDS)
        stored = {}
        for field in fields:
            position = self._dataset.arrow_schema.get_field_index(field.name)
            stored[field.name] = (
                "partition key" if position < 0 else str(self._dataset.arrow_schema.field(position).type)
            )
        unreadable = list(itertools.islice(self._dataset.unreadable.items(), _FIELDS))
        return {"fields": fields, "column_pages": pages, "stored": stored, "unreadable": unreadable}

    def show_row_groups(self, query: QueryParams) -> dict[str, Any]:
        """Return the template values for a page of row groups."""
        inventory = self._dataset.inventory
        keys = {
            "rows": inventory.rows,
            "bytes": inventory.stored_bytes,
            "ratio": inventory.decoded_bytes / np.maximum(inventory.stored_bytes, 1),
        }
        sort = query.get("sort", "")
        order = np.argsort(-keys[sort], kind="stable") if sort in keys else np.arange(inventory.num_row_groups)
        first = _whole(query, "first", inventory.num_row_groups)
        field = next((field for field in self._fields if field.name == query.get("column")), None)
        lines = row_group_lines(self._dataset, order[first : first + _GROUPS], field)
        rows_chart, bytes_chart = row_group_map(self._dataset)
        return {
            "lines": lines, "field": field, "sort": sort, "first": first, "count": _GROUPS,
            "rows_chart": rows_chart, "bytes_chart": bytes_chart,
        }  # fmt: skip

    def show_columns(self, query: QueryParams) -> dict[str, Any]:
        """Return the template values for a page of column summaries."""
        fields, pages = self._paged_fields(query, _SUMMARIES)
        return {"summaries": column_summaries(self._dataset, fields), "column_pages": pages}

    def show_order(self, query: QueryParams) -> dict[str, Any]:
        """Return the template values for a simulated order of an epoch.

        It uses the settings that the user typed, or the defaults.
        """
        # A browser sends nothing for a box that is not ticked.
        form = {name: query.get(name, "" if name in BOXES and query else value) for name, value in DEFAULTS.items()}
        try:
            return {"form": form, "simulation": simulate(self._dataset, form), "form_problem": ""}
        except PetastoreError as error:
            return {"form": form, "simulation": None, "form_problem": str(error)[:_MOST_CHARACTERS]}

    def show_reader(self, _: QueryParams) -> dict[str, Any]:
        """Return the template values for the metrics of the reader.

        They are the present values, and their change per second since the last request of the page.
        """
        assert self._reader is not None  # noqa: S101 - the route exists only with a reader
        now, metrics = time.monotonic(), self._reader.diagnostics
        before, self._metrics = self._metrics, (now, metrics)
        lines = []
        for name, value in metrics.items():
            rate = ""
            if before is not None and isinstance(value, (int, float)) and name in before[1] and now > before[0]:
                rate = f"{(value - before[1][name]) / (now - before[0]):,.2f}"
            lines.append((name, f"{value:,.3f}" if isinstance(value, float) else str(value)[:300], rate))
        position = self._reader.position()
        return {
            "lines": lines,
            "position": position,
            "reader_text": repr(self._reader),
            "stopped": self._reader.stopped,
        }

    def cell(self, request: Request) -> Response:
        """Return one image as a PNG."""
        query, dataset = request.query_params, self._dataset
        with self._lock:
            try:
                field = dataset.fields_of([dataset.schema[query["column"]]])[0]
                group, row = _whole(query, "group", dataset.inventory.num_row_groups), _whole(query, "row")
                if row >= dataset.inventory.rows[group]:
                    raise InvalidArgumentError(f"row must be below {dataset.inventory.rows[group]:,}, got {row:,}")
                image = full_image(self._value(field, group, row))
            except (PetastoreError, ValueError, KeyError, MemoryError) as error:
                return PlainTextResponse(f"The cell cannot be shown: {error}"[:_MOST_CHARACTERS], 404)
        if image is None:
            return PlainTextResponse("The cell has no image.", 404)
        return Response(image, media_type="image/png")

    def _value(self, field: UnischemaField, group: int, row: int) -> Any:
        file, ordinal = self._dataset.inventory.place_of(group)
        footer = self._dataset.footers.get(self._dataset.location, file)
        size = bytes_per_row(footer, ordinal, [field.name])[field.name] * (row + 1)
        if size > _MOST_IMAGE_BYTES:
            raise InvalidArgumentError(
                f"the rows of a row group up to the shown one must take at most {_MOST_IMAGE_BYTES:,} bytes, got about "
                f"{size:,.0f}"
            )
        cells = stored_rows(self._dataset, [field.name], group, row + 1).column(field.name).combine_chunks()
        return value_of(cells[row : row + 1], field)

    def _paged_fields(self, query: QueryParams, count: int) -> tuple[Sequence[UnischemaField], dict[str, Any]]:
        """Return the fields on a page, and the values for the links to other pages.

        If the user typed a text, only fields whose names contain it are listed.

        Args:
            query: Query of the request.
            count: Maximum number of fields on a page.
        """
        text = query.get("find", "").lower()
        fields = [field for field in self._fields if text in field.name.lower()] if text else self._fields
        first = _whole(query, "column_first", len(fields))
        return fields[first : first + count], {"first": first, "count": count, "total": len(fields)}


def _style(_: Request) -> Response:
    return FileResponse(_HERE / "static" / "view.css", media_type="text/css")


def _link(query: QueryParams, page: str, changes: Mapping[str, str | int | None]) -> str:
    """Return a link to a page, or to the same page with some changes of the query.

    A change to None removes a key. `page` is empty for the same page.
    """
    values = {**dict(query), **changes} if page == "" else changes
    text = urllib.parse.urlencode(
        {name: value for name, value in values.items() if value is not None}, errors="replace"
    )
    return f"{page or '?'}{'?' if page and text else ''}{text}"


def _whole(query: QueryParams, name: str, stop: int = 2**62) -> int:
    """Return an integer query parameter, clamped to the range from 0 to `stop` - 1.

    Return 0 if it is missing, or is not an integer.
    """
    try:
        return min(max(int(query.get(name) or 0), 0), max(stop - 1, 0))
    except ValueError:
        return 0
