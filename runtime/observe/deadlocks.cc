#include "runtime/observe/deadlocks.h"

#include <algorithm>
#include <cstddef>
#include <optional>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "runtime/base/absl_string.h"
#include "runtime/sync/mutex.h"
#include "runtime/thread/thread.h"
#include "runtime/thread/thread_snapshot.h"
#include "runtime/thread/waiting_for.h"

namespace stillpoint {
namespace {

const PinnedThread* Find(const ThreadSnapshot& all, const Thread* thread) {
  for (const PinnedThread& pinned : all) {
    if (&pinned.thread() == thread) return &pinned;
  }
  return nullptr;
}

std::string NameOf(const PinnedThread& pinned) {
  return absl::StrCat("\"", ToAbsl(pinned.name()), "\" #", pinned.id());
}

struct Waits {
  WaitingFor what;
  const Thread* owner = nullptr;

  friend bool operator==(const Waits&, const Waits&) = default;
};

// Nothing unless it waits for a mutex of another thread.
std::optional<Waits> WaitsOf(const Thread& thread) {
  const WaitingFor what = thread.waiting_for();
  const std::optional<Mutex::Owner> owner = Mutex::OwnerOfAwaited(what);
  if (!owner.has_value() || owner->thread == nullptr) return std::nullopt;
  return Waits{what, owner->thread};
}

using WaitMap = std::unordered_map<const Thread*, Waits>;

// Whether all of it is as it was.
bool StillThere(const std::vector<const Thread*>& circle,
                const WaitMap& waits) {
  return std::all_of(circle.begin(), circle.end(), [&](const Thread* thread) {
    return WaitsOf(*thread) == waits.at(thread);
  });
}

std::string Describe(const std::vector<const Thread*>& circle,
                     const WaitMap& waits, const ThreadSnapshot& all) {
  std::string line = "Deadlock: ";
  for (size_t i = 0; i < circle.size(); ++i) {
    absl::StrAppend(&line, i == 0 ? "" : "; ", NameOf(*Find(all, circle[i])),
                    " waits for a mutex",
                    OwnerText(all, waits.at(circle[i]).what));
  }
  return absl::StrCat(line, "\n");
}

}  // namespace

std::string OwnerText(const ThreadSnapshot& all, WaitingFor waiting_for) {
  const std::optional<Mutex::Owner> owner = Mutex::OwnerOfAwaited(waiting_for);
  if (!owner.has_value()) return "";
  std::string text;
  if (owner->mutex_name[0] != '\0') {
    absl::StrAppend(&text, " \"", owner->mutex_name, "\"");
  }
  if (owner->thread == nullptr) {
    return absl::StrCat(text, " owned by a thread that is not attached");
  }
  const PinnedThread* pinned = Find(all, owner->thread);
  return absl::StrCat(
      text, " owned by ",
      pinned != nullptr ? NameOf(*pinned) : "a thread that has come since");
}

std::string DescribeDeadlocks(const ThreadSnapshot& all) {
  WaitMap waits;
  for (const PinnedThread& pinned : all) {
    if (std::optional<Waits> waits_of = WaitsOf(pinned.thread())) {
      waits.emplace(&pinned.thread(), *waits_of);
    }
  }
  std::string text;
  // Each thread waits for at most one: from each, follow the owners.
  std::unordered_map<const Thread*, size_t> walked;  // in which walk
  size_t walk = 0;
  for (const auto& [from, unused] : waits) {
    ++walk;
    const Thread* thread = from;
    while (waits.count(thread) != 0 && walked.emplace(thread, walk).second) {
      thread = waits.at(thread).owner;
    }
    const auto met = walked.find(thread);
    if (waits.count(thread) == 0 || met->second != walk) continue;
    std::vector<const Thread*> circle;
    const Thread* next = thread;
    do {
      circle.push_back(next);
      next = waits.at(next).owner;
    } while (next != thread);
    if (StillThere(circle, waits)) text += Describe(circle, waits, all);
  }
  return text.empty() ? "No deadlock among mutexes\n" : text;
}

}  // namespace stillpoint
