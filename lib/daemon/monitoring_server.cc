#include "lib/daemon/monitoring_server.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <poll.h>
#include <pthread.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstdint>
#include <cstring>
#include <optional>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "lib/base/host_port.h"
#include "lib/base/mutex.h"
#include "lib/base/status_macros.h"
#include "lib/base/thread_limit.h"
#include "lib/daemon/http_exchange.h"

namespace fusionllm::daemon {
namespace {

// A connection holds a thread until its request has come and been answered. When the last of so many threads takes one, the request that
// has been incomplete for longest is dropped: else peers who send nothing would keep health checks waiting.
constexpr size_t kMaxThreads = 64;
// So many wait for a connection at rest. Each that has only ever waited takes 16 KiB; 64 of them were 1 MiB of every program.
constexpr size_t kMaxWaiting = 2;
// Where the machine backs memory by huge pages the usual 8 MiB would be resident by 2 MiB a thread.
constexpr size_t kStackBytes = 256 << 10;
constexpr int kBacklog = 1024;  // beyond it a peer's next try is a second later, whatever is answered meanwhile
constexpr int kPauseMs = 10;    // when there are no file descriptors

struct Address {
  std::string host;
  uint16_t port = 0;
  sockaddr_storage socket = {};
  socklen_t socket_bytes = 0;
};

absl::StatusOr<Address> ParseAddress(const std::string& text) {
  const absl::Status wrong = absl::InvalidArgumentError(absl::StrCat(
      "'", text, "' is no address: HOST:PORT is wanted, with a numeric host such as 127.0.0.1 or [::1] and port 0 for a free one"));
  const absl::StatusOr<base::HostPort> at = base::SplitHostPort(text);
  if (!at.ok()) return wrong;
  Address address{.host = at->host, .port = static_cast<uint16_t>(at->port)};
  if (absl::StrContains(address.host, ':')) {
    auto& in = reinterpret_cast<sockaddr_in6&>(address.socket);
    in.sin6_family = AF_INET6;
    address.socket_bytes = sizeof in;
    in.sin6_port = htons(address.port);
    if (inet_pton(AF_INET6, address.host.c_str(), &in.sin6_addr) != 1) return wrong;
  } else {
    auto& in = reinterpret_cast<sockaddr_in&>(address.socket);
    in.sin_family = AF_INET;
    address.socket_bytes = sizeof in;
    in.sin_port = htons(address.port);
    if (inet_pton(AF_INET, address.host.c_str(), &in.sin_addr) != 1) return wrong;
  }
  return address;
}

// The port that a bound socket has.
uint16_t PortOf(int fd) {
  sockaddr_storage socket = {};
  socklen_t bytes = sizeof socket;
  if (getsockname(fd, reinterpret_cast<sockaddr*>(&socket), &bytes) != 0) return 0;
  return ntohs(socket.ss_family == AF_INET6 ? reinterpret_cast<const sockaddr_in6&>(socket).sin6_port
                                            : reinterpret_cast<const sockaddr_in&>(socket).sin_port);
}

// A socket that listens; an error says why there is none. [::] takes IPv4 as well.
absl::StatusOr<int> ListenOn(const Address& address) {
  const int fd = socket(address.socket.ss_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
  const int yes = 1, no = 0;
  const bool listens = fd >= 0 && setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes) == 0 &&
                       (address.socket.ss_family != AF_INET6 || setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &no, sizeof no) == 0) &&
                       bind(fd, reinterpret_cast<const sockaddr*>(&address.socket), address.socket_bytes) == 0 && listen(fd, kBacklog) == 0;
  if (listens) return fd;
  const absl::Status why = absl::UnavailableError(std::strerror(errno));
  if (fd >= 0) close(fd);
  return why;
}

}  // namespace

struct MonitoringServer::Http {
  const MonitoringHandlers handlers;
  const int listener;
  const int stop_fd = eventfd(0, EFD_CLOEXEC);
  std::atomic<bool> stopping = false;
  base::Mutex mutex;
  std::vector<pthread_t> threads ABSL_GUARDED_BY(mutex);
  std::optional<pthread_t> ended ABSL_GUARDED_BY(mutex);  // to be joined
  size_t waiting ABSL_GUARDED_BY(mutex) = 0;              // of threads: for a connection, or about to
  std::vector<int> incomplete ABSL_GUARDED_BY(mutex);     // connections whose request is being read, the oldest first

  HttpReply AnswerTo(const HttpRequest& request) const {
    const std::string& path = request.path;
    const bool progress = handlers.progress && path == "/progress";
    if (path.empty()) return {.code = 400, .reason = "Bad Request", .body = "no request of HTTP/1\n"};
    if (path != "/metrics" && path != "/healthz" && path != "/readyz" && !progress) {
      const char* const pages = handlers.progress ? "/metrics, /healthz, /readyz and /progress" : "/metrics, /healthz and /readyz";
      return {.code = 404, .reason = "Not Found", .body = absl::StrCat("there are ", pages, "\n")};
    }
    if (request.method != "GET" && request.method != "HEAD") {
      return {.code = 405, .reason = "Method Not Allowed", .body = "only GET and HEAD are answered\n"};
    }
    if (path == "/metrics") return {.type = "text/plain; version=0.0.4; charset=utf-8", .body = handlers.metrics()};
    if (progress) return {.type = "application/json", .body = absl::StrCat(handlers.progress(), "\n")};
    const absl::Status status = path == "/healthz" ? handlers.alive() : handlers.ready();
    if (status.ok()) return {.body = "ok\n"};
    return {.code = 503, .reason = "Service Unavailable", .body = absl::StrCat(std::string(status.message()), "\n")};
  }

