#include "runtime/thread/thread_snapshot.h"

#include <cstdint>
#include <memory>
#include <utility>

#include "runtime/base/thread_state.h"
#include "runtime/thread/registry.h"
#include "runtime/thread/thread.h"
#include "runtime/thread/thread_record.h"

namespace stillpoint {

ThreadSnapshot ThreadSnapshot::Take(std::shared_ptr<Registry> registry) {
  constexpr int kAttempts = 8;
  ThreadSnapshot snapshot(std::move(registry));
  for (int i = 0; i < kAttempts && !snapshot.consistent_; ++i) {
    snapshot.Clear();
    // As many done before as begun after (M24): no change went on in between,
    // so what was collected is the membership throughout.
    const uint64_t done = snapshot.registry_->changes_done();
    snapshot.Collect();
    snapshot.consistent_ = snapshot.registry_->changes_begun() == done;
  }
  return snapshot;
}

ThreadSnapshot& ThreadSnapshot::operator=(ThreadSnapshot&& other) {
  if (this != &other) {
    Clear();
    registry_ = std::move(other.registry_);
    threads_ = std::move(other.threads_);
    consistent_ = other.consistent_;
  }
  return *this;
}

void ThreadSnapshot::Collect() {
  registry_->ForEachMemberSlot([&](Thread& thread) {
    if (!IsMember(thread.state())) return;
    const uint64_t generation = thread.record().generation.load();
    const bool lives = (generation & 1) != 0;
    if (!lives) return;
    // First its place: no pin is lost if there is no memory for one.
    threads_.emplace_back(thread, generation);
    if (registry_->Pin(thread, generation)) {
      // Pinned: the slot keeps this thread. Is it the published one, still
      // (M8)?
      if (IsMember(thread.state())) return;
      registry_->Unpin(thread);
    }
    threads_.pop_back();
  });
}

void ThreadSnapshot::Clear() {
  for (const PinnedThread& pinned : threads_) {
    registry_->Unpin(pinned.thread());
  }
  threads_.clear();
}

}  // namespace stillpoint
