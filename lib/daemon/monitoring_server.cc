#include "lib/daemon/monitoring_server.h"

#include <arpa/inet.h>
#include <civetweb.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <chrono>
#include <cstdint>
#include <future>
#include <thread>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/string_view.h"

namespace fusionllm::daemon {
namespace {

// A connection holds a thread (of a 100 KiB stack, created at the start) until its request has come and been answered: peers who send
// nothing delay others only when there are more of them than this, and then not for long.
constexpr char kThreads[] = "64";
constexpr char kRequestTimeoutMs[] = "2000";
constexpr char kMaxRequestBytes[] = "4096";
constexpr auto kWakeEvery = std::chrono::milliseconds(5);

struct Address {
  std::string host;
  uint16_t port = 0;
  sockaddr_storage socket = {};
  socklen_t socket_bytes = 0;
};

// CivetWeb's own syntax knows lists and suffixes: only what is clearly one address goes there.
absl::StatusOr<Address> Parse(const std::string& text) {
  const absl::Status wrong = absl::InvalidArgumentError(absl::StrCat(
      "'", text, "' is no address: HOST:PORT is wanted, with a numeric host such as 127.0.0.1 or [::1] and port 0 for a free one"));
  const size_t colon = text.rfind(':');
  uint32_t port = 0;
  if (colon == std::string::npos || !absl::SimpleAtoi(text.substr(colon + 1), &port) || port > 65535) return wrong;
  Address address{.host = text.substr(0, colon), .port = static_cast<uint16_t>(port)};
  const bool six = address.host.size() > 2 && address.host.front() == '[' && address.host.back() == ']';
  if (six) {
    auto& in = reinterpret_cast<sockaddr_in6&>(address.socket);
    in.sin6_family = AF_INET6;
    address.socket_bytes = sizeof in;
    if (inet_pton(AF_INET6, address.host.substr(1, address.host.size() - 2).c_str(), &in.sin6_addr) != 1) return wrong;
  } else {
    auto& in = reinterpret_cast<sockaddr_in&>(address.socket);
    in.sin_family = AF_INET;
    address.socket_bytes = sizeof in;
    if (inet_pton(AF_INET, address.host.c_str(), &in.sin_addr) != 1) return wrong;
  }
  return address;
}

void SetPort(Address& address, uint16_t port) {
  address.port = port;
  if (address.socket.ss_family == AF_INET6) {
    reinterpret_cast<sockaddr_in6&>(address.socket).sin6_port = htons(port);
  } else {
    reinterpret_cast<sockaddr_in&>(address.socket).sin_port = htons(port);
  }
}

void Answer(mg_connection* connection, int code, const char* reason, absl::string_view type, absl::string_view body, bool with_body) {
  std::string text =
      absl::StrFormat("HTTP/1.1 %d %s\r\nContent-Type: %s\r\nContent-Length: %d\r\nCache-Control: no-store\r\nConnection: close\r\n\r\n",
                      code, reason, type, body.size());
  if (with_body) absl::StrAppend(&text, body);
  mg_write(connection, text.data(), text.size());
}

}  // namespace

struct MonitoringServer::Http {
  MonitoringHandlers handlers;
  Address address;
  mg_context* context = nullptr;
  const std::thread::id starter = std::this_thread::get_id();
  std::string why;  // of a start that failed; the starter's

  int Handle(mg_connection* connection) const {
    const mg_request_info& request = *mg_get_request_info(connection);
    const absl::string_view method = request.request_method, path = request.local_uri == nullptr ? "" : request.local_uri;
    const bool head = method == "HEAD";
    const bool progress = handlers.progress && path == "/progress";
    if (path != "/metrics" && path != "/healthz" && path != "/readyz" && !progress) {
      Answer(connection, 404, "Not Found", "text/plain; charset=utf-8",
             handlers.progress ? "there are /metrics, /healthz, /readyz and /progress\n" : "there are /metrics, /healthz and /readyz\n",
             !head);
      return 404;
    }
    if (method != "GET" && !head) {
      Answer(connection, 405, "Method Not Allowed", "text/plain; charset=utf-8", "only GET and HEAD are answered\n", true);
      return 405;
    }
    if (path == "/metrics") {
      Answer(connection, 200, "OK", "text/plain; version=0.0.4; charset=utf-8", handlers.metrics(), !head);
      return 200;
    }
    if (progress) {
      Answer(connection, 200, "OK", "application/json", absl::StrCat(handlers.progress(), "\n"), !head);
      return 200;
    }
    const absl::Status status = path == "/healthz" ? handlers.alive() : handlers.ready();
    if (status.ok()) {
      Answer(connection, 200, "OK", "text/plain; charset=utf-8", "ok\n", !head);
      return 200;
    }
    Answer(connection, 503, "Service Unavailable", "text/plain; charset=utf-8", absl::StrCat(std::string(status.message()), "\n"), !head);
    return 503;
  }

  // CivetWeb's accepting thread looks whether it is to end every two seconds and after each connection. Connections, then.
  void Stop() {
    std::promise<void> stopped;
    std::thread waker([this, done = stopped.get_future()] {
      do {
        const int fd = socket(address.socket.ss_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
        if (fd < 0) break;
        (void)connect(fd, reinterpret_cast<const sockaddr*>(&address.socket), address.socket_bytes);
        close(fd);
      } while (done.wait_for(kWakeEvery) != std::future_status::ready);
    });
    mg_stop(context);
    stopped.set_value();
    waker.join();
  }
};

MonitoringServer::MonitoringServer(std::string address, std::unique_ptr<Http> http)
    : address_(std::move(address)), http_(std::move(http)) {}

MonitoringServer::~MonitoringServer() { http_->Stop(); }

absl::StatusOr<std::unique_ptr<MonitoringServer>> MonitoringServer::Start(const std::string& address, MonitoringHandlers handlers) {
  absl::StatusOr<Address> parsed = Parse(address);
  if (!parsed.ok()) return parsed.status();
  static const unsigned initialised = mg_init_library(0);
  (void)initialised;
  auto http = std::make_unique<Http>();
  http->handlers = std::move(handlers);
  http->address = *std::move(parsed);
  mg_callbacks callbacks = {};
  callbacks.begin_request = [](mg_connection* connection) {
    return static_cast<const Http*>(mg_get_request_info(connection)->user_data)->Handle(connection);
  };
  callbacks.log_message = [](const mg_connection* connection, const char* message) {
    auto* self = static_cast<Http*>(mg_get_user_data(mg_get_context(connection)));
    if (std::this_thread::get_id() == self->starter) self->why = absl::StrCat(self->why, self->why.empty() ? "" : "; ", message);
    return 1;
  };
  const char* options[] = {"listening_ports",
                           address.c_str(),
                           "num_threads",
                           kThreads,
                           "enable_keep_alive",
                           "no",
                           "request_timeout_ms",
                           kRequestTimeoutMs,
                           "max_request_size",
                           kMaxRequestBytes,
                           "linger_timeout_ms",
                           "100",
                           nullptr};
  mg_context* const context = mg_start(&callbacks, http.get(), options);
  if (context == nullptr) return absl::UnavailableError(absl::StrCat("cannot listen on ", address, ": ", http->why));
  http->context = context;
  mg_server_port port = {};
  if (mg_get_server_ports(context, 1, &port) == 1) SetPort(http->address, static_cast<uint16_t>(port.port));
  const std::string got = absl::StrCat(http->address.host, ":", http->address.port);
  return std::unique_ptr<MonitoringServer>(new MonitoringServer(got, std::move(http)));
}

}  // namespace fusionllm::daemon
