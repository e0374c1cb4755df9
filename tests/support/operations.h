// Operations made of a function and properties.

#ifndef STILLPOINT_TESTS_SUPPORT_OPERATIONS_H_
#define STILLPOINT_TESTS_SUPPORT_OPERATIONS_H_

#include <string>
#include <string_view>
#include <utility>

#include "absl/functional/any_invocable.h"
#include "runtime/stillpoint.h"

namespace stillpoint::testing {

class TestOperation : public VmOperation {
 public:
  TestOperation(std::string_view name, absl::AnyInvocable<void(World&)> run)
      : name_(name), run_(std::move(run)) {}

  TestOperation& WithoutSafepoint() {
    needs_safepoint_ = false;
    return *this;
  }
  TestOperation& AllowingNested() {
    allows_nested_ = true;
    return *this;
  }

  std::string_view name() const override { return name_; }
  void Run(World& world) override { run_(world); }
  bool needs_safepoint() const override { return needs_safepoint_; }
  bool allows_nested() const override { return allows_nested_; }

 private:
  const std::string name_;
  absl::AnyInvocable<void(World&)> run_;
  bool needs_safepoint_ = true;
  bool allows_nested_ = false;
};

}  // namespace stillpoint::testing

#endif  // STILLPOINT_TESTS_SUPPORT_OPERATIONS_H_
