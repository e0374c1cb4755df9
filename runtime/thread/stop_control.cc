#include "runtime/thread/stop_control.h"

#include <atomic>
#include <cstdint>

#include "runtime/base/clock.h"
#include "runtime/os/futex.h"

namespace stillpoint {
namespace {

constexpr int kWakeFanOut = 2;

// Sleeps once on the stop word while it holds `word`; passes the wake-up on.
void SleepForStop(StopControl& control, uint32_t word) {
  const FutexResult result =
      FutexWait(control.stop_word, word, Deadline::Infinite());
  // Only who took a wake-up passes it on, and only if the stop it slept for is
  // over: else sleepers of the next stop would wake each other during it.
  // acquire (M9): what the operations wrote is seen by whoever goes on from
  // here.
  if (result == FutexResult::kWoken &&
      control.stop_word.load(std::memory_order_acquire) != word) {
    FutexWake(control.stop_word, kWakeFanOut);
  }
}

}  // namespace

void WaitWhileStopOn(StopControl& control) {
  // acquire (M9): pairs with the release store that ends a stop. It may not
  // pass the exchange that has disarmed (M10).
  uint32_t word;
  while (StopControl::StopIsOn(
      word = control.stop_word.load(std::memory_order_acquire))) {
    SleepForStop(control, word);
  }
}

void WaitForEndOfPresentStop(StopControl& control) {
  // acquire (M9): as above, and so that `closed`, written before the last odd
  // value, is seen with it (M11). Who leaves has a full fence before it (M3).
  const uint32_t word = control.stop_word.load(std::memory_order_acquire);
  if (!StopControl::StopIsOn(word)) return;
  while (control.stop_word.load(std::memory_order_acquire) == word) {
    // relaxed (M11): ordered by the acquire load of the stop word above.
    if (control.closed.load(std::memory_order_relaxed)) return;
    SleepForStop(control, word);
  }
}

}  // namespace stillpoint
