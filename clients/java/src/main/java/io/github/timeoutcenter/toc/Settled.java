package io.github.timeoutcenter.toc;

import java.util.List;

/**
 * What became of a settlement.
 *
 * @param lease the lease
 * @param result ok; lost: the lease is over or was settled before; invalid: this is no lease; unavailable: send it again
 */
public record Settled(String lease, String result) {
    static List<Settled> list(Object answer) {
        return Values.list(answer).stream().map(Values::object)
                .map(f -> new Settled(Values.text(f.get("lease")), Values.text(f.get("result")))).toList();
    }
}
