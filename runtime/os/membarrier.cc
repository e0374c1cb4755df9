#include "runtime/os/membarrier.h"

#include <errno.h>
#include <linux/membarrier.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
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
  std::atomic<bool> running{false};
  std::atomic<bool> stop{false};
};

void SpinPeer(void* argument) {
  // Owns a share of the peer, since the measuring thread does not join it.
  std::unique_ptr<std::shared_ptr<Peer>> share(
      static_cast<std::shared_ptr<Peer>*>(argument));
  Peer& peer = **share;
  peer.running.store(true);
  while (!peer.stop.load()) CpuRelax();
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

int64_t MeasureMembarrierNanos() {
  constexpr int64_t kPeerStartLimit = 20'000'000;
  auto peer = std::make_shared<Peer>();
  auto share = std::make_unique<std::shared_ptr<Peer>>(peer);
  OsThreadOptions options;
  options.block_signals = true;
  if (!StartOsThread(options, &SpinPeer, share.get()).ok()) return -1;
  share.release();  // the peer's now
  const int64_t give_up = MonotonicNanos() + kPeerStartLimit;
  while (!peer->running.load() && MonotonicNanos() < give_up) CpuRelax();

  std::array<int64_t, 15> samples;
  for (int64_t& sample : samples) {
    const int64_t begin = MonotonicNanos();
    Membarrier();
    sample = MonotonicNanos() - begin;
  }
  peer->stop.store(true);
  std::nth_element(samples.begin(), samples.begin() + samples.size() / 2,
                   samples.end());
  return samples[samples.size() / 2];
}

}  // namespace stillpoint
