"""What the server refuses, as exceptions."""

from __future__ import annotations

import json
from email.message import Message
from typing import Any, Mapping


class Error(Exception):
    """A refusal: an RFC 9457 problem.

    status is the HTTP status, detail says what is wrong, and errors has a dict with location and message for each field
    that is wrong. task is the task as it stands, if the server tells it; retry_after is how many seconds to wait, or 0.
    """

    def __init__(self, status: int, title: str, detail: str, problem: Mapping[str, Any], retry_after: int = 0) -> None:
        self.status, self.title, self.detail = status, title, detail
        errors, task = problem.get("errors"), problem.get("task")
        self.errors: list[dict[str, str]] = [e for e in errors if isinstance(e, dict)] if isinstance(errors, list) else []
        self.outcome: str = problem.get("outcome") or ""
        self.task: dict[str, Any] | None = task if isinstance(task, dict) else None
        self.retry_after = retry_after
        said = "; ".join(f"{e.get('location')}: {e.get('message')}" for e in self.errors) or detail
        super().__init__(f"{status} {title}: {said}")


class NotFoundError(Error):
    """No task, business type or operation is there by this name."""


class ConflictError(Error):
    """The task cannot be changed: outcome is already_processed, already_cancelled, dead, running or pending."""


class ChangedError(Error):
    """The task is not as you have seen it (etag): task is how it is now."""


class InvalidError(Error):
    """The request is wrong: errors names the fields."""


class UnavailableError(Error):
    """The center cannot do it now: detail says whether something was changed. Try again after retry_after seconds."""


class UnreachableError(UnavailableError, ConnectionError):
    """No connection to any of the servers can be made, so nothing was sent."""

    def __init__(self, servers: str, cause: BaseException) -> None:
        super().__init__(503, "no server can be reached", f"{servers} ({cause})", {})

    def __str__(self) -> str:
        return f"{self.title}: {self.detail}"


_KINDS = {404: NotFoundError, 409: ConflictError, 412: ChangedError, 422: InvalidError, 503: UnavailableError}


def refusal(status: int, reason: str, headers: Mapping[str, str] | Message, body: bytes) -> Error:
    """Makes an exception of an answer. What stands between client and server may have sent it."""
    problem: dict[str, Any] = {}
    if (headers.get("Content-Type") or "").startswith("application/problem+json"):
        try:
            problem = json.loads(body)
        except (ValueError, RecursionError):
            problem = {}
    if not isinstance(problem, dict):
        problem = {}
    if not problem.get("detail"):
        problem["detail"] = repr(body[:200])[1:]
    wait = headers.get("Retry-After") or ""
    if isinstance(problem.get("task"), dict) and headers.get("ETag"):
        problem["task"]["etag"] = headers["ETag"]
    return refused(status, reason, problem, int(wait) if wait.isdigit() else 0)


def refused(status: int, reason: str, problem: Mapping[str, Any], retry_after: int) -> Error:
    """Makes an exception of a problem."""
    kind = _KINDS.get(status, Error)
    return kind(status, problem.get("title") or reason, problem.get("detail") or "", problem, retry_after)
