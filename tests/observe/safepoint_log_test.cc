// The log writer: what it writes, and that nobody waits for its reader.

#include "runtime/observe/safepoint_log.h"

#include <poll.h>
#include <pty.h>
#include <signal.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <cstring>
#include <memory>
#include <string>
#include <thread>
#include <utility>

#include "absl/status/statusor.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "runtime/base/event_sink.h"
#include "runtime/stillpoint.h"
#include "tests/support/await.h"
#include "tests/support/runtime_test.h"

namespace stillpoint {
namespace {

using testing::Await;
using ::testing::HasSubstr;
using ::testing::Not;

class Pipe {
 public:
  Pipe() { EXPECT_EQ(pipe(ends_), 0); }
  ~Pipe() {
    CloseReader();
    close(ends_[1]);
  }
  int writer() const { return ends_[1]; }

  void CloseReader() {
    if (ends_[0] >= 0) close(ends_[0]);
    ends_[0] = -1;
  }

  // Appends what is there to `text`; waits for at least one byte.
  void ReadSome(std::string& text) {
    char buffer[4096];
    const ssize_t n = read(ends_[0], buffer, sizeof(buffer));
    ASSERT_GT(n, 0);
    text.append(buffer, static_cast<size_t>(n));
  }

  // Reads until `wanted` has been seen, and to the end of its line.
  std::string ReadLinesUntil(const std::string& wanted) {
    std::string text;
    while (text.find(wanted) == std::string::npos || text.back() != '\n') {
      ReadSome(text);
      if (::testing::Test::HasFatalFailure()) break;
    }
    return text;
  }

  bool IsEmpty() const { return Queued() == 0; }
  // Whether a writer would block.
  bool IsFull() const {
    pollfd ready = {ends_[1], POLLOUT, 0};
    return poll(&ready, 1, 0) == 0;
  }

 private:
  int Queued() const {
    int queued = 0;
    EXPECT_EQ(ioctl(ends_[0], FIONREAD, &queued), 0);
    return queued;
  }

