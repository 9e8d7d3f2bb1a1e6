package io.github.timeoutcenter.toc;

import java.time.Instant;
import java.util.ArrayList;
import java.util.Collection;
import java.util.List;

/**
 * The outcomes of a worker that are to be settled. While the worker waits for a free thread they wait for its next request for
 * tasks; else a request settles them that does nothing else.
 */
final class Outbox {
    private static final int MAX_SETTLE = 1000; // of a request

    private final List<Outcome> list = new ArrayList<>();
    private boolean isHeld;
    private boolean isClosed;

    /** A run that has ended. It is settled again until then if it cannot be settled. */
    record Outcome(Settlement settlement, String jobId, Instant until) {}

    /** Keeps outcomes for the next request for tasks. */
    synchronized void hold() {
        isHeld = true;
    }

    /** Has outcomes settled at once. */
    synchronized void letGo() {
        isHeld = false;
        notifyAll();
    }

    synchronized void add(Collection<Outcome> outcomes) {
        list.addAll(outcomes);
        notifyAll();
    }

    /** Takes what is held for a request for tasks. What comes afterwards is not held. */
    synchronized List<Outcome> takeHeld() {
        List<Outcome> taken = isHeld ? takeSome() : List.of();
        letGo();
        return taken;
    }

    /** Takes as many outcomes as fit into a request, and waits for one. None: there will be no more. */
    synchronized List<Outcome> take() throws InterruptedException {
        while (!isClosed && (isHeld || list.isEmpty())) {
            wait();
        }
        return takeSome();
    }

    private List<Outcome> takeSome() {
        List<Outcome> some = list.subList(0, Math.min(list.size(), MAX_SETTLE));
        List<Outcome> taken = List.copyOf(some);
        some.clear();
        return taken;
    }

    /** Says that no further outcome comes. */
    synchronized void close() {
        isClosed = true;
        notifyAll();
    }
}
