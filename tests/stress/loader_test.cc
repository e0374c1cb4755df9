// The loader's and the allocator's locks, which every thread needs now and then
// and which the runtime knows nothing of. (Incidents A3, D9.)

#include <dlfcn.h>
#include <stdlib.h>

#include <atomic>
#include <functional>
#include <string>
#include <thread>
#include <vector>

#include "gtest/gtest.h"
#include "runtime/observe/stop_canary.h"
#include "runtime/stillpoint.h"
#include "tests/support/runtime_test.h"

namespace {

// What the library's initialiser does; set while it is being loaded.
std::function<void()>* on_load = nullptr;

}  // namespace

// Called by loaded_library, found by the loader.
extern "C" __attribute__((visibility("default"))) void
StillpointTestLibraryIsLoading() {
  if (on_load != nullptr) (*on_load)();
}

namespace stillpoint {
namespace {

using testing::StartOrFail;
using testing::StopAndCheck;

constexpr char kLibrary[] = "tests/stress/libloaded_library.so";

// A thread-local with an initialiser and a destructor of its own.
struct Lazy {
  Lazy() : memory(malloc(1000)) {}
  ~Lazy() { free(memory); }
  void* memory;
};
thread_local Lazy lazy;

class LoaderTest : public testing::RuntimeTest {};
STILLPOINT_IN_ALL_CONFIGURATIONS(LoaderTest);

// Incident A3: a newborn thread needs a lock that a stopped thread holds. Each
// thread here goes through malloc, TLS initialisers and the loader, in Managed
// too, against continuous stops.
TEST_P(LoaderTest, NewbornThreadsUseLoaderAllocatorAndTls) {
  std::atomic<bool> done{false};
  std::thread stopper([&] {
    while (!done.load()) StopAndCheck(runtime(), canary());
  });
  std::vector<std::thread> starters;
  for (int i = 0; i < 2; ++i) {
    starters.emplace_back([&] {
      for (int round = 0; round < 25; ++round) {
        std::vector<ThreadHandle> threads;
        for (int j = 0; j < 2; ++j) {
          threads.push_back(StartOrFail(runtime(), "newborn", [&] {
            void* library = dlopen("libm.so.6", RTLD_NOW | RTLD_LOCAL);
            EXPECT_NE(library, nullptr);
            ManagedScope managed;
            EXPECT_NE(lazy.memory, nullptr);
            for (int k = 1; k < 20; ++k) {
              StopCanary::Work work(canary());
              free(malloc(static_cast<size_t>(k) * 300));
            }
            Poll();
            EXPECT_NE(dlsym(library, "cos"), nullptr);
            Poll();
            dlclose(library);
          }));
        }
        for (const ThreadHandle& thread : threads) {
          EXPECT_TRUE(thread.Join().ok());
        }
      }
    });
  }
  for (std::thread& starter : starters) starter.join();
  done.store(true);
  stopper.join();
}

// A guest that detaches in a thread-local destructor (which the C library runs
// on its way out), or leaves that to the runtime.
struct Detacher {
  ~Detacher() {
    if (runtime == nullptr) return;
    { ManagedScope managed; }
    EXPECT_TRUE(runtime->DetachCurrentThread().ok());
  }
  Runtime* runtime = nullptr;
};

// Incident D9: such guests, while another thread sits in the loader, in an
// initialiser that starts threads and waits for them, and stops go on.
TEST_P(LoaderTest, GuestsEndWhileALibraryIsBeingLoaded) {
  std::atomic<bool> done{false};
  std::atomic<int> loads{0};
  std::thread stopper([&] {
    while (!done.load()) StopAndCheck(runtime(), canary());
  });
  std::thread guests([&] {
    bool by_destructor = false;
    while (!done.load()) {
      by_destructor = !by_destructor;
      std::thread([&] {
        EXPECT_TRUE(runtime().AttachCurrentThread("guest").ok());
        static thread_local Detacher detacher;
        if (by_destructor) detacher.runtime = &runtime();
        ManagedScope managed;
        { StopCanary::Work work(canary()); }
        Poll();
      }).join();
    }
  });
  std::function<void()> start_threads = [&] {
    loads.fetch_add(1);
    for (int i = 0; i < 3; ++i) {
      // (It may not touch `lazy`: registering a thread-local destructor takes
      // the loader's lock, which is held here until the child has ended.)
      const ThreadHandle child = StartOrFail(runtime(), "child", [this] {
        ManagedScope managed;
        { StopCanary::Work work(canary()); }
        Poll();
      });
      EXPECT_TRUE(child.Join().ok());
    }
  };
  on_load = &start_threads;
  for (int i = 0; i < 20; ++i) {
    void* library = dlopen(kLibrary, RTLD_NOW | RTLD_LOCAL);
    ASSERT_NE(library, nullptr) << dlerror();
    auto* count = reinterpret_cast<int (*)()>(
        dlsym(library, "StillpointTestLibraryCount"));
    EXPECT_NE(count, nullptr);
    if (count != nullptr) {
      EXPECT_GT(count(), 41);
    }
    dlclose(library);
  }
  on_load = nullptr;
  EXPECT_GT(loads.load(), 0);
  done.store(true);
  stopper.join();
  guests.join();
}

}  // namespace
}  // namespace stillpoint
