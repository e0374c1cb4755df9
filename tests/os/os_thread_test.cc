#include "runtime/os/os_thread.h"

#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <functional>
#include <string>
#include <thread>
#include <utility>

#include "absl/status/status.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/base/sanitizers.h"
#include "tests/os/seccomp_filter.h"
#include "tests/os/thread_watch.h"

namespace stillpoint {
namespace {

using testing::AwaitGone;
using ::testing::HasSubstr;
using testing::kAsan;
using testing::kTsan;
using testing::OsThreadName;
using testing::RunDenied;
using testing::RunWithoutThreadCreation;

// A body for StartOsThread, and the end of the thread that ran it.
class Body {
 public:
  explicit Body(std::function<void()> f) : f_(std::move(f)) {}

  static void* Run(void* self) {
    Body& body = *static_cast<Body*>(self);
    body.f_();
    body.tid_.store(CurrentTid());
    return nullptr;
  }

  bool ran() const { return tid_.load() != 0; }
  void AwaitEnd() {
    while (!ran()) sched_yield();
    AwaitGone(tid_.load());
  }

 private:
  std::function<void()> f_;
  std::atomic<pid_t> tid_{0};
};

absl::Status Start(Body& body, OsThreadOptions options = OsThreadOptions()) {
  return StartOsThread(options, &Body::Run, &body);
}

// The next start works: a failure must not keep anything (incident B15).
void ExpectThatAStartWorks() {
  Body body([] {});
  ASSERT_TRUE(Start(body).ok());
  body.AwaitEnd();
}

TEST(OsThreadTest, RunsTheBodyOnAnotherThread) {
  const pid_t self = CurrentTid();
  pid_t other = 0;
  Body body([&] { other = CurrentTid(); });
  ASSERT_TRUE(Start(body).ok());
  body.AwaitEnd();
  EXPECT_NE(other, 0);
  EXPECT_NE(other, self);
  EXPECT_EQ(self, getpid());  // the main thread's
}

TEST(OsThreadTest, StackSizeIsHonoured) {
  const auto page = static_cast<size_t>(sysconf(_SC_PAGESIZE));
  for (const size_t wanted :
       {size_t{1} << 18, (size_t{1} << 20) + 1, size_t{1} << 26}) {
    StackBounds bounds;
    Body body([&] { bounds = CurrentStackBounds(); });
    OsThreadOptions options;
    options.stack_size = wanted;
    ASSERT_TRUE(Start(body, options).ok());
    body.AwaitEnd();
    // libc may count the guard in or add it, and places its own block there;
    // and it may take the stack of a thread that has ended, up to four times
    // as large. (By default it is some MiB.)
    const size_t size = bounds.high - bounds.low;
    EXPECT_GE(size + 16 * page, wanted);
    EXPECT_LE(size, 4 * wanted + 16 * page);
  }
}

TEST(OsThreadTest, StackBoundsContainALocal) {
  const auto contains_local = [] {
    int local = 0;
    // The address of the frame: ASan may keep `local` elsewhere.
    const auto frame = reinterpret_cast<uintptr_t>(__builtin_frame_address(0));
    const auto address = kAsan ? frame : reinterpret_cast<uintptr_t>(&local);
    const StackBounds bounds = CurrentStackBounds();
    return bounds.low < address && address < bounds.high;
  };
  EXPECT_TRUE(contains_local());
  bool on_thread = false;
  Body body([&] { on_thread = contains_local(); });
  ASSERT_TRUE(Start(body).ok());
  body.AwaitEnd();
  EXPECT_TRUE(on_thread);
}

TEST(OsThreadTest, BlocksSignalsWhenAsked) {
  for (const bool block : {false, true}) {
    sigset_t mask;
    Body body([&] { pthread_sigmask(SIG_SETMASK, nullptr, &mask); });
    OsThreadOptions options;
    options.block_signals = block;
    ASSERT_TRUE(Start(body, options).ok());
    body.AwaitEnd();
    for (const int signal : {SIGUSR1, SIGTERM, SIGPROF, SIGCHLD}) {
      EXPECT_EQ(sigismember(&mask, signal), block ? 1 : 0) << signal;
    }
  }
  // The caller's own mask is left alone.
  sigset_t mask;
  pthread_sigmask(SIG_SETMASK, nullptr, &mask);
  EXPECT_EQ(sigismember(&mask, SIGUSR1), 0);
}

TEST(OsThreadTest, NamesAreCutAtAWholeCharacter) {
  const struct {
    std::string name;
    std::string shown;
  } cases[] = {
      {"", ""},
      {"short", "short"},
      {"exactly15bytes.", "exactly15bytes."},
      {"sixteen bytes xy", "sixteen bytes x"},
      // "ä" is two bytes: bytes 15 and 16, then 14 and 15.
      {"fourteen bytesä", "fourteen bytes"},
      {"thirteen byteä", "thirteen byteä"},
      // "€" is three, "𝄞" four.
      {"thirteen byte€", "thirteen byte"},
      {"twelve bytes€x", "twelve bytes€"},
      {"twelve bytes𝄞", "twelve bytes"},
      {"eleven byte𝄞x", "eleven byte𝄞"},
      {std::string(100'000, 'n'), std::string(15, 'n')},
      // Not text at all: nothing is a whole character.
      {std::string(20, '\x80'), ""},
  };
  std::thread([&] {
    for (const auto& [name, shown] : cases) {
      SetCurrentOsThreadName(name);
      EXPECT_EQ(OsThreadName(CurrentTid()), shown) << name;
    }
  }).join();
}

TEST(OsThreadTest, ARefusedNameIsLeftAlone) {
  ASSERT_TRUE(RunDenied({{SYS_prctl, EPERM}}, [] {
    SetCurrentOsThreadName("nobody sees it");
    EXPECT_NE(OsThreadName(CurrentTid()), "nobody sees it");
  }));
}

TEST(OsThreadTest, CountsAllowedProcessors) {
  EXPECT_GE(AllowedCpuCount(), 1);
  std::thread([] {
    cpu_set_t all;
    ASSERT_EQ(sched_getaffinity(0, sizeof(all), &all), 0);
    EXPECT_EQ(AllowedCpuCount(), CPU_COUNT(&all));
    int first = 0;
    while (!CPU_ISSET(first, &all)) ++first;
    cpu_set_t one;
    CPU_ZERO(&one);
    CPU_SET(first, &one);
    ASSERT_EQ(sched_setaffinity(0, sizeof(one), &one), 0);
    EXPECT_EQ(AllowedCpuCount(), 1);
  }).join();
  ASSERT_TRUE(RunDenied({{SYS_sched_getaffinity, EINVAL}},
                        [] { EXPECT_GE(AllowedCpuCount(), 1); }));
}

TEST(OsThreadFailureTest, RefusedByTheKernelIncidentB15) {
  const int before = testing::OsThreadCount();
  Body body([] {});
  absl::StatusCode code = absl::StatusCode::kOk;
  std::string message;
  ASSERT_TRUE(RunWithoutThreadCreation([&] {
    for (int i = 0; i < 20; ++i) {
      const absl::Status status = Start(body);
      code = status.code();
      message = std::string(status.message());
    }
  }));
  EXPECT_EQ(code, absl::StatusCode::kResourceExhausted);
  // Every limit that can be the cause, and what it stands at.
  for (const char* limit :
       {"max user processes (ulimit -u) = ", "kernel.threads-max = ",
        "kernel.pid_max = ", "vm.max_map_count = ",
        "address space (ulimit -v) = ", "pids.max", "default size"}) {
    EXPECT_THAT(message, HasSubstr(limit));
  }
  EXPECT_THAT(message, Not(HasSubstr("unknown")));
  EXPECT_FALSE(body.ran());
  // The system may show a thread for a little while after its end, now and when
  // `before` was taken; the twenty would stay.
  while (testing::OsThreadCount() > before) sched_yield();
  ExpectThatAStartWorks();
}

TEST(OsThreadFailureTest, TooSmallAStackIncidentB15) {
  OsThreadOptions options;
  options.stack_size = 1;
  Body body([] {});
  const absl::Status status = Start(body, options);
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(status.message()),
              HasSubstr(std::to_string(sysconf(_SC_THREAD_STACK_MIN))));
  EXPECT_FALSE(body.ran());
  ExpectThatAStartWorks();
}

TEST(OsThreadFailureTest, AbsurdlyLargeStacksIncidentB15) {
  for (const size_t size :
       {size_t{1} << 62, SIZE_MAX / 2, SIZE_MAX - 4096, SIZE_MAX}) {
    OsThreadOptions options;
    options.stack_size = size;
    Body body([] {});
    const absl::Status status = Start(body, options);
    // Which of the two depends on where the system notices.
    EXPECT_TRUE(absl::IsResourceExhausted(status) ||
                absl::IsInvalidArgument(status))
        << status;
    EXPECT_THAT(std::string(status.message()), HasSubstr(std::to_string(size)));
    EXPECT_FALSE(body.ran());
    ExpectThatAStartWorks();
  }
}

TEST(OsThreadFailureDeathTest, AtTheLimitOfTheAddressSpaceIncidentB15) {
  if (kAsan || kTsan) {
    GTEST_SKIP() << "the sanitizer's shadow needs the address space";
  }
  // In a process of its own, which the limit may not outlive.
  EXPECT_EXIT(
      {
        OsThreadOptions options;
        options.stack_size = size_t{1} << 30;
        Body body([] {});
        rlimit old;
        getrlimit(RLIMIT_AS, &old);
        rlimit tight = old;
        tight.rlim_cur = size_t{512} << 20;
        setrlimit(RLIMIT_AS, &tight);
        const absl::Status status = Start(body, options);
        setrlimit(RLIMIT_AS, &old);
        const std::string message(status.message());
        const bool named =
            absl::IsResourceExhausted(status) &&
            message.find("(ulimit -v) = 536870912") != std::string::npos;
        if (!named) std::_Exit(1);
        if (!Start(body, options).ok()) std::_Exit(2);
        body.AwaitEnd();
        std::_Exit(0);
      },
      ::testing::ExitedWithCode(0), "");
}

}  // namespace
}  // namespace stillpoint
