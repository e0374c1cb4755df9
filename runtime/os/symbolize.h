// Names for addresses of code.

#ifndef STILLPOINT_RUNTIME_OS_SYMBOLIZE_H_
#define STILLPOINT_RUNTIME_OS_SYMBOLIZE_H_

#include <cstdint>
#include <string>

namespace stillpoint {

// "function+0x12 (file)", demangled; "file+0x1234" where the file's dynamic
// symbols do not name it (link with -rdynamic, or ask addr2line); "0x1234" for
// code of no file, such as a JIT's. Takes the loader's lock and memory: not in
// a signal handler.
std::string SymbolizeAddress(uintptr_t address);

}  // namespace stillpoint

#endif  // STILLPOINT_RUNTIME_OS_SYMBOLIZE_H_
