#include "engine/run/signals.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <ctime>
#include <fstream>
#include <optional>

#include "engine/files/mapped_file.h"
#include "engine/scratch_directory.h"

namespace andrea {
namespace {

class Signals : public ::testing::Test {
 protected:
  void SetUp() override { SignalRequests::clear(); }
  void TearDown() override { SignalRequests::clear(); }
};

/// Exit status of a child process that runs `body`.
template <class Body>
int status_of(Body&& body) {
  const pid_t child = ::fork();
  if (child == 0) {
    body();
    ::_exit(0);
  }
  int status = 0;
  ::waitpid(child, &status, 0);
  return WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
}

TEST_F(Signals, SetFlagsAndNothingElse) {
  const SignalHandlers handlers;
  EXPECT_FALSE(SignalRequests::stop());
  ::raise(SIGUSR1);
  ::raise(SIGUSR1);
  EXPECT_FALSE(SignalRequests::stop());
  EXPECT_TRUE(SignalRequests::checkpoint_asked());
  EXPECT_TRUE(SignalRequests::take_checkpoint());
  EXPECT_FALSE(SignalRequests::take_checkpoint());
  ::raise(SIGTERM);
  EXPECT_TRUE(SignalRequests::stop());
  EXPECT_EQ(SignalRequests::stop_signal(), SIGTERM);
  EXPECT_TRUE(SignalRequests::stop());  // it stays
  SignalRequests::clear();
  EXPECT_FALSE(SignalRequests::stop());
  ::raise(SIGINT);  // the first one again, after clear()
  EXPECT_EQ(SignalRequests::stop_signal(), SIGINT);
}

TEST_F(Signals, ASecondStopLeavesAtOnce) {
  EXPECT_EQ(status_of([] {
              const SignalHandlers handlers;
              ::raise(SIGTERM);
              ::raise(SIGINT);
            }),
            128 + SIGINT);
  EXPECT_EQ(status_of([] {
              const SignalHandlers handlers;
              ::raise(SIGINT);
              ::raise(SIGUSR1);
              ::raise(SIGTERM);
            }),
            128 + SIGTERM);
}

TEST_F(Signals, AStopAskedForByTheProgramIsNotTheFirstSignal) {
  EXPECT_EQ(status_of([] {
              const SignalHandlers handlers;
              SignalRequests::request_stop(SIGTERM);
              ::raise(SIGTERM);
              if (!SignalRequests::stop()) ::_exit(1);
            }),
            0);
}

TEST_F(Signals, AMappedFileThatWasCutIsNamed) {
  const testing::ScratchDirectory scratch;
  const std::string path = scratch.file("x.btok");
  std::ofstream(path) << std::string(100000, 'x');
  const auto touch_behind_the_end = [&](bool handled) {
    std::signal(SIGBUS, SIG_DFL);  // a sanitizer has a handler of its own
    std::optional<SignalHandlers> handlers;
    if (handled) handlers.emplace();
    const MappedFile map(PosixFile::open(path, O_RDWR));
    if (::truncate(path.c_str(), 10) != 0) ::_exit(1);
    const volatile unsigned char* at = map.data() + 50000;
    std::_Exit(*at == 'x' ? 2 : 3);
  };
  EXPECT_EXIT(touch_behind_the_end(true), ::testing::ExitedWithCode(74), "x.btok: cannot be read any more");
  std::ofstream(path) << std::string(100000, 'x');
  EXPECT_EXIT(touch_behind_the_end(false), ::testing::KilledBySignal(SIGBUS), "");
}

TEST_F(Signals, ABusErrorElsewhereMeetsTheHandlerFromBefore) {
  EXPECT_EQ(status_of([] {
              std::signal(SIGBUS, [](int) { ::_exit(7); });
              const SignalHandlers handlers;
              ::raise(SIGBUS);
            }),
            7);
  EXPECT_EQ(status_of([] {
              std::signal(SIGBUS, SIG_DFL);
              const SignalHandlers handlers;
              ::raise(SIGBUS);
            }),
            -SIGBUS);
}

volatile std::sig_atomic_t previous_calls = 0;

TEST_F(Signals, PreviousHandlersComeBack) {
  struct sigaction mine{};
  struct sigaction before{};
  mine.sa_handler = [](int) { previous_calls = previous_calls + 1; };
  ASSERT_EQ(::sigaction(SIGUSR1, &mine, &before), 0);
  {
    const SignalHandlers handlers;
    ::raise(SIGUSR1);
    EXPECT_EQ(previous_calls, 0);
  }
  ::raise(SIGUSR1);
  EXPECT_EQ(previous_calls, 1);
  ::sigaction(SIGUSR1, &before, nullptr);
  EXPECT_EQ(status_of([] {
              {
                const SignalHandlers handlers;
              }
              ::raise(SIGTERM);
            }),
            -SIGTERM);
}

TEST_F(Signals, AWaitWakesUp) {
  EXPECT_EQ(status_of([] {
              const SignalHandlers handlers;
              const pid_t parent = ::getpid();
              const pid_t sender = ::fork();
              if (sender == 0) {  // again and again: the first may come before the read
                const timespec moment{0, 5 * 1000 * 1000};
                while (::kill(parent, SIGUSR1) == 0 && ::getppid() == parent) ::nanosleep(&moment, nullptr);
                ::_exit(0);
              }
              int ends[2];
              if (::pipe(ends) != 0) ::_exit(2);
              char byte;
              const ssize_t n = ::read(ends[0], &byte, 1);  // nobody writes
              ::_exit(n < 0 && errno == EINTR && SignalRequests::checkpoint_asked() ? 0 : 1);
            }),
            0);
}

}  // namespace
}  // namespace andrea
