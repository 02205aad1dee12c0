#include "kernels/own_folder.h"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>

namespace andrea {
namespace {

// pip's command starts the binary by another name than its path: what lies beside it must be found all the
// same.
TEST(OwnFolder, IsThatOfTheProgramWhateverItIsCalled) {
  constexpr char kMark[] = "ANDREA_TEST_CALLED_ODDLY";
  const auto program = std::filesystem::read_symlink("/proc/self/exe");
  EXPECT_EQ(own_folder(), program.parent_path().string() + "/");
  if (std::getenv(kMark) != nullptr) return;
  const pid_t child = ::fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    ::setenv(kMark, "1", 1);
    ::execl(program.c_str(), "odd", "--gtest_filter=OwnFolder.*", nullptr);
    ::_exit(1);
  }
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0) << "found another folder when it was called \"odd\"";
}

}  // namespace
}  // namespace andrea
