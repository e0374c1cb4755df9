// What embedders' code looks like at the polls and transitions, for
// codegen_test to read in the disassembly. Never run.

#include "runtime/stillpoint.h"

using stillpoint::ManagedScope;
using stillpoint::NativeScope;
using stillpoint::Poll;
using stillpoint::Thread;

namespace {

// One step of a program, which no optimiser drops or merges with the next. It
// is one instruction that compilers do not use of themselves, so that the test
// can count steps. It says nothing about memory: that the poll's load stays in
// the loop is the poll's own business.
inline void Step(long& value) {
#if defined(__x86_64__)
  asm volatile("clc" : "+r"(value) : : "cc");
#else
  asm volatile("nop" : "+r"(value));
#endif
}

}  // namespace

extern "C" {

long ProbeBareLoop(Thread& thread, long count) {
  asm volatile("" : : "r"(&thread));
  long value = 0;
  for (long i = 0; i < count; ++i) Step(value);
  return value;
}

long ProbePollLoop(Thread& thread, long count) {
  long value = 0;
  for (long i = 0; i < count; ++i) {
    Step(value);
    Poll(thread);
  }
  return value;
}

// Two polls in one body are two looks at the word.
long ProbeTwoPollLoop(Thread& thread, long count) {
  long value = 0;
  for (long i = 0; i < count; ++i) {
    Step(value);
    Poll(thread);
    Step(value);
    Poll(thread);
  }
  return value;
}

// A loop of nothing but the poll, which a compiler would love to remove.
void ProbePollForever(Thread& thread) {
  while (true) Poll(thread);
}

long ProbeNativeScope(Thread& thread, long value) {
  {
    NativeScope native(thread);
    Step(value);
  }
  return value;
}

long ProbeManagedScope(Thread& thread, long value) {
  {
    ManagedScope managed(thread);
    Step(value);
  }
  return value;
}

// The same, for whoever has no Thread at hand.
long ProbeCurrentManagedScope(long value) {
  {
    ManagedScope managed;
    Step(value);
  }
  return value;
}

long ProbeCurrentNativeScope(long value) {
  {
    NativeScope native;
    Step(value);
  }
  return value;
}

// Many in one function, of which a compiler thinks twice before it inlines
// them.
long ProbeManyNativeScopes(Thread& thread, long value) {
#define ONE                     \
  {                             \
    NativeScope native(thread); \
    Step(value);                \
  }
#define FOUR ONE ONE ONE ONE
  FOUR FOUR FOUR FOUR
#undef FOUR
#undef ONE
      return value;
}

// Where a compiler inlines least: code that it believes to run once.
[[gnu::cold]] long ProbeColdNativeScope(Thread& thread, long value) {
  {
    NativeScope native(thread);
    Step(value);
  }
  return value;
}

[[gnu::cold]] long ProbeColdManagedScope(Thread& thread, long value) {
  {
    ManagedScope managed(thread);
    Step(value);
  }
  return value;
}

}  // extern "C"
