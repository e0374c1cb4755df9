#include "runtime/thread/slot_table.h"

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <random>
#include <set>
#include <thread>
#include <vector>

#include "absl/status/statusor.h"
#include "gtest/gtest.h"
#include "runtime/base/cpu.h"
#include "runtime/base/thread_state.h"
#include "runtime/thread/stop_control.h"
#include "runtime/thread/thread.h"
#include "runtime/thread/thread_record.h"
#include "tests/base/sanitizers.h"

namespace stillpoint {
namespace {

using testing::Rounds;

class SlotTableTest : public ::testing::Test {
 protected:
  Thread& Claim() {
    absl::StatusOr<Thread*> claimed = table_->Claim();
    if (!claimed.ok()) {
      ADD_FAILURE() << claimed.status();
      std::abort();
    }
    return **claimed;
  }

  // What an exit does: the generation ends, then the slot is given up.
  void End(Thread& thread) {
    thread.record().generation.fetch_add(1);
    table_->Release(thread);
  }

  static uint64_t Generation(const Thread& thread) {
    return thread.record().generation.load();
  }

  size_t Visited() const {
    size_t visited = 0;
    table_->ForEachSlot([&](Thread&) { ++visited; });
    return visited;
  }

  StopControl control_;
  // On the heap: its table of chunks is large.
  const std::unique_ptr<SlotTable> table_ =
      std::make_unique<SlotTable>(control_, ThreadKind::kNative);
};

TEST_F(SlotTableTest, AClaimedSlotIsVacantBoundAndOdd) {
  Thread& thread = Claim();
  EXPECT_EQ(thread.state(), ThreadState::kVacant);
  EXPECT_TRUE(thread.bound());
  EXPECT_EQ(&thread.control(), &control_);
  EXPECT_EQ(Generation(thread) % 2, 1u);
  EXPECT_EQ(reinterpret_cast<uintptr_t>(&thread) % kCacheLineSize, 0u);
}

TEST_F(SlotTableTest, ScansSeeEverySlotAcrossChunks) {
  EXPECT_EQ(Visited(), 0u);
  std::set<Thread*> claimed;
  for (uint32_t i = 0; i < 2 * SlotTable::kSlotsPerChunk + 5; ++i) {
    claimed.insert(&Claim());
    EXPECT_EQ(table_->slots_in_use(), i + 1);
  }
  EXPECT_EQ(claimed.size(), 2 * SlotTable::kSlotsPerChunk + 5u);
  std::set<Thread*> seen;
  table_->ForEachSlot([&](Thread& thread) { seen.insert(&thread); });
  EXPECT_EQ(seen, claimed);
  for (Thread* thread : claimed) End(*thread);
  EXPECT_EQ(Visited(), claimed.size());
}

TEST_F(SlotTableTest, AReleasedSlotIsUsedAgainUnderAnotherGeneration) {
  Thread& first = Claim();
  const uint64_t generation = Generation(first);
  End(first);
  Thread& second = Claim();
  EXPECT_EQ(&second, &first);
  EXPECT_EQ(Generation(second), generation + 2);
  EXPECT_EQ(table_->slots_in_use(), 1u);
}

TEST_F(SlotTableTest, AStaleHandleNeverPins) {
  Thread& thread = Claim();
  const uint64_t generation = Generation(thread);
  EXPECT_TRUE(table_->Pin(thread, generation));
  table_->Unpin(thread);

  thread.record().generation.fetch_add(1);  // the thread has ended …
  EXPECT_FALSE(table_->Pin(thread, generation));
  table_->Release(thread);  // … its slot is free …
  EXPECT_FALSE(table_->Pin(thread, generation));
  Thread& next = Claim();  // … and another's.
  ASSERT_EQ(&next, &thread);
  EXPECT_FALSE(table_->Pin(thread, generation));
  EXPECT_TRUE(table_->Pin(thread, generation + 2));
  table_->Unpin(thread);
  End(next);
  // The vain pins have left nothing behind.
  EXPECT_EQ(&Claim(), &thread);
}

TEST_F(SlotTableTest, APinnedSlotIsNotUsedAgain) {
  Thread& thread = Claim();
  const uint64_t generation = Generation(thread);
  ASSERT_TRUE(table_->Pin(thread, generation));
  ASSERT_TRUE(table_->Pin(thread, generation));
  End(thread);  // does not wait for the pins
  EXPECT_NE(&Claim(), &thread);
  table_->Unpin(thread);
  EXPECT_NE(&Claim(), &thread);
  // Neither new nor vain pins change that.
  EXPECT_FALSE(table_->Pin(thread, generation));
  EXPECT_NE(&Claim(), &thread);
  table_->Unpin(thread);  // the last
  EXPECT_EQ(&Claim(), &thread);
  EXPECT_NE(&Claim(), &thread);  // given out once, not twice
}

TEST_F(SlotTableTest, APinThatIsTakenBackBeforeTheEndIsForgotten) {
  Thread& thread = Claim();
  ASSERT_TRUE(table_->Pin(thread, Generation(thread)));
  table_->Unpin(thread);
  End(thread);
  EXPECT_EQ(&Claim(), &thread);
}

// Owners come and go while readers pin whatever they hear of. A slot has one
// owner; what a reader has pinned does not change under it.
TEST_F(SlotTableTest, OneOwnerASlotUnderConcurrentClaimsAndPins) {
  constexpr int kOwners = 4;
  constexpr int kReaders = 3;
  constexpr size_t kHeld = 5;  // at most, by each owner
  constexpr size_t kSlots = 64;
  constexpr int64_t kPins = 1000;  // at least
  const int rounds = Rounds(60'000);

  // By index. More slots than threads hold would be a leak of slots, as far as
  // readers' pins do not explain it.
  std::atomic<bool> owned[kSlots] = {};
  struct Announcement {
    std::atomic<Thread*> thread{nullptr};
    std::atomic<uint64_t> generation{0};
  };
  Announcement announced[kOwners];
  std::atomic<int> owners_left{kOwners};
  std::atomic<uint64_t> next_id{1};
  std::atomic<int64_t> pinned{0};

  const auto own = [&](int self) {
    std::mt19937 random(static_cast<uint32_t>(self));
    std::vector<Thread*> held;
    for (int i = 0;; ++i) {
      // On a loaded machine readers may be slow to come in.
      const bool more = i < rounds || pinned.load() < kPins;
      if (!more && held.empty()) break;
      if (more && (held.empty() || (held.size() < kHeld && random() % 2))) {
        Thread& thread = Claim();
        ThreadRecord& record = thread.record();
        ASSERT_LT(record.index, kSlots);
        ASSERT_FALSE(owned[record.index].exchange(true)) << "owned twice";
        record.id = next_id.fetch_add(1);  // plain: TSan watches readers
        held.push_back(&thread);
        announced[self].generation.store(record.generation.load());
        announced[self].thread.store(&thread);
      } else {
        const size_t at = random() % held.size();
        Thread& thread = *held[at];
        held.erase(held.begin() + static_cast<ptrdiff_t>(at));
        owned[thread.record().index].store(false);
        End(thread);
      }
    }
    owners_left.fetch_sub(1);
  };
  const auto read = [&](int self) {
    std::mt19937 random(static_cast<uint32_t>(1000 + self));
    while (owners_left.load() != 0) {
      const Announcement& heard = announced[random() % kOwners];
      Thread* thread = heard.thread.load();
      const uint64_t generation = heard.generation.load();
      // The two may belong to different slots; Pin has to tell.
      if (thread == nullptr || !table_->Pin(*thread, generation)) continue;
      pinned.fetch_add(1);
      const uint64_t id = thread->record().id;
      for (int i = 0; i < 50; ++i) {
        const uint64_t now = thread->record().generation.load();
        ASSERT_TRUE(now == generation || now == generation + 1) << "reused";
        ASSERT_EQ(thread->record().id, id);
      }
      table_->Unpin(*thread);
    }
  };
  std::vector<std::thread> threads;
  for (int i = 0; i < kOwners; ++i) threads.emplace_back(own, i);
  for (int i = 0; i < kReaders; ++i) threads.emplace_back(read, i);
  for (std::thread& thread : threads) thread.join();

  EXPECT_LE(table_->slots_in_use(), kOwners * kHeld + kReaders);
  // Every slot has come back to the free list, once.
  std::set<Thread*> all;
  const uint32_t slots = table_->slots_in_use();
  for (uint32_t i = 0; i < slots; ++i) all.insert(&Claim());
  EXPECT_EQ(all.size(), slots);
  EXPECT_EQ(table_->slots_in_use(), slots);
}

}  // namespace
}  // namespace stillpoint
