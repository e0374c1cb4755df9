// HotSpot's time to safepoint, as its own log tells it, with threads that run
// managed code, with threads that are parked, and in a storm of starts.
//
// Run by run_peers.sh, which has the JVM make a safepoint every few
// milliseconds and write its safepoint log to the file named here.

import java.io.IOException;
import java.lang.management.ManagementFactory;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayDeque;
import java.util.concurrent.atomic.AtomicLong;
import java.util.concurrent.locks.LockSupport;
import java.util.regex.Matcher;
import java.util.regex.Pattern;
import java.util.stream.Stream;

public final class TtspPeer {
  // As in examples/storm.
  private static final int ALIVE = 16;
  private static final long WORK_NANOS = 20_000;
  private static final long STACK_BYTES = 256 << 10;
  private static final long WARM_UP_MILLIS = 1000;

  private static volatile boolean ending;
  private static volatile long sink;
  private static final AtomicLong starts = new AtomicLong();

  private static void beBusy() {
    long value = 1;
    while (!ending) value = value * 31 + 7;
    sink = value;
  }

  private static void beParked() {
    while (!ending) LockSupport.park();
  }

  private static void work() {
    final long until = System.nanoTime() + WORK_NANOS;
    long value = 1;
    do {
      for (int i = 0; i < 100; ++i) value = value * 31 + 7;
    } while (System.nanoTime() - until < 0);
    sink = value;
  }

  private static void startThreads() {
    final ArrayDeque<Thread> unfinished = new ArrayDeque<>();
    while (!ending) {
      final Thread thread = new Thread(TtspPeer::work);
      thread.start();
      starts.incrementAndGet();
      unfinished.add(thread);
      while (!unfinished.isEmpty() && !unfinished.peek().isAlive()) {
        unfinished.remove();
      }
      if (unfinished.size() >= ALIVE) {
        try {
          unfinished.remove().join();
        } catch (InterruptedException e) {
          return;
        }
      }
    }
  }

  private static void launch(int count, Runnable body) {
    for (int i = 0; i < count; ++i) {
      final Thread thread = new Thread(null, body, "peer-" + i, STACK_BYTES);
      thread.setDaemon(true);
      thread.start();
    }
  }

  // TtspPeer busy|parked|storm COUNT SECONDS LOG
  public static void main(String[] args) throws Exception {
    final int count = Integer.parseInt(args[1]);
    final double seconds = Double.parseDouble(args[2]);
    switch (args[0]) {
      case "busy" -> launch(count, TtspPeer::beBusy);
      case "parked" -> launch(count, TtspPeer::beParked);
      case "storm" -> launch(count, TtspPeer::startThreads);
      default -> throw new IllegalArgumentException(args[0]);
    }
    Thread.sleep(WARM_UP_MILLIS);
    final long begin = ManagementFactory.getRuntimeMXBean().getUptime();
    final long startsBefore = starts.get();
    Thread.sleep((long) (seconds * 1000));
    final long end = ManagementFactory.getRuntimeMXBean().getUptime();
    final long started = starts.get() - startsBefore;
    report(args, begin / 1000.0, end / 1000.0, started);
    ending = true;
    // Daemons that are starting threads would hold up an orderly end.
    Runtime.getRuntime().halt(0);
  }

  // One line for run_peers.sh: samples, p50, p99 and maximum in microseconds.
  private static void report(String[] args, double begin, double end, long started)
      throws IOException {
    final Pattern line =
        Pattern.compile("^\\[([0-9.]+)s\\].*Reaching safepoint: ([0-9]+) ns.*");
    final long[] nanos;
    try (Stream<String> lines = Files.lines(Path.of(args[3]))) {
      nanos =
          lines
              .map(line::matcher)
              .filter(Matcher::matches)
              .filter(
                  match -> {
                    final double at = Double.parseDouble(match.group(1));
                    return at >= begin && at <= end;
                  })
              .mapToLong(match -> Long.parseLong(match.group(2)))
              .sorted()
              .toArray();
    }
    if (nanos.length == 0) {
      System.out.println("0 - - - no safepoint was logged");
      return;
    }
    final String note =
        args[0].equals("storm") ? String.format("%.0f starts/s", started / (end - begin)) : "";
    System.out.printf(
        "%d %.1f %.1f %.1f %s%n",
        nanos.length,
        quantile(nanos, 0.5),
        quantile(nanos, 0.99),
        nanos[nanos.length - 1] / 1e3,
        note);
  }

  private static double quantile(long[] sorted, double q) {
    final int rank = (int) Math.ceil(q * sorted.length);
    return sorted[Math.max(rank, 1) - 1] / 1e3;
  }
}
