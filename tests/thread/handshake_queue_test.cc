#include "runtime/thread/handshake_queue.h"

#include <thread>

#include "absl/functional/function_ref.h"
#include "gtest/gtest.h"
#include "runtime/thread/thread.h"
#include "runtime/thread/wait_word.h"
#include "tests/support/await.h"

namespace stillpoint {
namespace {

using testing::Await;

class HandshakeQueueTest : public ::testing::Test {
 protected:
  struct Request : HandshakeRequest {
    explicit Request(const absl::FunctionRef<void(Thread&)>& ran) {
      name = "asked";
      closure = &ran;
      waiter = &requester;
    }
    WaitWord requester;
  };

  void SetUp() override { queue_.Open(); }
  void TearDown() override { queue_.Close(); }

  static HandshakeRequest::Outcome OutcomeOf(const Request& request) {
    return request.outcome.load();
  }

  struct Count {
    void operator()(Thread&) const { ++*ran; }
    int* ran;
  };

  int ran_ = 0;
  const Count closure_{&ran_};
  const absl::FunctionRef<void(Thread&)> count_{closure_};
  Thread owner_;
  WaitWord owner_word_;
  HandshakeQueue queue_{owner_word_};
};

TEST_F(HandshakeQueueTest, OneClaimAtATime) {
  Request first(count_), second(count_);
  EXPECT_TRUE(queue_.Push(first));
  EXPECT_TRUE(queue_.Push(second));
  EXPECT_TRUE(queue_.TryClaim(first));
  EXPECT_FALSE(queue_.TryClaim(second));
  EXPECT_FALSE(queue_.RunAll(owner_));
  queue_.RunClaimed(owner_, first);
  EXPECT_FALSE(queue_.TryClaim(first));
  EXPECT_TRUE(queue_.RunAll(owner_));
  EXPECT_EQ(ran_, 2);
  EXPECT_EQ(OutcomeOf(first), HandshakeRequest::kDone);
  EXPECT_EQ(OutcomeOf(second), HandshakeRequest::kDone);
}

// A requester in a tight loop, as the owner sees it: each time that the claim
// is given back, the next request is there already.
TEST_F(HandshakeQueueTest, AnOwnerThatHasWaitedIsNext) {
  constexpr int kRounds = 20;  // the owner may be fast enough in any case
  for (int i = 0; i < kRounds; ++i) {
    Request first(count_), next(count_), later(count_);
    ASSERT_TRUE(queue_.Push(first));
    ASSERT_TRUE(queue_.TryClaim(first));
    std::thread owner([&] {
      queue_.AwaitClaim();
      EXPECT_TRUE(queue_.RunAll(owner_));
    });
    Await([&] { return owner_word_.Peek() != 0; });  // it sleeps
    ASSERT_TRUE(queue_.Push(next));
    queue_.RunClaimed(owner_, first);
    if (queue_.TryClaim(next)) {
      ADD_FAILURE() << "taken before the owner, which has waited for it";
      queue_.RunClaimed(owner_, next);
    }
    owner.join();
    EXPECT_EQ(OutcomeOf(next), HandshakeRequest::kDone);
    // It has had its turn.
    ASSERT_TRUE(queue_.Push(later));
    EXPECT_TRUE(queue_.TryClaim(later));
    queue_.RunClaimed(owner_, later);
  }
  EXPECT_EQ(ran_, 3 * kRounds);
}

// Who asks for an event and who settles meet in one word.
TEST_F(HandshakeQueueTest, WhoListensIsTold) {
  Request listens(count_), does_not(count_);
  ASSERT_TRUE(queue_.Push(listens));
  ASSERT_TRUE(queue_.Push(does_not));
  queue_.Listen(listens);
  EXPECT_TRUE(queue_.RunAll(owner_));
  EXPECT_EQ(listens.requester.Peek(), WaitWord::kEvent);
  EXPECT_EQ(does_not.requester.Peek(), 0u);
  // Settled already: what it was is what it stays.
  queue_.Listen(does_not);
  EXPECT_EQ(OutcomeOf(does_not), HandshakeRequest::kDone);
}

TEST_F(HandshakeQueueTest, WhatIsQueuedAtTheEndIsGone) {
  Request queued(count_), late(count_);
  ASSERT_TRUE(queue_.Push(queued));
  queue_.Listen(queued);
  queue_.Close();
  EXPECT_EQ(OutcomeOf(queued), HandshakeRequest::kGone);
  EXPECT_EQ(queued.requester.Peek(), WaitWord::kEvent);
  EXPECT_FALSE(queue_.Push(late));
  EXPECT_EQ(ran_, 0);
}

}  // namespace
}  // namespace stillpoint
