// What a JIT has compiled into its code: values and offsets.

#include <atomic>
#include <cstdint>
#include <cstring>
#include <string_view>
#include <type_traits>

#include "gtest/gtest.h"
#include "runtime/base/cpu.h"
#include "runtime/base/thread_state.h"
#include "runtime/thread/stop_control.h"
#include "runtime/thread/thread.h"

namespace stillpoint {
namespace {

TEST(ThreadAbiTest, StateValues) {
  static_assert(std::is_same_v<std::underlying_type_t<ThreadState>, uint32_t>);
  EXPECT_EQ(static_cast<uint32_t>(ThreadState::kVacant), 0u);
  EXPECT_EQ(static_cast<uint32_t>(ThreadState::kNew), 1u);
  EXPECT_EQ(static_cast<uint32_t>(ThreadState::kNative), 2u);
  EXPECT_EQ(static_cast<uint32_t>(ThreadState::kManaged), 3u);
  EXPECT_EQ(static_cast<uint32_t>(ThreadState::kBlocked), 4u);
  EXPECT_EQ(static_cast<uint32_t>(ThreadState::kTerminated), 5u);
  EXPECT_EQ(static_cast<uint32_t>(ThreadState::kCarrier), 6u);
}

TEST(ThreadAbiTest, WhatEachStateMeans) {
  const struct {
    ThreadState state;
    std::string_view name;
    bool safe;
    bool member;
  } states[] = {
      {ThreadState::kVacant, "Vacant", true, false},
      {ThreadState::kNew, "New", true, true},
      {ThreadState::kNative, "Native", true, true},
      {ThreadState::kManaged, "Managed", false, true},
      {ThreadState::kBlocked, "Blocked", true, true},
      {ThreadState::kTerminated, "Terminated", true, false},
      {ThreadState::kCarrier, "Carrier", true, false},
  };
  for (const auto& expected : states) {
    EXPECT_EQ(ThreadStateName(expected.state), expected.name);
    EXPECT_EQ(IsSafe(expected.state), expected.safe) << expected.name;
    EXPECT_EQ(IsMember(expected.state), expected.member) << expected.name;
  }
  EXPECT_EQ(ThreadStateName(static_cast<ThreadState>(7)), "?");
}

TEST(ThreadAbiTest, ThePollWordIsAt4AndTheLineHoldsNothingElse) {
  EXPECT_EQ(Thread::kPollWordOffset, 4u);
  EXPECT_EQ(sizeof(Thread), kCacheLineSize);
  EXPECT_EQ(alignof(Thread), kCacheLineSize);

  Thread thread;
  const char* const base = reinterpret_cast<const char*>(&thread);
  EXPECT_EQ(reinterpret_cast<const char*>(&thread.poll_word()), base + 4);
  EXPECT_EQ(reinterpret_cast<const char*>(&thread.state_word()), base);
  // As `cmp dword ptr [thread + 4], 0` sees it.
  uint32_t raw = 1;
  std::memcpy(&raw, base + Thread::kPollWordOffset, sizeof(raw));
  EXPECT_EQ(raw, 0u);
  thread.poll_word().store(kPollSafepoint);
  std::memcpy(&raw, base + Thread::kPollWordOffset, sizeof(raw));
  EXPECT_EQ(raw, kPollSafepoint);
  EXPECT_TRUE(std::atomic<ThreadState>::is_always_lock_free);
}

}  // namespace
}  // namespace stillpoint
