import java.io.File;
import java.net.InetAddress;
import java.net.ServerSocket;
import java.net.Socket;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.Semaphore;
import java.util.concurrent.atomic.AtomicReference;
import org.apache.rocketmq.broker.BrokerController;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerConcurrently;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.producer.SendCallback;
import org.apache.rocketmq.client.producer.SendResult;
import org.apache.rocketmq.client.producer.SendStatus;
import org.apache.rocketmq.common.BrokerConfig;
import org.apache.rocketmq.common.MQVersion;
import org.apache.rocketmq.common.TopicConfig;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.common.namesrv.NamesrvConfig;
import org.apache.rocketmq.namesrv.NamesrvController;
import org.apache.rocketmq.remoting.netty.NettyClientConfig;
import org.apache.rocketmq.remoting.netty.NettyServerConfig;
import org.apache.rocketmq.store.config.FlushDiskType;
import org.apache.rocketmq.store.config.MessageStoreConfig;

/**
 * RocketMQ 5: messages with a delivery time, in the broker's timer wheel.
 *
 * <p>RocketMQ server DIR PORT PRECISION runs a name server and a broker, and writes the name server's address to whoever connects to
 * PORT. RocketMQ client PORT is the peer.
 */
final class RocketMQ extends Peer {
  private static final String TOPIC = "toc";
  private static final String HOST = "127.0.0.1";
  private static final int SEND_TIMEOUT = 30_000; // ms
  private final DefaultMQProducer producer = new DefaultMQProducer("producers");
  private final Semaphore inFlight = new Semaphore(1000);
  private final String names;

  public static void main(String[] args) throws Exception {
    // Its start classes set this; without it the name server drops the broker's topics.
    System.setProperty("rocketmq.remoting.version", Integer.toString(MQVersion.CURRENT_VERSION));
    if (args[0].equals("server")) {
      serve(args[1], Integer.parseInt(args[2]), Integer.parseInt(args[3]));
    } else {
      new RocketMQ(Integer.parseInt(args[1])).serve();
    }
  }

  /** A free port, which the directory keeps under the name for the next start. */
  private static int port(String dir, String name) throws Exception {
    Path kept = Path.of(dir, name + ".port");
    if (!Files.exists(kept)) {
      try (ServerSocket s = new ServerSocket(0, 1, InetAddress.getByName(HOST))) {
        Files.writeString(kept, Integer.toString(s.getLocalPort()));
      }
    }
    return Integer.parseInt(Files.readString(kept));
  }

  private static void serve(String dir, int port, int precision) throws Exception {
    NettyServerConfig names = new NettyServerConfig();
    names.setBindAddress(HOST);
    names.setListenPort(port(dir, "names"));
    NamesrvController namesrv = new NamesrvController(new NamesrvConfig(), names, new NettyClientConfig());
    namesrv.initialize();
    namesrv.start();
    String address = HOST + ":" + names.getListenPort();

    BrokerConfig broker = new BrokerConfig();
    broker.setBrokerName("bench");
    broker.setBrokerIP1(HOST);
    broker.setBrokerIP2(HOST);
    broker.setNamesrvAddr(address);
    broker.setAutoCreateTopicEnable(true);
    // With its defaults a broker on two cores under full load rejects sends that waited for 200 ms, or while a write to its log takes
    // a second. It shall be as slow as it is, like the others, and lose nothing of the load. More threads let a sync carry more sends.
    broker.setBrokerFastFailureEnable(false);
    broker.setSendMessageThreadPoolNums(16);
    NettyServerConfig server = new NettyServerConfig();
    server.setBindAddress(HOST);
    server.setListenPort(port(dir, "broker"));
    MessageStoreConfig store = new MessageStoreConfig();
    store.setStorePathRootDir(dir + File.separator + "store");
    store.setStorePathCommitLog(dir + File.separator + "store" + File.separator + "commitlog");
    store.setFlushDiskType(FlushDiskType.SYNC_FLUSH);
    store.setTimerPrecisionMs(precision);
    store.setTimerMaxDelaySec(31 * 24 * 3600); // the default of 3 days refuses what is parked over 30
    store.setDiskMaxUsedSpaceRatio(95);
    store.setOsPageCacheBusyTimeOutMills(SEND_TIMEOUT);
    store.setSyncFlushTimeout(SEND_TIMEOUT);
    store.setHaListenPort(port(dir, "ha"));
    BrokerController controller = new BrokerController(broker, server, new NettyClientConfig(), store);
    if (!controller.initialize()) {
      throw new IllegalStateException("the broker does not start");
    }
    controller.start();
    // A consumer looks for queues of a new topic only each 20 s, so the topic is there before it. The first registration may meet a
    // name server that is not ready for it, and the next one comes after ten seconds.
    controller.getTopicConfigManager().updateTopicConfig(new TopicConfig(TOPIC, 8, 8));
    while (namesrv.getRouteInfoManager().pickupTopicRouteData(TOPIC) == null) {
      controller.registerBrokerAll(true, false, true);
      Thread.sleep(50);
    }

    try (ServerSocket control = new ServerSocket(port, 16, InetAddress.getByName(HOST))) {
      while (true) {
        try (Socket s = control.accept()) {
          s.getOutputStream().write(address.getBytes(StandardCharsets.US_ASCII));
        }
      }
    }
  }

