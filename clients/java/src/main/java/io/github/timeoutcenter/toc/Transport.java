package io.github.timeoutcenter.toc;

import java.io.IOException;
import java.net.ConnectException;
import java.net.URI;
import java.net.http.HttpClient;
import java.net.http.HttpConnectTimeoutException;
import java.net.http.HttpRequest;
import java.net.http.HttpResponse;
import java.net.http.HttpTimeoutException;
import java.nio.ByteBuffer;
import java.nio.charset.CharacterCodingException;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.TimeoutException;
import java.util.function.Function;

/**
 * Takes requests to one of the servers. A request goes to the one that answered last. If no connection to it can be made,
 * the next one is tried, each once. What is safe to repeat is tried at the next one also after a lost answer, after
 * TRY without one, and after a 502, 503 or 504.
 */
final class Transport {
    /** How long a request is tried at one server while others are left. */
    private static final Duration TRY = Duration.ofSeconds(5);

    private final List<String> servers = new ArrayList<>();
    private final String token;
    private final HttpClient http;
    private volatile int current;

    Transport(List<String> servers, String token, HttpClient http) {
        for (String s : servers) {
            this.servers.add(base(s));
        }
        this.token = token;
        this.http = http != null ? http : HttpClient.newBuilder().version(HttpClient.Version.HTTP_1_1)
                .connectTimeout(TRY).followRedirects(HttpClient.Redirect.NEVER).build();
    }

    /** A request: body and etag may be null or empty, a body of bytes is sent as it is, and timeout bounds each try. */
    record Request(String method, String path, Object body, String etag, boolean isRepeatable, Duration timeout) {}

    /** An answer that is no refusal. */
    record Answer(int status, Object body, String etag) {}

    private static String base(String server) {
        String url = server.contains("://") ? server : "http://" + server;
        try {
            URI u = URI.create(url);
            if (("http".equals(u.getScheme()) || "https".equals(u.getScheme())) && u.getHost() != null && u.getQuery() == null) {
                return url.replaceAll("/+$", "");
            }
        } catch (IllegalArgumentException e) {
            throw new IllegalArgumentException("\"" + server + "\" is not the URL of a server; write http://host:port", e);
        }
        throw new IllegalArgumentException("\"" + server + "\" is not the URL of a server; write http://host:port");
    }

    Answer call(Request r) throws IOException, InterruptedException {
        byte[] sent = bytes(r.body);
        int n = servers.size();
        int first = current;
        for (int i = 0;; i++) {
            int at = (first + i) % n;
            boolean last = i == n - 1;
            HttpResponse<byte[]> answer;
            try {
                answer = send(servers.get(at), r, sent, r.isRepeatable && !last && TRY.compareTo(r.timeout) < 0 ? TRY : r.timeout);
            } catch (IOException e) {
                if (last || !r.isRepeatable && !nothingWasSent(e)) {
                    throw e;
                }
                continue;
            }
            int status = answer.statusCode();
            if (r.isRepeatable && !last && isOfThisServer(status)) {
                continue;
            }
            Answer read = read(r, answer);
            current = at;
            return read;
        }
    }

    private static byte[] bytes(Object body) {
        if (body == null || body instanceof byte[]) {
            return (byte[]) body;
        }
        return JsonWriter.write(body).getBytes(StandardCharsets.UTF_8);
    }

    /** Makes a request, and reads its answer. */
    <T> T read(Request r, Function<Answer, T> read) throws IOException, InterruptedException {
        Answer answer = call(r);
        try {
            return read.apply(answer);
        } catch (IllegalArgumentException | ArithmeticException e) {
            throw new IOException(r.method() + " " + r.path() + ": whatever answered is no timeout center: " + e.getMessage(), e);
        }
    }

    /** Whether another server may answer what this one has not. */
    static boolean isOfThisServer(int status) {
        return status == 502 || status == 503 || status == 504;
    }

    boolean hasOthers() {
        return servers.size() > 1;
    }

    private static boolean nothingWasSent(IOException e) {
        return e instanceof ConnectException || e instanceof HttpConnectTimeoutException;
    }

    private HttpResponse<byte[]> send(String base, Request r, byte[] body, Duration timeout) throws IOException, InterruptedException {
        HttpRequest.Builder b = HttpRequest.newBuilder(URI.create(base + r.path)).timeout(timeout).header("Accept", "application/json")
                .method(r.method, body == null ? HttpRequest.BodyPublishers.noBody() : HttpRequest.BodyPublishers.ofByteArray(body));
        if (body != null) {
            b.header("Content-Type", "application/json");
        }
        if (!token.isEmpty()) {
            b.header("Authorization", "Bearer " + token);
        }
        if (r.etag != null && !r.etag.isEmpty()) {
            b.header("If-Match", r.etag);
        }
        // The time-out of HttpRequest ends with the headers; this one bounds the body, too.
        CompletableFuture<HttpResponse<byte[]>> answer = http.sendAsync(b.build(), Limited.handler());
        try {
            return answer.get(timeout.toMillis() + 100, TimeUnit.MILLISECONDS);
        } catch (TimeoutException e) {
            throw new HttpTimeoutException("the answer took longer than " + timeout);
        } catch (ExecutionException e) {
            throw rethrown(e.getCause());
        } finally {
            answer.cancel(true); // closes the connection of a request that is under way
        }
    }

    /** The same exception with the stack of this thread. */
    static IOException rethrown(Throwable cause) {
        IOException e;
        if (cause instanceof ConnectException) {
            e = new ConnectException(cause.getMessage());
        } else if (cause instanceof HttpConnectTimeoutException) {
            e = new HttpConnectTimeoutException(cause.getMessage());
        } else if (cause instanceof HttpTimeoutException) {
            e = new HttpTimeoutException(cause.getMessage());
        } else {
            e = new IOException(cause.getMessage());
        }
        e.initCause(cause);
        return e;
    }

    private static Answer read(Request r, HttpResponse<byte[]> answer) throws IOException {
        String etag = answer.headers().firstValue("ETag").orElse("");
        boolean good = answer.statusCode() >= 200 && answer.statusCode() <= 299;
        if (!good) {
            throw TocException.of(answer.statusCode(), answer.headers().firstValue("Content-Type").orElse(""),
                    answer.headers().firstValue("Retry-After").orElse(""), etag, new String(answer.body(), StandardCharsets.UTF_8));
        }
        try {
            String text = StandardCharsets.UTF_8.newDecoder().decode(ByteBuffer.wrap(answer.body())).toString();
            return new Answer(answer.statusCode(), JsonReader.read(text), etag);
        } catch (CharacterCodingException | IllegalArgumentException e) {
            throw new IOException(r.method + " " + r.path + ": whatever answered is no timeout center: " + e.getMessage(), e);
        }
    }
}
