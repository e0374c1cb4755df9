#include "runtime/base/check.h"

#include <unistd.h>

#include <cstddef>
#include <cstdlib>
#include <cstring>
#include <initializer_list>
#include <string_view>

namespace stillpoint {

void Die(std::initializer_list<std::string_view> parts) {
  char text[1024];
  constexpr size_t kLimit = sizeof(text) - 1;  // room for the line end
  size_t used = 0;
  const auto append = [&](std::string_view part) {
    const size_t n = part.size() < kLimit - used ? part.size() : kLimit - used;
    std::memcpy(text + used, part.data(), n);
    used += n;
  };
  append("stillpoint: ");
  for (std::string_view part : parts) append(part);
  text[used++] = '\n';
  // A failed write cannot be reported anywhere; the abort below still happens.
  [[maybe_unused]] const ssize_t written = write(STDERR_FILENO, text, used);
  std::abort();
}

}  // namespace stillpoint
