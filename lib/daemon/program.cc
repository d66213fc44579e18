#include "lib/daemon/program.h"

#include <CLI/CLI.hpp>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <system_error>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "lib/base/thread_limit.h"
#include "lib/daemon/standard_fds.h"

namespace fusionllm::daemon {
namespace {

// The standard library has no other way to say that a thread cannot be started. Nothing is unwound before it, which could wait for others.
// Every other exception is a mistake of ours: loudly.
[[noreturn]] void TellAndEnd() {
  try {
    if (std::current_exception() != nullptr) std::rethrow_exception(std::current_exception());
  } catch (const std::system_error& error) {
    if (base::IsThreadLimitError(error)) ExitImmediately(absl::ResourceExhaustedError(base::ThreadLimitMessage("a thread")), kExitFailed);
  } catch (...) {
  }
  std::abort();
}

}  // namespace

void AddCommonFlags(CLI::App& app, const std::string& program, const std::string& version, CommonFlags& flags) {
  app.set_version_flag("--version", absl::StrCat(program, " ", version));
  app.add_option("--metrics-address", flags.metrics_address, "HOST:PORT for /metrics, /healthz and /readyz; port 0: a free one; off: none")
      ->capture_default_str()
      ->check([](const std::string& text) { return std::string(CheckMonitoringAddress(text).message()); });
  app.add_option("--log-level", flags.log_level, "How much is logged")
      ->check(CLI::IsMember({"debug", "info", "warning", "error"}))
      ->capture_default_str();
  app.add_option("--log-format", flags.log_format, "Lines of the log, on stderr: text, or an object of JSON each")
      ->check(CLI::IsMember({"text", "json"}))
      ->capture_default_str();
}

std::optional<int> ParseFlags(CLI::App& app, int argc, char** argv, const std::string& program, const CommonFlags& flags) {
  ReserveStandardFds();
  FailWritesBeyondSizeLimit();
  std::set_terminate(TellAndEnd);
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    return app.exit(error) == 0 ? kExitDone : kExitBadInput;
  }
  base::StartLog(program, base::ParseLogLevel(flags.log_level).value_or(base::LogLevel::kInfo),
                 base::ParseLogFormat(flags.log_format).value_or(base::LogFormat::kText));
  return std::nullopt;
}

std::string CheckSeconds(const std::string& text) {
  double seconds = 0;
  const bool in_range = absl::SimpleAtod(text, &seconds) && seconds >= 0 && seconds <= kMaxFlagSeconds;  // NaN is neither
  return in_range ? "" : absl::StrFormat("'%s' is not a number of seconds from 0 to %.0f", text, kMaxFlagSeconds);
}

int ReportError(const absl::Status& status, int code) {
  base::Log(base::LogLevel::kError, std::string(status.message()));
  return code;
}

int ReportError(const absl::Status& status) { return ReportError(status, base::ExitCodeFor(status)); }

void ExitImmediately(const absl::Status& status, int code) {
  ReportError(status, code);
  ExitImmediately(code);
}

void ExitImmediately(int code) {
  std::fflush(stdout);
  std::fflush(stderr);
  std::_Exit(code);
}

void ExitImmediately(const absl::Status& status) { ExitImmediately(status, base::ExitCodeFor(status)); }

absl::StatusOr<std::unique_ptr<MonitoringServer>> StartMonitoring(const CommonFlags& flags, metrics::Registry& registry,
                                                                  std::function<absl::Status()> alive, std::function<absl::Status()> ready,
                                                                  std::function<std::string()> progress) {
  if (flags.metrics_address == kNoMonitoring) return nullptr;
  auto server = MonitoringServer::Start(flags.metrics_address, {.metrics = [&registry] { return registry.Text(); },
                                                                .alive = std::move(alive),
                                                                .ready = std::move(ready),
                                                                .progress = std::move(progress)});
  if (absl::IsResourceExhausted(server.status())) return server.status();  // whatever the address
  if (!server.ok()) {
    return absl::Status(server.status().code(), absl::StrCat("--metrics-address: ", std::string(server.status().message())));
  }
  base::Log(base::LogLevel::kInfo, absl::StrCat("metrics on http://", (*server)->address(), "/metrics"));
  if (flags.logs_json() && !absl::EndsWith(flags.metrics_address, ":0")) return server;
  std::printf("metrics on http://%s/metrics\n", (*server)->address().c_str());
  std::fflush(stdout);
  return server;
}

}  // namespace fusionllm::daemon
