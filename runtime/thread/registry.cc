#include "runtime/thread/registry.h"

#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <charconv>
#include <chrono>
#include <cstdint>
#include <iterator>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "runtime/base/clock.h"
#include "runtime/base/event_sink.h"
#include "runtime/base/tls_block.h"
#include "runtime/os/futex.h"
#include "runtime/os/os_thread.h"
#include "runtime/thread/cpu_times.h"
#include "runtime/thread/native_record.h"
#include "runtime/thread/thread_record.h"
#include "runtime/thread/timer_slack.h"
#include "runtime/thread/transition.h"
#include "runtime/thread/wait_word.h"
#include "runtime/thread/waiting_for.h"

namespace stillpoint {
namespace {

std::string NameOf(std::string_view given, bool green, uint64_t id) {
  if (!given.empty()) return std::string(given);
  // 20 digits at most.
  char name[32];
  char* const begin =
      green ? std::copy_n("green-", 6, name) : std::copy_n("thread-", 7, name);
  return std::string(name, std::to_chars(begin, std::end(name), id).ptr);
}

// One change of the membership (M24). A count that one thread writes needs no
// read-modify-write.
class MembershipCount {
 public:
  MembershipCount(std::atomic<uint64_t>& begun, std::atomic<uint64_t>& done,
                  bool shared)
      : done_(done), shared_(shared) {
    Add(begun);
  }
  ~MembershipCount() { Add(done_); }
  MembershipCount(const MembershipCount&) = delete;
  MembershipCount& operator=(const MembershipCount&) = delete;

 private:
  void Add(std::atomic<uint64_t>& count) {
    if (shared_) {
      count.fetch_add(1);
      return;
    }
    // relaxed, release (M24): the one writer; who sees the state sees "begun",
    // who sees "done" sees the state.
    count.store(count.load(std::memory_order_relaxed) + 1,
                std::memory_order_release);
  }

