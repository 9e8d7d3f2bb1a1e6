"""The Python client of the timeout center: its HTTP API, and helpers for receivers of its webhooks.

    from datetime import timedelta
    from toc_client import Client

    toc = Client("http://10.0.0.7:8080", "http://10.0.0.8:8080", token="...")
    task, _ = toc.submit("order_close", 42, delay=timedelta(minutes=30), dedup_key="order-42-unpaid")
    toc.cancel(task["job_id"])

It needs Python 3.9 or newer and nothing else. Tasks are dicts with the fields of the API (docs/http.md) that are not empty; times are
datetimes with a time zone on the way in, and RFC 3339 texts on the way out. A duration is a timedelta, or a number of
seconds. A Client may be used by many threads.
"""

from ._client import Client, Task
from ._errors import ChangedError, ConflictError, Error, InvalidError, NotFoundError, UnavailableError, UnreachableError
from ._receiver import Dedup, SignatureError, UnderWay, verify
from ._values import submission
from ._worker import Reject, RetryAfter, Worker

__all__ = [
    "ChangedError", "Client", "ConflictError", "Dedup", "Error", "InvalidError", "NotFoundError", "Reject", "RetryAfter",
    "SignatureError", "Task", "UnavailableError", "UnreachableError", "UnderWay", "Worker", "submission", "verify",
]
