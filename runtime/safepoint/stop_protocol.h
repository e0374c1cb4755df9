// Stopping the world and letting it go: the stopper's side.

#ifndef STILLPOINT_RUNTIME_SAFEPOINT_STOP_PROTOCOL_H_
#define STILLPOINT_RUNTIME_SAFEPOINT_STOP_PROTOCOL_H_

#include <atomic>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/base/event_sink.h"
#include "runtime/safepoint/watchdog.h"
#include "runtime/safepoint/world.h"
#include "runtime/thread/registry.h"
#include "runtime/thread/thread.h"

namespace stillpoint {

// Used by one VM thread only. docs/safepoint_protocol.md walks through it.
class StopProtocol {
 public:
  // `abandon`: once true, a Begin that waits for a thread gives up. All
  // outlive this.
  StopProtocol(Registry& registry, const Watchdog& watchdog,
               const std::atomic<bool>& abandon);

  // Takes Threads_lock and stops the world; fills the phases of `record` up to
  // `reaching`. False if it was abandoned: the world runs then, as after End.
  // noexcept: without memory for the list of threads the process ends, rather
  // than go on with the stop word odd.
  bool Begin(SafepointRecord& record) noexcept;

  // What the watchdog has said of the stop that was begun last; or empty.
  const std::string& late() const { return late_; }

  // The operations have run: lets the world go. Fills the rest of `record`.
  void End(SafepointRecord& record);

  // The world between Begin and End.
  World& world() { return world_; }

  // The last stop of this runtime, which never ends: whoever polls or wants to
  // enter Managed from now on parks for good. Waits for nobody.
  void CloseForEver();

 private:
  // A thread that was in Managed at the scan.
  struct Straggler {
    Thread* thread;
    bool safe = false;
  };

  void LockThreads(std::string_view operation);
  void WriteStopWord();
  void Scan();
  void Arm(Thread& thread);
  bool SpinForStragglers();
  bool SleepForStragglers(std::string_view operation);
  void LookForLate(LateWatch& watch);
  void NoteIfSafe(Straggler& straggler, int64_t now);
  void Resume();

  Registry& registry_;
  const Watchdog& watchdog_;
  const std::atomic<bool>& abandon_;

  World world_;
  std::vector<Straggler> stragglers_;

  // About the stop that is on.
  int64_t stopped_from_ = 0;  // when the stop word was written
  int64_t operations_from_ = 0;
  Thread* last_ = nullptr;
  int64_t last_at_ = 0;
  std::string late_;
  int64_t last_end_ = 0;  // of the stop before
  uint64_t sequence_ = 0;
};

}  // namespace stillpoint

#endif  // STILLPOINT_RUNTIME_SAFEPOINT_STOP_PROTOCOL_H_
