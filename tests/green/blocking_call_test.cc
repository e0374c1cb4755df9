// Native code that blocks: in the way of others, and not.

#include "runtime/green/blocking_call.h"

#include <unistd.h>

#include <atomic>
#include <chrono>
#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "runtime/stillpoint.h"
#include "tests/support/await.h"
#include "tests/support/recording_sink.h"
#include "tests/support/runtime_test.h"

namespace stillpoint {
namespace {

using testing::Await;
using ::testing::Contains;
using ::testing::HasSubstr;
using testing::MakeRuntime;
using testing::RecordingSink;
using testing::StartGreenOrFail;

class Pipe {
 public:
  Pipe() { EXPECT_EQ(pipe(ends_), 0); }
  ~Pipe() {
    close(ends_[0]);
    close(ends_[1]);
  }
  char Read() {
    char byte = 0;
    EXPECT_EQ(read(ends_[0], &byte, 1), 1);
    return byte;
  }
  void Write(char byte) { EXPECT_EQ(write(ends_[1], &byte, 1), 1); }

 private:
  int ends_[2] = {};
};

// One carrier and no more.
Options OneCarrier() {
  Options options = testing::TestOptions();
  options.carriers = 1;
  options.extra_carriers = 0;
  return options;
}

// G1 reads what G2 writes, and both have begun to run on one carrier.
void ReadBehindTheOther(Runtime& runtime, bool plainly, Pipe& pipe,
                        std::atomic<bool>& reading) {
  std::atomic<bool> begun{false};
  const ThreadHandle writer = StartGreenOrFail(runtime, "G2", [&] {
    begun.store(true);
    EXPECT_TRUE(Park().ok());
    pipe.Write('x');
  });
  const ThreadHandle reader = StartGreenOrFail(runtime, "G1", [&] {
    while (!begun.load()) Yield();
    EXPECT_TRUE(writer.Unpark());
    reading.store(true);
    const auto read = [&] { return pipe.Read(); };
    EXPECT_EQ(plainly ? read() : BlockingCall(read), 'x');
  });
  EXPECT_TRUE(reader.Join().ok());
  EXPECT_TRUE(writer.Join().ok());
}

TEST(BlockingCallTest, KeepsTheCarrierFree) {
  const std::unique_ptr<Runtime> runtime = MakeRuntime(OneCarrier());
  Pipe pipe;
  std::atomic<bool> reading{false};
  ReadBehindTheOther(*runtime, /*plainly=*/false, pipe, reading);
}

TEST(BlockingCallTest, APlainCallThatKeepsOthersWaitingIsReported) {
  RecordingSink sink;
  Options options = OneCarrier();
  options.event_sink = &sink;
  const std::unique_ptr<Runtime> runtime = MakeRuntime(options);
  Pipe pipe;
  std::atomic<bool> reading{false};
  const ThreadHandle rescue = testing::StartOrFail(*runtime, "rescue", [&] {
    Await([&] {
      for (const std::string& message : sink.messages()) {
        if (message.find("BlockingCall") != std::string::npos) return true;
      }
      return false;
    });
    pipe.Write('x');
  });
  ReadBehindTheOther(*runtime, /*plainly=*/true, pipe, reading);
  EXPECT_TRUE(rescue.Join().ok());
  EXPECT_THAT(sink.messages(),
              Contains(::testing::AllOf(HasSubstr("green thread G1"),
                                        HasSubstr("wait behind it: G2"))));
  pipe.Read();  // the other one's
}

TEST(BlockingCallTest, GivesBackWhatTheCallReturnsOrThrows) {
  const std::unique_ptr<Runtime> runtime = MakeRuntime(OneCarrier());
  const auto check = [] {
    EXPECT_EQ(BlockingCall([] { return std::string("result"); }), "result");
    EXPECT_EQ(*BlockingCall([] { return std::make_unique<int>(7); }), 7);
    int count = 0;
    BlockingCall([&] { ++count; });
    EXPECT_EQ(count, 1);
    EXPECT_THROW(BlockingCall([] { throw std::runtime_error("thrown"); }),
                 std::runtime_error);
  };
  check();  // on a thread that is not attached
  EXPECT_TRUE(testing::StartOrFail(*runtime, "native", check).Join().ok());
  EXPECT_TRUE(StartGreenOrFail(*runtime, "green", check).Join().ok());
  EXPECT_TRUE(StartGreenOrFail(*runtime, "managed",
                               [&] {
                                 ManagedScope managed;
                                 check();
                               })
                  .Join()
                  .ok());
}

TEST(BlockingCallTest, ManyAtOnceAndAStopMeanwhile) {
  const std::unique_ptr<Runtime> runtime = MakeRuntime(OneCarrier());
  constexpr int kCalls = 50;
  std::atomic<int> inside{0};
  std::atomic<bool> go{false};
  std::vector<ThreadHandle> threads;
  for (int i = 0; i < kCalls; ++i) {
    threads.push_back(StartGreenOrFail(*runtime, "caller", [&] {
      ManagedScope managed;
      BlockingCall([&] {
        inside.fetch_add(1);
        Await([&] { return go.load(); });
      });
    }));
  }
  Await([&] { return inside.load() == kCalls; });
  EXPECT_TRUE(runtime
                  ->AtSafepoint("meanwhile",
                                [](World& world) {
                                  EXPECT_EQ(world.thread_count(),
                                            static_cast<size_t>(kCalls));
                                })
                  .ok());
  go.store(true);
  for (const ThreadHandle& thread : threads) EXPECT_TRUE(thread.Join().ok());
}

}  // namespace
}  // namespace stillpoint
