package io.github.timeoutcenter.toc;

import java.util.HashSet;
import java.util.LinkedHashMap;
import java.util.Map;
import java.util.Set;

/**
 * Does the work of each key, a jobId say, once in this process. It remembers the latest keys.
 *
 * <p>Several processes need a store that they share: the database of the work itself, best in the same transaction.
 */
public final class Dedup {
    private final Map<String, Boolean> done;
    private final Set<String> underWay = new HashSet<>();

    /** The work of a key. */
    public interface Work {
        /** Does it; if it throws, the key is new again. */
        void run() throws Exception;
    }

    /** Another call does the work of this key now: answer 503, and toc calls again. */
    public static final class UnderWayException extends Exception {
        private static final long serialVersionUID = 1;

        private UnderWayException(String key) {
            super(key);
        }
    }

    /** Remembers the latest size keys. */
    public Dedup(int size) {
        done = new LinkedHashMap<>(16, 0.75f, true) {
            private static final long serialVersionUID = 1;

            @Override
            protected boolean removeEldestEntry(Map.Entry<String, Boolean> eldest) {
                return size() > size;
            }
        };
    }

    /** Does the work unless it is done already, and says whether it did. */
    public boolean run(String key, Work work) throws Exception {
        synchronized (this) {
            if (done.get(key) != null) {
                return false;
            }
            if (!underWay.add(key)) {
                throw new UnderWayException(key);
            }
        }
        try {
            work.run();
            synchronized (this) {
                done.put(key, true);
            }
            return true;
        } finally {
            synchronized (this) {
                underWay.remove(key);
            }
        }
    }
}