  // Before a connection is read, others wait for the next ones, unless there are kMaxThreads. Two, so that there is one left where a
  // thread cannot be started. With kMaxThreads, the thread of the oldest incomplete request gets free for them.
  void Busy(int fd) {
    const base::MutexLock lock(mutex);
    if (--waiting < kMaxWaiting) StartThreadLocked();
    if (waiting == 0 && !incomplete.empty()) {
      shutdown(incomplete.front(), SHUT_RD);  // what has come is still read: perhaps it is complete by now
      incomplete.erase(incomplete.begin());
    }
    incomplete.push_back(fd);
  }

  void HaveRead(int fd) {
    const base::MutexLock lock(mutex);
    std::erase(incomplete, fd);
  }

  // False: there are enough others, and the calling thread is to end.
  bool Idle() {
    std::optional<pthread_t> before;
    {
      const base::MutexLock lock(mutex);
      if (stopping || waiting < kMaxWaiting) {
        ++waiting;
        return true;
      }
      const auto is_self = [self = pthread_self()](pthread_t thread) { return pthread_equal(thread, self) != 0; };
      threads.erase(std::find_if(threads.begin(), threads.end(), is_self));
      before = std::exchange(ended, pthread_self());
    }
    if (before.has_value()) pthread_join(*before, nullptr);
    return false;
  }

  void Serve() {
    pthread_setname_np(pthread_self(), kMonitoringThread);
    while (!stopping) {
      const int fd = accept4(listener, nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK);
      if (fd < 0) {
        pollfd stopped = {stop_fd, POLLIN, 0};
        if (errno != EINTR && errno != ECONNABORTED) poll(&stopped, 1, kPauseMs);
        continue;
      }
      Busy(fd);
      {
        HttpExchange exchange(fd, stop_fd);
        const std::optional<HttpRequest> request = exchange.Read();
        HaveRead(fd);
        if (request.has_value()) exchange.Answer(AnswerTo(*request), request->method != "HEAD");
      }
      close(fd);
      if (!Idle()) return;
    }
  }

  bool StartThreadLocked() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex) {
    if (stopping || threads.size() == kMaxThreads) return false;
    pthread_attr_t attributes;
    pthread_attr_init(&attributes);
    pthread_attr_setstacksize(&attributes, kStackBytes);
    const auto run = [](void* self) -> void* {
      static_cast<Http*>(self)->Serve();
      return nullptr;
    };
    pthread_t thread;
    const bool started = pthread_create(&thread, &attributes, run, this) == 0;
    pthread_attr_destroy(&attributes);
    if (!started) return false;
    threads.push_back(thread);
    ++waiting;
    return true;
  }

  bool Start() {
    const base::MutexLock lock(mutex);
    for (size_t i = 0; i < kMaxWaiting; ++i) StartThreadLocked();
    return !threads.empty();
  }

  ~Http() {
    {
      const base::MutexLock lock(mutex);  // no thread begins or leaves any more
      stopping = true;
    }
    eventfd_write(stop_fd, 1);
    shutdown(listener, SHUT_RDWR);  // wakes all that wait for a connection
    if (ended.has_value()) pthread_join(*ended, nullptr);
    for (const pthread_t thread : threads) pthread_join(thread, nullptr);
    close(listener);
    close(stop_fd);
  }
};

absl::Status CheckMonitoringAddress(const std::string& text) {
  return text == kNoMonitoring ? absl::OkStatus() : ParseAddress(text).status();
}

MonitoringServer::MonitoringServer(std::string address, std::unique_ptr<Http> http)
    : address_(std::move(address)), http_(std::move(http)) {}

MonitoringServer::~MonitoringServer() = default;

absl::StatusOr<std::unique_ptr<MonitoringServer>> MonitoringServer::Start(const std::string& address, MonitoringHandlers handlers) {
  FUSIONLLM_ASSIGN_OR_RETURN(const Address parsed, ParseAddress(address));
  const absl::StatusOr<int> listener = ListenOn(parsed);
  if (!listener.ok()) return absl::UnavailableError(absl::StrCat("cannot listen on ", address, ": ", listener.status().message()));
  auto http = std::unique_ptr<Http>(new Http{.handlers = std::move(handlers), .listener = *listener});
  if (!http->Start()) return absl::ResourceExhaustedError(base::ThreadLimitMessage("the threads that serve metrics"));
  const std::string got = base::JoinHostPort(parsed.host, absl::StrCat(PortOf(*listener)));
  return std::unique_ptr<MonitoringServer>(new MonitoringServer(got, std::move(http)));
}

}  // namespace fusionllm::daemon
