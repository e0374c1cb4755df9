#include "runtime/safepoint/world.h"

#include <atomic>
#include <cstdint>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "runtime/base/thread_state.h"
#include "runtime/os/membarrier.h"
#include "runtime/os/os_thread.h"
#include "runtime/thread/cpu_times.h"
#include "runtime/thread/thread.h"
#include "runtime/thread/thread_handle.h"
#include "runtime/thread/thread_record.h"

namespace stillpoint {

ThreadState StoppedThread::state() const {
  const ThreadState state = thread_.state();
  return state == ThreadState::kManaged ? ThreadState::kBlocked : state;
}

StackBounds StoppedThread::stack() const {
  // Written while it was New, published by the store that ended that.
  if (thread_.state() == ThreadState::kNew) return StackBounds();
  return thread_.record().stack;
}

uintptr_t StoppedThread::scan_begin() const {
  return thread_.record().saved.scan_begin();
}

uintptr_t StoppedThread::stack_pointer() const {
  return thread_.record().saved.stack_pointer;
}

absl::Span<const uintptr_t> StoppedThread::registers() const {
  const SavedContext& saved = thread_.record().saved;
  if (saved.stack_pointer == 0) return {};
  return absl::MakeConstSpan(saved.registers);
}

absl::StatusOr<ThreadCpuTimes> StoppedThread::GetCpuTimes() const {
  // relaxed (M14): constant while the thread is a member, as in this stop.
  return ReadCpuTimes(
      thread_, thread_.record().generation.load(std::memory_order_relaxed));
}

ThreadHandle StoppedThread::handle() const {
  const ThreadRecord& record = thread_.record();
  // relaxed (M14): constant while the thread is a member, as in this stop.
  return ThreadHandle(record.keep_alive->shared_from_this(), thread_,
                      record.generation.load(std::memory_order_relaxed));
}

void World::ForEachThread(
    absl::FunctionRef<void(const StoppedThread&)> visit) const {
  for (Thread* thread : members_) visit(StoppedThread(*thread));
  if (!stopped_) return;
  // Green threads come and go only while somebody is Managed, and a state that
  // begins or ends one is none of those that change in a stop.
  green_slots_->ForEachSlot([&](Thread& thread) {
    if (IsMember(thread.state())) visit(StoppedThread(thread));
  });
}

size_t World::thread_count() const {
  size_t count = 0;
  ForEachThread([&count](const StoppedThread&) { ++count; });
  return count;
}

absl::Status World::SerializeInstructions() const {
  if (SerializeInstructionsEverywhere()) return absl::OkStatus();
  return absl::UnimplementedError(
      "the kernel refuses MEMBARRIER_CMD_PRIVATE_EXPEDITED_SYNC_CORE (before "
      "Linux 4.16, or seccomp): let each thread execute a serialising "
      "instruction before it runs the changed code");
}

}  // namespace stillpoint
