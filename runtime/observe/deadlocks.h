// Circles of threads that wait for each other's mutexes.

#ifndef STILLPOINT_RUNTIME_OBSERVE_DEADLOCKS_H_
#define STILLPOINT_RUNTIME_OBSERVE_DEADLOCKS_H_

#include <string>

#include "runtime/thread/thread_snapshot.h"
#include "runtime/thread/waiting_for.h"

namespace stillpoint {

// ` "name" owned by "thread" #7` for the mutex that somebody waits for; empty
// if it is none, or free. Any state; takes a leaf lock.
std::string OwnerText(const ThreadSnapshot& all, WaitingFor waiting_for);

// A line for each circle among `all`, or one that there is none. The world may
// run: each circle was there twice in a row, which one of mutexes is for good,
// unless a wait in it has a deadline or is interrupted.
std::string DescribeDeadlocks(const ThreadSnapshot& all);

}  // namespace stillpoint

#endif  // STILLPOINT_RUNTIME_OBSERVE_DEADLOCKS_H_
