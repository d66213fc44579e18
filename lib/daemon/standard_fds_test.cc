#include "lib/daemon/standard_fds.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <initializer_list>

namespace fusionllm::daemon {
namespace {

// Exits with 0 when nothing that is opened afterwards gets one of their numbers.
void CloseAndHold(std::initializer_list<int> closed) {
  for (const int fd : closed) close(fd);
  ReserveStandardFds();
  for (const int fd : closed) {
    char byte = 'x';
    const bool fails = (fd == STDIN_FILENO ? read(fd, &byte, 1) : write(fd, &byte, 1)) == -1 && errno == EBADF;
    if (!fails) std::_Exit(1);
  }
  std::_Exit(open("/dev/null", O_RDWR) > STDERR_FILENO ? 0 : 2);
}

TEST(StandardFilesTest, NoFileTakesThePlaceOfAClosedOne) {
  EXPECT_EXIT(CloseAndHold({STDOUT_FILENO}), ::testing::ExitedWithCode(0), "");
  EXPECT_EXIT(CloseAndHold({STDIN_FILENO, STDERR_FILENO}), ::testing::ExitedWithCode(0), "");
  EXPECT_EXIT(CloseAndHold({STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO}), ::testing::ExitedWithCode(0), "");
}

TEST(StandardFilesTest, OpenOnesStay) {
  EXPECT_EXIT(
      {
        ReserveStandardFds();
        std::_Exit(write(STDERR_FILENO, "said", 4) == 4 ? 0 : 1);
      },
      ::testing::ExitedWithCode(0), "said");
}

TEST(StandardFilesTest, AWriteBeyondTheSizeLimitFailsInsteadOfEndingTheProcess) {
  const auto write_too_much = [] {
    FailWritesBeyondSizeLimit();
    const rlimit tight = {.rlim_cur = 10, .rlim_max = 10};
    setrlimit(RLIMIT_FSIZE, &tight);
    const int file = open("/tmp", O_TMPFILE | O_WRONLY, 0600);
    const bool half = write(file, "0123456789abcdef", 16) == 10;
    std::_Exit(half && write(file, "x", 1) == -1 && errno == EFBIG ? 0 : 1);
  };
  EXPECT_EXIT(write_too_much(), ::testing::ExitedWithCode(0), "");
}

}  // namespace
}  // namespace fusionllm::daemon
