#include "runtime/os/signal_stack.h"

#include <errno.h>
#include <signal.h>
#include <sys/syscall.h>

#include <cstddef>
#include <cstdint>
#include <string>
#include <thread>
#include <vector>

#include "absl/status/status.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/base/sanitizers.h"
#include "tests/os/seccomp_filter.h"

namespace stillpoint {
namespace {

using testing::kAsan;
using testing::kTsan;

stack_t Current() {
  stack_t stack = {};
  EXPECT_EQ(sigaltstack(nullptr, &stack), 0);
  return stack;
}

// A sanitizer gives each thread one: for these tests it is taken away.
void TakeAway() {
  stack_t none = {};
  none.ss_flags = SS_DISABLE;
  ASSERT_EQ(sigaltstack(&none, nullptr), 0);
}

void OnThread(void (*body)()) {
  std::thread([body] {
    const stack_t before = Current();
    TakeAway();
    body();
    sigaltstack(&before, nullptr);
  }).join();
}

uintptr_t handler_frame;

TEST(SignalStackTest, HandlersRunThereAndItGoesWithItsOwner) {
  OnThread([] {
    {
      SignalStack stack;
      ASSERT_EQ(stack.Install(), absl::OkStatus());
      EXPECT_FALSE(stack.is_foreign());
      const stack_t now = Current();
      EXPECT_EQ(now.ss_flags & SS_DISABLE, 0);
      struct sigaction action = {};
      action.sa_flags = SA_ONSTACK;
      action.sa_handler = [](int) {
        handler_frame = reinterpret_cast<uintptr_t>(__builtin_frame_address(0));
      };
      ASSERT_EQ(sigaction(SIGUSR1, &action, nullptr), 0);
      raise(SIGUSR1);
      const auto low = reinterpret_cast<uintptr_t>(now.ss_sp);
      EXPECT_GT(handler_frame, low);
      EXPECT_LT(handler_frame, low + now.ss_size);
      signal(SIGUSR1, SIG_DFL);
    }
    EXPECT_NE(Current().ss_flags & SS_DISABLE, 0);
  });
}

// Incident G7.
TEST(SignalStackTest, OneThatIsThereStays) {
  OnThread([] {
    std::vector<char> memory(size_t{64} << 10);
    stack_t own = {};
    own.ss_sp = memory.data();
    own.ss_size = memory.size();
    ASSERT_EQ(sigaltstack(&own, nullptr), 0);
    {
      SignalStack stack;
      ASSERT_EQ(stack.Install(), absl::OkStatus());
      EXPECT_TRUE(stack.is_foreign());
      EXPECT_EQ(Current().ss_sp, own.ss_sp);
    }
    EXPECT_EQ(Current().ss_sp, own.ss_sp);
    EXPECT_EQ(Current().ss_flags & SS_DISABLE, 0);
    TakeAway();
  });
}

TEST(SignalStackTest, OneThatCameLaterStays) {
  OnThread([] {
    std::vector<char> memory(size_t{64} << 10);
    stack_t later = {};
    later.ss_sp = memory.data();
    later.ss_size = memory.size();
    {
      SignalStack stack;
      ASSERT_EQ(stack.Install(), absl::OkStatus());
      ASSERT_EQ(sigaltstack(&later, nullptr), 0);
    }
    EXPECT_EQ(Current().ss_sp, later.ss_sp);
    TakeAway();
  });
}

TEST(SignalStackTest, NoMemoryIsAnErrorAndChangesNothing) {
  if (kAsan || kTsan) GTEST_SKIP() << "the sanitizer needs memory, too";
  for (long call : {long{SYS_mmap}, long{SYS_mprotect}}) {
    if (!testing::RunDenied({{call, ENOMEM}}, [] {
          SignalStack stack;
          const absl::Status status = stack.Install();
          EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted);
          EXPECT_THAT(std::string(status.message()),
                      ::testing::HasSubstr("ulimit -v"));
          EXPECT_NE(Current().ss_flags & SS_DISABLE, 0);
        })) {
      GTEST_SKIP() << "no seccomp filters";
    }
  }
}

}  // namespace
}  // namespace stillpoint
