// A program with every part of the library in it, for no_globals_test to look
// at. It is not run.

#include "runtime/base/histogram.h"
#include "runtime/observe/safepoint_log.h"
#include "runtime/stillpoint.h"

int main() {
  // Runtime refers to the rest.
  stillpoint::Runtime::Create().IgnoreError();
  stillpoint::SafepointLogWriter::Create(-1).IgnoreError();
  stillpoint::Park().IgnoreError();
  stillpoint::ManagedScope managed;
  stillpoint::Poll();
  stillpoint::Histogram().Add(1);
  return 0;
}
