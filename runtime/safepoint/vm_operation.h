// What a VM thread runs.

#ifndef STILLPOINT_RUNTIME_SAFEPOINT_VM_OPERATION_H_
#define STILLPOINT_RUNTIME_SAFEPOINT_VM_OPERATION_H_

#include <string_view>

#include "absl/functional/function_ref.h"
#include "runtime/safepoint/world.h"

namespace stillpoint {

// Derive from it for an operation with properties; for a plain one use
// Runtime::AtSafepoint with a lambda. The requester owns it and waits for it.
//
// Run() is called once, on the VM thread. It must not throw (that
// ends the process, also where the requester would catch it), must end, and may
// not start, attach, detach or wait for a thread; it may take locks of larger
// rank than Threads_lock.
class VmOperation {
 public:
  virtual ~VmOperation() = default;

  // For logs. Called before Run(); must stay valid until it has ended.
  virtual std::string_view name() const = 0;

  virtual void Run(World& world) = 0;

  // Whether the world must be stopped. False: it runs on the VM thread, in turn
  // with the others, while mutators run.
  virtual bool needs_safepoint() const { return true; }

  // Whether `queued`, requested earlier and not yet begun, does what this one
  // is for. Then this one is not run: its requester waits for `queued` instead.
  // Called under the lock of the queue: compare fields, and nothing else.
  virtual bool CoalescesWith(const VmOperation& /*queued*/) const {
    return false;
  }

  // Whether Run() may ask for further operations, which then run inside it.
  virtual bool allows_nested() const { return false; }
};

// A function as an operation; both outlive it.
class FunctionOperation : public VmOperation {
 public:
  FunctionOperation(std::string_view name,
                    absl::FunctionRef<void(World&)> function)
      : name_(name), function_(function) {}

  std::string_view name() const override { return name_; }
  void Run(World& world) override { function_(world); }

 private:
  std::string_view name_;
  absl::FunctionRef<void(World&)> function_;
};

}  // namespace stillpoint

#endif  // STILLPOINT_RUNTIME_SAFEPOINT_VM_OPERATION_H_
