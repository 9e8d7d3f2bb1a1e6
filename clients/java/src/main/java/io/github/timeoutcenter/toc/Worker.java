package io.github.timeoutcenter.toc;

import java.io.IOException;
import java.time.Duration;
import java.time.Instant;
import java.util.ArrayList;
import java.util.List;
import java.util.Objects;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.Semaphore;
import java.util.concurrent.TimeUnit;

/**
 * Leases the tasks of a pull type, runs each in a thread, and settles the leases.
 *
 * <p>It leases no more tasks than it has free threads, so none waits here. A handler's return acks its task, {@link Reject}
 * cancels it, {@link RetryAfter} says when to try again, and any other exception or error nacks it: it is tried again after
 * the back-off of the business type, or dead after max_retries. A task may come twice: {@link Dedup} remembers what was done.
 *
 * <p>The lease of a run that takes long is extended, until maxRun, but that of a task with a timeout of its own: that is how
 * long its run may take. If the center says that a lease is over, its run is interrupted; the task is handed out again. The
 * clock of this machine and those of the center should agree.
 */
public final class Worker {
    private static final System.Logger LOG = System.getLogger(Worker.class.getName());

    private static final Duration WAIT = Duration.ofSeconds(20); // of a lease
    private static final Duration PAUSE = Duration.ofSeconds(1); // after a failed request
    private static final Duration SETTLE_PAUSE = Duration.ofMillis(100); // before a lease is settled again
    private static final Duration APART = Duration.ofMinutes(1); // after a center has refused a request that leases and settles
    private static final Duration STOP_PAUSE = Duration.ofMillis(500); // an answer may be under way when stop is called
    private static final int MAX_THREADS = 256;

    private final TocClient client;
    private final String bizType;
    private final Handler handler;
    private final int threads;
    private final Duration ttr;
    private final Duration maxRun;
    private final Semaphore free;
    private final Object change = new Object();
    private final CountDownLatch ended = new CountDownLatch(1);
    private final Outbox results = new Outbox();

    /** The outcomes that could not be settled: their rows may be locked, and must hold up neither others nor the leases. */
    private final Outbox again = new Outbox();

    private boolean isStopped; // guarded by change
    private boolean isIdle; // guarded by change: the thread that leases may be interrupted
    private long apartUntil = System.nanoTime(); // until then no request leases and settles: the center does not know that
    private TocException failure; // by the thread that leases, until it has ended

    private Worker(Builder b) {
        client = b.client;
        bizType = b.bizType;
        handler = b.handler;
        threads = b.threads;
        ttr = b.ttr;
        maxRun = b.maxRun;
        free = new Semaphore(threads);
    }

    /** Runs one task. */
    @FunctionalInterface
    public interface Handler {
        /** Runs a task; attempt is 1 for the first run. It is called by many threads. */
        void run(Task task, int attempt) throws Exception;
    }

    /** Thrown by a handler: nobody wants the task any more. It is cancelled. */
    public static final class Reject extends Exception {
        private static final long serialVersionUID = 1;

        /** A reason, which the task keeps. */
        public Reject(String reason) {
            super(reason);
        }
    }

    /** Thrown by a handler: the run has failed, and the task is to be tried again after a while. */
    public static final class RetryAfter extends Exception {
        private static final long serialVersionUID = 1;
        private final Duration delay;

        /** How long to wait, and a reason, which the task keeps. */
        public RetryAfter(Duration delay, String reason) {
            super(reason);
            this.delay = delay;
        }
    }

    /** A worker for a business type whose processor is pull. */
    public static Builder builder(TocClient client, String bizType, Handler handler) {
        return new Builder(client, bizType, handler);
    }

    /** What a worker is made of. */
    public static final class Builder {
        private final TocClient client;
        private final String bizType;
        private final Handler handler;
        private int threads = 16;
        private Duration ttr;
        private Duration maxRun = Duration.ofHours(1);

        private Builder(TocClient client, String bizType, Handler handler) {
            this.client = Objects.requireNonNull(client, "client: is null");
            this.bizType = Objects.requireNonNull(bizType, "bizType: is null");
            this.handler = Objects.requireNonNull(handler, "handler: is null; give what runs a task");
        }

        /** How many tasks run at once, 1 to 256; 16 if left out. */
        public Builder threads(int threads) {
            if (threads < 1 || threads > MAX_THREADS) {
                throw new IllegalArgumentException("threads: is " + threads + "; give 1 to " + MAX_THREADS);
            }
            this.threads = threads;
            return this;
        }

