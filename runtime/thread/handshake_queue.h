// The handshakes that others ask of one thread, and who may run their closures.

#ifndef STILLPOINT_RUNTIME_THREAD_HANDSHAKE_QUEUE_H_
#define STILLPOINT_RUNTIME_THREAD_HANDSHAKE_QUEUE_H_

#include <atomic>
#include <cstdint>
#include <string_view>

#include "absl/base/thread_annotations.h"
#include "absl/functional/function_ref.h"
#include "runtime/base/cpu.h"
#include "runtime/base/intrusive_list.h"
#include "runtime/lock/lock_rank.h"
#include "runtime/lock/ranked_mutex.h"
#include "runtime/thread/wait_word.h"

namespace stillpoint {

class Thread;

// What became of a handshake.
enum class HandshakeResult : uint32_t {
  kDone,  // the closure has run, once
  kGone,  // the target had left, or left, the runtime: the closure has not run
};

// A requested handshake with one thread.
//
// One that is waited for lives in the requester's frame, and so no longer than
// until it is settled; what comes after (an event for the requester) goes to
// the wait word of his record. One that nobody waits for has no waiter, but
// `settled`, which may end its life.
struct HandshakeRequest : IntrusiveNode<HandshakeRequest> {
  // kAwaited: pending, and the requester is about to sleep, or does: it wants
  // an event when something happens to this request.
  enum Outcome : uint32_t { kPending, kAwaited, kDone, kGone };

  std::string_view name;
  // Not owned. A pointer: a FunctionRef cannot be assigned.
  const absl::FunctionRef<void(Thread&)>* closure = nullptr;
  WaitWord* waiter = nullptr;
  // Called with no lock held, under the rules for closures, by whoever settles
  // it.
  void (*settled)(HandshakeRequest&, HandshakeResult) = nullptr;

  std::atomic<Outcome> outcome{kPending};

  static bool IsSettled(Outcome outcome) { return outcome >= kDone; }
};

// One per thread, in its record. A closure runs under the *claim*, which one
// thread at a time has: the owner, in Managed; a requester as its proxy, also
// in Managed, who has seen the owner safe; or an operation while the world is
// stopped. So no claim is ever held by anybody else in a stop. Between taking
// and giving back the claim its holder neither polls nor waits.
// docs/safepoint_protocol.md, "Handshakes".
class HandshakeQueue {
 public:
  // `owner`: the owner's wait word.
  explicit HandshakeQueue(WaitWord& owner) : owner_(owner) {}
  HandshakeQueue(const HandshakeQueue&) = delete;
  HandshakeQueue& operator=(const HandshakeQueue&) = delete;

  // --- Requesters. Any state: the lock is a leaf. ---

  // False if the owner has left or is leaving: the handshake is gone.
  bool Push(HandshakeRequest& request);

  // For one that nobody waits for and that could not be pushed.
  static void TellGone(HandshakeRequest& request);

  // Takes the claim for `request`. False if that is not queued any more, if
  // somebody else has the claim, or if it is the owner's turn, which runs
  // all. Caller: in Managed, and has seen the
  // owner safe after arming it and OrderAll().
  bool TryClaim(HandshakeRequest& request);

  // Runs the closure of the claimed `request`, dequeues it, gives the claim
  // back, and tells whoever waits for that.
  void RunClaimed(Thread& owner, HandshakeRequest& request);

  // From an operation, in a stop: runs the closure of `request`, which is not
  // queued. False if the owner is gone.
  bool RunStopped(Thread& owner, HandshakeRequest& request);

  // The owner asks itself, in Managed.
  void RunOwn(Thread& owner, HandshakeRequest& request);

  // The requester wants an event from now on when his request is settled, when
  // the owner becomes safe, or when the claim is given back. Look at all three
  // after this and before sleeping.
  void Listen(HandshakeRequest& request);

  // Takes a pending request back. False if it is settled, or being run.
  bool Withdraw(HandshakeRequest& request);

  // --- The owner. ---

  // In Managed, and about to go on to managed code, with a saved context: runs
  // what is queued at the time of the call. False, with nothing done, if a
  // proxy has the claim: become safe, AwaitClaim, try again.
  bool RunAll(Thread& owner);

  // In a safe state, before the next try to enter Managed: no proxy gets the
  // claim any more until RunAll. (So it is after a RunAll that was in vain,
  // too.) Else requesters who ask again and again could keep the owner out.
  void TakeTurn();

  // In a safe state: returns when no proxy has the claim.
  void AwaitClaim();

  // Has just become safe, and the poll word says that requesters wait: the
  // first of them may be the owner's proxy now. (He tells the next.)
  void TellFirst();

  // Leaving the runtime, in a safe state: no closure runs from the return on;
  // what is queued is gone, and so is each later request.
  void Close();

  // --- The slot's next thread, before it is published. ---

  void Open();

  // In the child of a fork: as closed, whoever holds the lock. What was queued
  // belongs to threads that do not exist here.
  void ResetInForkedChild() ABSL_NO_THREAD_SAFETY_ANALYSIS;

 private:
  // What there is to do when the lock is free: one sleeper each.
  struct WakeUps {
    WakeUp requester;
    WakeUp owner;
  };
  static void Wake(const WakeUps& wake_ups);

  // With the lock free: the requester, once it has the outcome, may ask again
  // at once, and would run into it.
  static void Settle(HandshakeRequest& request,
                     HandshakeRequest::Outcome outcome);
  WakeUp EventForFirst() ABSL_EXCLUSIVE_LOCKS_REQUIRED(lock_);
  WakeUp GiveClaimBack() ABSL_EXCLUSIVE_LOCKS_REQUIRED(lock_);

  RankedMutex lock_{kHandshakeLockRank};
  bool claimed_ ABSL_GUARDED_BY(lock_) = false;
  bool closed_ ABSL_GUARDED_BY(lock_) = true;
  // The owner has found the claim taken, or was armed again and again: nobody
  // else may have it before the owner has had it.
  bool owner_waits_ ABSL_GUARDED_BY(lock_) = false;
  IntrusiveList<HandshakeRequest> queued_ ABSL_GUARDED_BY(lock_);
  WaitWord& owner_;
};

}  // namespace stillpoint

#endif  // STILLPOINT_RUNTIME_THREAD_HANDSHAKE_QUEUE_H_
