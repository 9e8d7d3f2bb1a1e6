import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.CompletionStage;
import java.util.concurrent.TimeUnit;
import org.redisson.api.RBlockingQueue;
import org.redisson.api.RDelayedQueue;
import org.redisson.api.RedissonClient;
import org.redisson.client.codec.StringCodec;
import org.redisson.config.Config;

/** Redisson's RDelayedQueue: a list and a sorted set in Redis. Redisson client PORT is the peer of a Redis. */
final class Redisson extends Peer {
  private static final int WORKERS = 32;
  private final RBlockingQueue<String> queue;
  private final RDelayedQueue<String> delayed;

  public static void main(String[] args) throws Exception {
    new Redisson(args[1]).serve();
  }

  Redisson(String port) {
    Config c = new Config();
    c.setCodec(StringCodec.INSTANCE);
    c.useSingleServer().setAddress("redis://127.0.0.1:" + port).setConnectionPoolSize(128);
    RedissonClient client = org.redisson.Redisson.create(c);
    queue = client.getBlockingQueue("toc");
    delayed = client.getDelayedQueue(queue);
  }

  @Override
  void submit(int caller, long[] due) throws Exception {
    List<CompletionStage<Void>> sent = new ArrayList<>();
    for (long at : due) {
      String value = at + " " + unique() + " " + ATTRIBUTE;
      sent.add(delayed.offerAsync(value, Math.max(0, at - System.currentTimeMillis()), TimeUnit.MILLISECONDS));
    }
    for (CompletionStage<Void> s : sent) {
      s.toCompletableFuture().get();
    }
  }

  @Override
  void work(Fired fired, Runnable recorded) {
    for (int i = 0; i < WORKERS; i++) {
      Thread t = new Thread(() -> {
        while (true) {
          try {
            String value = queue.take(); // removes it: there is no outcome to record
            String[] parts = value.split(" ", 3);
            fired.accept(Long.parseLong(parts[0]), Long.parseLong(parts[1]));
            recorded.run();
          } catch (Exception e) {
            System.err.println(e); // it connects again
          }
        }
      });
      t.setDaemon(true);
      t.start();
    }
  }
}