        /** How long a lease is, 100 ms to 24 h; as the business type says if left out. */
        public Builder ttr(Duration ttr) {
            this.ttr = ttr;
            return this;
        }

        /** How long the leases of a run are extended, from its start; 1 h if left out, and zero for not at all. */
        public Builder maxRun(Duration maxRun) {
            this.maxRun = maxRun;
            return this;
        }

        /** The worker. */
        public Worker build() {
            return new Worker(this);
        }
    }

    /** Makes run return, once the tasks that run have ended and are settled. Any thread may call it. */
    public void stop() {
        synchronized (change) {
            isStopped = true;
            change.notifyAll();
        }
    }

    /**
     * Stops, and waits until run has returned, for a shutdown hook say: the JVM does not wait for run. It tells whether run
     * has returned in time.
     */
    public boolean stop(Duration atMost) {
        stop();
        try {
            return ended.await(atMost.toMillis(), TimeUnit.MILLISECONDS);
        } catch (InterruptedException e) {
            Thread.currentThread().interrupt();
            return false;
        }
    }

    /**
     * Works until stop is called, or the calling thread is interrupted. It throws a TocException that a repeat would not mend,
     * such as an unknown business type. A worker runs once.
     */
    public void run() {
        ExecutorService pool = Executors.newFixedThreadPool(threads, Worker::thread);
        LeaseKeeper keeper = new LeaseKeeper(client, ttr, maxRun);
        Thread leasing = thread(() -> leaseAll(pool, keeper));
        leasing.start();
        Thread settling = thread(() -> settleAll(results));
        settling.start();
        Thread settlingAgain = thread(() -> settleAll(again));
        settlingAgain.start();
        boolean interrupted = awaitStop();
        interrupted |= join(leasing, STOP_PAUSE);
        interruptIdle(leasing);
        interrupted |= join(leasing, Duration.ZERO);
        pool.shutdown();
        interrupted |= awaitEnd(pool);
        results.close();
        interrupted |= join(settling, Duration.ZERO);
        again.close();
        interrupted |= join(settlingAgain, Duration.ZERO);
        keeper.close();
        ended.countDown();
        if (interrupted) {
            Thread.currentThread().interrupt();
        }
        if (failure != null) {
            throw failure;
        }
    }

    private static Thread thread(Runnable r) {
        Thread t = new Thread(r, "toc-worker");
        t.setDaemon(true); // run waits for them
        return t;
    }

    /** Waits until stop, and tells whether the thread was interrupted meanwhile. */
    private boolean awaitStop() {
        synchronized (change) {
            while (!isStopped) {
                try {
                    change.wait();
                } catch (InterruptedException e) {
                    isStopped = true;
                    return true;
                }
            }
        }
        return false;
    }

    /** Waits for a thread, zero: until it ends; and tells whether the calling thread was interrupted meanwhile. */
    private static boolean join(Thread t, Duration atMost) {
        boolean interrupted = false;
        while (true) {
            try {
                t.join(atMost.toMillis());
                return interrupted;
            } catch (InterruptedException e) {
                interrupted = true;
            }
        }
    }

    private static boolean awaitEnd(ExecutorService pool) {
        boolean interrupted = false;
        while (true) {
            try {
                if (pool.awaitTermination(1, TimeUnit.DAYS)) {
                    return interrupted;
                }
            } catch (InterruptedException e) {
                interrupted = true;
            }
        }
    }

    private boolean isStopped() {
        synchronized (change) {
            return isStopped;
        }
    }

    private void leaseAll(ExecutorService pool, LeaseKeeper keeper) {
        try {
            results.hold();
            while (!isStopped()) {
                free.acquire();
                int n = 1 + free.drainPermits();
                List<Leased.One> leased = isStopped() ? List.of() : lease(n);
                results.hold();
                free.release(n - leased.size());
                for (Leased.One one : leased) {
                    pool.execute(() -> run(one, keeper));
                }
            }
        } catch (InterruptedException e) {
            // by run: it is stopped
        } catch (TocException e) {
            failure = e;
            stop();
        } finally {
            results.letGo();
        }
    }

