// What the kernel says of another thread of this process.

#ifndef STILLPOINT_TESTS_OS_THREAD_WATCH_H_
#define STILLPOINT_TESTS_OS_THREAD_WATCH_H_

#include <sys/types.h>

#include <string>

namespace stillpoint::testing {

// The scheduler's letter for the thread: 'R' running, 'S' sleeping, ...; 0 if
// there is none with this id.
char SchedulerState(pid_t tid);

// Waits until the thread sleeps in the kernel, where a test wants something to
// happen to a sleeper. (It may be any sleep.)
void AwaitSleeping(pid_t tid);

// Waits until the process has no thread with this id any more.
void AwaitGone(pid_t tid);

// The name that ps and top show; empty if there is no such thread.
std::string OsThreadName(pid_t tid);

// Threads of this process.
int OsThreadCount();

// Counts SIGUSR1 from now on; system calls are not restarted after it, so that
// every one of them ends with EINTR.
void CountUserSignals();
int UserSignals();

// Sends SIGUSR1 to the thread, `rounds` times, each time when it sleeps; it
// sleeps at the end.
void BombardSleeper(pid_t tid, int rounds);

}  // namespace stillpoint::testing

#endif  // STILLPOINT_TESTS_OS_THREAD_WATCH_H_
