import java.io.File;
import java.util.concurrent.ConcurrentHashMap;
import org.apache.activemq.artemis.api.core.ActiveMQException;
import org.apache.activemq.artemis.api.core.Message;
import org.apache.activemq.artemis.api.core.QueueConfiguration;
import org.apache.activemq.artemis.api.core.RoutingType;
import org.apache.activemq.artemis.api.core.client.ActiveMQClient;
import org.apache.activemq.artemis.api.core.client.ClientConsumer;
import org.apache.activemq.artemis.api.core.client.ClientMessage;
import org.apache.activemq.artemis.api.core.client.ClientProducer;
import org.apache.activemq.artemis.api.core.client.ClientSession;
import org.apache.activemq.artemis.api.core.client.ClientSessionFactory;
import org.apache.activemq.artemis.api.core.client.ServerLocator;
import org.apache.activemq.artemis.core.config.impl.ConfigurationImpl;
import org.apache.activemq.artemis.core.server.JournalType;
import org.apache.activemq.artemis.core.server.embedded.EmbeddedActiveMQ;

/**
 * ActiveMQ Artemis: scheduled messages, in a journal that is synced.
 *
 * <p>Artemis server DIR PORT runs a broker, Artemis client PORT is the peer.
 */
final class Artemis extends Peer {
  private static final String QUEUE = "toc";
  private static final int CONSUMERS = 16;
  private final ServerLocator locator;
  private final ConcurrentHashMap<Integer, Caller> callers = new ConcurrentHashMap<>();

  /** Sends one message at once, or some in a transaction. */
  private static final class Caller {
    final ClientSession single;
    final ClientSession batch;
    final ClientProducer one;
    final ClientProducer many;

    Caller(ClientSessionFactory factory) throws Exception {
      single = factory.createSession(true, true);
      batch = factory.createSession(false, false);
      one = single.createProducer(QUEUE);
      many = batch.createProducer(QUEUE);
    }
  }

  public static void main(String[] args) throws Exception {
    if (args[0].equals("server")) {
      serve(args[1], args[2]);
    } else {
      new Artemis(args[1]).serve();
    }
  }

  private static void serve(String dir, String port) throws Exception {
    ConfigurationImpl c = new ConfigurationImpl();
    c.setPersistenceEnabled(true).setSecurityEnabled(false).setJournalType(JournalType.NIO).setJournalDatasync(true);
    c.setJournalDirectory(dir + File.separator + "journal").setBindingsDirectory(dir + File.separator + "bindings");
    c.setLargeMessagesDirectory(dir + File.separator + "large").setPagingDirectory(dir + File.separator + "paging");
    c.setJournalSyncTransactional(true);
    c.setJournalSyncNonTransactional(true);
    c.setMaxDiskUsage(100);
    c.addAcceptorConfiguration("tcp", "tcp://127.0.0.1:" + port);
    EmbeddedActiveMQ broker = new EmbeddedActiveMQ();
    broker.setConfiguration(c);
    broker.start();
    Thread.currentThread().join();
  }

  Artemis(String port) throws Exception {
    locator = ActiveMQClient.createServerLocator("tcp://127.0.0.1:" + port);
    locator.setBlockOnDurableSend(true).setAckBatchSize(0).setConfirmationWindowSize(-1).setReconnectAttempts(-1).setRetryInterval(200);
    try (ClientSession s = locator.createSessionFactory().createSession()) {
      s.createQueue(QueueConfiguration.of(QUEUE).setAddress(QUEUE).setRoutingType(RoutingType.ANYCAST).setDurable(true));
    }
  }

  private ClientMessage message(ClientSession s, long due) {
    ClientMessage m = s.createMessage(true);
    m.putLongProperty(Message.HDR_SCHEDULED_DELIVERY_TIME, due);
    m.putLongProperty("due", due);
    m.putLongProperty("number", unique());
    m.getBodyBuffer().writeString(ATTRIBUTE);
    return m;
  }

  @Override
  void submit(int caller, long[] due) throws Exception {
    Caller c = callers.get(caller);
    if (c == null) {
      c = new Caller(locator.createSessionFactory());
      callers.put(caller, c);
    }
    if (due.length == 1) {
      c.one.send(message(c.single, due[0]));
      return;
    }
    for (long at : due) {
      c.many.send(message(c.batch, at));
    }
    c.batch.commit();
  }

  @Override
  void work(Fired fired, Runnable recorded) throws Exception {
    for (int i = 0; i < CONSUMERS; i++) {
      ClientSession s = locator.createSessionFactory().createSession(true, true, 0);
      ClientConsumer consumer = s.createConsumer(QUEUE);
      consumer.setMessageHandler(m -> {
        fired.accept(m.getLongProperty("due"), m.getLongProperty("number"));
        try {
          m.acknowledge();
          recorded.run();
        } catch (ActiveMQException e) {
          System.err.println(e); // it is delivered again
        }
      });
      s.start();
    }
  }
}
