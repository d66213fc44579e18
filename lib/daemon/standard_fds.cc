#include "lib/daemon/standard_fds.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <initializer_list>

namespace fusionllm::daemon {

void ReserveStandardFds() {
  for (const int fd : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO}) {
    if (fcntl(fd, F_GETFD) != -1 || errno != EBADF) continue;
    // The lowest free number is this one. In the direction that is not used, so that errors are noticed.
    (void)open("/dev/null", fd == STDIN_FILENO ? O_WRONLY : O_RDONLY);
  }
}

void FailWritesBeyondSizeLimit() { std::signal(SIGXFSZ, SIG_IGN); }

}  // namespace fusionllm::daemon
