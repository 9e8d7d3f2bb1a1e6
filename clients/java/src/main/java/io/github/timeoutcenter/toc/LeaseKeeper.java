package io.github.timeoutcenter.toc;

import java.io.IOException;
import java.time.Duration;
import java.time.Instant;
import java.util.ArrayList;
import java.util.HashSet;
import java.util.List;
import java.util.Set;

/**
 * Extends the leases of a worker's runs, each when half of it is over, many in one request. The time of a first lease is
 * its expires_at by this machine's clock; after that it is counted from the request that extended it.
 */
final class LeaseKeeper implements AutoCloseable {
    private static final System.Logger LOG = System.getLogger(Worker.class.getName());

    private static final long MIN_LEASE = Duration.ofMillis(100).toNanos();
    private static final Duration TIMEOUT = Duration.ofSeconds(5); // of a request
    private static final long PAUSE = Duration.ofMillis(200).toNanos(); // after a request that has failed

    private final TocClient client;
    private final Duration ttr;
    private final long maxRun;
    private final Set<Kept> kept = new HashSet<>();
    private final Thread thread = new Thread(this::extendAll, "toc-worker-leases");
    private boolean isClosed;

    LeaseKeeper(TocClient client, Duration ttr, Duration maxRun) {
        this.client = client;
        this.ttr = ttr;
        this.maxRun = maxRun.toNanos();
        thread.setDaemon(true);
        thread.start();
    }

    /** A lease that is extended until it is released. */
    final class Kept {
        private final String lease;
        private final String jobId;
        private final Thread runs = Thread.currentThread();
        private final long began = System.nanoTime();
        private final long length;
        private long next; // when to extend it, of System.nanoTime

        private Kept(Leased.One one) {
            lease = one.lease();
            jobId = one.task().jobId();
            length = Math.max(MIN_LEASE, ttr != null ? ttr.toNanos() : Duration.between(Instant.now(), one.expiresAt()).toNanos());
            long left = Math.min(length, Math.max(MIN_LEASE, Duration.between(Instant.now(), one.expiresAt()).toNanos()));
            next = began + left / 2;
        }

        /** Ends it. After this the thread is interrupted no more, and is not interrupted. */
        void release() {
            synchronized (LeaseKeeper.this) {
                kept.remove(this);
                Thread.interrupted();
            }
        }
    }

    /** Keeps the lease of a run of the calling thread. */
    synchronized Kept keep(Leased.One one) {
        Kept k = new Kept(one);
        if (maxRun > 0 && one.task().timeout() == null) {
            kept.add(k);
            notifyAll();
        }
        return k;
    }

    @Override
    public synchronized void close() {
        isClosed = true;
        notifyAll();
    }

    private void extendAll() {
        try {
            for (List<Kept> due = await(); due != null; due = await()) {
                extend(due);
            }
        } catch (InterruptedException e) {
            LOG.log(System.Logger.Level.ERROR, "leases are extended no more: the thread was interrupted");
        }
    }

    /** Waits for leases to extend; null: it is closed. */
    private synchronized List<Kept> await() throws InterruptedException {
        while (!isClosed) {
            long now = System.nanoTime();
            kept.removeIf(k -> now - k.began > maxRun);
            List<Kept> due = new ArrayList<>();
            long wait = Long.MAX_VALUE;
            for (Kept k : kept) {
                if (k.next - now <= 0) {
                    due.add(k);
                } else {
                    wait = Math.min(wait, k.next - now);
                }
            }
            if (!due.isEmpty()) {
                return due;
            }
            wait(wait == Long.MAX_VALUE ? 0 : wait / 1_000_000 + 1);
        }
        return null;
    }

    private void extend(List<Kept> due) throws InterruptedException {
        long sent = System.nanoTime();
        List<Settled> results = List.of();
        try {
            results = client.settle(due.stream().map(k -> Settlement.extend(k.lease, ttr)).toList(), true, TIMEOUT);
        } catch (IOException | TocException e) {
            LOG.log(System.Logger.Level.WARNING, "leases are not extended; trying again: " + e);
        }
        synchronized (this) {
            for (int i = 0; i < due.size(); i++) {
                note(due.get(i), i < results.size() ? results.get(i).result() : "unavailable", sent);
            }
        }
    }

    private void note(Kept k, String result, long sent) {
        switch (result) {
            case "ok" -> k.next = sent + k.length / 2;
            case "unavailable" -> k.next = System.nanoTime() + PAUSE;
            default -> {
                if (kept.remove(k)) {
                    LOG.log(System.Logger.Level.WARNING, "the lease of task {0} has ended; its run is interrupted", k.jobId);
                    k.runs.interrupt();
                }
            }
        }
    }
}
