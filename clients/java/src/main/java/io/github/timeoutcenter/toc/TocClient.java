package io.github.timeoutcenter.toc;

import java.io.IOException;
import java.net.http.HttpClient;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.time.Instant;
import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.function.Function;

/**
 * Calls one timeout center at one or more of its servers: each takes any request.
 *
 * <p>A request goes to the server that answered last. If no connection to it can be made, the next one is tried, each once.
 * What is safe to repeat is tried at the next one also after a lost answer, after 5 s without one, and after a 502, 503 or
 * 504: requests that only read, and submits of which each has a dedupKey. Without an answer the last IOException is thrown;
 * a refusal is a {@link TocException}. An interrupt ends a call.
 */
public final class TocClient {
    private final Transport transport;
    private final Duration timeout;
    private final Gatherer gatherer; // null: each submit goes alone

    private TocClient(Builder b) {
        transport = new Transport(b.servers, b.token, b.http);
        timeout = b.timeout;
        gatherer = b.isGathering ? new Gatherer(transport, timeout, b.slow) : null;
    }

    /** How many submits wait for their request. */
    int waiting() {
        return gatherer.waiting();
    }

    /** A client of the center at these URLs, like http://127.0.0.1:8080, without a token. */
    public static TocClient of(String server, String... others) {
        return builder(server, others).build();
    }

    /** Makes a client of the center at these URLs. */
    public static Builder builder(String server, String... others) {
        return new Builder(server, others);
    }

    /** What a client is made of. */
    public static final class Builder {
        private final List<String> servers;
        private String token = "";
        private Duration timeout = Duration.ofSeconds(30);
        private HttpClient http;
        private boolean isGathering = true;
        private Duration slow = Gatherer.SLOW;

        private Builder(String server, String... others) {
            servers = new ArrayList<>(List.of(server));
            servers.addAll(List.of(others));
        }

        /** Sent with each request. */
        public Builder token(String token) {
            this.token = token;
            return this;
        }

        /** Bounds each try at a server, with the answer's body; 30 s if left out. A lease may take its wait longer. */
        public Builder timeout(Duration timeout) {
            if (timeout.isNegative() || timeout.isZero()) {
                throw new IllegalArgumentException("timeout: is " + timeout + "; give more than zero");
            }
            this.timeout = timeout;
            return this;
        }

        /** Sends the requests, for TLS of your own say. Let it follow no redirect: that would take the token elsewhere. */
        public Builder httpClient(HttpClient http) {
            this.http = http;
            return this;
        }

        /**
         * Whether submits of concurrent threads share requests; true if left out. A submit is sent at once, unless two requests
         * of submits are under way; what comes meanwhile is the next request. Each thread gets the answer to its own submit.
         */
        public Builder gathering(boolean isGathering) {
            this.isGathering = isGathering;
            return this;
        }

        /** How long a request of submits holds up others. */
        Builder slow(Duration slow) {
            this.slow = slow;
            return this;
        }

        /** The client; it connects at the first call. */
        public TocClient build() {
            return new TocClient(this);
        }
    }

    // Submit

    /** Stores one task. When it returns, the task is committed. */
    public Submitted submit(Submission s) throws IOException, InterruptedException {
        if (gatherer != null) {
            return gatherer.submit(JsonWriter.write(s.body()).getBytes(StandardCharsets.UTF_8), s.isRepeatable());
        }
        return call("POST", "/v1/tasks", s.body(), "", s.isRepeatable(), a -> new Submitted(Task.of(a.body(), a.etag()), a.status() == 200));
    }

    /** Stores up to 10,000 tasks, at most 8 MiB of JSON, and answers for each in order. One that is refused spoils no other. */
    public List<BatchResult> submitBatch(List<Submission> tasks) throws IOException, InterruptedException {
        Map<String, Object> body = Map.of("tasks", tasks.stream().map(Submission::body).toList());
        return call("POST", "/v1/tasks/batch", body, "", tasks.stream().allMatch(Submission::isRepeatable),
                a -> Values.list(Values.object(a.body()).get("results")).stream().map(BatchResult::of).toList());
    }

