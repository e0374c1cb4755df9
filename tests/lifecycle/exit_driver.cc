// A process with a runtime, six running threads and its VM thread, that ends in
// the way its first argument names, from the thread its second one names.
// process_exit_test runs it.

#include <pthread.h>
#include <sched.h>
#include <stdlib.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cstdio>
#include <memory>
#include <stdexcept>
#include <string>
#include <string_view>
#include <thread>
#include <utility>

#include "runtime/stillpoint.h"
#include "tests/support/await.h"

namespace stillpoint {
namespace {

using testing::Await;

// Reports an expectation that does not hold.
constexpr int kBroken = 99;

void ExitUnless(bool condition, const char* what) {
  if (condition) return;
  std::fprintf(stderr, "exit_driver: not so: %s\n", what);
  _exit(kBroken);
}

// On the stack of threads that may never be unwound (incident E3).
struct NeverDestroyed {
  ~NeverDestroyed() {
    std::fprintf(stderr, "exit_driver: a thread was unwound\n");
    _exit(kBroken);
  }
};

std::unique_ptr<Runtime> Make() {
  Options options;
  options.fence = FencePolicy::kFull;
  options.min_mutator_time = std::chrono::nanoseconds(0);
  options.shutdown_timeout = std::chrono::milliseconds(1);
  absl::StatusOr<std::unique_ptr<Runtime>> made =
      Runtime::Create(std::move(options));
  ExitUnless(made.ok(), "the runtime was created");
  return *std::move(made);
}

struct Crowd {
  std::atomic<int> running{0};
  std::atomic<bool> end_now{false};  // for the worker that is to end it all
};

void End(std::string_view way, int status) {
  if (way == "exit") exit(status);
  if (way == "quick_exit") quick_exit(status);
  if (way == "_exit") _exit(status);
  if (way == "abort") abort();
  if (way == "throw") throw std::runtime_error("uncaught, on purpose");
  ExitUnless(false, "the way is known");
}

// Six threads that run for ever, one in each kind of place.
void StartCrowd(Runtime& runtime, Crowd& crowd) {
  const auto start = [&](const char* name, absl::AnyInvocable<void()> body) {
    ThreadOptions options;
    options.name = name;
    ExitUnless(runtime.Start(std::move(options), std::move(body)).ok(),
               "the thread was started");
  };
  for (int i = 0; i < 2; ++i) {
    start("mutator", [&crowd] {
      ManagedScope managed;
      crowd.running.fetch_add(1);
      while (true) Poll();
    });
  }
  start("native", [&crowd] {
    crowd.running.fetch_add(1);
    while (true) Await([] { return false; });
  });
  start("parked", [&crowd] {
    ManagedScope managed;
    crowd.running.fetch_add(1);
    while (true) Park().IgnoreError();
  });
  start("stopper", [&runtime, &crowd] {
    crowd.running.fetch_add(1);
    while (true) runtime.AtSafepoint("stop", [](World&) {}).IgnoreError();
  });
  start("starter", [&runtime, &crowd] {
    ManagedScope managed;
    crowd.running.fetch_add(1);
    while (true) {
      absl::StatusOr<ThreadHandle> child = runtime.Start([] {});
      if (child.ok()) child->Join().IgnoreError();
    }
  });
  Await([&] { return crowd.running.load() == 6; });
}

// Ends from `from`: "main", "native" or "managed" (members of the runtime).
int EndWithCrowd(std::string_view way, std::string_view from, int status) {
  // Never destroyed: the process ends with them running. (Reachable from the
  // stack of main only, and on purpose in no static object of ours.)
  Runtime& runtime = *Make().release();
  Crowd& crowd = *new Crowd;
  if (from != "main") {
    const bool managed = from == "managed";
    absl::StatusOr<ThreadHandle> worker =
        runtime.Start([&crowd, way, status, managed] {
          Await([&] { return crowd.end_now.load(); });
          if (managed) {
            ManagedScope scope;
            End(way, status);
          }
          End(way, status);
        });
    ExitUnless(worker.ok(), "the worker was started");
  }
  StartCrowd(runtime, crowd);
  if (from == "main") {
    if (way == "return") return status;
    End(way, status);
  }
  crowd.end_now.store(true);
  if (way == "throw" || way == "abort") {
    while (true) Await([] { return false; });
  }
  // The main thread is gone while the others run on, and one of them exits.
  if (from == "native") pthread_exit(nullptr);
  while (true) Await([] { return false; });
}

// Main ends by pthread_exit while attached; the scope is unwound, and a worker
// ends the process when it has seen that main has left.
int PthreadExitOfAttachedMain(int status) {
  Runtime& runtime = *Make().release();
  Crowd& crowd = *new Crowd;
  StartCrowd(runtime, crowd);
  auto* attached_once = new std::atomic<bool>(false);
  std::thread([&runtime, attached_once, status] {
    Await([&] { return attached_once->load(); });
    Await([&] {
      for (const PinnedThread& thread : runtime.Threads()) {
        if (thread.name() == "main thread") return false;
      }
      return true;
    });
    exit(status);
  }).detach();
  AttachScope attached(runtime, "main thread");
  ExitUnless(attached.status().ok(), "main was attached");
  attached_once->store(true);
  {
    ManagedScope managed;
    for (int i = 0; i < 1000; ++i) Poll();
  }
  pthread_exit(nullptr);
}

// Incident E3: threads that come back after the end park, and are not unwound.
// "polls": a thread that was in Managed without a poll when the runtime ended;
// "returns": one that was in native code; "joins": one that waits for the end
// of a thread that ends late.
int LateThread(std::string_view kind, int status) {
  std::unique_ptr<Runtime> runtime = Make();
  std::atomic<bool> ready{false};
  std::atomic<bool> go_on{false};
  std::atomic<bool> parks{false};
  std::atomic<bool> came_back{false};
  absl::StatusOr<ThreadHandle> helper =
      runtime->Start([&] { Await([&] { return go_on.load(); }); });
  ExitUnless(helper.ok(), "the helper was started");
  ThreadOptions options;
  options.name = "late";
  absl::StatusOr<ThreadHandle> late = runtime->Start(options, [&, kind] {
    ManagedScope managed;
    NeverDestroyed canary;
    const auto wait = [&] {
      ready.store(true);
      while (!go_on.load()) {
      }
      parks.store(true);
    };
    if (kind == "polls") {
      wait();
      Poll();
    } else if (kind == "returns") {
      NativeScope native;
      wait();
    } else {
      ready.store(true);
      while (true) {
        const absl::Status joined = helper->Join();
        if (!IsInterrupted(joined)) break;
      }
    }
    came_back.store(true);
  });
  ExitUnless(late.ok(), "the late thread was started");
  Await([&] { return ready.load(); });
  const absl::Status ended =
      runtime->Shutdown(Deadline::After(std::chrono::milliseconds(10)));
  ExitUnless(absl::IsDeadlineExceeded(ended), "a thread remained");
  ExitUnless(ended.message().find("late") != absl::string_view::npos,
             "and was named");
  runtime = nullptr;
  go_on.store(true);
  if (kind == "polls" || kind == "returns") {
    Await([&] { return parks.load(); });
    // Parked in the runtime's own words, which outlive the Runtime.
    Await([&] { return late->slot()->state() == ThreadState::kBlocked; });
  }
  for (int i = 0; i < 50; ++i) sched_yield();
  ExitUnless(!came_back.load(), "the late thread stays parked");
  ExitUnless(late->alive(), "the late thread lives");
  // The locals above go out of scope under the parked thread otherwise.
  exit(status);
}

int Main(int argc, char** argv) {
  ExitUnless(argc == 4, "three arguments: way, from, status");
  const std::string_view way = argv[1];
  const std::string_view from = argv[2];
  const int status = atoi(argv[3]);
  if (way == "late") return LateThread(from, status);
  if (way == "pthread_exit") return PthreadExitOfAttachedMain(status);
  return EndWithCrowd(way, from, status);
}

}  // namespace
}  // namespace stillpoint

int main(int argc, char** argv) { return stillpoint::Main(argc, argv); }
