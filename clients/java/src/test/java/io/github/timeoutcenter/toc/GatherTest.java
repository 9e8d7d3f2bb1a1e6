package io.github.timeoutcenter.toc;

import java.io.IOException;
import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.TreeMap;
import java.util.UUID;
import java.util.concurrent.ConcurrentHashMap;

/** Submits of concurrent threads, at a real center (TOC_SERVER) behind servers of TOC_FAKE that hold requests. */
final class GatherTest {
    private static final Duration LONG = Duration.ofMinutes(10);

    private final String bizId = "gather-" + UUID.randomUUID();
    private final Map<String, Object> outcomes = new ConcurrentHashMap<>();
    private final List<Thread> threads = new ArrayList<>();

    private static TocClient.Builder client(String server, String... others) {
        return TocClient.builder(server, others).token(System.getenv("TOC_TOKEN"));
    }

    private Submission task(String bizType, String name) {
        return Submission.of(bizType, bizId).delay(Duration.ofHours(1)).attribute(name);
    }

    /** Submits in another thread. */
    private Thread submit(TocClient toc, String name, Submission s) {
        Thread t = new Thread(() -> {
            try {
                outcomes.put(name, toc.submit(s));
            } catch (IOException | InterruptedException | TocException e) {
                outcomes.put(name, e);
            }
        });
        threads.add(t);
        t.start();
        return t;
    }

    /** Has a server answer, and waits for the threads. */
    private void release(String server) throws Exception {
        FailoverTest.release(server);
        for (Thread t : threads) {
            t.join();
        }
    }

    /** Has two submits under way at a server that holds them, and six behind them. */
    private void fill(TocClient toc, String server) throws Exception {
        for (int i = 0; i < 2; i++) {
            submit(toc, "first " + i, task("order_close", "first " + i));
        }
        PullTest.await(() -> FailoverTest.calls(server, "") == 2);
        for (int i = 0; i < 5; i++) {
            submit(toc, "" + i, task("order_close", "" + i));
        }
        submit(toc, "nosuch", task("nosuch", ""));
        PullTest.await(() -> toc.waiting() == 6);
    }

    void submitsGoTogether() throws Exception {
        String server = FailoverTest.server("held-center");
        TocClient toc = client(server).slow(LONG).build();
        fill(toc, server);
        for (int i = 0; i < 2; i++) {
            submit(toc, "safe " + i, task("order_close", "safe").dedupKey("k"));
        }
        PullTest.await(() -> FailoverTest.calls(server, "") == 4); // they are not behind the others
        release(server);
        Tests.equal(List.of(5, 1), List.of(FailoverTest.calls(server, ""), FailoverTest.calls(server, "/batch")));
        TocClient alone = client(System.getenv("TOC_SERVER")).gathering(false).build();
        TocException want = Tests.fails(TocException.Invalid.class, () -> alone.submit(task("nosuch", "")));
        TocException.Invalid got = (TocException.Invalid) outcomes.remove("nosuch");
        Tests.equal(List.of(want.getMessage(), want.errors(), want.detail()), List.of(got.getMessage(), got.errors(), got.detail()));
        Tests.equal(9, outcomes.size());
        for (Map.Entry<String, Object> e : outcomes.entrySet()) {
            Submitted s = (Submitted) e.getValue();
            Tests.equal(alone.get(s.task().jobId()), s.task());
            if (!e.getKey().startsWith("safe")) {
                Tests.equal(List.of(e.getKey(), false), List.of(s.task().attribute(), s.isDuplicate()));
            }
        }
        boolean first = ((Submitted) outcomes.get("safe 0")).isDuplicate();
        Tests.holds(first != ((Submitted) outcomes.get("safe 1")).isDuplicate(), "one is the first");
    }

    void aSlowRequestHoldsUpNoOther() throws Exception {
        String server = FailoverTest.server("held-center");
        TocClient toc = client(server).build();
        for (int i = 0; i < 3; i++) {
            submit(toc, "" + i, task("order_close", ""));
        }
        PullTest.await(() -> FailoverTest.calls(server, "") == 3);
        release(server);
        Tests.equal(3L, outcomes.values().stream().filter(o -> o instanceof Submitted).count());
    }

    void gatheringAtAnOlderCenter() throws Exception {
        String server = FailoverTest.server("held-old");
        TocClient toc = client(server).slow(LONG).build();
        fill(toc, server);
        release(server);
        Tests.equal(2 + 1 + 6, FailoverTest.calls(server, ""));
        Tests.equal(TocException.Invalid.class, outcomes.remove("nosuch").getClass());
        for (Map.Entry<String, Object> e : outcomes.entrySet()) {
            Tests.equal(e.getKey(), ((Submitted) e.getValue()).task().attribute());
        }
    }

    void gatheredSubmitsGetNoAnswer() throws Exception {
        String bad = FailoverTest.server("held-0");
        String good = FailoverTest.server("center");
        TocClient toc = client(bad, good).slow(LONG).build();
        fill(toc, bad);
        release(bad);
        Tests.equal(0, FailoverTest.calls(good, "")); // they are not safe to repeat
        Map<String, Class<?>> kinds = new TreeMap<>();
        outcomes.forEach((name, o) -> kinds.put(name, o.getClass()));
        Tests.equal(8L, kinds.values().stream().filter(IOException.class::equals).count());
    }

    /** An interrupt of one thread concerns no other. */
    void aGatheredCallerIsInterrupted() throws Exception {
        String server = FailoverTest.server("held-center");
        TocClient toc = client(server).slow(LONG).build();
        fill(toc, server);
        Thread leaves = submit(toc, "leaves", task("order_close", "leaves"));
        PullTest.await(() -> toc.waiting() == 7);
        leaves.interrupt();
        leaves.join();
        Tests.equal(6, toc.waiting());
        Tests.equal(InterruptedException.class, outcomes.remove("leaves").getClass());
        release(server);
        Tests.equal(7L, outcomes.values().stream().filter(o -> o instanceof Submitted).count());
    }
}