    // Look up

    /** Reads one task; TocException.NotFound if there is none. */
    public Task get(String jobId) throws IOException, InterruptedException {
        return task("GET", path(jobId, ""), null, "");
    }

    /** Reads the task that was submitted under a key. */
    public Task getByKey(Key key) throws IOException, InterruptedException {
        return task("GET", "/v1/tasks/by-key" + key.query(), null, "");
    }

    /** Tells where a task waits, and what holds it. */
    public Map<String, Object> why(String jobId) throws IOException, InterruptedException {
        return object("GET", path(jobId, "/why"), null);
    }

    /**
     * Lists tasks: with a bizId those of it, by bizType and status; without one those of all tables, by bizType, status
     * (pending if left out), and since and until of action_time. All read limit and cursor.
     */
    public Page list(Filter f) throws IOException, InterruptedException {
        return call("GET", "/v1/tasks" + f.query("from", "to"), null, "", true, a -> Page.of(Values.object(a.body())));
    }

    /** Lists dead tasks, by bizType, error, since and until of their death, limit and cursor. */
    public Page listDead(Filter f) throws IOException, InterruptedException {
        return call("GET", "/v1/dead" + f.query("since", "until"), null, "", true, a -> Page.of(Values.object(a.body())));
    }

    // Change

    /** Cancels a pending task. When it returns, the task never fires. */
    public void cancel(String jobId) throws IOException, InterruptedException {
        cancel(jobId, "");
    }

    /** Cancels a pending task if it is still in the state of the etag (TocException.Changed). */
    public void cancel(String jobId, String etag) throws IOException, InterruptedException {
        call("POST", path(jobId, "/cancel"), null, etag, false, TocClient::cancelled);
    }

    /** Cancels the pending task that was submitted under a key. */
    public void cancelByKey(Key key) throws IOException, InterruptedException {
        call("POST", "/v1/tasks/by-key/cancel" + key.query(), null, "", false, TocClient::cancelled);
    }

    private static Void cancelled(Transport.Answer a) {
        if (!"cancelled".equals(Values.object(a.body()).get("outcome"))) {
            throw new IllegalArgumentException("the outcome cancelled is missing");
        }
        return null;
    }

    /** Changes a pending task in one step and gives it as it stands then. */
    public Task reschedule(String jobId, Change change) throws IOException, InterruptedException {
        return task("PATCH", path(jobId, ""), change.body(), change.etag());
    }

    /** Changes the pending task that was submitted under a key. */
    public Task rescheduleByKey(Key key, Change change) throws IOException, InterruptedException {
        return task("PATCH", "/v1/tasks/by-key" + key.query(), change.body(), change.etag());
    }

    /** Gives a dead task a fresh start: pending, attempts 0, due now. */
    public Task redrive(String jobId) throws IOException, InterruptedException {
        return task("POST", path(jobId, "/redrive"), null, "");
    }

    /** Redrives the dead tasks that match; answers matched, redriven and, with a rate, operation. */
    public Map<String, Object> redriveDead(Filter f) throws IOException, InterruptedException {
        return object("POST", "/v1/dead/redrive", f.fields);
    }

    /** Cancels the dead tasks that match; answers matched, discarded and, with a rate, operation. */
    public Map<String, Object> discardDead(Filter f) throws IOException, InterruptedException {
        return object("POST", "/v1/dead/discard", f.fields);
    }

    /** Runs the pending tasks of a business type now that have failed and would run again later; answers matched and retried. */
    public Map<String, Object> retry(String bizType) throws IOException, InterruptedException {
        return object("POST", bizType(bizType, "/retry"), Map.of());
    }

