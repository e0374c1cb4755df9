#include "runtime/os/symbolize.h"

#include <cxxabi.h>
#include <dlfcn.h>

#include <cstdint>
#include <cstdlib>
#include <memory>
#include <string>

#include "absl/strings/str_cat.h"

namespace stillpoint {

std::string SymbolizeAddress(uintptr_t address) {
  Dl_info info;
  if (dladdr(reinterpret_cast<void*>(address), &info) == 0 ||
      info.dli_fname == nullptr) {
    return absl::StrCat("0x", absl::Hex(address));
  }
  const std::string path = info.dli_fname;
  const std::string file = path.substr(path.rfind('/') + 1);
  if (info.dli_sname == nullptr) {
    return absl::StrCat(
        file, "+0x",
        absl::Hex(address - reinterpret_cast<uintptr_t>(info.dli_fbase)));
  }
  int status = 0;
  const std::unique_ptr<char, decltype(&std::free)> demangled(
      abi::__cxa_demangle(info.dli_sname, nullptr, nullptr, &status),
      &std::free);
  return absl::StrCat(
      status == 0 ? demangled.get() : info.dli_sname, "+0x",
      absl::Hex(address - reinterpret_cast<uintptr_t>(info.dli_saddr)), " (",
      file, ")");
}

}  // namespace stillpoint
