"""Drives the commands of Youzan's delay queue: add, pop, finish and delete, at any node, beside wrong ones.

    youzan.py SECONDS TOPIC,TOPIC… URL…

It knows only what is written down of them: bodies, answers, and what a delay and a TTR mean. It prints what it has done as one
line of JSON, and each broken promise; its status is 1 if there was one.
"""

import json
import random
import sys
import threading
import time
import urllib.error
import urllib.request
import uuid

SECONDS, TOPICS, NODES = float(sys.argv[1]), sys.argv[2].split(","), sys.argv[3:]
UNTIL = time.time() + SECONDS
ADDERS, POPPERS, PACE = 4, 6, 0.02
CLOCK = 0.002  # seconds that an answer may round

lock = threading.Lock()
jobs = {}  # by topic and id
counts = {"add": 0, "pop": 0, "none": 0, "finish": 0, "delete": 0, "lapsed": 0, "wrong": 0}
broken = []


def blame(what, about):
    with lock:
        broken.append(f"{what}: {about}")


def count(what):
    with lock:
        counts[what] += 1


def send(body, node=None):
    """Sends a body, as text or as an object; returns the status and the answer."""
    text = body if isinstance(body, bytes) else json.dumps(body).encode()
    ask = urllib.request.Request((node or random.choice(NODES)) + "/youzan", data=text, headers={"Content-Type": "application/json"})
    try:
        with urllib.request.urlopen(ask, timeout=20) as answer:
            return answer.status, json.load(answer)
    except urllib.error.HTTPError as refused:
        with refused:
            return refused.code, json.load(refused)


def some_id():
    return random.choice([
        lambda: str(uuid.uuid4()),
        lambda: str(random.getrandbits(63)),
        lambda: "订单-" + uuid.uuid4().hex,
        lambda: "o " + uuid.uuid4().hex + "/?&\"'\\",
        lambda: uuid.uuid4().hex * 4,  # 128 bytes: the longest
    ])()


def add():
    while time.time() < UNTIL:
        topic, key, delay = random.choice(TOPICS), some_id(), random.choice([0, 1, round(random.random() * 2, 3)])
        body = random.choice(["", "x", "要关闭的订单 " + key, json.dumps({"shop": 7, "order": key}), "b" * 4000])
        job = {"body": body, "ttr": random.choice([1, 2]), "since": time.time() + delay, "state": "added", "held": 0.0}
        with lock:
            jobs[topic, key] = job  # before it may be popped
        status, said = send({"command": "add", "topic": topic, "id": key, "delay": delay, "TTR": job["ttr"], "body": body})
        if status != 200 or said.get("code") != 0 or not said.get("job_id"):
            blame("add was refused", (key, status, said))
            continue
        count("add")
        _, again = send({"command": "add", "topic": topic, "id": key, "delay": 3600, "TTR": 1, "body": "other"}) if delay >= 1 else (200, said)
        if again != said:
            blame("the same id again made another job", (key, said, again))
        if delay >= 1 and random.random() < 0.2:
            delete(topic, key, job)
        time.sleep(PACE)


def delete(topic, key, job):
    status, said = send({"command": "delete", "topic": topic, "id": key})
    if status == 200 and said["code"] == 0:
        with lock:
            job["state"] = "deleted"
        count("delete")
    else:
        blame("delete of a job that waits", (key, status, said))


def pop():
    while True:
        topic = random.choice(TOPICS)
        status, said = send({"command": "pop", "topic": topic})
        now = time.time()
        if status != 200 or said.get("code") not in (0, 1):
            blame("pop", (status, said))
            continue
        if said["code"] == 1:
            count("none")
            if now > UNTIL and all_over():
                return
            if now > UNTIL + 30:
                blame("jobs were lost", [key for key, job in jobs.items() if job["state"] == "added"])
                return
            time.sleep(PACE)
            continue
        count("pop")
        key = said["id"]
        job = jobs.get((topic, key))
        if job is None or job["body"] != said["body"]:
            blame("pop gave what nobody added", said)
            continue
        with lock:
            if job["state"] != "added":
                broken.append(f"a job was popped after it was {job['state']}: {key}")
            if now < job["since"] - CLOCK:
                broken.append(f"a job was popped {job['since'] - now} s early: {key}")
            if now < job["held"] - CLOCK:
                broken.append(f"a job was popped {job['held'] - now} s before its TTR was over: {key}")
            job["held"] = now + job["ttr"] - 0.5  # it began when the node gave it, a little earlier
        if random.random() < 0.1:
            count("lapsed")
            continue
        settle(topic, key, job)


