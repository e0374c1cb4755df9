// The child of a fork: those who waited in the parent do not wait there, and no
// internal lock is held.

#include <sys/types.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <memory>
#include <optional>

#include "absl/status/statusor.h"
#include "gtest/gtest.h"
#include "runtime/stillpoint.h"
#include "runtime/sync/channel.h"
#include "runtime/sync/mutex.h"
#include "runtime/sync/parking_lot.h"
#include "tests/support/await.h"
#include "tests/support/runtime_test.h"

namespace stillpoint {
namespace {

using testing::Await;
using testing::StartOrFail;

TEST(SyncForkTest, NobodyWaitsInTheChild) {
  const std::unique_ptr<Runtime> runtime = testing::MakeRuntime();
  Mutex mutex;
  mutex.Lock();
  const ThreadHandle waiter = StartOrFail(*runtime, "", [&] {
    ManagedScope managed;
    MutexLock lock(mutex);
  });
  Await([&] { return ParkingLot::CountAt(&mutex) == 1; });
  // One that is always in or about the locks of a channel, and no mutator, so
  // that the stop of a fork does not keep it out of them.
  Channel<int> busy(1);
  std::atomic<bool> over{false};
  const ThreadHandle user = StartOrFail(*runtime, "", [&] {
    std::optional<int> value;
    while (!over.load()) {
      (void)busy.TrySend(1);
      (void)busy.TryReceive(value);
    }
  });
  for (int i = 0; i < 20; ++i) {
    const absl::StatusOr<pid_t> child = runtime->Fork();
    EXPECT_TRUE(child.ok()) << child.status();
    if (!child.ok()) break;
    if (*child == 0) {
      if (ParkingLot::CountAt(&mutex) != 0) _exit(1);
      (void)busy.size();
      _exit(0);
    }
    int status = 0;
    EXPECT_EQ(waitpid(*child, &status, 0), *child);
    EXPECT_TRUE(WIFEXITED(status));
    EXPECT_EQ(WEXITSTATUS(status), 0);
  }
  EXPECT_EQ(ParkingLot::CountAt(&mutex), 1u);
  over.store(true);
  mutex.Unlock();
  EXPECT_TRUE(waiter.Join().ok());
  EXPECT_TRUE(user.Join().ok());
}

}  // namespace
}  // namespace stillpoint
