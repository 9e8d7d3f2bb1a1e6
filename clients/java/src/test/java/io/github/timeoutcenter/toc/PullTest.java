package io.github.timeoutcenter.toc;

import java.time.Duration;
import java.time.Instant;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.TreeMap;
import java.util.concurrent.Callable;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.CountDownLatch;

/** Against the business types pulled, stopped and slow of a real center: TOC_SERVER, TOC_TOKEN. */
final class PullTest {
    private static final Duration LIMIT = Duration.ofSeconds(60); // for what should come at once

    private final TocClient toc = CenterTest.toc();

    static void await(Callable<Boolean> fact) throws Exception {
        Instant until = Instant.now().plus(LIMIT);
        while (!fact.call()) {
            Tests.holds(Instant.now().isBefore(until), "it has not come");
            Thread.sleep(20);
        }
    }

    private String submit(String bizType, String attribute) throws Exception {
        return toc.submit(Submission.of(bizType, 7).delay(Duration.ZERO).attribute(attribute)).task().jobId();
    }

    /** A worker in a thread. */
    private static Thread start(Worker w) {
        Thread t = new Thread(w::run);
        t.start();
        return t;
    }

    void aWorker() throws Exception {
        Map<String, String> seen = new ConcurrentHashMap<>();
        Worker worker = Worker.builder(toc, "pulled", (task, attempt) -> {
            seen.merge(task.attribute(), "" + attempt, String::concat);
            switch (task.attribute()) {
                case "once more":
                    if (attempt == 1) {
                        throw new Worker.RetryAfter(Duration.ofMillis(50), "busy");
                    }
                    break;
                case "gone":
                    throw new Worker.Reject("paid");
                case "broken":
                    throw new AssertionError("no");
                default:
            }
        }).threads(4).ttr(Duration.ofSeconds(20)).build();
        Map<String, String> ids = new TreeMap<>();
        for (String a : List.of("well", "once more", "gone", "broken")) {
            ids.put(a, submit("pulled", a));
        }
        Thread t = start(worker);
        Map<String, String> want = Map.of("well", "processed", "once more", "processed", "gone", "cancelled", "broken", "dead");
        for (Map.Entry<String, String> e : want.entrySet()) {
            await(() -> toc.get(ids.get(e.getKey())).status().equals(e.getValue()));
        }
        worker.stop();
        t.join();
        Tests.equal("java.lang.AssertionError: no", toc.get(ids.get("broken")).lastError());
        Tests.equal("12", seen.get("once more"));
        Task again = toc.redrive(ids.get("broken"));
        Tests.equal(List.of("pending", 0), List.of(again.status(), again.attempts()));
        toc.cancel(again.jobId());
    }

    /** The lease of a run that takes longer than the ttr is extended, and nobody else gets the task. */
    void aWorkerExtends() throws Exception {
        Worker worker = Worker.builder(toc, "slow", (task, attempt) -> {
            Instant first = until(task);
            await(() -> until(task).isAfter(first));
        }).ttr(Duration.ofSeconds(6)).build();
        String id = submit("slow", "");
        Thread t = start(worker);
        await(() -> toc.get(id).status().equals("processed"));
        worker.stop();
        t.join();
        Tests.equal(0, toc.get(id).attempts());
    }

    private Instant until(Task task) throws Exception {
        return Values.time(Values.object(toc.get(task.jobId()).fields().get("running")).get("until"));
    }

    /** A worker that is stopped settles what runs, and takes nothing more. */
    void aWorkerStops() throws Exception {
        CountDownLatch runs = new CountDownLatch(1);
        CountDownLatch go = new CountDownLatch(1);
        Worker worker = Worker.builder(toc, "stopped", (task, attempt) -> {
            runs.countDown();
            go.await();
        }).threads(2).build();
        String id = submit("stopped", "");
        Thread t = start(worker);
        runs.await();
        Instant stopped = Instant.now();
        worker.stop();
        t.join(700);
        Tests.holds(t.isAlive(), "it waits for the task that runs");
        Tests.holds(!worker.stop(Duration.ZERO), "run has not returned");
        go.countDown();
        Tests.holds(worker.stop(LIMIT), "run has returned");
        t.join();
        Tests.holds(Duration.between(stopped, Instant.now()).toSeconds() < 15, "it hangs up, and does not wait for tasks");
        Tests.equal("processed", toc.get(id).status());
        String next = submit("stopped", "");
        Leased got = toc.lease("stopped", 2, Duration.ofSeconds(20), null);
        Tests.equal(List.of(next), got.tasks().stream().map(one -> one.task().jobId()).toList());
        toc.settle(List.of(Settlement.reject(got.tasks().get(0).lease(), "x")));
    }

    /** Has a worker with one thread run five tasks, and returns its server. */
    private String work(String behaviour) throws Exception {
        String server = FailoverTest.server(behaviour);
        Worker worker = Worker.builder(TocClient.builder(server).token(System.getenv("TOC_TOKEN")).build(), "pulled", (task, attempt) -> {})
                .threads(1).build();
        List<String> ids = new ArrayList<>();
        for (int i = 0; i < 5; i++) {
            ids.add(submit("pulled", ""));
        }
        Thread t = start(worker);
        for (String id : ids) {
            await(() -> toc.get(id).status().equals("processed"));
        }
        worker.stop();
        t.join();
        return server;
    }

    void aWorkerSettlesWithItsNextLease() throws Exception {
        Tests.equal(0, FailoverTest.calls(work("center"), "/settle"));
    }

    void aWorkerAtAnOlderCenter() throws Exception {
        Tests.holds(FailoverTest.calls(work("old"), "/settle") > 0, "it settles in a separate request");
    }

    void aWorkerIsRefused() throws Exception {
        Tests.fails(TocException.NotFound.class, () -> Worker.builder(toc, "nobody", (task, attempt) -> {}).build().run());
        Tests.fails(TocException.Invalid.class, () -> Worker.builder(toc, "order_close", (task, attempt) -> {}).build().run());
    }

    void leases() throws Exception {
        Tests.fails(TocException.NotFound.class, () -> toc.lease("nobody", 1, Duration.ZERO, null));
        Tests.fails(TocException.Invalid.class, () -> toc.lease("order_close", 1, Duration.ZERO, null));
        Tests.equal(List.of(), toc.lease("pulled", 1, Duration.ZERO, null).tasks());
        String id = submit("pulled", "");
        Leased got = toc.lease("pulled", 1, Duration.ofSeconds(20), Duration.ofSeconds(50));
        Tests.equal("ok", toc.settle(List.of(Settlement.release(got.tasks().get(0).lease()))).get(0).result());
        got = toc.lease("pulled", 1, Duration.ofSeconds(20), Duration.ofSeconds(50));
        Leased.One one = got.tasks().get(0);
        Tests.equal(List.of(id, 1, false), List.of(one.task().jobId(), one.attempt(), got.isPaused()));
        Tests.holds(one.expiresAt().isAfter(Instant.now().plusSeconds(10)), "it is leased until " + one.expiresAt());
        List<Settled> results = toc.settle(List.of(Settlement.ack("x"), Settlement.extend(one.lease(), Duration.ofMinutes(1)),
                Settlement.ack(one.lease()), Settlement.nack(one.lease(), "late", Duration.ofSeconds(1))));
        Tests.equal(List.of("invalid", "ok", "ok", "lost"), results.stream().map(Settled::result).toList());
    }
}
