// Makes the calling thread a member of a runtime for the length of a call.

#ifndef STILLPOINT_RUNTIME_THREAD_TEMPORARY_MEMBER_H_
#define STILLPOINT_RUNTIME_THREAD_TEMPORARY_MEMBER_H_

#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "runtime/base/check.h"
#include "runtime/thread/registry.h"
#include "runtime/thread/start.h"
#include "runtime/thread/thread.h"
#include "runtime/thread/thread_record.h"

namespace stillpoint {

// Attaches it, unless it is one already, and detaches it again at its end.
class TemporaryMember {
 public:
  // `name` is what dumps show meanwhile. Look at status() first: errors are
  // those of AttachCurrentThread.
  TemporaryMember(Registry& registry, std::string_view name,
                  AttachStack stack = AttachStack::kFind)
      : registry_(registry) {
    const Thread* current = Thread::Current();
    if (current != nullptr && current->record().keep_alive.get() == &registry) {
      return;
    }
    status_ = AttachCurrentThread(registry, name, stack);
    attached_ = status_.ok();
  }
  ~TemporaryMember() {
    if (!attached_) return;
    const absl::Status detached = DetachCurrentThread(registry_);
    STILLPOINT_CHECK(detached.ok(), "after a call that had attached it: ",
                     std::string(detached.message()));
  }
  TemporaryMember(const TemporaryMember&) = delete;
  TemporaryMember& operator=(const TemporaryMember&) = delete;

  const absl::Status& status() const { return status_; }

 private:
  Registry& registry_;
  absl::Status status_;
  bool attached_ = false;
};

}  // namespace stillpoint

#endif  // STILLPOINT_RUNTIME_THREAD_TEMPORARY_MEMBER_H_
