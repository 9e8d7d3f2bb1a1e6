package io.github.timeoutcenter.toc;

import java.time.Duration;
import java.time.Instant;
import java.util.ArrayList;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.UUID;
import java.util.concurrent.ConcurrentLinkedQueue;

/** Against a real center: TOC_SERVER, TOC_TOKEN. */
final class CenterTest {
    private static final Duration HOUR = Duration.ofHours(1);

    private final TocClient toc = toc();
    private final String bizId = "java-" + UUID.randomUUID();

    static TocClient toc() {
        return TocClient.builder(System.getenv("TOC_SERVER")).token(System.getenv("TOC_TOKEN")).build();
    }

    void aLife() throws Exception {
        Instant at = Instant.now().plus(HOUR);
        Submitted s = toc.submit(Submission.of("order_close", bizId).actionTime(at).attribute("{\"ü\":\"😀\\u0000\"}").dedupKey("k").timeout(Duration.ofMillis(1500)));
        Tests.equal(false, s.isDuplicate());
        String id = s.task().jobId();
        Submitted again = toc.submit(Submission.of("order_close", bizId).delay(Duration.ofSeconds(1)).dedupKey("k"));
        Tests.equal(true, again.isDuplicate());
        Tests.equal(id, again.task().jobId());
        Task got = toc.get(id);
        Tests.equal(List.of("pending", "{\"ü\":\"😀\\u0000\"}", Duration.ofMillis(1500), bizId, "k", 0),
                List.of(got.status(), got.attribute(), got.timeout(), got.bizId(), got.dedupKey(), got.attempts()));
        Tests.holds(!got.actionTime().isBefore(at) && got.actionTime().isBefore(at.plusMillis(2)), "the time is " + got.actionTime());
        Tests.holds(toc.why(id).containsKey("because"), "why");

        Task moved = toc.reschedule(id, new Change().delay(HOUR.multipliedBy(2)).ifMatch(got.etag()));
        Tests.holds(moved.actionTime().isAfter(got.actionTime()), "it is moved");
        TocException changed = Tests.fails(TocException.Changed.class, () -> toc.cancel(id, got.etag()));
        Tests.equal(moved.actionTime(), changed.task().actionTime());
        Tests.equal(moved.etag(), changed.task().etag());
        Task other = toc.reschedule(id, new Change().attribute("").timeout(Duration.ofSeconds(90)));
        Tests.equal(List.of("", Duration.ofSeconds(90), moved.actionTime()), List.of(other.attribute(), other.timeout(), other.actionTime()));
        toc.cancel(id, other.etag());
        Tests.equal("already_cancelled", Tests.fails(TocException.Conflict.class, () -> toc.cancel(id)).outcome());
    }

    void byKey() throws Exception {
        Key key = new Key("order_close", "18446744073709551615", bizId);
        String id = toc.submit(Submission.of("order_close", -1L).delay(HOUR).dedupKey(bizId)).task().jobId();
        Task got = toc.getByKey(key);
        Tests.equal(List.of(id, "18446744073709551615"), List.of(got.jobId(), got.bizId()));
        Tests.equal("moved", toc.rescheduleByKey(key, new Change().attribute("moved")).attribute());
        toc.submit(Submission.of("order_close", -1L).delay(HOUR).attribute("again").dedupKey(bizId).moveDuplicate());
        Tests.equal("again", toc.get(id).attribute());
        toc.cancelByKey(key);
        Tests.equal("cancelled", toc.get(id).status());
        Tests.fails(TocException.NotFound.class, () -> toc.getByKey(new Key("order_close", bizId, "nothing")));
    }

    void againAndPast() throws Exception {
        Key key = new Key("order_close", "007", bizId);
        Submission first = Submission.of("order_close", "007").delay(HOUR).dedupKey(bizId).again();
        String id = toc.submit(first).task().jobId();
        Tests.equal("007", toc.getByKey(key).bizId());
        Tests.holds(toc.submit(first).isDuplicate(), "it is pending");
        toc.cancelByKey(key);
        Submitted second = toc.submit(first);
        Tests.holds(!second.isDuplicate() && !second.task().jobId().equals(id), "the key is free again");
        Instant past = Instant.parse("2020-01-02T03:04:05Z");
        Tests.fails(TocException.Invalid.class, () -> toc.submit(Submission.of("order_close", bizId).actionTime(past)));
        Tests.equal(past, toc.submit(Submission.of("order_close", bizId).actionTime(past).firePast()).task().actionTime());
        Tests.equal(past, toc.rescheduleByKey(key, new Change().actionTime(past).firePast()).actionTime());
        Tests.fails(IllegalArgumentException.class, () -> toc.getByKey(new Key("order_close", "\ud83d", bizId)));
        Tests.fails(IllegalArgumentException.class, () -> toc.get("007"));
    }

