import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.ArrayNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.time.Instant;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.concurrent.ThreadLocalRandom;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.concurrent.atomic.AtomicLong;

/**
 * A system that runs on the JVM, as a peer of the benchmark. It is driven by lines of JSON: a line on stdin is a request {id, do, …}, a
 * line on stdout is its answer {id, …} or {id, error}. Requests are handled as they come, so that one may ask for counts while a load
 * goes on. The moment at which a task fires is read by the clock of this process.
 */
abstract class Peer {
  static final String ATTRIBUTE = "{\"order\":\"4711\",\"reason\":\"unpaid\"}";
  private static final long STEP = 10; // ms: how often a load with a rate submits what has become due to be submitted
  private static final ObjectMapper JSON = new ObjectMapper();

  private final AtomicLong done = new AtomicLong();
  private final AtomicLong next = new AtomicLong();
  private volatile double[] late = new double[0]; // ms
  private volatile long[] numbers = new long[0]; // of the tasks
  private final AtomicInteger heard = new AtomicInteger();
  private final AtomicLong first = new AtomicLong(); // Unix µs; 0: nothing has fired

  /** What processors call first: with when the task was due, in Unix ms, and its number, which is unique. */
  interface Fired {
    void accept(long due, long number);
  }

  /** Submits tasks that are due at these Unix ms: in one call, or, if the system has no batches, one by one. */
  abstract void submit(int caller, long[] due) throws Exception;

  /** Starts the processors: each of them calls fired first, and recorded once the system has the outcome. */
  abstract void work(Fired fired, Runnable recorded) throws Exception;

  /** A number that no other task has. */
  final long unique() {
    return next.incrementAndGet();
  }

  private static long micros() {
    Instant now = Instant.now();
    return now.getEpochSecond() * 1_000_000 + now.getNano() / 1000;
  }

  private void fired(long due, long number) {
    long now = micros();
    int at = heard.getAndIncrement();
    double[] list = late;
    long[] whose = numbers;
    if (at < Math.min(list.length, whose.length)) {
      list[at] = now / 1000.0 - due;
      whose[at] = number;
    }
    first.compareAndSet(0, now);
  }

  /** Answers requests until stdin ends. The libraries may print: stdout belongs to the answers alone. */
  final void serve() throws Exception {
    PrintStream answers = System.out;
    System.setOut(System.err);
    BufferedReader requests = new BufferedReader(new InputStreamReader(System.in));
    for (String line; (line = requests.readLine()) != null; ) {
      JsonNode request = JSON.readTree(line);
      new Thread(() -> {
        ObjectNode answer = JSON.createObjectNode();
        try {
          handle(request, answer);
        } catch (Throwable e) {
          answer.put("error", e.toString());
          e.printStackTrace();
        }
        answer.put("id", request.get("id").asInt());
        synchronized (answers) {
          answers.println(answer);
          answers.flush();
        }
      }).start();
    }
    Runtime.getRuntime().halt(0); // whoever drove this process is gone, or done
  }

  private void handle(JsonNode request, ObjectNode answer) throws Exception {
    switch (request.get("do").asText()) {
      case "work" -> work(this::fired, done::incrementAndGet);
      case "done" -> answer.put("done", done.get());
      case "heard" -> answer.put("heard", heard.get());
      case "reset" -> {
        late = new double[request.get("n").asInt()];
        numbers = new long[late.length];
        heard.set(0);
        first.set(0);
      }
      case "fired" -> {
        answer.put("first_ms", first.get() / 1000.0);
        ArrayNode list = answer.putArray("late_ms");
        ArrayNode whose = answer.putArray("numbers");
        for (int i = 0; i < Math.min(heard.get(), late.length); i++) {
          list.add(late[i]);
          whose.add(numbers[i]);
        }
      }
      case "load" -> load(request, answer);
      default -> throw new IllegalArgumentException("do: " + request.get("do"));
    }
  }

  private void load(JsonNode r, ObjectNode answer) throws Exception {
    int n = r.get("n").asInt();
    int batch = r.get("batch").asInt();
    int rate = r.get("rate").asInt();
    AtomicInteger sent = new AtomicInteger();
    List<double[]> calls = new ArrayList<>();
    List<Thread> callers = new ArrayList<>();
    Throwable[] failed = new Throwable[1];
    long start = System.nanoTime();
    for (int c = 0; c < r.get("callers").asInt(); c++) {
      int caller = c;
      Thread t = new Thread(() -> {
        double[] took = new double[16];
        int made = 0;
        try {
          while (failed[0] == null && sent.get() < n) {
            int allowed = rate == 0 ? n : (int) Math.min(n, (System.nanoTime() - start) / 1e9 * rate);
            int from = sent.getAndUpdate(s -> s + Math.max(0, Math.min(batch, allowed - s)));
            int size = Math.min(batch, allowed - from);
            if (size <= 0) {
              Thread.sleep(STEP);
              continue;
            }
            long[] due = new long[size];
            for (int i = 0; i < size; i++) {
              due[i] = due(r);
            }
            long asked = System.nanoTime();
            submit(caller, due);
            if (made == took.length) {
              took = Arrays.copyOf(took, 2 * made);
            }
            took[made++] = (System.nanoTime() - asked) / 1e6;
          }
        } catch (Throwable e) {
          failed[0] = e;
        }
        synchronized (calls) {
          calls.add(Arrays.copyOf(took, made));
        }
      });
      callers.add(t);
      t.start();
    }
    for (Thread t : callers) {
      t.join();
    }
    if (failed[0] != null) {
      throw new Exception(failed[0]);
    }
    answer.put("took_ms", (System.nanoTime() - start) / 1e6);
    ArrayNode list = answer.putArray("calls_ms");
    for (double[] of : calls) {
      for (double ms : of) {
        list.add(ms);
      }
    }
  }

  /** A whole millisecond. */
  private static long due(JsonNode r) {
    long at = r.get("at_ms").asLong();
    long spread = r.get("spread_ms").asLong();
    return (at == 0 ? System.currentTimeMillis() + 1 : at) + r.get("after_ms").asLong()
        + (spread == 0 ? 0 : ThreadLocalRandom.current().nextLong(spread));
  }
}