  std::atomic<uint64_t>& done_;
  const bool shared_;
};

}  // namespace

Registry::Registry(const RegistryOptions& options)
    : threads_lock_(options.start_protocol, control_),
      slots_(control_, ThreadKind::kNative),
      green_slots_(control_, ThreadKind::kGreen),
      default_stack_size_(options.default_stack_size),
      cpu_clock_(options.cpu_clock),
      process_(getpid()),
      timer_slack_(options.timer_slack),
      sink_(options.sink) {
  control_.fence = options.fence;
  control_.processors = AllowedCpuCount();
  control_.serve_poll = options.serve_poll;
  control_.ticks_multiplier = options.cpu_clock.multiplier;
}

absl::StatusOr<Thread*> Registry::Admit(const NewMember& member) {
  // First what takes memory: an exception leaves nothing behind.
  const uint64_t id = NextId(member.share);
  const bool green = member.kind == ThreadKind::kGreen;
  std::string own_name = NameOf(member.name, green, id);
  // seq_cst (M4) against BeginClosing: either the closer sees this member in
  // the population, or this sees `closing`.
  const uint32_t counts = member.kind == ThreadKind::kCarrier ? 0 : 1;
  population_.fetch_add(counts);
  absl::StatusOr<Thread*> claimed =
      closing_.load()
          ? absl::FailedPreconditionError(
                "the runtime is shutting down: no thread can be started or "
                "attached any more")
          : ClaimSlot(member);
  if (!claimed.ok()) {
    population_.fetch_sub(counts);
    FutexWake(population_, INT32_MAX);
    return claimed.status();
  }
  Thread& thread = **claimed;
  ThreadRecord& record = thread.record();
  record.id = id;
  record.name = std::move(own_name);
  record.foreign = member.foreign;
  record.stack = StackBounds();
  record.saved = SavedContext();
  // A green thread's carrier has a share of its own, and is there longer.
  record.keep_alive =
      green ? std::shared_ptr<Registry>(std::shared_ptr<Registry>(), this)
            : shared_from_this();
  // relaxed (M8, M18, M19, M27): all of this is published by Publish().
  record.tid.store(0, std::memory_order_relaxed);
  record.arrived_at.store(0, std::memory_order_relaxed);
  record.transition_site.store(0, std::memory_order_relaxed);
  // relaxed (M62): as above.
  record.suspend_count.store(0, std::memory_order_relaxed);
  record.counted = counts != 0;
  record.closes = false;
  record.leaving = false;
  record.attach_depth = 0;
  record.wait.Reset();
  record.waiting_for.Set(WaitingFor());
  BeginCpuAccount(thread);
  if (!green) {
    NativeRecord& native = NativeRecordOf(thread);
    native.start_step.store(0, std::memory_order_relaxed);
    thread.set_cpu_clock(native.cpu.fast, 0);
    for (std::atomic<void*>& local : native.own_locals) {
      // relaxed (M19): as above.
      local.store(nullptr, std::memory_order_relaxed);
    }
  }
  // relaxed (M8): as above.
  thread.poll_word().store(0, std::memory_order_relaxed);
  record.handshakes.Open();
  return &thread;
}

void Registry::Publish(Thread& thread, ThreadState first) {
  changes_begun_.fetch_add(1);
  // release (M8): pairs with the acquire of scans and snapshots; the record is
  // readable for whoever sees a member state. Between two counts (M24).
  thread.state_word().store(first, std::memory_order_release);
  changes_done_.fetch_add(1);
}

void Registry::Leave(Thread& thread) {
  // Dekker, the third pair (M3): this stores Terminated and reads the stop
  // word, the stopper writes the stop word and scans. Either its scan leaves
  // this thread out, or this waits until that stop is over. The stopper's
  // OrderAll() is its half; this half is a full fence in every mode.
  changes_begun_.fetch_add(1);
  StoreThenFence(thread.state_word(), ThreadState::kTerminated);
  changes_done_.fetch_add(1);
  WaitForEndOfPresentStop(control_);
}

void Registry::PublishGreen(Thread& thread, CarrierShare* share) {
  const MembershipCount count(
      share != nullptr ? share->changes_begun : changes_begun_,
      share != nullptr ? share->changes_done : changes_done_,
      /*shared=*/share == nullptr);
  // release (M8): as in Publish.
  thread.state_word().store(ThreadState::kNew, std::memory_order_release);
}

void Registry::LeaveGreen(Thread& thread, CarrierShare& share) {
  const MembershipCount count(share.changes_begun, share.changes_done,
                              /*shared=*/false);
  LeaveManaged(thread, ThreadState::kTerminated, CpuClockBase::kKeep);
}

void Registry::LeaveGreenClosed(Thread& thread, CarrierShare& share) {
  const MembershipCount count(share.changes_begun, share.changes_done,
                              /*shared=*/false);
  // release (M8): as Leave's, which needs more for a stop that may be on.
  thread.state_word().store(ThreadState::kTerminated,
                            std::memory_order_release);
}

void Registry::Retire(Thread& thread) {
  // This thread may hold the last reference; the registry ends after the slot.
  const std::shared_ptr<Registry> keep_alive =
      std::move(thread.record().keep_alive);
  EndGeneration(thread);
  TableOf(thread).Release(thread);
}

void Registry::RetireGreen(Thread& thread, CarrierShare& share) {
  EndGeneration(thread);
  if (share.slot_count < CarrierShare::kMaxSlots &&
      SlotTable::IsUnpinned(thread)) {
    share.slots[share.slot_count++] = &thread;
    return;
  }
  green_slots_.Release(thread);
}

void Registry::EndGeneration(Thread& thread) {
  ThreadRecord& record = thread.record();
  WakeUp owed;
  {
    // One step for Join, which takes this lock: whoever has joined a thread
    // finds it not counted. And who waited for the count finds it not alive.
    RankedMutexLock lock(record.join_lock);
    // seq_cst (M6) against Pin; as a release it pairs with alive() (M14).
    record.generation.fetch_add(1);
    // In this order: a closer too few is looked at again, one too many would
    // stand for a member that is still there.
    if (record.closes) closers_.fetch_sub(1);
    population_.fetch_sub(record.counted ? 1 : 0);
    if (closing_.load()) FutexWake(population_, INT32_MAX);
    while (Joiner* joiner = record.joiners.PopFront()) {
      // The last one, mostly the only one, is woken when the lock is free.
      owed.Wake();
      owed = joiner->wait->SetQuietly(WaitWord::kEvent);
      // release (M14): see Joiner. After the event, since an unattached joiner
      // takes its word with it.
      joiner->done.store(true, std::memory_order_release);
    }
  }
  owed.Wake();
}

Registry::~Registry() {
  CarrierShare* share = shares_.load();
  while (share != nullptr) delete std::exchange(share, share->next);
}

CarrierShare& Registry::NewCarrierShare() {
  auto* share = new CarrierShare;
  share->next = shares_.load();
  while (!shares_.compare_exchange_weak(share->next, share)) {
  }
  return *share;
}

void Registry::CloseCarrierShare(CarrierShare& share) {
  while (share.slot_count > 0) {
    green_slots_.Release(*share.slots[--share.slot_count]);
  }
}

uint64_t Registry::changes_begun() const {
  uint64_t sum = changes_begun_.load();
  for (const CarrierShare* share = shares_.load(); share != nullptr;
       share = share->next) {
    sum += share->changes_begun.load();
  }
  return sum;
}

uint64_t Registry::changes_done() const {
  uint64_t sum = changes_done_.load();
  for (const CarrierShare* share = shares_.load(); share != nullptr;
       share = share->next) {
    sum += share->changes_done.load();
  }
  return sum;
}

uint64_t Registry::NextId(CarrierShare* share) {
  // relaxed (M28): numbers that are given out once.
  if (share == nullptr) return next_id_.fetch_add(1, std::memory_order_relaxed);
  if (share->next_id == share->ids_end) {
    constexpr uint64_t kBlock = 256;
    share->next_id = next_id_.fetch_add(kBlock, std::memory_order_relaxed);
    share->ids_end = share->next_id + kBlock;
  }
  return share->next_id++;
}

absl::StatusOr<Thread*> Registry::ClaimSlot(const NewMember& member) {
  if (member.kind != ThreadKind::kGreen) return slots_.Claim();
  if (member.share == nullptr || member.share->slot_count == 0) {
    return green_slots_.Claim();
  }
  Thread* thread = member.share->slots[--member.share->slot_count];
  SlotTable::BeginGeneration(*thread);
  return thread;
}

void Registry::ApplyTimerSlack(std::optional<std::chrono::nanoseconds> own) {
  if (!own.has_value()) own = timer_slack_;
  if (!own.has_value()) return;
  const absl::Status set = SetCurrentTimerSlack(*own);
  if (set.ok() || slack_refused_.exchange(true) || sink_ == nullptr) return;
  sink_->OnMessage(Severity::kWarning, std::string(set.message()));
}

void Registry::BeginClosing() {
  closing_.store(true);
  suspensions_.Close();
}

void Registry::NoteCloser(Thread& current) {
  if (std::exchange(current.record().closes, true)) return;
  closers_.fetch_add(1);
}

void Registry::InterruptAll(const Thread* except) {
  ForEachMemberSlot([&](Thread& thread) {
    if (!IsMember(thread.state())) return;
    const uint64_t generation = thread.record().generation.load();
    const bool lives = (generation & 1) != 0;
    if (!lives || !Pin(thread, generation)) return;
    if (IsMember(thread.state())) {
      suspensions_.Lift(thread);
      if (&thread != except) thread.record().wait.Set(WaitWord::kInterrupt);
    }
    Unpin(thread);
  });
}

bool Registry::AwaitPopulation(uint32_t allowed, Deadline deadline) {
  while (true) {
    // seq_cst (M4), the closer's half of the pair with Admit: an acquire load
    // may pass BeginClosing's store (aarch64: stlr, ldapr).
    const uint32_t now = population_.load();
    if (now <= allowed) return true;
    if (FutexWait(population_, now, deadline) == FutexResult::kTimedOut) {
      return population_.load() <= allowed;
    }
  }
}

bool Registry::InForkedChild() const { return getpid() != process_; }

void Registry::BecomeForkedChild() {
  // relaxed throughout (M30): there is no other thread.
  closing_.store(true);
  control_.closed.store(true, std::memory_order_relaxed);
  population_.store(0, std::memory_order_relaxed);
  suspensions_.ResetInForkedChild();
  ForEachMemberSlot([](Thread& thread) {
    if (!thread.bound()) return;
    ThreadRecord& record = thread.record();
    record.join_lock.ResetInForkedChild();
    record.handshakes.ResetInForkedChild();
    thread.state_word().store(ThreadState::kTerminated,
                              std::memory_order_relaxed);
    // relaxed (M30): as above.
    const uint64_t generation =
        record.generation.load(std::memory_order_relaxed);
    const bool lives = (generation & 1) != 0;
    if (lives) {
      record.generation.store(generation + 1, std::memory_order_relaxed);
    }
  });
}

absl::StatusOr<ThreadLocalSlot> Registry::CreateThreadLocalSlot(
    ThreadLocalSlot::Destructor destructor) {
  // relaxed (M20): gives out numbers; only the caller knows this one so far.
  uint32_t index = local_slots_.load(std::memory_order_relaxed);
  do {
    if (index >= ThreadLocalSlot::kMaxSlots) {
      return absl::ResourceExhaustedError(absl::StrCat(
          "a runtime has at most ", ThreadLocalSlot::kMaxSlots,
          " thread-local slots: keep one pointer to a struct of your own"));
    }
  } while (!local_slots_.compare_exchange_weak(index, index + 1,
                                               std::memory_order_relaxed));
  // release (M20): pairs with RunThreadLocalDestructors.
  local_destructors_[index].store(destructor, std::memory_order_release);
  return ThreadLocalSlot{index};
}

void Registry::RunThreadLocalDestructors(Thread& thread) {
  constexpr int kRounds = 4;  // PTHREAD_DESTRUCTOR_ITERATIONS
  // relaxed (M20): a value that this thread has set is in a slot that it has
  // been told of.
  if (local_slots_.load(std::memory_order_relaxed) == 0) return;
  thread.record().leaving = true;
  for (int round = 0; round < kRounds; ++round) {
    bool found = false;
    for (uint32_t i = 0; i < ThreadLocalSlot::kMaxSlots; ++i) {
      std::atomic<void*>& local = thread.record().locals[i];
      // relaxed, release (M19): only the owner writes; operations may read.
      void* value = local.load(std::memory_order_relaxed);
      if (value == nullptr) continue;
      local.store(nullptr, std::memory_order_release);
      // acquire (M20): pairs with CreateThreadLocalSlot.
      const ThreadLocalSlot::Destructor destructor =
          local_destructors_[i].load(std::memory_order_acquire);
      if (destructor == nullptr) continue;
      found = true;
      destructor(value);
    }
    if (!found) break;
  }
  thread.record().leaving = false;
  // What the last round's destructors set is dropped: the slot's next thread
  // must not find it. release (M19): like every store of the owner.
  for (uint32_t i = 0; i < ThreadLocalSlot::kMaxSlots; ++i) {
    thread.record().locals[i].store(nullptr, std::memory_order_release);
  }
}

}  // namespace stillpoint
