"""The calls of the HTTP API."""

from __future__ import annotations

from datetime import datetime
from http.client import HTTPException
from typing import Any, Dict, Iterable, Iterator, Mapping
from urllib.parse import quote

from ._gather import Gatherer
from ._transport import Stop, Transport
from ._values import given_id as _biz_id
from ._values import Duration, change, duration, encode, filters as _filters, has_key, job_id as _id, key, query, submission
from ._values import span, time as _time

Task = Dict[str, Any]
"""A task: the fields of the API, in which empty ones are left out, and "etag"."""


class Client:
    """Calls one timeout center at one or more of its servers: each takes any request.

    A request goes to the server that answered last. If no connection to it can be made, the next one is tried, each once.
    What is safe to repeat is tried at the next one also after a lost answer, after 5 s without one, and after a 502, 503
    or 504: requests that only read, and submits of which each has a dedup_key. Without an answer from any server the last
    OSError or http.client.HTTPException is raised; a refusal raises an Error.

    timeout bounds each try at a server, in seconds, with the answer's body; a lease may take its wait longer.

    Submits of concurrent threads share requests, unless gather is False: a submit is sent at once, unless two requests of
    submits are under way; what comes meanwhile is the next request. Each thread gets the answer to its own submit.
    """

    def __init__(self, *servers: str, token: str = "", timeout: float = 30.0, gather: bool = True) -> None:
        self._transport = Transport(servers or ("http://127.0.0.1:8080",), token)
        self._timeout = timeout
        self._gatherer = Gatherer(self._post, len(servers) > 1) if gather else None

    def _post(self, path: str, text: bytes, safe: bool) -> tuple[int, Any]:
        return self._transport.call("POST", path, text, timeout=self._timeout, safe=safe)

    # Submit

    def submit(self, biz_type: str, biz_id: int | str, *, action_time: datetime | None = None, delay: Duration | None = None,
               attribute: str = "", dedup_key: str = "", timeout: Duration | None = None,
               on_duplicate: str = "", past: str = "") -> tuple[Task, bool]:
        """Stores one task, due at action_time or after delay. True: the dedup_key was known, and this is the task that has it.

        on_duplicate is keep, move or again; past, of an action_time more than 5 s ago, is refuse or fire.
        """
        body = submission(biz_type, biz_id, action_time=action_time, delay=delay, attribute=attribute, dedup_key=dedup_key,
                          timeout=timeout, on_duplicate=on_duplicate, past=past)
        text, safe = encode(body), has_key(body)
        status, task = self._gatherer.submit(text, safe) if self._gatherer else self._post("/v1/tasks", text, safe)
        return task, status == 200

    def submit_batch(self, tasks: Iterable[Mapping[str, Any]]) -> list[dict[str, Any]]:
        """Stores up to 10,000 tasks, each made by submission, and answers for each in order: job_id, or error."""
        bodies = list(tasks)
        answer = self._call("POST", "/v1/tasks/batch", {"tasks": bodies}, safe=all(map(has_key, bodies)))[1]
        return list(answer["results"])

    # Look up

    def get(self, job_id: int | str) -> Task:
        """Reads one task; NotFoundError if there is none."""
        return self._task("GET", f"/v1/tasks/{_id(job_id)}")

    def get_by_key(self, biz_type: str, biz_id: int | str, dedup_key: str) -> Task:
        """Reads the task that was submitted under a dedup_key."""
        return self._task("GET", "/v1/tasks/by-key" + key(biz_type, biz_id, dedup_key))

    def why(self, job_id: int | str) -> dict[str, Any]:
        """Tells where a task waits, and what holds it."""
        return self._task("GET", f"/v1/tasks/{_id(job_id)}/why")

    def list_tasks(self, biz_id: int | str, *, biz_type: str = "", status: str = "") -> Iterator[Task]:
        """Goes through the tasks of a biz_id."""
        return self._pages("/v1/tasks", biz_id=_biz_id(biz_id), biz_type=biz_type, status=status)

    def list_all(self, *, biz_type: str = "", status: str = "", since: datetime | None = None,
                 until: datetime | None = None) -> Iterator[Task]:
        """Goes through the tasks of all tables: the pending ones, or those of a status, with an action_time in between."""
        times = {"from": _time("since", since), "to": _time("until", until)}
        return self._pages("/v1/tasks", biz_type=biz_type, status=status, **times)

    def list_dead(self, *, biz_type: str = "", error: str = "", since: datetime | None = None,
                  until: datetime | None = None) -> Iterator[Task]:
        """Goes through the dead tasks; error is a part of last_error."""
        return self._pages("/v1/dead", biz_type=biz_type, error=error, since=_time("since", since), until=_time("until", until))

    # Change

    def cancel(self, job_id: int | str, *, etag: str = "") -> None:
        """Cancels a pending task. With the etag of a task that you have read, only if it is still so (ChangedError)."""
        self._cancel(f"/v1/tasks/{_id(job_id)}/cancel", etag)

    def cancel_by_key(self, biz_type: str, biz_id: int | str, dedup_key: str, *, etag: str = "") -> None:
        """Cancels the pending task that was submitted under a dedup_key."""
        self._cancel("/v1/tasks/by-key/cancel" + key(biz_type, biz_id, dedup_key), etag)

    def reschedule(self, job_id: int | str, *, action_time: datetime | None = None, delay: Duration | None = None,
                   attribute: str | None = None, timeout: Duration | None = None, past: str = "",
                   etag: str = "") -> Task:
        """Moves a pending task, or changes its attribute or timeout; what is left out stays."""
        body = change(action_time, delay, attribute, timeout, past)
        return self._task("PATCH", f"/v1/tasks/{_id(job_id)}", body, etag)

    def reschedule_by_key(self, biz_type: str, biz_id: int | str, dedup_key: str, *, action_time: datetime | None = None,
                          delay: Duration | None = None, attribute: str | None = None, timeout: Duration | None = None,
                          past: str = "", etag: str = "") -> Task:
        """Changes the pending task that was submitted under a dedup_key, as reschedule."""
        body = change(action_time, delay, attribute, timeout, past)
        return self._task("PATCH", "/v1/tasks/by-key" + key(biz_type, biz_id, dedup_key), body, etag)

    def redrive(self, job_id: int | str, *, etag: str = "") -> Task:
        """Gives a dead task a fresh start, due now."""
        return self._task("POST", f"/v1/tasks/{_id(job_id)}/redrive", etag=etag)

    def redrive_dead(self, **filters: Any) -> dict[str, Any]:
        """Redrives the dead tasks that match biz_type, error, since, until; limit, rate and dry_run as in the API."""
        return self._task("POST", "/v1/dead/redrive", _filters(filters))

    def discard_dead(self, **filters: Any) -> dict[str, Any]:
        """Cancels the dead tasks that match, as redrive_dead."""
        return self._task("POST", "/v1/dead/discard", _filters(filters))

    def retry(self, biz_type: str, rate: float | None = None) -> dict[str, Any]:
        """Runs the pending tasks of a business type now that have failed and would run again later, rate a second; None: at once."""
        return self._task("POST", f"/v1/biz-types/{quote(biz_type, safe='')}/retry", {} if rate is None else {"rate": rate})

    def pause(self, biz_type: str, *, reason: str = "", until: datetime | None = None) -> None:
        """Keeps the tasks of a business type from starting."""
        body = {"reason": reason} if reason else {}
        if until is not None:
            body["until"] = _time("until", until)
        self._call("POST", f"/v1/biz-types/{quote(biz_type, safe='')}/pause", body)

    def resume(self, biz_type: str) -> None:
        """Ends a pause."""
        self._call("POST", f"/v1/biz-types/{quote(biz_type, safe='')}/resume", {})

    # Pull

    def lease(self, biz_type: str, max: int = 1, *, wait: Duration | None = None, ttr: Duration | None = None) -> dict[str, Any]:
        """Leases up to 256 due tasks of a business type whose processor is pull, and waits up to a minute for one.

        The answer has tasks, each with lease, expires_at, attempt and task, and paused. Worker does all of this.
        """
        return self._lease(biz_type, max, wait, ttr, None, [])

    def _lease(self, biz_type: str, max: int, wait: Duration | None, ttr: Duration | None, stop: Stop | None,
               settle: list[dict[str, str]]) -> dict[str, Any]:
        body: dict[str, Any] = {"max": max, **({"settle": settle} if settle else {})}
        if wait is not None:
            body["wait"] = duration("wait", wait)
        if ttr is not None:
            body["ttr"] = duration("ttr", ttr)
        timeout = self._timeout + (span("wait", wait).total_seconds() if wait else 0)
        path = f"/v1/biz-types/{quote(biz_type, safe='')}/lease"
        answer: dict[str, Any] = self._transport.call("POST", path, body, timeout=timeout, safe=False, stop=stop)[1]
        return answer

    def settle(self, settlements: Iterable[Mapping[str, Any]]) -> list[dict[str, Any]]:
        """Settles up to 1,000 leases: lease, do (ack, nack, extend, reject or release), and retry_after, ttr (durations of the API,
        such as 1.5s) or error.

        Each result has lease and result: ok, lost (the lease is over or was settled before), invalid, or unavailable (send
        it again). After an OSError or HTTPException the results are unknown: send the list again, and what is lost then may
        have been settled by the first request.
        """
        return list(self._call("POST", "/v1/leases/settle", {"settle": list(settlements)})[1]["results"])

    def _extend(self, leases: Iterable[str], ttr: Duration | None, timeout: float) -> list[str]:
        more = {} if ttr is None else {"ttr": duration("ttr", ttr)}
        body = {"settle": [{"lease": lease, "do": "extend", **more} for lease in leases]}
        answer = self._transport.call("POST", "/v1/leases/settle", body, timeout=min(timeout, self._timeout), safe=True)[1]
        return [one["result"] for one in answer["results"]]

    # The way to a server

    def _pages(self, path: str, **given: Any) -> Iterator[Task]:
        cursor = ""
        while True:
            page = self._call("GET", path + query(**given, limit=1000, cursor=cursor))[1]
            yield from page["tasks"]
            cursor = page.get("next_cursor") or ""
            if not cursor:
                return

    def _cancel(self, path: str, etag: str) -> None:
        if self._call("POST", path, etag=etag)[1].get("outcome") != "cancelled":
            raise HTTPException(f"{path}: whatever answered is no timeout center")

    def _task(self, method: str, path: str, body: Mapping[str, Any] | None = None, etag: str = "") -> Task:
        answer: Task = self._call(method, path, body, etag=etag)[1]
        return answer

    def _call(self, method: str, path: str, body: Mapping[str, Any] | None = None, *, etag: str = "",
              safe: bool | None = None) -> tuple[int, Any]:
        safe = method == "GET" if safe is None else safe
        return self._transport.call(method, path, body, timeout=self._timeout, etag=etag, safe=safe)

    def __enter__(self) -> Client:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Closes the connections of this thread."""
        self._transport.close()
