"""Times, durations and ids as the API writes them, and the bodies of requests."""

from __future__ import annotations

import json
from datetime import datetime, timedelta, timezone
from operator import index
from typing import Any, Mapping, Union
from urllib.parse import urlencode
from uuid import UUID

Duration = Union[timedelta, float]
"""A timedelta, or a number of seconds."""


def span(name: str, d: Duration) -> timedelta:
    if isinstance(d, timedelta):
        return d
    try:
        return timedelta(seconds=d)
    except TypeError:
        raise TypeError(f"{name} is {d!r}; give a timedelta, or a number of seconds") from None


def duration(name: str, d: Duration) -> str:
    return f"{span(name, d) // timedelta(microseconds=1)}us"


def time(name: str, at: datetime | None) -> str:
    if at is None:
        return ""
    if not isinstance(at, datetime):
        raise TypeError(f"{name} is {at!r}; give a datetime with a time zone")
    if at.tzinfo is None:
        raise ValueError(f"{name} is {at!r}, without a time zone; give one, like datetime.now(timezone.utc)")
    return at.astimezone(timezone.utc).isoformat().replace("+00:00", "Z")


def job_id(given: int | str) -> int:
    if not str(given).isdecimal() or str(int(given)) != str(given):
        raise ValueError(f"job_id is {given!r}; give an unsigned 64-bit number")
    return int(given)


def given_id(given: int | str) -> str:
    """The text of a biz_id. A UUID is one, too; a None, say of a row that has no id yet, is not."""
    if isinstance(given, (str, UUID)):
        return str(given)
    try:
        number = None if isinstance(given, bool) else index(given)
    except TypeError:
        number = None
    if number is None:
        raise TypeError(f"biz_id is {given!r}; give an int or a str")
    if not 0 <= number < 1 << 64:
        raise ValueError(f"biz_id is {given!r}; give an unsigned 64-bit number, or a str")
    return str(number)


def query(**values: Any) -> str:
    return "?" + urlencode({name: v for name, v in values.items() if v not in ("", None)})


def key(biz_type: str, id_: int | str, dedup_key: str) -> str:
    return query(biz_type=biz_type, biz_id=given_id(id_), dedup_key=dedup_key)


def filters(given: Mapping[str, Any]) -> dict[str, Any]:
    return {name: time(name, v) if isinstance(v, datetime) else v for name, v in given.items() if v is not None}


def set_time(body: dict[str, Any], action_time: datetime | None, delay: Duration | None) -> None:
    if action_time is not None and delay is not None:
        raise ValueError("give action_time or delay, not both")
    if action_time is not None:
        body["action_time"] = time("action_time", action_time)
    if delay is not None:
        body["delay"] = duration("delay", delay)


def encode(body: Mapping[str, Any]) -> bytes:
    try:
        return json.dumps(body, ensure_ascii=False, allow_nan=False).encode()
    except UnicodeEncodeError as e:
        raise ValueError(f"body: {e.object[max(0, e.start - 20):e.end]!r} is no text: it has half a surrogate pair") from e


def submission(biz_type: str, biz_id: int | str, *, action_time: datetime | None = None, delay: Duration | None = None,
               attribute: str = "", dedup_key: str = "", timeout: Duration | None = None,
               on_duplicate: str = "", past: str = "") -> dict[str, Any]:
    """One task of submit_batch."""
    body: dict[str, Any] = {"biz_type": biz_type, "biz_id": given_id(biz_id)}
    set_time(body, action_time, delay)
    if action_time is None and delay is None:
        raise ValueError("give action_time or delay")
    for name, value in (("attribute", attribute), ("dedup_key", dedup_key), ("on_duplicate", on_duplicate), ("past", past)):
        if value:
            body[name] = value
    if timeout is not None:
        body["timeout"] = duration("timeout", timeout)
    return body


def change(action_time: datetime | None, delay: Duration | None, attribute: str | None, timeout: Duration | None,
           past: str) -> dict[str, Any]:
    body: dict[str, Any] = {}
    set_time(body, action_time, delay)
    if attribute is not None:
        body["attribute"] = attribute
    if timeout is not None:
        body["timeout"] = duration("timeout", timeout)
    if past:
        body["past"] = past
    return body


def has_key(body: Mapping[str, Any]) -> bool:
    """Whether a submit makes no second task, however often it is sent."""
    return bool(body.get("dedup_key")) and body.get("on_duplicate", "keep") == "keep"
