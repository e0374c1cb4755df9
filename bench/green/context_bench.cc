// The context switch and the life of a context, beside Boost.Context's
// fcontext, which is a call into assembly that saves what a call has to
// preserve. (It does not switch the exceptions in flight, as ours does.)

#include <boost/context/detail/fcontext.hpp>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"
#include "bench/support/comparison.h"
#include "benchmark/benchmark.h"
#include "runtime/base/check.h"
#include "runtime/green/context.h"
#include "runtime/green/stack.h"
#include "runtime/green/stack_pool.h"
#include "runtime/os/os_thread.h"

namespace stillpoint {
namespace {

namespace peer = boost::context::detail;

constexpr int kOperations = 10'000;
constexpr bench::Turns kTurns = {.operations = kOperations};

Stack* MustGet(StackCache& cache) {
  const absl::StatusOr<Stack*> stack = cache.Get(kDefaultStackSize);
  STILLPOINT_CHECK(stack.ok(), "no stack");
  return *stack;
}

// One context that does nothing but go back.
struct Ours {
  Context thread;
  Context context;

  static void Run(void* argument) {
    auto* self = static_cast<Ours*>(argument);
    while (true) Context::Switch(self->context, self->thread);
  }
};

void RunPeer(peer::transfer_t from) {
  while (true) from = peer::jump_fcontext(from.fctx, nullptr);
}

peer::fcontext_t MakePeer(const Stack& stack) {
  return peer::make_fcontext(reinterpret_cast<void*>(stack.bounds().high),
                             stack.size(), RunPeer);
}

// There and back: two switches.
void SwitchPair(benchmark::State& state) {
  StackPool pool;
  StackCache cache(pool);
  Stack* stack = MustGet(cache);
  Stack* peer_stack = MustGet(cache);
  Ours ours;
  ours.thread.AdoptThread();
  ours.context.Prepare(stack->bounds(), &Ours::Run, &ours);
  peer::fcontext_t boost = MakePeer(*peer_stack);
  bench::Compare(
      state, kTurns,
      [&ours] {
        for (int i = 0; i < kOperations; ++i) {
          Context::Switch(ours.thread, ours.context);
        }
      },
      [&boost] {
        for (int i = 0; i < kOperations; ++i) {
          boost = peer::jump_fcontext(boost, nullptr).fctx;
        }
      });
  ours.context.Discard();
  cache.Put(stack);
  cache.Put(peer_stack);
}
BENCHMARK(SwitchPair)->UseManualTime();

// The same through a function that is called on either side, as a scheduler's
// yield is: it returns on another stack than the one it was called on, which
// processors do not foresee.
[[gnu::noinline]] void Leave(Context& from, Context& to) {
  Context::Switch(from, to);
}

[[gnu::noinline]] peer::fcontext_t LeavePeer(peer::fcontext_t to) {
  return peer::jump_fcontext(to, nullptr).fctx;
}

void SwitchPairInCalls(benchmark::State& state) {
  StackPool pool;
  StackCache cache(pool);
  Stack* stack = MustGet(cache);
  Stack* peer_stack = MustGet(cache);
  Ours ours;
  ours.thread.AdoptThread();
  ours.context.Prepare(
      stack->bounds(),
      [](void* argument) {
        auto* self = static_cast<Ours*>(argument);
        while (true) Leave(self->context, self->thread);
      },
      &ours);
  peer::fcontext_t boost =
      peer::make_fcontext(reinterpret_cast<void*>(peer_stack->bounds().high),
                          peer_stack->size(), [](peer::transfer_t from) {
                            while (true) from.fctx = LeavePeer(from.fctx);
                          });
  bench::Compare(
      state, kTurns,
      [&ours] {
        for (int i = 0; i < kOperations; ++i) {
          Leave(ours.thread, ours.context);
        }
      },
      [&boost] {
        for (int i = 0; i < kOperations; ++i) boost = LeavePeer(boost);
      });
  ours.context.Discard();
  cache.Put(stack);
  cache.Put(peer_stack);
}
BENCHMARK(SwitchPairInCalls)->UseManualTime();

// Round robin over many: what the caches make of it.
void SwitchPairManyContexts(benchmark::State& state) {
  const size_t count = static_cast<size_t>(state.range(0));
  StackPool pool;
  StackCache cache(pool);
  std::vector<Stack*> stacks;
  Context thread;
  thread.AdoptThread();
  std::vector<Ours> ours(count);
  std::vector<peer::fcontext_t> boost;
  for (Ours& one : ours) {
    one.thread.AdoptThread();
    stacks.push_back(MustGet(cache));
    one.context.Prepare(stacks.back()->bounds(), &Ours::Run, &one);
    stacks.push_back(MustGet(cache));
    boost.push_back(MakePeer(*stacks.back()));
  }
  size_t next = 0;
  size_t next_peer = 0;
  bench::Compare(
      state, kTurns,
      [&] {
        for (int i = 0; i < kOperations; ++i) {
          Context::Switch(ours[next].thread, ours[next].context);
          if (++next == count) next = 0;
        }
      },
      [&] {
        for (int i = 0; i < kOperations; ++i) {
          boost[next_peer] =
              peer::jump_fcontext(boost[next_peer], nullptr).fctx;
          if (++next_peer == count) next_peer = 0;
        }
      });
  for (Ours& one : ours) one.context.Discard();
  for (Stack* stack : stacks) cache.Put(stack);
}
BENCHMARK(SwitchPairManyContexts)
    ->ArgName("contexts")
    ->Arg(100)
    ->Arg(10'000)
    ->UseManualTime();

// A stack out of the cache and back, beside the least that keeps a list.
void GetAndPutStack(benchmark::State& state) {
  StackPool pool;
  StackCache cache(pool);
  std::vector<Stack*> list = {MustGet(cache)};
  bench::Compare(
      state, kTurns,
      [&cache] {
        for (int i = 0; i < kOperations; ++i) {
          Stack* stack = MustGet(cache);
          benchmark::DoNotOptimize(stack);
          cache.Put(stack);
        }
      },
      [&list] {
        for (int i = 0; i < kOperations; ++i) {
          Stack* stack = list.back();
          list.pop_back();
          benchmark::DoNotOptimize(stack);
          list.push_back(stack);
        }
      });
  cache.Put(list.back());
}
BENCHMARK(GetAndPutStack)->UseManualTime();

// From nothing to its end, on a stack of the cache: two switches.
void CreateRunEnd(benchmark::State& state) {
  StackPool pool;
  StackCache cache(pool);
  Ours ours;
  ours.thread.AdoptThread();
  bench::Compare(
      state, kTurns,
      [&] {
        for (int i = 0; i < kOperations; ++i) {
          Stack* stack = MustGet(cache);
          ours.context.Prepare(
              stack->bounds(),
              [](void* argument) {
                auto* self = static_cast<Ours*>(argument);
                Context::SwitchFinally(self->context, self->thread);
              },
              &ours);
          Context::Switch(ours.thread, ours.context);
          cache.Put(stack);
        }
      },
      [&] {
        for (int i = 0; i < kOperations; ++i) {
          Stack* stack = MustGet(cache);
          peer::jump_fcontext(MakePeer(*stack), nullptr);
          cache.Put(stack);
        }
      });
}
BENCHMARK(CreateRunEnd)->UseManualTime();

// A stack that nobody has had before: a guard, and a page fault.
void NewStack(benchmark::State& state) {
  constexpr int kStacks = 1000;
  for (auto _ : state) {
    StackPool pool;
    StackCache cache(pool);
    std::vector<Stack*> stacks;
    for (int i = 0; i < kStacks; ++i) {
      stacks.push_back(MustGet(cache));
      if (state.range(0) != 0) {
        *reinterpret_cast<volatile char*>(stacks.back()->bounds().high - 1) = 1;
      }
    }
    state.PauseTiming();
    for (Stack* stack : stacks) cache.Put(stack);
    state.ResumeTiming();
  }
  state.SetItemsProcessed(state.iterations() * kStacks);
}
BENCHMARK(NewStack)->ArgName("touched")->Arg(0)->Arg(1);

}  // namespace
}  // namespace stillpoint
