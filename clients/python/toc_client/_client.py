"""The calls of the HTTP API."""

from __future__ import annotations

import http.client
import json
import select
import threading
from datetime import datetime, timedelta, timezone
from typing import Any, Dict, Iterable, Iterator, Mapping
from urllib.parse import quote, urlencode, urlsplit

from ._errors import refusal

Task = Dict[str, Any]
"""A task: the fields of the API, and "etag"."""

_TRY = 5.0  # seconds that a request is tried at one server while others are left


class Client:
    """Calls one timeout center at one or more of its servers: each takes any request.

    A request goes to the server that answered last. If no connection to it can be made, the next one is tried, each once.
    What is safe to repeat is tried at the next one also after a lost answer, after 5 s without one, and after a 502, 503
    or 504: requests that only read, and submits of which each has a dedup_key. Without an answer from any server the last
    OSError or http.client.HTTPException is raised; a refusal raises an Error.

    timeout bounds each try, in seconds.
    """

    def __init__(self, *servers: str, token: str = "", timeout: float = 30.0) -> None:
        if not servers:
            servers = ("http://127.0.0.1:8080",)
        self._servers = [_split(s) for s in servers]
        self._token, self._timeout = token, timeout
        self._current = 0
        self._local = threading.local()  # connections: http.client's serve one thread

    # Submit

    def submit(self, biz_type: str, biz_id: int | str, *, action_time: datetime | None = None, delay: timedelta | None = None,
               attribute: str = "", dedup_key: str = "", timeout: timedelta | None = None,
               on_duplicate: str = "") -> tuple[Task, bool]:
        """Stores one task, due at action_time or after delay. True: the dedup_key was known, and this is the first task."""
        body = submission(biz_type, biz_id, action_time=action_time, delay=delay, attribute=attribute, dedup_key=dedup_key,
                          timeout=timeout, on_duplicate=on_duplicate)
        status, task = self._call("POST", "/v1/tasks", body, safe=_has_key(body))
        return task, status == 200

    def submit_batch(self, tasks: Iterable[Mapping[str, Any]]) -> list[dict[str, Any]]:
        """Stores up to 10,000 tasks, each made by submission, and answers for each in order: job_id, or error."""
        bodies = list(tasks)
        return self._call("POST", "/v1/tasks/batch", {"tasks": bodies}, safe=all(map(_has_key, bodies)))[1]["results"]

    # Look up

    def get(self, job_id: int | str) -> Task:
        """Reads one task; NotFoundError if there is none."""
        return self._call("GET", f"/v1/tasks/{_id(job_id)}")[1]

    def get_by_key(self, biz_type: str, biz_id: int | str, dedup_key: str) -> Task:
        """Reads the task that was submitted under a dedup_key."""
        return self._call("GET", "/v1/tasks/by-key" + _query(biz_type=biz_type, biz_id=biz_id, dedup_key=dedup_key))[1]

    def why(self, job_id: int | str) -> dict[str, Any]:
        """Tells where a task waits, and what holds it."""
        return self._call("GET", f"/v1/tasks/{_id(job_id)}/why")[1]

    def list_tasks(self, biz_id: int | str, *, biz_type: str = "", status: str = "") -> Iterator[Task]:
        """Goes through the tasks of a biz_id."""
        return self._pages("/v1/tasks", biz_id=biz_id, biz_type=biz_type, status=status)

    def list_all(self, *, biz_type: str = "", status: str = "", since: datetime | None = None,
                 until: datetime | None = None) -> Iterator[Task]:
        """Goes through the tasks of all tables: the pending ones, or those of a status, with an action_time in between."""
        return self._pages("/v1/tasks", **{"biz_type": biz_type, "status": status, "from": _time(since), "to": _time(until)})

    def list_dead(self, *, biz_type: str = "", error: str = "", since: datetime | None = None,
                  until: datetime | None = None) -> Iterator[Task]:
        """Goes through the dead tasks; error is a part of last_error."""
        return self._pages("/v1/dead", biz_type=biz_type, error=error, since=_time(since), until=_time(until))

    # Change

    def cancel(self, job_id: int | str, *, etag: str = "") -> None:
        """Cancels a pending task. With the etag of a task that you have read, only if it is still so (ChangedError)."""
        self._call("POST", f"/v1/tasks/{_id(job_id)}/cancel", etag=etag)

    def reschedule(self, job_id: int | str, *, action_time: datetime | None = None, delay: timedelta | None = None,
                   attribute: str | None = None, timeout: timedelta | None = None, etag: str = "") -> Task:
        """Moves a pending task, or changes its attribute or timeout; what is left out stays."""
        body: dict[str, Any] = {}
        _set_time(body, action_time, delay)
        if attribute is not None:
            body["attribute"] = attribute
        if timeout is not None:
            body["timeout"] = _duration(timeout)
        return self._call("PATCH", f"/v1/tasks/{_id(job_id)}", body, etag=etag)[1]

    def redrive(self, job_id: int | str, *, etag: str = "") -> Task:
        """Gives a dead task a fresh start, due now."""
        return self._call("POST", f"/v1/tasks/{_id(job_id)}/redrive", etag=etag)[1]

    def redrive_dead(self, **filters: Any) -> dict[str, Any]:
        """Redrives the dead tasks that match biz_type, error, since, until; limit, rate and dry_run as in the API."""
        return self._call("POST", "/v1/dead/redrive", _filters(filters))[1]

    def discard_dead(self, **filters: Any) -> dict[str, Any]:
        """Cancels the dead tasks that match, as redrive_dead."""
        return self._call("POST", "/v1/dead/discard", _filters(filters))[1]

    def pause(self, biz_type: str, *, reason: str = "", until: datetime | None = None) -> None:
        """Keeps the tasks of a business type from starting."""
        body = {"reason": reason} if reason else {}
        if until is not None:
            body["until"] = _time(until)
        self._call("POST", f"/v1/biz-types/{quote(biz_type, safe='')}/pause", body)

    def resume(self, biz_type: str) -> None:
        """Ends a pause."""
        self._call("POST", f"/v1/biz-types/{quote(biz_type, safe='')}/resume", {})

    # Pull

    def lease(self, biz_type: str, max: int = 1, *, wait: timedelta | None = None, ttr: timedelta | None = None) -> dict[str, Any]:
        """Leases up to 256 due tasks of a business type whose processor is pull, and waits up to a minute for one.

        The answer has tasks, each with lease, expires_at, attempt and task, and paused. Give the Client a timeout that is
        longer than wait. Worker does all of this.
        """
        body: dict[str, Any] = {"max": max}
        if wait is not None:
            body["wait"] = _duration(wait)
        if ttr is not None:
            body["ttr"] = _duration(ttr)
        return self._call("POST", f"/v1/biz-types/{quote(biz_type, safe='')}/lease", body)[1]

    def settle(self, settlements: Iterable[Mapping[str, Any]]) -> list[dict[str, Any]]:
        """Settles up to 1,000 leases: lease, do (ack, nack, extend or reject), and retry_after, ttr or error.

        Each result has lease and result: ok, lost (the lease is over or was settled before), invalid, or unavailable (send
        it again).
        """
        return self._call("POST", "/v1/leases/settle", {"settle": list(settlements)})[1]["results"]

    # The way to a server

    def _pages(self, path: str, **query: Any) -> Iterator[Task]:
        cursor = ""
        while True:
            page = self._call("GET", path + _query(**query, limit=1000, cursor=cursor))[1]
            yield from page["tasks"]
            cursor = page.get("next_cursor") or ""
            if not cursor:
                return

    def _call(self, method: str, path: str, body: Mapping[str, Any] | None = None, *, etag: str = "",
              safe: bool | None = None) -> tuple[int, Any]:
        headers = {"Accept": "application/json"}
        if self._token:
            headers["Authorization"] = "Bearer " + self._token
        if etag:
            headers["If-Match"] = etag
        sent = None
        if body is not None:
            sent = json.dumps(body).encode()
            headers["Content-Type"] = "application/json"
        safe = method == "GET" if safe is None else safe
        n, first = len(self._servers), self._current
        for i in range(n):
            at, last = (first + i) % n, i == n - 1
            reached = False
            try:
                conn, used = self._connection(at, min(self._timeout, _TRY) if safe and not last else self._timeout)
                if conn.sock is None:
                    conn.connect()
                reached = True
                answer = self._send(conn, used, method, self._servers[at].path + path, sent, headers)
            except (OSError, http.client.HTTPException):
                self._forget(at)
                if last or reached and not safe:
                    raise
                continue
            status, reason, got, text = answer
            if status in (502, 503, 504) and safe and not last:
                continue
            if not 200 <= status <= 299:
                raise refusal(status, reason, got, text)
            self._current = at
            result = json.loads(text)
            if got.get("ETag") and isinstance(result, dict):
                result["etag"] = got["ETag"]
            return status, result
        raise AssertionError("the last server always answers or raises")

    def _send(self, conn: http.client.HTTPConnection, used: bool, method: str, path: str, body: bytes | None,
              headers: Mapping[str, str]) -> tuple[int, str, Mapping[str, str], bytes]:
        for again in (used, False):
            try:
                conn.request(method, path, body, dict(headers))
                answer = conn.getresponse()
                return answer.status, answer.reason, answer.headers, answer.read()
            except (http.client.RemoteDisconnected, BrokenPipeError, ConnectionResetError):
                # The server closes idle connections. A GET is sent once more on a new one.
                if not again or method != "GET":
                    raise
                conn.close()
        raise AssertionError("the second try returns or raises")

    def _connection(self, at: int, timeout: float) -> tuple[http.client.HTTPConnection, bool]:
        """The connection of this thread to a server, and whether it has been used before."""
        open_ = self._local.__dict__.setdefault("connections", {})
        conn, used = open_.get(at), True
        if conn is None:
            u, used = self._servers[at], False
            make = http.client.HTTPSConnection if u.scheme == "https" else http.client.HTTPConnection
            conn = open_[at] = make(u.hostname or "", u.port, timeout=timeout)
        if conn.sock is not None and select.select([conn.sock], [], [], 0)[0]:
            conn.close()  # the server has closed it while it was idle
            used = False
        conn.timeout = timeout
        if conn.sock is not None:
            conn.sock.settimeout(timeout)
        return conn, used

    def _forget(self, at: int) -> None:
        conn = self._local.__dict__.get("connections", {}).pop(at, None)
        if conn is not None:
            conn.close()

    def __enter__(self) -> Client:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Closes the connections of this thread."""
        for at in list(self._local.__dict__.get("connections", {})):
            self._forget(at)


def submission(biz_type: str, biz_id: int | str, *, action_time: datetime | None = None, delay: timedelta | None = None,
               attribute: str = "", dedup_key: str = "", timeout: timedelta | None = None,
               on_duplicate: str = "") -> dict[str, Any]:
    """One task of submit_batch."""
    body: dict[str, Any] = {"biz_type": biz_type, "biz_id": str(biz_id)}
    _set_time(body, action_time, delay)
    if action_time is None and delay is None:
        raise ValueError("give action_time or delay")
    for name, value in (("attribute", attribute), ("dedup_key", dedup_key), ("on_duplicate", on_duplicate)):
        if value:
            body[name] = value
    if timeout is not None:
        body["timeout"] = _duration(timeout)
    return body


def _set_time(body: dict[str, Any], action_time: datetime | None, delay: timedelta | None) -> None:
    if action_time is not None and delay is not None:
        raise ValueError("give action_time or delay, not both")
    if action_time is not None:
        body["action_time"] = _time(action_time)
    if delay is not None:
        body["delay"] = _duration(delay)


def _time(at: datetime | None) -> str:
    if at is None:
        return ""
    if at.tzinfo is None:
        raise ValueError(f"{at!r} has no time zone; give one, like datetime.now(timezone.utc)")
    return at.astimezone(timezone.utc).isoformat().replace("+00:00", "Z")


def _duration(d: timedelta) -> str:
    return f"{d // timedelta(microseconds=1)}us"


def _filters(filters: dict[str, Any]) -> dict[str, Any]:
    return {name: _time(v) if isinstance(v, datetime) else v for name, v in filters.items() if v is not None}


def _query(**values: Any) -> str:
    return "?" + urlencode({name: v for name, v in values.items() if v not in ("", None)})


def _id(job_id: int | str) -> int:
    return int(job_id)


def _has_key(body: Mapping[str, Any]) -> bool:
    return bool(body.get("dedup_key")) and body.get("on_duplicate", "keep") == "keep"


def _split(server: str):
    u = urlsplit(server if "://" in server else "http://" + server)
    if u.scheme not in ("http", "https") or not u.hostname:
        raise ValueError(f"{server!r} is not the URL of a server; write http://host:port")
    return u._replace(path=u.path.rstrip("/"))
