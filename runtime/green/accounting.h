// Whether CPU time is kept for each green thread. It is, unless this is
// compiled with -DSTILLPOINT_NO_GREEN_CPU_TIMES, which saves about one reading
// of the time stamp counter at each switch (docs/green_threads.md): their CPU
// times and counts are zeros then.

#ifndef STILLPOINT_RUNTIME_GREEN_ACCOUNTING_H_
#define STILLPOINT_RUNTIME_GREEN_ACCOUNTING_H_

namespace stillpoint {

#if defined(STILLPOINT_NO_GREEN_CPU_TIMES)
inline constexpr bool kGreenCpuTimes = false;
#else
inline constexpr bool kGreenCpuTimes = true;
#endif

}  // namespace stillpoint

#endif  // STILLPOINT_RUNTIME_GREEN_ACCOUNTING_H_
