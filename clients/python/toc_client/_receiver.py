"""What a receiver of webhooks needs: the signature, and work that is done once."""

from __future__ import annotations

import base64
import hashlib
import hmac
import threading
import time
from collections import OrderedDict
from typing import Callable, Mapping

TOLERANCE = 300.0
"""How old a call may be, and how far ahead its clock, in seconds (Standard Webhooks)."""


class SignatureError(Exception):
    """The call is not from somebody who knows the secret, or it is too old."""


def verify(secret: str, headers: Mapping[str, str], body: bytes, *, now: float | None = None) -> None:
    """Raises SignatureError unless the call was signed with the secret, within five minutes (Standard Webhooks v1).

    secret is written as in webhook.secret: whsec_ and base64, or any other text. headers may be in any case.
    """
    given = {name.lower(): value for name, value in headers.items()}
    try:
        msg_id, stamp, signatures = (given["webhook-" + name] for name in ("id", "timestamp", "signature"))
        at = int(stamp)
    except (KeyError, ValueError) as e:
        raise SignatureError("the call is not signed") from e
    if abs((time.time() if now is None else now) - at) > TOLERANCE:
        raise SignatureError("the call is older than five minutes, or a clock is wrong")
    key = base64.b64decode(secret[len("whsec_"):]) if secret.startswith("whsec_") else secret.encode()
    want = base64.b64encode(hmac.new(key, f"{msg_id}.{stamp}.".encode() + body, hashlib.sha256).digest())
    for one in signatures.split():
        version, _, signature = one.partition(",")
        if version == "v1" and hmac.compare_digest(signature.encode(), want):
            return
    raise SignatureError("no signature matches")


class UnderWay(Exception):
    """Another call does the work of this key now: answer 503, and toc calls again."""


class Dedup:
    """Does the work of each key, a job_id say, once in this process. It remembers the latest size keys.

    Several processes need a store that they share: the database of the work itself, best in the same transaction.
    """

    def __init__(self, size: int = 100_000) -> None:
        self._size = size
        self._lock = threading.Lock()
        self._done: OrderedDict[str, None] = OrderedDict()
        self._under_way: set[str] = set()

    def do(self, key: str, work: Callable[[], object]) -> bool:
        """Calls work unless it is done already, and says whether it did. If work raises, the key is new again."""
        with self._lock:
            if key in self._done:
                self._done.move_to_end(key)
                return False
            if key in self._under_way:
                raise UnderWay(key)
            self._under_way.add(key)
        try:
            work()
            with self._lock:
                self._done[key] = None
                if len(self._done) > self._size:
                    self._done.popitem(last=False)
            return True
        finally:
            with self._lock:
                self._under_way.discard(key)
