package io.github.timeoutcenter.toc;

import java.io.IOException;
import java.net.http.HttpResponse.BodyHandler;
import java.net.http.HttpResponse.BodySubscriber;
import java.net.http.HttpResponse.BodySubscribers;
import java.nio.ByteBuffer;
import java.util.List;
import java.util.concurrent.CompletionStage;
import java.util.concurrent.Flow;

/** The body of an answer in memory, up to a size. */
final class Limited implements BodySubscriber<byte[]> {
    private static final int MAX = 64 << 20; // bytes

    private final BodySubscriber<byte[]> all = BodySubscribers.ofByteArray();
    private Flow.Subscription subscription;
    private long bytes;

    static BodyHandler<byte[]> handler() {
        return info -> new Limited();
    }

    @Override
    public CompletionStage<byte[]> getBody() {
        return all.getBody();
    }

    @Override
    public void onSubscribe(Flow.Subscription s) {
        subscription = s;
        all.onSubscribe(s);
    }

    @Override
    public void onNext(List<ByteBuffer> part) {
        bytes += part.stream().mapToLong(ByteBuffer::remaining).sum();
        if (bytes > MAX) {
            subscription.cancel();
            all.onError(new IOException("the answer is larger than " + MAX + " bytes"));
        } else {
            all.onNext(part);
        }
    }

    @Override
    public void onError(Throwable e) {
        all.onError(e);
    }

    @Override
    public void onComplete() {
        all.onComplete();
    }
}
