#include "runtime/os/processors.h"

#include <sched.h>

#include <algorithm>
#include <cstdint>
#include <fstream>
#include <optional>
#include <sstream>
#include <string>
#include <vector>

#include "runtime/os/os_thread.h"

namespace stillpoint {
namespace {

// A hierarchy of control groups: where it is mounted, which group of it is
// there, and in which group this process is.
struct Hierarchy {
  bool unified = false;  // version 2
  std::string mount;
  std::string mounted_root;
  std::string group;
};

bool HasController(const std::string& list, const std::string& name) {
  std::stringstream items(list);
  std::string item;
  while (std::getline(items, item, ',')) {
    if (item == name) return true;
  }
  return false;
}

// Lines of /proc/self/cgroup: "id:controllers:/group"; version 2 is
// "0::/group".
std::optional<std::string> GroupOf(const std::string& root, bool unified) {
  std::ifstream file(root + "/proc/self/cgroup");
  std::string line;
  while (std::getline(file, line)) {
    const size_t first = line.find(':');
    const size_t second = line.find(':', first + 1);
    if (first == std::string::npos || second == std::string::npos) continue;
    const std::string controllers = line.substr(first + 1, second - first - 1);
    if (unified ? controllers.empty() : HasController(controllers, "cpu")) {
      return line.substr(second + 1);
    }
  }
  return std::nullopt;
}

// Lines of /proc/self/mountinfo (proc(5)): the fourth and fifth field are the
// root of the mount and where it is; behind " - " come type, source and the
// options, which name a version 1 hierarchy's controllers.
std::vector<Hierarchy> HierarchiesWithCpu(const std::string& root) {
  std::vector<Hierarchy> found;
  std::ifstream file(root + "/proc/self/mountinfo");
  std::string line;
  while (std::getline(file, line)) {
    const size_t dash = line.find(" - ");
    if (dash == std::string::npos) continue;
    std::stringstream before(line.substr(0, dash));
    std::stringstream after(line.substr(dash + 3));
    std::string skipped, mounted_root, mount, type, source, options;
    before >> skipped >> skipped >> skipped >> mounted_root >> mount;
    after >> type >> source >> options;
    const bool unified = type == "cgroup2";
    if (!unified && !(type == "cgroup" && HasController(options, "cpu"))) {
      continue;
    }
    const std::optional<std::string> group = GroupOf(root, unified);
    if (!group.has_value()) continue;
    found.push_back({unified, mount, mounted_root, *group});
  }
  return found;
}

// Processors that the quota of one group pays for; nothing if it has none.
std::optional<double> QuotaIn(const std::string& directory, bool unified) {
  double quota = 0;
  double period = 0;
  if (unified) {
    // "max 100000" has no number in front.
    std::ifstream file(directory + "/cpu.max");
    if (!(file >> quota >> period)) return std::nullopt;
  } else {
    std::ifstream quota_file(directory + "/cpu.cfs_quota_us");
    std::ifstream period_file(directory + "/cpu.cfs_period_us");
    if (!(quota_file >> quota) || !(period_file >> period)) return std::nullopt;
  }
  if (quota <= 0 || period <= 0) return std::nullopt;
  return quota / period;
}

}  // namespace

int UsableProcessorsIn(const std::string& root, int allowed) {
  double usable = allowed;
  for (const Hierarchy& hierarchy : HierarchiesWithCpu(root)) {
    // Below the mount; in a container the group may be told as seen outside.
    std::string group = hierarchy.group;
    if (hierarchy.mounted_root != "/" &&
        group.compare(0, hierarchy.mounted_root.size(),
                      hierarchy.mounted_root) == 0) {
      group.erase(0, hierarchy.mounted_root.size());
    }
    // Each group above limits it, too.
    while (true) {
      const std::optional<double> quota =
          QuotaIn(root + hierarchy.mount + group, hierarchy.unified);
      if (quota.has_value()) usable = std::min(usable, *quota);
      if (group.empty() || group == "/") break;
      group.erase(group.find_last_of('/'));
    }
  }
  const int whole = static_cast<int>(usable);
  return std::max(1, whole < usable ? whole + 1 : whole);
}

int UsableProcessors() { return UsableProcessorsIn("", AllowedCpuCount()); }

bool PinCurrentThread(uint32_t index) {
  cpu_set_t allowed;
  if (sched_getaffinity(0, sizeof(allowed), &allowed) != 0) return false;
  const int count = CPU_COUNT(&allowed);
  if (count == 0) return false;
  int wanted = static_cast<int>(index % static_cast<uint32_t>(count));
  for (int processor = 0; processor < CPU_SETSIZE; ++processor) {
    if (!CPU_ISSET(processor, &allowed) || wanted-- > 0) continue;
    cpu_set_t one;
    CPU_ZERO(&one);
    CPU_SET(processor, &one);
    return sched_setaffinity(0, sizeof(one), &one) == 0;
  }
  return false;
}

}  // namespace stillpoint
