#include "runtime/thread/thread.h"

#include "runtime/base/check.h"

namespace stillpoint {

void Thread::DieUnattached() {
  Die(
      {"this thread is not attached to a runtime: call "
       "Runtime::AttachCurrentThread first, or start it by Runtime::Start"});
}

}  // namespace stillpoint