    void itFires() throws Exception {
        String id = toc.submit(Submission.of("order_close", bizId).delay(Duration.ZERO)).task().jobId();
        PullTest.await(() -> toc.get(id).status().equals("processed"));
    }

    void batchesAndLists() throws Exception {
        List<Submission> tasks = new ArrayList<>();
        for (int i = 0; i < 1200; i++) {
            tasks.add(Submission.of("order_close", bizId).delay(HOUR).dedupKey("" + i));
        }
        tasks.add(Submission.of("nosuch", 1).delay(Duration.ZERO));
        List<BatchResult> results = toc.submitBatch(tasks);
        BatchResult refused = results.get(1200);
        Tests.holds(refused.field().equals("biz_type") && refused.message().contains("nosuch"), refused.toString());
        Set<String> stored = new HashSet<>(results.subList(0, 1200).stream().map(BatchResult::jobId).toList());
        Tests.equal(1200, stored.size());
        Tests.equal(stored, ids(new Filter().bizId(bizId).bizType("order_close").limit(500)));
        Tests.holds(ids(new Filter().bizType("order_close").since(Instant.now()).limit(1000)).containsAll(stored), "all of them are listed");
        Tests.equal(List.of(), toc.listDead(new Filter().bizType("order_close").error("none like this")).tasks());
        Tests.equal(1200L, toc.submitBatch(tasks.subList(0, 1200)).stream().filter(BatchResult::isDuplicate).count());
    }

    private Set<String> ids(Filter f) throws Exception {
        Set<String> found = new HashSet<>();
        String cursor = "";
        do {
            Page p = toc.list(f.cursor(cursor));
            p.tasks().forEach(t -> Tests.holds(found.add(t.jobId()), "twice in a list: " + t));
            cursor = p.nextCursor();
        } while (!cursor.isEmpty());
        return found;
    }

    void deadAndPause() throws Exception {
        Tests.equal(Map.of("matched", 0L, "redriven", 0L), toc.redriveDead(new Filter().bizType("order_close").dryRun()));
        Tests.equal(Map.of("matched", 0L, "discarded", 0L), toc.discardDead(new Filter().since(Instant.now())));
        Tests.equal(Map.of("matched", 0L, "retried", 0L), toc.retry("demo"));
        Tests.equal(0L, toc.retry("demo", 5).get("matched"));
        toc.pause("demo", "a test", Instant.now().plusSeconds(60));
        toc.resume("demo");
    }

    void refusals() throws Exception {
        Tests.fails(TocException.NotFound.class, () -> toc.get("1"));
        TocException invalid = Tests.fails(TocException.Invalid.class, () -> toc.submit(Submission.of("nosuch", 1).delay(Duration.ZERO)));
        Tests.equal("body.biz_type", invalid.errors().get(0).location());
        Tests.equal(401, Tests.fails(TocException.class, () -> TocClient.of(System.getenv("TOC_SERVER")).get("1")).status());
        Tests.fails(TocException.NotFound.class, () -> toc.resume("../../x y"));
        Tests.fails(IllegalArgumentException.class, () -> toc.submit(Submission.of("order_close", 1).delay(Duration.ZERO).attribute("\ud800")));
    }

    void manyThreads() throws Exception {
        ConcurrentLinkedQueue<Throwable> wrong = new ConcurrentLinkedQueue<>();
        List<Thread> threads = new ArrayList<>();
        for (int i = 0; i < 20; i++) {
            String id = bizId + i;
            threads.add(new Thread(() -> {
                try {
                    toc.cancel(toc.submit(Submission.of("order_close", id).delay(HOUR)).task().jobId());
                } catch (Exception e) {
                    wrong.add(e);
                }
            }));
        }
        threads.forEach(Thread::start);
        for (Thread t : threads) {
            t.join();
        }
        Tests.equal(List.of(), List.copyOf(wrong));
    }
}
