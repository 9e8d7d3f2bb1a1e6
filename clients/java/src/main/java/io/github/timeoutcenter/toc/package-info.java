/**
 * The Java client of the timeout center: its HTTP API, a worker for pull types, and helpers for receivers of its webhooks.
 *
 * <pre>{@code
 * TocClient toc = TocClient.of("http://10.0.0.7:8080", "http://10.0.0.8:8080");
 * Submitted s = toc.submit(Submission.of("order_close", 42).delay(Duration.ofMinutes(30)).dedupKey("order-42-unpaid"));
 * toc.cancel(s.task().jobId());
 * }</pre>
 *
 * <p>It needs Java 17 or newer and nothing else. Ids are texts, as in the API: unsigned 64-bit numbers do not fit a long.
 * Where a {@code long} is taken as an id, its bits are an unsigned number. A refusal of the center is a {@link
 * io.github.timeoutcenter.toc.TocException}; an answer that did not come is an {@link java.io.IOException}. Every class is
 * safe for concurrent use, but those that build a request.
 */
package io.github.timeoutcenter.toc;
