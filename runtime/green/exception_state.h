// The C++ runtime's record of the exceptions that a thread has in flight.

#ifndef STILLPOINT_RUNTIME_GREEN_EXCEPTION_STATE_H_
#define STILLPOINT_RUNTIME_GREEN_EXCEPTION_STATE_H_

#include "absl/status/status.h"

namespace stillpoint {

// __cxa_eh_globals of the Itanium C++ ABI (2.2.2), which libstdc++ and
// libc++abi both keep for each thread: the exceptions that are being handled,
// innermost first, and how many are thrown and not yet caught.
struct ExceptionState {
  void* caught = nullptr;
  unsigned int uncaught = 0;
};

// The calling OS thread's. It stays where it is as long as the thread lives.
ExceptionState* ThreadExceptionState();

// Whether the record is what the struct above says, tried out with an exception
// that is thrown, caught and rethrown. Otherwise FailedPrecondition. Leaves
// what is in flight alone.
absl::Status CheckExceptionState();

}  // namespace stillpoint

#endif  // STILLPOINT_RUNTIME_GREEN_EXCEPTION_STATE_H_
