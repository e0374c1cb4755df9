#include "runtime/os/rseq_area.h"

#include <linux/rseq.h>
#include <stddef.h>
#include <sys/mman.h>
#include <unistd.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <new>

// glibc's, from 2.35 on (sys/rseq.h); weak, so that the library also links
// where they are not.
extern "C" {
extern const ptrdiff_t __rseq_offset __attribute__((weak));
extern const unsigned int __rseq_size __attribute__((weak));
}

namespace stillpoint {
namespace {

#if defined(__x86_64__)

// The number with which libc registers the area, and which has to stand in
// front of every abort address (glibc: sysdeps/unix/sysv/linux/x86/bits/
// rseq.h).
constexpr uint32_t kSignature = 0x53053053;

// Where things are in the page of the descriptor.
constexpr size_t kDescriptorAt = 0;
constexpr size_t kSectionAt = 64;  // one byte long, and not executable
constexpr size_t kSignatureAt = 128;

char* ThreadPointer() {
  char* pointer;
  asm("movq %%fs:0, %0" : "=r"(pointer));
  return pointer;
}

// The two pages live as long as the process: a thread may carry the address of
// the first one at any time.
constinit std::atomic<char*> marks_pages{nullptr};

// Numbers given out by this process and its forefathers.
constinit std::atomic<uint32_t> epochs{0};

char* MapMarks(size_t page) {
  void* mapped = mmap(nullptr, 2 * page, PROT_READ | PROT_WRITE,
                      MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (mapped == MAP_FAILED) return nullptr;
  char* pages = static_cast<char*>(mapped);
  const uintptr_t address = reinterpret_cast<uintptr_t>(pages);
  rseq_cs descriptor = {};
  descriptor.start_ip = address + kSectionAt;
  descriptor.post_commit_offset = 1;
  descriptor.abort_ip = address + kSignatureAt + sizeof(kSignature);
  std::memcpy(pages + kDescriptorAt, &descriptor, sizeof(descriptor));
  std::memcpy(pages + kSignatureAt, &kSignature, sizeof(kSignature));
  if (mprotect(pages, page, PROT_READ) != 0 ||
      madvise(pages + page, page, MADV_WIPEONFORK) != 0) {
    munmap(pages, 2 * page);
    return nullptr;
  }
  new (pages + page) std::atomic<uint32_t>(0);
  return pages;
}

#endif

}  // namespace

std::atomic<uint64_t>* CurrentThreadRseqField() {
#if defined(__x86_64__)
  // What the field needs; glibc says 32, or 20 if it counts the fields in use.
  constexpr unsigned int kNeeded = offsetof(rseq, rseq_cs) + sizeof(uint64_t);
  if (&__rseq_offset == nullptr || &__rseq_size == nullptr ||
      __rseq_size < kNeeded) {
    return nullptr;
  }
  char* area = ThreadPointer() + __rseq_offset;
  // Negative: registration failed on this thread, or has not been made.
  const volatile char* cpu_id = area + offsetof(rseq, cpu_id);
  if (*reinterpret_cast<const volatile int32_t*>(cpu_id) < 0) return nullptr;
  static_assert(sizeof(std::atomic<uint64_t>) == sizeof(uint64_t) &&
                std::atomic<uint64_t>::is_always_lock_free);
  return reinterpret_cast<std::atomic<uint64_t>*>(area +
                                                  offsetof(rseq, rseq_cs));
#else
  return nullptr;
#endif
}

RseqMarks SharedRseqMarks() {
  RseqMarks marks;
#if defined(__x86_64__)
  const size_t page = static_cast<size_t>(sysconf(_SC_PAGESIZE));
  char* pages = marks_pages.load();
  if (pages == nullptr) {
    char* made = MapMarks(page);
    if (made == nullptr) return marks;
    if (marks_pages.compare_exchange_strong(pages, made)) {
      pages = made;
    } else {
      munmap(made, 2 * page);  // another thread was faster; nobody has seen it
    }
  }
  marks.descriptor = reinterpret_cast<uintptr_t>(pages) + kDescriptorAt;
  marks.fork_word = reinterpret_cast<std::atomic<uint32_t>*>(pages + page);
#endif
  return marks;
}

uint32_t CurrentEpoch(std::atomic<uint32_t>& fork_word) {
#if defined(__x86_64__)
  // relaxed (M40): numbers; nothing is reached through them.
  uint32_t epoch = fork_word.load(std::memory_order_relaxed);
  if (epoch != 0) return epoch;
  const uint32_t next = epochs.fetch_add(1, std::memory_order_relaxed) + 1;
  if (fork_word.compare_exchange_strong(epoch, next,
                                        std::memory_order_relaxed)) {
    return next;
  }
  return epoch;
#else
  return 1;
#endif
}

}  // namespace stillpoint