    /** Leases tasks, and settles what waits for that in the same request. */
    private List<Leased.One> lease(int max) throws InterruptedException {
        if (System.nanoTime() - apartUntil < 0) {
            results.letGo();
        }
        List<Outbox.Outcome> outcomes = results.takeHeld();
        List<Settled> answered = List.of();
        try {
            TocClient.LeasedAndSettled got = lease(max, outcomes);
            answered = got.results();
            if (got.leased().tasks().size() > max) {
                throw new IOException("more tasks than were asked for");
            }
            return got.leased().tasks();
        } catch (TocException e) {
            if (!outcomes.isEmpty() && e.errors().stream().anyMatch(f -> f.location().equals("body.settle"))) { // an older center
                apartUntil = System.nanoTime() + APART.toNanos();
                results.add(outcomes);
                outcomes = List.of();
                return List.of();
            }
            if (e.isForGood()) {
                throw e;
            }
            LOG.log(System.Logger.Level.WARNING, "no tasks of " + bizType + " leased; trying again: " + e.getMessage());
        } catch (IOException e) {
            LOG.log(System.Logger.Level.WARNING, "no tasks of " + bizType + " leased; trying again: " + e);
        } finally {
            again.add(unsettled(outcomes, answered));
        }
        setIdle(true);
        Thread.sleep(PAUSE.toMillis());
        setIdle(false);
        return List.of();
    }

    private TocClient.LeasedAndSettled lease(int max, List<Outbox.Outcome> outcomes) throws IOException, InterruptedException {
        if (!outcomes.isEmpty()) { // it does not wait, and an interrupt would hide the results
            return client.lease(bizType, max, Duration.ZERO, ttr, outcomes.stream().map(Outbox.Outcome::settlement).toList());
        }
        setIdle(true);
        try {
            return client.lease(bizType, max, WAIT, ttr, List.of());
        } finally {
            setIdle(false);
        }
    }

    private void setIdle(boolean idle) {
        synchronized (change) {
            isIdle = idle;
        }
    }

    private void interruptIdle(Thread leasing) {
        synchronized (change) {
            if (isIdle) {
                leasing.interrupt(); // the center gives a caller that hangs up no lease
            }
        }
    }

    private void run(Leased.One one, LeaseKeeper keeper) {
        try {
            LeaseKeeper.Kept kept = keeper.keep(one);
            Settlement outcome;
            try {
                outcome = outcome(one);
            } finally {
                kept.release();
            }
            Instant until = one.expiresAt().isAfter(Instant.now().plus(WAIT)) ? one.expiresAt() : Instant.now().plus(WAIT);
            results.add(List.of(new Outbox.Outcome(outcome, one.task().jobId(), until)));
        } finally {
            free.release();
        }
    }

    private Settlement outcome(Leased.One one) {
        try {
            handler.run(one.task(), one.attempt());
            return Settlement.ack(one.lease());
        } catch (Reject e) {
            return Settlement.reject(one.lease(), e.getMessage());
        } catch (RetryAfter e) {
            return Settlement.nack(one.lease(), e.getMessage(), e.delay);
        } catch (Throwable e) { // whatever the handler throws
            LOG.log(System.Logger.Level.WARNING, "run of task " + one.task().jobId() + " failed", e);
            return Settlement.nack(one.lease(), e.toString());
        }
    }

    /** Settles the outcomes that no request for tasks takes along. */
    private void settleAll(Outbox box) {
        try {
            for (List<Outbox.Outcome> list = box.take(); !list.isEmpty(); list = box.take()) {
                List<Settled> answered = List.of();
                try {
                    answered = client.settle(list.stream().map(Outbox.Outcome::settlement).toList());
                } catch (TocException | IOException e) {
                    LOG.log(System.Logger.Level.WARNING, "leases of " + bizType + " are not settled; trying again: " + e);
                }
                List<Outbox.Outcome> rest = unsettled(list, answered);
                again.add(rest);
                if (!rest.isEmpty() && box == again) {
                    Thread.sleep(SETTLE_PAUSE.toMillis());
                }
            }
        } catch (InterruptedException e) {
            LOG.log(System.Logger.Level.ERROR, "a thread of a worker was interrupted: leases of " + bizType + " are not settled");
        }
    }

    /** Reads the results of settlements, and returns the outcomes that are to be settled again. */
    private static List<Outbox.Outcome> unsettled(List<Outbox.Outcome> list, List<Settled> answered) {
        List<Outbox.Outcome> rest = new ArrayList<>();
        for (int i = 0; i < list.size(); i++) {
            Outbox.Outcome one = list.get(i);
            String result = i < answered.size() ? answered.get(i).result() : "unavailable";
            if (result.equals("unavailable") && Instant.now().isBefore(one.until())) {
                rest.add(one);
            } else if (!result.equals("ok")) {
                LOG.log(System.Logger.Level.WARNING, "task {0} is not settled: {1}; it may run again", one.jobId(), result);
            }
        }
        return rest;
    }
}
