import com.zaxxer.hikari.HikariDataSource;
import java.time.Duration;
import java.time.Instant;
import org.jobrunr.scheduling.JobScheduler;
import org.jobrunr.server.BackgroundJobServerConfiguration;
import org.jobrunr.storage.sql.common.SqlStorageProviderFactory;

/** JobRunr in a MariaDB, which polls each 5 s: the least that it accepts. JobRunr client PORT is the peer. */
public final class JobRunr extends Peer {
  private static Fired fired;
  private static Runnable recorded;
  private final JobScheduler scheduler;

  public static void main(String[] args) throws Exception {
    new JobRunr(Mariadb.pool(args[1], 100)).serve();
  }

  JobRunr(HikariDataSource pool) {
    scheduler = org.jobrunr.configuration.JobRunr.configure()
        .useStorageProvider(SqlStorageProviderFactory.using(pool))
        .useBackgroundJobServer(BackgroundJobServerConfiguration.usingStandardBackgroundJobServerConfiguration()
            .andPollInterval(Duration.ofSeconds(5)).andWorkerCount(64), false)
        .initialize().getJobScheduler();
  }

  /** The job: its row is updated right after this. */
  public static void close(long due, long number, String attribute) {
    fired.accept(due, number);
    recorded.run();
  }

  @Override
  void submit(int caller, long[] due) {
    for (long at : due) {
      long number = unique();
      scheduler.schedule(Instant.ofEpochMilli(at), () -> JobRunr.close(at, number, ATTRIBUTE));
    }
  }

  @Override
  void work(Fired onFire, Runnable onRecord) {
    fired = onFire;
    recorded = onRecord;
    org.jobrunr.configuration.JobRunr.getBackgroundJobServer().start();
  }
}
