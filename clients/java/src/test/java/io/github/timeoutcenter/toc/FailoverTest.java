package io.github.timeoutcenter.toc;

import java.io.IOException;
import java.net.ConnectException;
import java.net.ServerSocket;
import java.net.URI;
import java.net.http.HttpClient;
import java.net.http.HttpRequest;
import java.net.http.HttpResponse;
import java.net.http.HttpTimeoutException;
import java.time.Duration;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.UUID;

/** What a client does about servers that are not well: those of TOC_FAKE do what the first part of their path says. */
final class FailoverTest {
    private static final String FAKE = System.getenv("TOC_FAKE");
    private static final HttpClient HTTP = HttpClient.newHttpClient();

    static String nobody() throws IOException {
        try (ServerSocket s = new ServerSocket(0)) {
            return "http://127.0.0.1:" + s.getLocalPort();
        }
    }

    /** A server that does so, with a count of its own. */
    static String server(String behaviour) {
        return FAKE + "/" + behaviour + "/java-" + UUID.randomUUID();
    }

    private static int calls(String server) throws Exception {
        return calls(server, "");
    }

    /** How many requests it got, to paths with that end. */
    static int calls(String server, String end) throws Exception {
        return Integer.parseInt(ask("/calls", server, end));
    }

    /** Has it answer what it holds. */
    static void release(String server) throws Exception {
        ask("/release", server, "");
    }

    private static String ask(String what, String server, String end) throws Exception {
        URI uri = URI.create(FAKE + what + server.substring(server.lastIndexOf('/')) + end);
        return HTTP.send(HttpRequest.newBuilder(uri).build(), HttpResponse.BodyHandlers.ofString()).body();
    }

    private interface Call {
        void run(TocClient toc) throws Exception;
    }

    private static Submission task() {
        return Submission.of("a", 1).delay(Duration.ofHours(1));
    }

    void whatIsSafeGoesOn() throws Exception {
        Map<Call, Boolean> calls = new LinkedHashMap<>();
        calls.put(toc -> toc.get("7"), true);
        calls.put(toc -> toc.submit(task().dedupKey("k")), true);
        calls.put(toc -> toc.submitBatch(List.of(task().dedupKey("k"))), true);
        calls.put(toc -> toc.submit(task()), false);
        calls.put(toc -> toc.submitBatch(List.of(task().dedupKey("k"), task())), false);
        calls.put(toc -> toc.submit(task().dedupKey("k").moveDuplicate()), false);
        calls.put(toc -> toc.submit(task().dedupKey("k").again()), false);
        calls.put(toc -> toc.cancel("7"), false);
        calls.put(toc -> toc.settle(List.of(Settlement.ack("x"))), false);
        for (String status : List.of("0", "502", "503", "504")) {
            for (Map.Entry<Call, Boolean> e : calls.entrySet()) {
                String bad = server(status);
                String good = server("200");
                TocClient toc = TocClient.of(bad, good);
                boolean failed = false;
                try {
                    e.getKey().run(toc);
                } catch (IOException | TocException failure) {
                    failed = true;
                }
                Tests.equal(!e.getValue(), failed);
                Tests.equal(e.getValue() ? 1 : 0, calls(good));
                // The JDK sends a GET once more on a new connection.
                Tests.holds(calls(bad) == 1 || e.getValue() && calls(bad) == 2, "status " + status + ": " + calls(bad) + " calls of the bad server");
            }
        }
    }

    void aServerIsNotThere() throws Exception {
        String good = server("200");
        TocClient toc = TocClient.of(nobody(), good);
        toc.cancel("7");
        toc.cancel("7");
        Tests.equal(2, calls(good));
        Tests.fails(ConnectException.class, () -> TocClient.of(nobody(), nobody()).get("1"));
        String refusing = server("404");
        Tests.fails(TocException.NotFound.class, () -> TocClient.of(refusing, good).get("1"));
        Tests.equal(2, calls(good));
    }

    void badAnswers() throws Exception {
        for (String silent : List.of("hang", "drip")) {
            TocClient toc = TocClient.builder(server(silent)).timeout(Duration.ofMillis(300)).build();
            Tests.fails(HttpTimeoutException.class, () -> toc.get("7"));
            Tests.fails(HttpTimeoutException.class, () -> toc.cancel("7"));
        }
        for (String garbage : List.of("html", "list", "deep", "short", "latin1", "0")) {
            Tests.fails(IOException.class, () -> TocClient.of(server(garbage)).cancel("7"));
        }
        String thief = server("redirect");
        Tests.equal(302, Tests.fails(TocException.class, () -> TocClient.builder(thief).token("secret-of-mine-123").build().get("7")).status());
        Tests.equal(1, calls(thief));
    }

    void anInterruptEndsACall() throws Exception {
        String silent = server("hang");
        TocClient toc = TocClient.of(silent);
        Throwable[] thrown = new Throwable[1];
        Thread t = new Thread(() -> {
            try {
                toc.get("7");
            } catch (Exception e) {
                thrown[0] = e;
            }
        });
        t.start();
        while (calls(silent) == 0) {
            Thread.onSpinWait();
        }
        t.interrupt();
        t.join();
        Tests.equal(InterruptedException.class, thrown[0].getClass());
    }
}
