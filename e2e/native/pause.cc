// The process that holds a Pod's namespaces while its containers come and go: waits for a signal, and reaps what is handed to it.
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>

int main() {
  std::signal(SIGTERM, [](int) { _exit(0); });
  std::signal(SIGINT, [](int) { _exit(0); });
  std::signal(SIGCHLD, [](int) {
    while (waitpid(-1, nullptr, WNOHANG) > 0) {
    }
  });
  for (;;) pause();
}
