#include "runtime/green/exception_state.h"

#include <cxxabi.h>

#include <exception>

#include "absl/status/status.h"

namespace stillpoint {
namespace {

// What unwinding looks like from a destructor.
struct Witness {
  ExceptionState& seen;
  ~Witness() { seen = *ThreadExceptionState(); }
};

struct Probe {};

}  // namespace

// Declared in <cxxabi.h> as a pointer to a type without members.
ExceptionState* ThreadExceptionState() {
  return reinterpret_cast<ExceptionState*>(abi::__cxa_get_globals());
}

absl::Status CheckExceptionState() {
  const ExceptionState before = *ThreadExceptionState();
  ExceptionState unwinding;
  ExceptionState handling;
  ExceptionState handling_again;
  bool counted =
      static_cast<int>(before.uncaught) == std::uncaught_exceptions();
  try {
    try {
      const Witness witness{unwinding};
      throw Probe();
    } catch (const Probe&) {
      handling = *ThreadExceptionState();
      throw;
    }
  } catch (const Probe&) {
    handling_again = *ThreadExceptionState();
  }
  const ExceptionState after = *ThreadExceptionState();
  // The record is per thread and has a place for the innermost exception and a
  // count, where they are expected, and nothing else is on its way.
  if (counted && unwinding.caught == before.caught &&
      unwinding.uncaught == before.uncaught + 1 &&
      handling.caught != before.caught && handling.caught != nullptr &&
      handling.uncaught == before.uncaught &&
      handling_again.caught == handling.caught &&
      handling_again.uncaught == before.uncaught &&
      after.caught == before.caught && after.uncaught == before.uncaught) {
    return absl::OkStatus();
  }
  return absl::FailedPreconditionError(
      "the C++ runtime does not keep exceptions in flight as the Itanium C++ "
      "ABI describes (__cxa_eh_globals), so green threads cannot be switched "
      "with exceptions in flight; link with libstdc++ or libc++abi");
}

}  // namespace stillpoint
