package io.github.timeoutcenter.toc;

import java.time.Duration;
import java.util.List;
import java.util.Map;
import java.util.stream.Collectors;

/** A refusal of the center: an RFC 9457 problem. Its kinds are the nested classes; any other status is this class itself. */
public class TocException extends RuntimeException {
    private static final long serialVersionUID = 1;
    private static final int SHOWN = 200; // characters of an answer that is no problem

    /**
     * What is wrong with one field of a request.
     *
     * @param location where, like body.biz_type
     * @param message what would be right
     */
    public record FieldError(String location, String message) {}

    private final int status;
    private final String detail;
    private final String outcome;
    private final transient Task task;
    private final transient List<FieldError> errors;
    private final Duration retryAfter;

    private TocException(Facts f) {
        super(f.status + " " + f.title + ": " + (f.errors.isEmpty() ? f.detail
                : f.errors.stream().map(e -> e.location() + ": " + e.message()).collect(Collectors.joining("; "))));
        status = f.status;
        detail = f.detail;
        outcome = f.outcome;
        task = f.task;
        errors = f.errors;
        retryAfter = f.retryAfter;
    }

    /** The HTTP status. */
    public int status() {
        return status;
    }

    /** What is wrong. */
    public String detail() {
        return detail;
    }

    /** Of a Conflict: already_processed, already_cancelled, dead, running or pending; else empty. */
    public String outcome() {
        return outcome;
    }

    /** Of a Changed: the task as it stands; else null. */
    public Task task() {
        return task;
    }

    /** The fields that are wrong; may be empty. */
    public List<FieldError> errors() {
        return errors;
    }

    /** How long the center asks to wait; zero: it does not say. */
    public Duration retryAfter() {
        return retryAfter;
    }

    /** Whether a repeat of the request would be refused, too. */
    boolean isForGood() {
        return status >= 400 && status < 500 && status != 408 && status != 429;
    }

    /** No task, business type or operation is there by this name. */
    public static final class NotFound extends TocException {
        private static final long serialVersionUID = 1;

        private NotFound(Facts f) {
            super(f);
        }
    }

    /** The task cannot be changed: outcome says why. */
    public static final class Conflict extends TocException {
        private static final long serialVersionUID = 1;

        private Conflict(Facts f) {
            super(f);
        }
    }

    /** The task is not as you have seen it: task is how it is now. */
    public static final class Changed extends TocException {
        private static final long serialVersionUID = 1;

        private Changed(Facts f) {
            super(f);
        }
    }

    /** The request is wrong: errors names the fields. */
    public static final class Invalid extends TocException {
        private static final long serialVersionUID = 1;

        private Invalid(Facts f) {
            super(f);
        }
    }

    /** The center cannot do it now: detail says whether something was changed. Try again after retryAfter. */
    public static final class Unavailable extends TocException {
        private static final long serialVersionUID = 1;

        private Unavailable(Facts f) {
            super(f);
        }
    }

    private record Facts(int status, String title, String detail, String outcome, Task task, List<FieldError> errors, Duration retryAfter) {}

    /** Makes an exception of an answer. What stands between client and server may have sent it. */
    static TocException of(int status, String contentType, String retryAfter, String etag, String body) {
        return of(status, problem(contentType, body), seconds(retryAfter), etag, body);
    }

    /** Makes an exception of a problem; shown is what stands for its detail. */
    static TocException of(int status, Map<String, Object> problem, Duration retryAfter, String etag, String shown) {
        String title = Values.text(problem.get("title"));
        String detail = Values.text(problem.get("detail"));
        List<FieldError> errors = problem.get("errors") instanceof List<?> list
                ? list.stream().map(TocException::fieldError).toList() : List.of();
        Facts f = new Facts(status, title.isEmpty() ? "refused" : title, detail.isEmpty() ? "'" + shown(shown) + "'" : detail,
                Values.text(problem.get("outcome")), task(problem, etag), errors, retryAfter);
        return switch (status) {
            case 404 -> new NotFound(f);
            case 409 -> new Conflict(f);
            case 412 -> new Changed(f);
            case 422 -> new Invalid(f);
            case 503 -> new Unavailable(f);
            default -> new TocException(f);
        };
    }

    private static String shown(String body) {
        return body.substring(0, Math.min(SHOWN, body.length()));
    }

    private static Map<String, Object> problem(String contentType, String body) {
        try {
            return contentType.startsWith("application/problem+json") ? Values.object(JsonReader.read(body)) : Map.of();
        } catch (IllegalArgumentException e) {
            return Map.of();
        }
    }

    private static FieldError fieldError(Object one) {
        Map<?, ?> f = one instanceof Map<?, ?> map ? map : Map.of();
        return new FieldError(Values.text(f.get("location")), Values.text(f.get("message")));
    }

    private static Task task(Map<String, Object> problem, String etag) {
        try {
            return problem.get("task") == null ? null : Task.of(problem.get("task"), etag);
        } catch (IllegalArgumentException | ClassCastException | ArithmeticException e) {
            return null;
        }
    }

    private static Duration seconds(String retryAfter) {
        return retryAfter.matches("[0-9]{1,9}") ? Duration.ofSeconds(Long.parseLong(retryAfter)) : Duration.ZERO;
    }
}