  int ends_[2] = {-1, -1};
};

SafepointRecord Named(const char* name) {
  SafepointRecord record;
  std::strcpy(record.operation, name);
  record.operations = 1;
  return record;
}

std::unique_ptr<SafepointLogWriter> MakeWriter(int fd) {
  auto made = SafepointLogWriter::Create(fd);
  EXPECT_TRUE(made.ok()) << made.status();
  return made.ok() ? *std::move(made) : nullptr;
}

TEST(SafepointLogTest, OneLinePerStop) {
  Pipe pipe;
  std::unique_ptr<SafepointLogWriter> writer = MakeWriter(pipe.writer());
  Options options = testing::TestOptions();
  options.event_sink = writer.get();
  std::unique_ptr<Runtime> runtime = testing::MakeRuntime(options);
  ASSERT_NE(runtime, nullptr);
  ASSERT_TRUE(runtime->AtSafepoint("first stop", [](World&) {}).ok());
  ASSERT_TRUE(runtime->AtSafepoint("second stop", [](World&) {}).ok());
  runtime = nullptr;
  writer = nullptr;  // writes what is left
  const std::string text = pipe.ReadLinesUntil("\"second stop\"");
  EXPECT_TRUE(pipe.IsEmpty());
  const size_t first = text.find("Safepoint \"first stop\", ");
  const size_t second = text.find("\nSafepoint \"second stop\", ");
  ASSERT_NE(first, std::string::npos);
  ASSERT_NE(second, std::string::npos);
  EXPECT_LT(first, second);
  EXPECT_EQ(text.find("Safepoint", second + 2), std::string::npos);
}

TEST(SafepointLogTest, Messages) {
  Pipe pipe;
  std::unique_ptr<SafepointLogWriter> writer = MakeWriter(pipe.writer());
  writer->OnMessage(Severity::kInfo, "something chosen");
  writer->OnMessage(Severity::kWarning, "something wrong");
  EXPECT_EQ(pipe.ReadLinesUntil("wrong"),
            "something chosen\nWarning: something wrong\n");
}

// A pipe that nobody reads: stops go on, what does not fit is counted, and when
// somebody reads again he is told.
TEST(SafepointLogTest, FullPipeStallsNobodyAndDropsAreReported) {
  Pipe pipe;
  std::unique_ptr<SafepointLogWriter> writer = MakeWriter(pipe.writer());
  Options options = testing::TestOptions();
  options.event_sink = writer.get();
  std::unique_ptr<Runtime> runtime = testing::MakeRuntime(options);
  ASSERT_NE(runtime, nullptr);
  // Until the pipe is full and the buffer behind it. Ends only if stops are not
  // held up by the writer.
  uint64_t stops = 0;
  while (!pipe.IsFull() || writer->dropped() == 0) {
    ASSERT_TRUE(runtime->AtSafepoint("unread", [](World&) {}).ok());
    ++stops;
  }
  runtime = nullptr;  // no more records: the count stands still
  const uint64_t dropped = writer->dropped();
  EXPECT_GT(dropped, 0u);
  // All that was not dropped arrives. How many were is told once, or more often
  // if lines got through between the drops; together it is all of them.
  uint64_t arrived = 0;
  uint64_t told = 0;
  const std::string mark = " safepoint lines dropped";
  std::string text;
  while (arrived < stops - dropped) {
    pipe.ReadSome(text);
    if (HasFatalFailure()) return;
    size_t end;
    while ((end = text.find('\n')) != std::string::npos) {
      arrived += text.find("Safepoint \"unread\"") < end;
      if (text.find(mark) < end) told += std::stoull(text.substr(1));
      text.erase(0, end + 1);
    }
  }
  EXPECT_EQ(told, dropped);
  // It goes on as before, and does not tell it again.
  writer->OnSafepoint(Named("afterwards"));
  EXPECT_THAT(pipe.ReadLinesUntil("\"afterwards\""), Not(HasSubstr(mark)));
  EXPECT_EQ(writer->dropped(), dropped);
}

// A reader that is gone must not kill the process with SIGPIPE, nor stall it.
TEST(SafepointLogTest, ClosedPipeKillsNobody) {
  Pipe pipe;
  std::unique_ptr<SafepointLogWriter> writer = MakeWriter(pipe.writer());
  ASSERT_NE(signal(SIGPIPE, SIG_DFL), SIG_ERR);
  Options options = testing::TestOptions();
  options.event_sink = writer.get();
  std::unique_ptr<Runtime> runtime = testing::MakeRuntime(options);
  ASSERT_NE(runtime, nullptr);
  ASSERT_TRUE(runtime->AtSafepoint("read", [](World&) {}).ok());
  pipe.ReadLinesUntil("\"read\"");
  pipe.CloseReader();
  for (int i = 0; i < 2000; ++i) {
    ASSERT_TRUE(runtime->AtSafepoint("unread", [](World&) {}).ok());
  }
  runtime = nullptr;
  // Whatever is lost is counted.
  Await([&] { return writer->dropped() == 2000; });
  writer = nullptr;
}

TEST(SafepointLogTest, AMessageThatIsTooLongIsCutAndEndsItsLine) {
  Pipe pipe;
  std::unique_ptr<SafepointLogWriter> writer = MakeWriter(pipe.writer());
  writer->OnMessage(Severity::kInfo, std::string(10'000, 'x'));
  writer->OnMessage(Severity::kInfo, "next");
  EXPECT_EQ(pipe.ReadLinesUntil("next"), std::string(4095, 'x') + "\nnext\n");
}

TEST(SafepointLogTest, BadDescriptorKillsNobody) {
  std::unique_ptr<SafepointLogWriter> writer = MakeWriter(-1);
  for (int i = 0; i < 10; ++i) writer->OnSafepoint(Named("nowhere"));
  writer = nullptr;
}

// The end does not wait for a reader that does not read.
TEST(SafepointLogTest, DestructorEndsWithAFullPipe) {
  Pipe pipe;
  std::unique_ptr<SafepointLogWriter> writer = MakeWriter(pipe.writer());
  while (!pipe.IsFull() || writer->dropped() == 0) {
    writer->OnSafepoint(Named("unread"));
  }
  writer = nullptr;
  EXPECT_TRUE(pipe.IsFull());
}

TEST(SafepointLogTest, DestructorEndsUnused) {
  std::unique_ptr<SafepointLogWriter> unused = MakeWriter(-1);
  unused = nullptr;
}

TEST(SafepointLogTest, LinesOfSeveralThreadsStayWhole) {
  Pipe pipe;
  std::unique_ptr<SafepointLogWriter> writer = MakeWriter(pipe.writer());
  constexpr int kThreads = 3;
  constexpr int kLines = 50;
  std::thread threads[kThreads];
  for (std::thread& thread : threads) {
    thread = std::thread([&] {
      for (int i = 0; i < kLines; ++i) {
        writer->OnMessage(Severity::kInfo, "abcdefghij");
      }
    });
  }
  std::string text;
  while (text.size() < kThreads * kLines * 11) {
    pipe.ReadSome(text);
    if (HasFatalFailure()) break;
  }
  for (std::thread& thread : threads) thread.join();
  std::string expected;
  for (int i = 0; i < kThreads * kLines; ++i) expected += "abcdefghij\n";
  EXPECT_EQ(text, expected);
}

// A terminal whose user holds it (Ctrl-S), or here one that nobody reads: poll
// says writable as long as one byte fits, and the write of a line blocks.
TEST(SafepointLogTest, ATerminalThatNobodyReadsDoesNotHoldTheEnd) {
  int reader = -1;
  int terminal = -1;
  ASSERT_EQ(openpty(&reader, &terminal, nullptr, nullptr, nullptr), 0);
  absl::StatusOr<std::unique_ptr<SafepointLogWriter>> writer =
      SafepointLogWriter::Create(terminal);
  ASSERT_TRUE(writer.ok());
  const std::string name(SafepointRecord::kNameCapacity - 1, 'x');
  for (int i = 0; i < 600; ++i) (*writer)->OnSafepoint(Named(name.c_str()));
  writer->reset();
  // Left open: the writing thread that was given up is still in its write.
}

}  // namespace
}  // namespace stillpoint
