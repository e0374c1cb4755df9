// Incident I3: exceptions that are in flight while contexts are switched.

#include <cstddef>
#include <cstdint>
#include <exception>
#include <memory>
#include <stdexcept>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "gtest/gtest.h"
#include "runtime/green/context.h"
#include "runtime/green/exception_state.h"
#include "tests/base/sanitizers.h"
#include "tests/green/fiber.h"

namespace stillpoint {
namespace {

using testing::Fiber;

class ExceptionTest : public ::testing::Test {
 protected:
  ExceptionTest() { thread_.AdoptThread(); }

  Context thread_;
};

std::string ThrownBy(const std::string& what) {
  try {
    throw std::runtime_error(what);
  } catch (const std::runtime_error& error) {
    return error.what();
  }
}

TEST_F(ExceptionTest, StateIsWhatTheAbiSays) {
  EXPECT_EQ(CheckExceptionState(), absl::OkStatus());
  try {
    throw 1;
  } catch (int) {
    EXPECT_EQ(CheckExceptionState(), absl::OkStatus());
  }
  struct Unwinding {
    absl::Status& status;
    ~Unwinding() { status = CheckExceptionState(); }
  };
  absl::Status status = absl::UnknownError("not run");
  try {
    Unwinding unwinding{status};
    throw 1;
  } catch (int) {
  }
  EXPECT_EQ(status, absl::OkStatus());
}

TEST_F(ExceptionTest, RethrownAfterOthersThrew) {
  std::string caught;
  Fiber a(thread_, [&](Fiber& f) {
    try {
      try {
        throw std::runtime_error("of a");
      } catch (const std::runtime_error&) {
        f.Leave();
        throw;
      }
    } catch (const std::runtime_error& error) {
      caught = error.what();
    }
  });
  Fiber b(thread_, [&](Fiber& f) {
    try {
      throw std::logic_error("of b");
    } catch (const std::logic_error&) {
      f.Leave();
    }
    // `a` is through with its own; this one's is gone, too.
    EXPECT_EQ(std::current_exception(), nullptr);
  });
  a.Resume();
  EXPECT_EQ(std::current_exception(), nullptr);
  b.Resume();
  EXPECT_EQ(ThrownBy("of the thread"), "of the thread");
  a.Resume();
  EXPECT_EQ(caught, "of a");
  b.Resume();
  EXPECT_TRUE(a.done());
  EXPECT_TRUE(b.done());
  EXPECT_EQ(std::current_exception(), nullptr);
}

// Leaves in a destructor, once or twice, while the stack is unwound.
struct LeavesWhileUnwinding {
  Fiber& fiber;
  std::vector<int>& uncaught;
  ~LeavesWhileUnwinding() {
    uncaught.push_back(std::uncaught_exceptions());
    fiber.Leave();
    uncaught.push_back(std::uncaught_exceptions());
    // One more, thrown and caught before the first goes on.
    try {
      LeavesInside inside{*this};
      throw 2;
    } catch (int) {
      uncaught.push_back(std::uncaught_exceptions());
    }
    uncaught.push_back(std::uncaught_exceptions());
  }