    /** As retry, so many tasks a second; answers matched, retried and operation. */
    public Map<String, Object> retry(String bizType, double rate) throws IOException, InterruptedException {
        return object("POST", bizType(bizType, "/retry"), Map.of("rate", rate));
    }

    /** Keeps the tasks of a business type from starting until then; null: until resume. */
    public void pause(String bizType, String reason, Instant until) throws IOException, InterruptedException {
        Map<String, Object> body = new LinkedHashMap<>(Map.of("reason", reason));
        if (until != null) {
            body.put("until", Values.time("until", until));
        }
        object("POST", bizType(bizType, "/pause"), body);
    }

    /** Ends a pause. */
    public void resume(String bizType) throws IOException, InterruptedException {
        object("POST", bizType(bizType, "/resume"), Map.of());
    }

    // Pull

    /**
     * Leases up to max (1 to 256) due tasks of a business type whose processor is pull, and waits for one, up to a minute.
     * ttr is how long the caller has those without a timeout of their own, 100 ms to 24 h; null: as the type says.
     * {@link Worker} does all of this.
     */
    public Leased lease(String bizType, int max, Duration wait, Duration ttr) throws IOException, InterruptedException {
        return lease(bizType, max, wait, ttr, List.of()).leased();
    }

    /** Leases, and the results of settlements that were sent with the request. */
    record LeasedAndSettled(Leased leased, List<Settled> results) {}

    /** As lease; settlements are settled first, and if there are some the request does not wait. */
    LeasedAndSettled lease(String bizType, int max, Duration wait, Duration ttr, List<Settlement> settlements)
            throws IOException, InterruptedException {
        Map<String, Object> body = new LinkedHashMap<>(Map.of("max", max, "wait", Values.duration("wait", wait)));
        if (ttr != null) {
            body.put("ttr", Values.duration("ttr", ttr));
        }
        if (!settlements.isEmpty()) {
            body.put("settle", settlements.stream().map(Settlement::body).toList());
        }
        Transport.Request r = new Transport.Request("POST", bizType(bizType, "/lease"), body, "", false, timeout.plus(wait));
        return transport.read(r, a -> {
            Map<String, Object> answer = Values.object(a.body());
            return new LeasedAndSettled(Leased.of(answer), settlements.isEmpty() ? List.of() : Settled.list(answer.get("results")));
        });
    }

    /**
     * Settles up to 1,000 leases; the results are in their order. After an IOException they are unknown: send the list
     * again, and what is lost then may have been settled by the first request.
     */
    public List<Settled> settle(List<Settlement> settlements) throws IOException, InterruptedException {
        return settle(settlements, false, timeout);
    }

    List<Settled> settle(List<Settlement> settlements, boolean isRepeatable, Duration timeout) throws IOException, InterruptedException {
        Map<String, Object> body = Map.of("settle", settlements.stream().map(Settlement::body).toList());
        return transport.read(new Transport.Request("POST", "/v1/leases/settle", body, "", isRepeatable, timeout),
                a -> Settled.list(Values.object(a.body()).get("results")));
    }

    // The way to a server

    private static String path(String jobId, String action) {
        return "/v1/tasks/" + Values.jobId(jobId) + action;
    }

    private static String bizType(String name, String action) {
        return "/v1/biz-types/" + Values.escape(name) + action;
    }

    private Task task(String method, String path, Object body, String etag) throws IOException, InterruptedException {
        return call(method, path, body, etag, method.equals("GET"), a -> Task.of(a.body(), a.etag()));
    }

    private Map<String, Object> object(String method, String path, Object body) throws IOException, InterruptedException {
        return call(method, path, body, "", method.equals("GET"), a -> Values.object(a.body()));
    }

    private <T> T call(String method, String path, Object body, String etag, boolean isRepeatable, Function<Transport.Answer, T> read)
            throws IOException, InterruptedException {
        return transport.read(new Transport.Request(method, path, body, etag, isRepeatable, timeout), read);
    }
}
