// A shared library with an initialiser, for loader_test. It calls back into
// the program that loads it, under the loader's lock.

extern "C" void StillpointTestLibraryIsLoading();

namespace {

thread_local int counter = 41;

struct Loading {
  Loading() { StillpointTestLibraryIsLoading(); }
} loading;

}  // namespace

// Touches thread-local storage of this library.
extern "C" int StillpointTestLibraryCount() { return ++counter; }