def settle(topic, key, job):
    command = random.choice(["finish"] * 9 + ["delete"])
    with lock:
        job["state"] = "being settled"
    sent = time.time()
    status, said = send({"command": command, "topic": topic, "id": key})
    took = time.time() - sent
    if status == 200 and said["code"] == 0:
        with lock:
            job["state"] = "settled"
        count(command)
        again = send({"command": "finish", "topic": topic, "id": key})
        if again[1].get("code") != 1:
            blame("finish of a finished job", (key, again))
    elif took < job["ttr"] / 2:
        blame(command + " of a job in time", (key, status, said))
    else:
        with lock:
            job["state"] = "added"


def all_over():
    with lock:
        return all(job["state"] != "added" for job in jobs.values())


def wrong():
    """Each of these must be refused with the field that is wrong, and change nothing."""
    topic = TOPICS[0]
    bodies = [
        (b"", "body"), (b"{", "body"), (b"[]", "body"), (b"null", "body"), (b'"pop"', "body"), (b"\xff\xfe", "body"),
        ({}, "command"), ({"command": "eat", "topic": topic, "id": "a"}, "command"), ({"command": "POP", "topic": topic, "id": "a"}, "command"),
        ({"command": "pop"}, "topic"), ({"command": "pop", "topic": "nowhere"}, "topic"),
        ({"command": "add", "topic": "nowhere", "id": "a", "delay": 1, "TTR": 1, "body": ""}, "topic"),
        ({"command": "add", "topic": topic, "delay": 1, "TTR": 1, "body": ""}, "id"),
        ({"command": "add", "topic": topic, "id": "", "delay": 1, "TTR": 1, "body": ""}, "id"),
        ({"command": "add", "topic": topic, "id": "i" * 129, "delay": 1, "TTR": 1, "body": ""}, "id"),
        ({"command": "add", "topic": topic, "id": "a", "delay": -1, "TTR": 1, "body": ""}, "delay"),
        ({"command": "add", "topic": topic, "id": "a", "delay": "soon", "TTR": 1, "body": ""}, "delay"),
        ({"command": "add", "topic": topic, "id": "a", "delay": 1e12, "TTR": 1, "body": ""}, "delay"),
        ({"command": "add", "topic": topic, "id": "a", "delay": 1, "TTR": -1, "body": ""}, "TTR"),
        ({"command": "add", "topic": topic, "id": "a", "delay": 1, "TTR": 1e9, "body": ""}, "TTR"),
        ({"command": "add", "topic": topic, "id": "a", "delay": 1, "TTR": 0.00001, "body": ""}, "TTR"),
        ({"command": "add", "topic": topic, "id": "a", "delay": 1, "TTR": 1, "body": "b" * 5000}, "body"),
        ({"command": "add", "topic": topic, "id": "a", "delay": 1, "TTR": 1, "body": "b" * 2_000_000}, "body"),
        ({"command": "add", "topic": topic, "id": "a", "delay": 1, "TTR": 1, "body": 7}, "body"),
        ({"command": "add", "topic": topic, "id": ["a"], "delay": 1, "TTR": 1, "body": ""}, "id"),
        ({"command": "finish"}, "id"), ({"command": "delete", "id": ""}, "id"),
    ]
    while time.time() < UNTIL:
        body, field = random.choice(bodies)
        try:
            status, said = send(body)
        except OSError as e:
            if isinstance(body, bytes) or len(json.dumps(body)) < 1_000_000:  # a longer one may be cut off while it is sent
                blame("a wrong body was not answered", (str(body)[:80], e))
            continue
        if not 400 <= status < 500 or said.get("code") in (0, 1, None) or not said.get("message", "").startswith(field + ": "):
            blame(f"a wrong {field} was not called so", (str(body)[:120], status, said))
        status, said = send({"command": random.choice(["finish", "delete"]), "id": "nobody's " + uuid.uuid4().hex})
        if status != 200 or said.get("code") != 1:
            blame("a job that is not there", (status, said))
        count("wrong")
        time.sleep(PACE)


threads = [threading.Thread(target=f) for f in [add] * ADDERS + [pop] * POPPERS + [wrong]]
for one in threads:
    one.start()
for one in threads:
    one.join()
print(json.dumps(dict(counts, jobs=len(jobs), broken=len(broken))))
for what in broken[:20]:
    print(what)
sys.exit(1 if broken else 0)
