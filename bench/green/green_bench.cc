// What green threads do most often, on one carrier: give others a turn, start
// and join, wake and wait. Nanoseconds for one operation; bench/peers asks Go
// and Boost.Fiber the same.

#include <cstdint>
#include <vector>

#include "bench/green/green_world.h"
#include "runtime/base/check.h"
#include "runtime/base/clock.h"
#include "runtime/stillpoint.h"

namespace stillpoint::bench {
namespace {

// `threads` that all yield: per switch.
template <int threads>
double YieldSwitch(Runtime& runtime, In in) {
  constexpr int kSwitches = 400'000;
  constexpr int kTurns = kSwitches / threads;
  int arrived = 0;
  int64_t begin = 0;
  int64_t end = 0;
  RunGreen(runtime, [&] {
    std::vector<ThreadHandle> yielders;
    for (int i = 0; i < threads; ++i) {
      yielders.push_back(StartGreen(runtime, [&] {
        Inside(in, [&] {
          if (++arrived == threads) begin = MonotonicNanos();
          while (arrived < threads) Yield();
          for (int turn = 0; turn < kTurns; ++turn) Yield();
          // The others are as far as this one.
          if (end == 0) end = MonotonicNanos();
        });
      }));
    }
    JoinAll(yielders);
  });
  return static_cast<double>(end - begin) / (kTurns * threads);
}

// A green thread starts one that does nothing, and joins it.
double SpawnAndJoin(Runtime& runtime, In in) {
  constexpr int kThreads = 50'000;
  int64_t nanos = 0;
  RunGreen(runtime, [&] {
    Inside(in, [&] {
      const int64_t begin = MonotonicNanos();
      for (int i = 0; i < kThreads; ++i) {
        STILLPOINT_CHECK(StartGreen(runtime, [] {}).Join().ok(), "no join");
      }
      nanos = MonotonicNanos() - begin;
    });
  });
  return static_cast<double>(nanos) / kThreads;
}

// A thousand are started, then all of them joined: per thread.
double SpawnManyAndJoin(Runtime& runtime, In in) {
  constexpr int kThreads = 1'000;
  constexpr int kRounds = 50;
  int64_t nanos = 0;
  RunGreen(runtime, [&] {
    std::vector<ThreadHandle> threads;
    threads.reserve(kThreads);
    Inside(in, [&] {
      const int64_t begin = MonotonicNanos();
      for (int round = 0; round < kRounds; ++round) {
        for (int i = 0; i < kThreads; ++i) {
          threads.push_back(StartGreen(runtime, [] {}));
        }
        JoinAll(threads);
        threads.clear();
      }
      nanos = MonotonicNanos() - begin;
    });
  });
  return static_cast<double>(nanos) / (kThreads * kRounds);
}

// Two that wake each other in turn: there and back.
double PingPong(Runtime& runtime, In in) {
  constexpr int kRoundTrips = 100'000;
  ThreadHandle ping;
  ThreadHandle pong;
  int64_t nanos = 0;
  RunGreen(runtime, [&] {
    ping = StartGreen(runtime, [&] {
      Inside(in, [&] {
        const int64_t begin = MonotonicNanos();
        for (int i = 0; i < kRoundTrips; ++i) {
          (void)pong.Unpark();
          (void)Park();
        }
        nanos = MonotonicNanos() - begin;
      });
    });
    pong = StartGreen(runtime, [&] {
      Inside(in, [&] {
        for (int i = 0; i < kRoundTrips; ++i) {
          (void)Park();
          (void)ping.Unpark();
        }
      });
    });
    JoinAll({ping, pong});
  });
  return static_cast<double>(nanos) / kRoundTrips;
}

const bool kRegistered = [] {
  RegisterInAllModes("Yield/2", 1, &YieldSwitch<2>);
  RegisterInAllModes("Yield/100", 1, &YieldSwitch<100>);
  RegisterInAllModes("SpawnAndJoin", 1, &SpawnAndJoin);
  RegisterInAllModes("SpawnManyAndJoin", 1, &SpawnManyAndJoin);
  RegisterInAllModes("PingPong", 1, &PingPong);
  return true;
}();

}  // namespace
}  // namespace stillpoint::bench
