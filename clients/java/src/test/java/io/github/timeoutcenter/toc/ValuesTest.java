package io.github.timeoutcenter.toc;

import java.time.Duration;
import java.time.Instant;
import java.util.List;
import java.util.Map;

final class ValuesTest {
    void durations() throws Exception {
        Map<String, Duration> read = Map.of("1.5s", Duration.ofMillis(1500), "1h0m0s", Duration.ofHours(1), "1m1.5s", Duration.ofMillis(61500),
                "250ms", Duration.ofMillis(250), "1.5µs", Duration.ofNanos(1500), "0s", Duration.ZERO, "24h0m0.001s", Duration.ofMillis(86400001));
        read.forEach((text, want) -> Tests.equal(want, Values.duration(text)));
        for (String text : List.of("", "1", "s", "1s2", "-1s", "1 s", "1d", "1..5s")) {
            Tests.fails(IllegalArgumentException.class, () -> Values.duration(text));
        }
        Tests.equal("1500000000ns", Values.duration("delay", Duration.ofMillis(1500)));
        Tests.fails(IllegalArgumentException.class, () -> Values.duration("delay", Duration.ofDays(365 * 300)));
    }

    void idsAreUnsigned() throws Exception {
        Tests.equal("18446744073709551615", Values.jobId("18446744073709551615"));
        Tests.equal("18446744073709551615", Submission.of("a", -1L).delay(Duration.ZERO).body().get("biz_id"));
        for (String id : List.of("", "-1", "18446744073709551616", "1/cancel", "1?x=", " 1", "x")) {
            Tests.fails(IllegalArgumentException.class, () -> Values.jobId(id));
        }
    }

    void wrongRequestsAreRefusedAtHome() throws Exception {
        Tests.fails(IllegalArgumentException.class, () -> Submission.of("a", 1).body());
        Tests.fails(IllegalArgumentException.class, () -> Submission.of("a", 1).delay(Duration.ZERO).actionTime(Instant.now()).body());
        Tests.fails(IllegalArgumentException.class, () -> new Change().actionTime(Instant.MAX));
        for (String url : List.of("ftp://x", "", "http://", "http:///x", "http://a b", "http://a?b")) {
            Tests.fails(IllegalArgumentException.class, () -> TocClient.of(url));
        }
        TocClient c = TocClient.of("127.0.0.1:1");
        Tests.fails(IllegalArgumentException.class, () -> Worker.builder(c, "a", (t, n) -> {}).threads(0));
        Tests.fails(NullPointerException.class, () -> Worker.builder(c, "a", null));
        Tests.fails(IllegalArgumentException.class, () -> TocClient.builder("x").timeout(Duration.ZERO));
        Tests.equal("?a=%26%20%C3%BC%2F&c=1", Values.query("a", "& ü/", "b", null, "c", 1, "d", ""));
    }

    void workIsDoneOnce() throws Exception {
        Dedup done = new Dedup(2);
        StringBuilder runs = new StringBuilder();
        Tests.equal(true, done.run("1", () -> runs.append(1)));
        Tests.equal(false, done.run("1", () -> runs.append(1)));
        Tests.fails(IllegalStateException.class, () -> done.run("2", () -> {
            throw new IllegalStateException();
        }));
        Tests.equal(true, done.run("2", () -> runs.append(2)));
        Tests.equal(true, done.run("3", () -> Tests.fails(Dedup.UnderWayException.class, () -> done.run("3", () -> runs.append(3)))));
        Tests.equal(true, done.run("1", () -> runs.append(4)));
        Tests.equal("124", runs.toString());
    }
}
