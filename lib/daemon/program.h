// What every long-running program of ours has in common: flags, exit codes, how it complains, and the server that watches it.
#pragma once

#include <memory>
#include <optional>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "lib/base/exit_code.h"
#include "lib/base/log.h"
#include "lib/daemon/monitoring_server.h"
#include "lib/metrics/registry.h"

namespace CLI {
class App;
}

namespace fusionllm::daemon {

using base::kExitBadInput;
using base::kExitDone;
using base::kExitFailed;

struct CommonFlags {
  std::string metrics_address = "127.0.0.1:0";
  std::string log_level = "info";
  std::string log_format = "text";

  // Lines of JSON are collected, perhaps from stdout and stderr as one.
  bool logs_json() const { return log_format == base::Name(base::LogFormat::kJson); }
};

// --metrics-address, --log-level, --log-format and --version.
void AddCommonFlags(CLI::App& app, const std::string& program, const std::string& version, CommonFlags& flags);

// Parses, holds the standard files (standard_fds.h), lets writes beyond a size limit fail and starts the log. From then on a
// thread that the system does not start is reported and ends the program with exit code 1; any other exception that is not caught aborts
// it. Answers an exit code when the program is to end now: 0 after --help and --version, 2 after bad usage, which is reported on stderr.
std::optional<int> ParseFlags(CLI::App& app, int argc, char** argv, const std::string& program, const CommonFlags& flags);

// What is wrong with `text` as the value of a flag that takes seconds, for CLI::Option::check; empty: it is a number from 0 to
// kMaxFlagSeconds. CLI11's own checks let NaN pass, and its largest numbers are more than a clock can count.
inline constexpr double kMaxFlagSeconds = 1e9;
std::string CheckSeconds(const std::string& text);

// Logs the error and gives the code back.
int ReportError(const absl::Status& status, int code);
// With the code that base::ExitCodeFor gives it.
int ReportError(const absl::Status& status);
// As ReportError, and ends the process with the code, without a destructor: for a start that fails when libraries are at work already.
// Where threads are what is lacking, gRPC would wait for ever for the end of some that have never begun.
[[noreturn]] void ExitImmediately(const absl::Status& status, int code);
[[noreturn]] void ExitImmediately(const absl::Status& status);
// The same for an error that has been reported.
[[noreturn]] void ExitImmediately(int code);

// Serves /metrics, /healthz and /readyz as --metrics-address says, and prints "metrics on http://HOST:PORT/metrics" on stdout (but among
// lines of JSON only where the port was not said); nothing for "off". `progress`, if given, is the page of that name. `registry` must
// outlive the result. Errors name the flag and the address, but for ResourceExhausted; see MonitoringServer::Start.
absl::StatusOr<std::unique_ptr<MonitoringServer>> StartMonitoring(const CommonFlags& flags, metrics::Registry& registry,
                                                                  std::function<absl::Status()> alive, std::function<absl::Status()> ready,
                                                                  std::function<std::string()> progress = {});

}  // namespace fusionllm::daemon
