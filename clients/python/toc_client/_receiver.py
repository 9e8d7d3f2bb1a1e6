"""What a receiver of webhooks needs: the signature, and work that is done once."""

from __future__ import annotations

import base64
import hashlib
import hmac
import logging
import secrets
import threading
import time
from collections import OrderedDict
from datetime import timedelta
from typing import Any, Callable, Mapping

from ._values import Duration, span

_log = logging.getLogger("toc_client")

TOLERANCE = 300.0
"""How old a call may be, and how far ahead its clock, in seconds (Standard Webhooks)."""


class SignatureError(Exception):
    """The call is not from somebody who knows the secret, or it is too old."""


def verify(secret: str, headers: Mapping[str, str], body: bytes | str, *, now: float | None = None) -> None:
    """Raises SignatureError unless the call was signed with the secret, within five minutes (Standard Webhooks v1).

    secret is written as in webhook.secret: whsec_ and base64, or any other text, of 16 bytes or more; else this is a ValueError.
    headers may be in any case, and as in the environ of WSGI: HTTP_WEBHOOK_ID. body is what came, before anything has read it as JSON.
    """
    try:
        key = base64.b64decode(secret[len("whsec_"):]) if secret.startswith("whsec_") else secret.encode()
    except ValueError as e:
        raise ValueError("secret: what follows whsec_ is no base64: give that of webhook.secret") from e
    if len(key) < 16:
        raise ValueError("secret has fewer than 16 bytes: give that of webhook.secret")
    if isinstance(body, str):
        body = body.encode()
    given = {name.lower().replace("_", "-").removeprefix("http-"): value for name, value in headers.items()}
    try:
        msg_id, stamp, signatures = (given["webhook-" + name] for name in ("id", "timestamp", "signature"))
        at = int(stamp)
    except (KeyError, ValueError) as e:
        raise SignatureError("the call is not signed") from e
    if abs((time.time() if now is None else now) - at) > TOLERANCE:
        raise SignatureError("the call is older than five minutes, or a clock is wrong")
    want = base64.b64encode(hmac.new(key, f"{msg_id}.{stamp}.".encode() + body, hashlib.sha256).digest())
    for one in signatures.split():
        version, _, signature = one.partition(",")
        if version == "v1" and hmac.compare_digest(signature.encode(), want):
            return
    raise SignatureError("no signature matches")


class UnderWay(Exception):
    """Another call does the work of this key now: answer 503, and toc calls again."""


class Dedup:
    """Does the work of each key, a job_id say, once. It remembers the latest size keys in this process.

    Several processes need a store that they share. Where the work has a database, that is the best one, in the same
    transaction. Otherwise give a Redis: any client that has the set, get and eval of redis-py. What is done is kept there
    for keep, and work that has not ended after timeout counts as given up, because its process died: let it be longer than
    the work ever takes. The keys are those of the Go package dedup.
    """

    _UNLOCK = "if redis.call('GET', KEYS[1]) == ARGV[1] then return redis.call('DEL', KEYS[1]) end return 0"

    def __init__(self, size: int = 100_000, *, redis: Any = None, prefix: str = "toc:done:", keep: Duration = timedelta(days=7),
                 timeout: Duration = timedelta(minutes=5)) -> None:
        self._size = size
        self._redis, self._prefix = redis, prefix
        self._keep, self._timeout = span("keep", keep) // timedelta(milliseconds=1), span("timeout", timeout) // timedelta(milliseconds=1)
        self._lock = threading.Lock()
        self._done: OrderedDict[str, None] = OrderedDict()
        self._under_way: set[str] = set()

    def do(self, key: str, work: Callable[[], object]) -> bool:
        """Calls work unless it is done already, and says whether it did. If work raises, the key is new again. UnderWay is
        raised while another call does the work, and an error of Redis if that cannot say: then nothing was done."""
        with self._lock:
            if key in self._done:
                self._done.move_to_end(key)
                return False
            if key in self._under_way:
                raise UnderWay(key)
            self._under_way.add(key)
        try:
            return self._first(key, work)
        finally:
            with self._lock:
                self._under_way.discard(key)

    def _first(self, key: str, work: Callable[[], object]) -> bool:
        """Does the work of a key that no other call of this process does."""
        token = secrets.token_hex(16)
        if self._is_done_elsewhere(key, token):
            self._remember(key)
            return False
        try:
            work()
        except BaseException:
            self._after("unlock", lambda: self._redis.eval(self._UNLOCK, 1, self._prefix + key, token))
            raise
        self._remember(key)
        self._after("remember", lambda: self._redis.set(self._prefix + key, "done", px=self._keep))
        return True

    def _is_done_elsewhere(self, key: str, token: str) -> bool:
        if self._redis is None or self._redis.set(self._prefix + key, token, px=self._timeout, nx=True):
            return False
        if self._redis.get(self._prefix + key) in (b"done", "done"):
            return True
        raise UnderWay(key)

    def _after(self, what: str, call: Callable[[], object]) -> None:
        """Tells Redis of work that has ended. If that fails, the lock ends by its time, and this process alone remembers."""
        try:
            if self._redis is not None:
                call()
        except Exception as e:  # of whatever client
            _log.warning("dedup: %s in Redis: %s", what, e)

    def _remember(self, key: str) -> None:
        with self._lock:
            self._done[key] = None
            if len(self._done) > self._size:
                self._done.popitem(last=False)
