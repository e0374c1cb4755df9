// One call for handshakes: the requester's side of the protocol.

#ifndef STILLPOINT_RUNTIME_SAFEPOINT_HANDSHAKE_ROUND_H_
#define STILLPOINT_RUNTIME_SAFEPOINT_HANDSHAKE_ROUND_H_

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>

#include "runtime/base/clock.h"
#include "runtime/base/thread_state.h"
#include "runtime/safepoint/watchdog.h"
#include "runtime/thread/handshake_queue.h"
#include "runtime/thread/stop_control.h"
#include "runtime/thread/thread.h"

namespace stillpoint {

// A handshake that its requester waits for.
struct AwaitedHandshake : HandshakeRequest {
  Thread* target = nullptr;  // pinned
  AwaitedHandshake* next = nullptr;
};

// Asks any number of threads, all of them before it waits for the first. The
// caller, `self`, is attached and in any state; the requests outlive this.
class HandshakeRound {
 public:
  // `name`, for the watchdog; all outlive this. Without a watchdog: only Ask
  // and ProxyOnce.
  HandshakeRound(Thread& self, const Watchdog* watchdog, std::string_view name,
                 Deadline deadline = Deadline::Infinite());
  HandshakeRound(const HandshakeRound&) = delete;
  HandshakeRound& operator=(const HandshakeRound&) = delete;

  // `request` is filled, but for the waiter. Settled at once if the target is
  // gone.
  void Ask(AwaitedHandshake& request);

  // Waits until all are settled: runs, as the proxy of each target that is
  // safe, what was asked of it. False if the runtime has ended before, or the
  // deadline has passed; what was not settled by then is withdrawn. Returns in
  // the state of the call.
  bool Await();

  // Is the proxy of `target` if that is safe at this moment, else leaves
  // `request`, which has no waiter, to it. Has been pushed; not deleted
  // meanwhile.
  void ProxyOnce(Thread& target, HandshakeRequest& request);

 private:
  bool MayProxy(const AwaitedHandshake& request) const;
  bool DropSettled();
  void OrderOnce();
  bool BecomeManaged();
  void BecomeBlocked();
  void GoBack();
  bool ProxyThoseSafe();
  bool SpinsStill();
  void Announce();
  void Sleep();
  void LookForLate();
  void WithdrawRest();

  Thread& self_;
  const StopControl& control_;
  const ThreadState before_;
  bool managed_;

  AwaitedHandshake* pending_ = nullptr;
  size_t pending_count_ = 0;

  bool ordered_ = false;  // since the last push: OrderAll (M60)
  bool announced_ = false;
  bool slept_ = false;
  int64_t spin_until_ = 0;
  int64_t sleep_nanos_ = 0;

  const Watchdog* const watchdog_;
  const std::string_view name_;
  const Deadline deadline_;
  std::optional<LateWatch> watch_;  // from the first sleep on
};

}  // namespace stillpoint

#endif  // STILLPOINT_RUNTIME_SAFEPOINT_HANDSHAKE_ROUND_H_
