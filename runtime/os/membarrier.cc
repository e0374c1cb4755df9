#include "runtime/os/membarrier.h"

#include <errno.h>
#include <linux/membarrier.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>

#include "runtime/base/check.h"
#include "runtime/base/clock.h"
#include "runtime/base/cpu.h"
#include "runtime/os/os_thread.h"

namespace stillpoint {
namespace {

long MembarrierCall(int command) {
  return syscall(SYS_membarrier, command, 0, 0);
}

struct Peer {
  std::atomic<uint64_t> turns{0};  // moves while the peer is on a processor
  std::atomic<bool> stop{false};
};

void* SpinPeer(void* argument) {
  // Owns a share of the peer, since the measuring thread does not join it.
  std::unique_ptr<std::shared_ptr<Peer>> share(
      static_cast<std::shared_ptr<Peer>*>(argument));
  Peer& peer = **share;
  while (!peer.stop.load()) {
    peer.turns.fetch_add(1);
    CpuRelax();
  }
  return nullptr;
}

}  // namespace

bool RegisterMembarrier() {
  return MembarrierCall(MEMBARRIER_CMD_REGISTER_PRIVATE_EXPEDITED) == 0;
}

void Membarrier() {
  if (MembarrierCall(MEMBARRIER_CMD_PRIVATE_EXPEDITED) != 0) [[unlikely]] {
    Die({"membarrier failed after it had worked: ", std::strerror(errno),
         "; allow membarrier(2) in the seccomp filter, or create the runtime "
         "with fence = full"});
  }
}

bool SerializeInstructionsEverywhere() {
  return MembarrierCall(MEMBARRIER_CMD_REGISTER_PRIVATE_EXPEDITED_SYNC_CORE) ==
             0 &&
         MembarrierCall(MEMBARRIER_CMD_PRIVATE_EXPEDITED_SYNC_CORE) == 0;
}

int64_t MeasureMembarrierNanos() {
  constexpr size_t kWanted = 9;
  constexpr size_t kEnough = 5;
  constexpr int64_t kLimitNanos = 20'000'000;
  // A stop comes after a while without one; back to back, membarriers cost a
  // fifth of what they do then.
  constexpr timespec kPause = {0, 200'000};
  auto peer = std::make_shared<Peer>();
  auto share = std::make_unique<std::shared_ptr<Peer>>(peer);
  OsThreadOptions options;
  options.block_signals = true;
  if (!StartOsThread(options, &SpinPeer, share.get()).ok()) return -1;
  share.release();  // the peer's now

  // On a loaded machine the peer is not always on a processor, and a membarrier
  // that interrupts nobody is cheap. Only those count during which it ran.
  std::array<int64_t, kWanted> samples;
  size_t taken = 0;
  const int64_t give_up = MonotonicNanos() + kLimitNanos;
  while (taken < kWanted && MonotonicNanos() < give_up) {
    nanosleep(&kPause, nullptr);
    const uint64_t turns = peer->turns.load();
    while (peer->turns.load() == turns && MonotonicNanos() < give_up) {
      CpuRelax();
    }
    const uint64_t before = peer->turns.load();
    const int64_t begin = MonotonicNanos();
    Membarrier();
    const int64_t cost = MonotonicNanos() - begin;
    if (peer->turns.load() != before) samples[taken++] = cost;
  }
  peer->stop.store(true);
  if (taken < kEnough) return -1;
  const auto median = samples.begin() + taken / 2;
  std::nth_element(samples.begin(), median, samples.begin() + taken);
  return *median;
}

}  // namespace stillpoint
