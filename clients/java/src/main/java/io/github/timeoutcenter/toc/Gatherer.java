package io.github.timeoutcenter.toc;

import java.io.IOException;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.ArrayDeque;
import java.util.ArrayList;
import java.util.Deque;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.Executor;
import java.util.concurrent.Executors;
import java.util.concurrent.TimeUnit;

/**
 * Sends the submits of concurrent threads together. A submit is sent at once, by its own thread, unless FLIGHTS requests are under
 * way; what comes meanwhile is the next request, which a thread of the gatherer sends: an interrupt of one caller concerns no other.
 */
final class Gatherer {
    private static final int TASKS = 256; // in a request
    private static final int BYTES = 4000; // of a task; a larger one goes alone
    private static final int FLIGHTS = 2; // requests under way

    /** After a server has refused a request of many, all go alone for so long. */
    private static final long PAUSE = Duration.ofMinutes(1).toNanos();

    /** A request that takes longer holds up no other: the row of one of its tasks may be locked. */
    static final Duration SLOW = Duration.ofMillis(50);

    private static final String PATH = "/v1/tasks/batch";
    private static final Executor THREADS = Executors.newCachedThreadPool(r -> {
        Thread t = new Thread(r, "toc-submits");
        t.setDaemon(true);
        return t;
    });

    private final Transport transport;
    private final Duration timeout;
    private final long slow;

    /** Submits that may be repeated at another server never go together with the others. */
    private final Line safe = new Line(true);
    private final Line others = new Line(false);
    private volatile long pausedUntil = System.nanoTime();

    Gatherer(Transport transport, Duration timeout, Duration slow) {
        this.transport = transport;
        this.timeout = timeout;
        this.slow = slow.toNanos();
    }

    /** The submit of a thread, and its answer; null: its thread sends it alone. */
    private record Gathered(byte[] text, CompletableFuture<Submitted> answer) {}

    Submitted submit(byte[] text, boolean isRepeatable) throws IOException, InterruptedException {
        if (text.length > BYTES || System.nanoTime() - pausedUntil < 0) {
            return alone(text, isRepeatable);
        }
        return (isRepeatable ? safe : others).submit(text);
    }

    /** How many submits wait for their request. */
    int waiting() {
        return safe.size() + others.size();
    }

    private Submitted alone(byte[] text, boolean isRepeatable) throws IOException, InterruptedException {
        Transport.Request r = new Transport.Request("POST", "/v1/tasks", text, "", isRepeatable, timeout);
        return transport.read(r, a -> new Submitted(Task.of(a.body(), a.etag()), a.status() == 200));
    }

    /** Submits that go together, or wait for that. */
    private final class Line {
        private final boolean isRepeatable;
        private final Deque<Gathered> waiting = new ArrayDeque<>();
        private final Set<Long> flights = new HashSet<>(); // when they have begun, in ns
        private boolean isTimed; // a timer looks when a flight becomes slow

        private Line(boolean isRepeatable) {
            this.isRepeatable = isRepeatable;
        }

        private synchronized int size() {
            return waiting.size();
        }

        private Submitted submit(byte[] text) throws IOException, InterruptedException {
            Gathered one = new Gathered(text, new CompletableFuture<>());
            Long flight = board(one);
            if (flight != null) {
                try {
                    return alone(text, isRepeatable);
                } finally {
                    land(flight);
                }
            }
            try {
                Submitted answer = one.answer.get();
                return answer != null ? answer : alone(text, isRepeatable);
            } catch (ExecutionException e) {
                if (e.getCause() instanceof TocException refusal) {
                    throw refusal;
                }
                throw Transport.rethrown(e.getCause());
            } catch (InterruptedException e) {
                leave(one);
                throw e;
            }
        }

        /** Begins a flight for a submit alone, or has it wait for one with others: null. */
        private synchronized Long board(Gathered one) {
            if (waiting.isEmpty() && patience() == 0) {
                return begin();
            }
            waiting.add(one);
            next();
            return null;
        }

        private Long begin() {
            long now = System.nanoTime();
            while (!flights.add(now)) {
                now++;
            }
            return now;
        }

        private synchronized void leave(Gathered one) {
            waiting.remove(one);
        }

        private synchronized void land(Long flight) {
            flights.remove(flight);
            next();
        }

        /** How long the next flight has to wait, in ns. */
        private long patience() {
            long now = System.nanoTime();
            long[] left = flights.stream().mapToLong(begun -> begun + slow - now).filter(ns -> ns > 0).sorted().toArray();
            return left.length < FLIGHTS ? 0 : left[0];
        }

        /** Sends what waits, or has a timer do it. */
        private void next() {
            while (!waiting.isEmpty() && patience() == 0) {
                List<Gathered> list = new ArrayList<>();
                while (!waiting.isEmpty() && list.size() < TASKS) {
                    list.add(waiting.remove());
                }
                Long flight = begin();
                THREADS.execute(() -> send(list, flight));
            }
            if (!waiting.isEmpty() && !isTimed) {
                isTimed = true;
                CompletableFuture.delayedExecutor(patience(), TimeUnit.NANOSECONDS).execute(this::timed);
            }
        }

        private synchronized void timed() {
            isTimed = false;
            next();
        }

        private void send(List<Gathered> list, Long flight) {
            List<?> results = List.of();
            Exception failure = null;
            try {
                Transport.Request r = new Transport.Request("POST", PATH, together(list), "", isRepeatable, timeout);
                results = transport.read(r, a -> Values.list(Values.object(a.body()).get("results")));
                if (results.size() != list.size()) {
                    throw new IOException(PATH + ": the answer has " + results.size() + " results for " + list.size() + " tasks");
                }
            } catch (IOException | InterruptedException | RuntimeException e) {
                failure = e;
            }
            land(flight);
            boolean forGood = failure instanceof TocException e && e.isForGood();
            if (forGood) { // nothing is stored; the server is older than this client, say
                pausedUntil = System.nanoTime() + PAUSE;
            }
            for (int i = 0; i < list.size(); i++) {
                CompletableFuture<Submitted> answer = list.get(i).answer;
                if (forGood) {
                    answer.complete(null);
                } else if (failure != null) {
                    answer.completeExceptionally(failure);
                } else {
                    complete(answer, results.get(i));
                }
            }
        }

        /** Reads the answer to one task of a request. */
        private void complete(CompletableFuture<Submitted> answer, Object result) {
            try {
                Map<String, Object> said = Values.object(Values.object(result).get("answer"));
                int status = Values.count(said.get("status"));
                if (said.get("problem") == null) {
                    answer.complete(new Submitted(Task.of(said.get("task"), Values.text(said.get("etag"))), status == 200));
                } else if (isRepeatable && transport.hasOthers() && Transport.isOfThisServer(status)) {
                    answer.complete(null);
                } else {
                    Duration retryAfter = Duration.ofSeconds(Values.count(said.get("retry_after")));
                    answer.completeExceptionally(TocException.of(status, Values.object(said.get("problem")), retryAfter, "", ""));
                }
            } catch (IllegalArgumentException | ArithmeticException e) {
                answer.completeExceptionally(new IOException(PATH + ": whatever answered is no timeout center: " + e.getMessage(), e));
            }
        }
    }

    private static byte[] together(List<Gathered> list) {
        StringBuilder text = new StringBuilder("{\"full\":true,\"tasks\":[");
        for (int i = 0; i < list.size(); i++) {
            text.append(i > 0 ? "," : "").append(new String(list.get(i).text, StandardCharsets.UTF_8));
        }
        return text.append("]}").toString().getBytes(StandardCharsets.UTF_8);
    }
}