  struct LeavesInside {
    LeavesWhileUnwinding& outer;
    ~LeavesInside() {
      outer.uncaught.push_back(std::uncaught_exceptions());
      outer.fiber.Leave();
      outer.uncaught.push_back(std::uncaught_exceptions());
    }
  };
};

TEST_F(ExceptionTest, CountedExactlyWhileUnwindingIsInterrupted) {
  std::vector<int> uncaught[2];
  std::string caught[2];
  std::vector<std::unique_ptr<Fiber>> fibers;
  for (int i = 0; i < 2; ++i) {
    fibers.push_back(std::make_unique<Fiber>(thread_, [&, i](Fiber& f) {
      EXPECT_EQ(std::uncaught_exceptions(), 0);
      try {
        LeavesWhileUnwinding leaves{f, uncaught[i]};
        throw std::runtime_error(std::to_string(i));
      } catch (const std::runtime_error& error) {
        caught[i] = error.what();
      }
      EXPECT_EQ(std::uncaught_exceptions(), 0);
    }));
  }
  for (int round = 0; round < 3; ++round) {
    for (auto& fiber : fibers) {
      fiber->Resume();
      EXPECT_EQ(std::uncaught_exceptions(), 0);
      EXPECT_EQ(std::current_exception(), nullptr);
      EXPECT_EQ(ThrownBy("between"), "between");
    }
  }
  for (int i = 0; i < 2; ++i) {
    EXPECT_TRUE(fibers[i]->done());
    EXPECT_EQ(uncaught[i], (std::vector<int>{1, 1, 2, 2, 1, 1}));
    EXPECT_EQ(caught[i], std::to_string(i));
  }
}

// A context that begins while its creator handles an exception, and is resumed
// out of an unwinding, has none.
TEST_F(ExceptionTest, NewContextsHaveNoneInFlight) {
  int uncaught = -1;
  bool handling = true;
  Fiber fiber(thread_, [&](Fiber&) {
    uncaught = std::uncaught_exceptions();
    handling = std::current_exception() != nullptr;
    EXPECT_EQ(ThrownBy("inside"), "inside");
  });
  struct Resumes {
    Fiber& fiber;
    int& own;
    ~Resumes() {
      fiber.Resume();
      own = std::uncaught_exceptions();
    }
  };
  int own = -1;
  try {
    throw 1;
  } catch (int) {
    try {
      Resumes resumes{fiber, own};
      throw 2;
    } catch (int value) {
      EXPECT_EQ(value, 2);
    }
    EXPECT_NE(std::current_exception(), nullptr);
  }
  EXPECT_TRUE(fiber.done());
  EXPECT_EQ(uncaught, 0);
  EXPECT_FALSE(handling);
  EXPECT_EQ(own, 1);
}

[[gnu::noinline]] void LeaveInHandlers(Fiber& f, int depth, int id) {
  try {
    throw id * 100 + depth;
  } catch (int value) {
    if (depth > 0) LeaveInHandlers(f, depth - 1, id);
    f.Leave();
    try {
      throw;
    } catch (int again) {
      EXPECT_EQ(again, value);
      f.Leave();
    }
  }
}

TEST_F(ExceptionTest, ManyWithHandlersInside) {
  constexpr int kCount = 200;
  constexpr int kDepth = 5;
  std::vector<std::unique_ptr<Fiber>> fibers;
  for (int i = 0; i < kCount; ++i) {
    fibers.push_back(std::make_unique<Fiber>(
        thread_, [i](Fiber& f) { LeaveInHandlers(f, i % kDepth, i); }));
  }
  // In an order that no one's last-in-first-out would bear.
  size_t done = 0;
  for (size_t step = 0; done < kCount; ++step) {
    Fiber& fiber = *fibers[(step * 37) % kCount];
    if (fiber.done()) continue;
    fiber.Resume();
    if (fiber.done()) ++done;
    ASSERT_LT(step, size_t{100} * kCount);
  }
  EXPECT_EQ(std::uncaught_exceptions(), 0);
}

TEST_F(ExceptionTest, GoAlongToAnotherThread) {
  std::string caught;
  int uncaught = -1;
  bool there_clean = false;
  Fiber fiber(thread_, [&](Fiber& f) {
    struct Leaves {
      Fiber& f;
      int& uncaught;
      ~Leaves() {
        f.Leave();
        uncaught = std::uncaught_exceptions();
      }
    };
    try {
      try {
        Leaves leaves{f, uncaught};
        throw std::runtime_error("carried");
      } catch (const std::runtime_error&) {
        f.Leave();
        throw;
      }
    } catch (const std::runtime_error& error) {
      caught = error.what();
    }
  });
  fiber.Resume();  // unwinding
  EXPECT_EQ(std::uncaught_exceptions(), 0);
  std::thread other([&] {
    Context there;
    there.AdoptThread();
    fiber.ResumeFrom(there);  // handling
    there_clean = std::uncaught_exceptions() == 0 &&
                  std::current_exception() == nullptr &&
                  ThrownBy("there") == "there";
  });
  other.join();
  fiber.ResumeFrom(thread_);
  EXPECT_TRUE(fiber.done());
  EXPECT_TRUE(there_clean);
  EXPECT_EQ(uncaught, 1);
  EXPECT_EQ(caught, "carried");
}

// Deep unwinding, over and over.
struct Counts {
  int& count;
  ~Counts() { ++count; }
};

[[gnu::noinline]] void ThrowDeep(Fiber& f, int depth, int& unwound) {
  Counts counts{unwound};
  if (depth == 0) {
    f.Leave();
    throw std::runtime_error("deep");
  }
  ThrowDeep(f, depth - 1, unwound);
}

TEST_F(ExceptionTest, UnwindsManyFrames) {
  for (int i = 0; i < testing::Rounds(200); ++i) {
    bool caught = false;
    int unwound = 0;
    Fiber fiber(thread_, [&](Fiber& f) {
      try {
        ThrowDeep(f, 100, unwound);
      } catch (const std::runtime_error&) {
        caught = true;
      }
    });
    fiber.Resume();
    fiber.Resume();
    ASSERT_TRUE(fiber.done());
    ASSERT_TRUE(caught);
    ASSERT_EQ(unwound, 101);
  }
}

}  // namespace
}  // namespace stillpoint