  RocketMQ(int port) throws Exception {
    try (Socket s = new Socket(HOST, port)) {
      names = new String(s.getInputStream().readAllBytes(), StandardCharsets.US_ASCII);
    }
    producer.setNamesrvAddr(names);
    producer.setSendMsgTimeout(SEND_TIMEOUT);
    producer.setRetryTimesWhenSendFailed(0);
    producer.setRetryTimesWhenSendAsyncFailed(0);
    producer.start();
  }

  private Message message(long due) {
    Message m = new Message(TOPIC, ATTRIBUTE.getBytes(StandardCharsets.UTF_8));
    m.setDeliverTimeMs(due);
    m.putUserProperty("due", Long.toString(due));
    m.putUserProperty("number", Long.toString(unique()));
    return m;
  }

  private static void check(SendResult r) {
    if (r.getSendStatus() != SendStatus.SEND_OK) {
      throw new IllegalStateException(r.toString());
    }
  }

  @Override
  void submit(int caller, long[] due) throws Exception {
    if (due.length == 1) {
      check(producer.send(message(due[0])));
      return;
    }
    CountDownLatch answered = new CountDownLatch(due.length); // its batches have no delivery times
    AtomicReference<Throwable> failed = new AtomicReference<>();
    for (long at : due) {
      inFlight.acquire();
      producer.send(message(at), new SendCallback() {
        @Override
        public void onSuccess(SendResult r) {
          end(r.getSendStatus() == SendStatus.SEND_OK ? null : new IllegalStateException(r.toString()));
        }

        @Override
        public void onException(Throwable e) {
          end(e);
        }

        private void end(Throwable e) {
          failed.compareAndSet(null, e);
          inFlight.release();
          answered.countDown();
        }
      });
    }
    answered.await();
    if (failed.get() != null) {
      throw new Exception(failed.get());
    }
  }

  @Override
  void work(Fired fired, Runnable recorded) throws Exception {
    DefaultMQPushConsumer consumer = new DefaultMQPushConsumer("workers");
    consumer.setNamesrvAddr(names);
    consumer.setConsumeThreadMin(64);
    consumer.setConsumeThreadMax(64);
    consumer.setConsumeMessageBatchMaxSize(1);
    consumer.subscribe(TOPIC, "*");
    consumer.registerMessageListener((MessageListenerConcurrently) (list, context) -> {
      for (MessageExt m : list) {
        fired.accept(Long.parseLong(m.getUserProperty("due")), Long.parseLong(m.getUserProperty("number")));
        recorded.run();
      }
      return ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
    });
    consumer.start();
  }
}
