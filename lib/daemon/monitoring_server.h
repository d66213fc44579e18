// How a process is watched from outside, over HTTP: /metrics (Prometheus), /healthz (alive), /readyz (serving), and /progress where a
// program has one.
//
// Up to 64 threads answer, and one more waits as long as there are fewer, so that a health check is behind neither a scrape nor peers that
// do not finish their requests; a request that is not complete within two seconds is dropped, and before that the oldest of them when all
// threads are taken. At rest there are two. Plain HTTP without passwords: it shows figures and no tensors, and listens on loopback unless
// set otherwise.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace fusionllm::daemon {

struct MonitoringHandlers {
  std::function<std::string()> metrics;  // Prometheus text
  // OK: 200 "ok"; else 503 with the sentence. May block for a few seconds.
  std::function<absl::Status()> alive;
  std::function<absl::Status()> ready;
  std::function<std::string()> progress = {};  // JSON; empty: there is no such page
};

// In place of an address: nothing is served.
inline constexpr char kNoMonitoring[] = "off";
// OK: it is that word, or an address as MonitoringServer::Start takes it; whether this machine has it is another matter. Else
// InvalidArgument.
absl::Status CheckMonitoringAddress(const std::string& text);

// What its threads are called, in `top -H` say.
inline constexpr char kMonitoringThread[] = "monitoring";

class MonitoringServer {
 public:
  // `address` is HOST:PORT with a numeric host ([ADDRESS]:PORT for IPv6; [::] for any, of IPv4 too) and port 0 for a free one. The handlers
  // are called on threads of the server until it is destroyed. Errors: InvalidArgument for an address that is none; Unavailable when it
  // cannot be listened on, saying why; ResourceExhausted for threads that the system refuses, whatever the address.
  static absl::StatusOr<std::unique_ptr<MonitoringServer>> Start(const std::string& address, MonitoringHandlers handlers);
  // Waits for requests that are being answered.
  ~MonitoringServer();

  // HOST:PORT with the port that it got.
  const std::string& address() const { return address_; }

 private:
  struct Http;
  MonitoringServer(std::string address, std::unique_ptr<Http> http);
  const std::string address_;
  const std::unique_ptr<Http> http_;
};

}  // namespace fusionllm::daemon
