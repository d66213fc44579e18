// fusion-scheduler: answers plan requests. See scheduler_service.h.
#include <grpcpp/grpcpp.h>

#include <CLI/CLI.hpp>
#include <atomic>
#include <chrono>

#include "lib/base/host_port.h"
#include "lib/daemon/process_metrics.h"
#include "lib/daemon/program.h"
#include "lib/daemon/stop_signals.h"
#include "services/credentials.h"
#include "services/grpc_server.h"
#include "services/scheduler/scheduler_service.h"
#include "services/version.h"

namespace fusionllm::services {
namespace {

constexpr char kProgram[] = "fusion-scheduler";
constexpr int kMaxThreads = 32;
// After a request to stop, for answers on their way: searches end at once. Clients that are idle do not hang up by themselves.
constexpr std::chrono::seconds kDrain{1};

int Main(int argc, char** argv) {
  std::string listen = "127.0.0.1:0", tls_directory;
  bool insecure = false;
  SchedulerOptions options;
  daemon::CommonFlags common;
  CLI::App app("Turns jobs and device profiles into plans, over gRPC.\nExample: fusion-scheduler --listen 127.0.0.1:0 --insecure");
  daemon::AddCommonFlags(app, kProgram, kBuildVersion, common);
  app.add_option("--listen", listen, "Address to listen on; port 0: a free one")->capture_default_str()->check([](const std::string& text) {
    return std::string(base::CheckListenable(text).message());
  });
  CLI::Option* tls =
      app.add_option("--tls", tls_directory, "Folder with ca.pem, scheduler.pem, scheduler.key: clients need a certificate of that CA");
  app.add_flag("--insecure", insecure, "Serve all clients, without TLS")->excludes(tls);
  app.add_option("--max-concurrent", options.max_concurrent, "Calls that may plan at a time")
      ->check(CLI::Range(1, 64))
      ->capture_default_str();
  if (const auto code = daemon::ParseFlags(app, argc, argv, kProgram, common)) return *code;
  if (tls_directory.empty() && !insecure) {
    return daemon::ReportError(absl::InvalidArgumentError("give --tls FOLDER, or --insecure to serve without TLS"), daemon::kExitBadInput);
  }

  daemon::BlockStopSignals();
  const absl::StatusOr<Credentials> credentials = LoadCredentials(tls_directory, "scheduler");
  if (!credentials.ok()) return daemon::ReportError(credentials.status(), daemon::kExitBadInput);
  metrics::Registry registry(kProgram, kBuildVersion);
  daemon::AddProcessMetrics(registry);
  const PlanMetrics plan_metrics(registry);
  SchedulerService service(plan_metrics, options);
  grpc::ServerBuilder builder;
  builder.RegisterService(&service);
  builder.SetResourceQuota(grpc::ResourceQuota("scheduler").SetMaxThreads(kMaxThreads));
  const auto server = Listen(builder, listen, credentials->server, common.logs_json());
  if (!server.ok()) daemon::ExitImmediately(server.status(), daemon::kExitFailed);
  // It has no loop of its own: alive is who answers a call like any other's.
  const auto to_itself = (*server)->InProcessChannel({});
  const auto monitoring = daemon::StartMonitoring(
      common, registry, [&] { return CheckHealth(*to_itself); }, [&] { return CheckHealth(*to_itself); });
  if (!monitoring.ok()) daemon::ExitImmediately(monitoring.status());
  const daemon::OnStopSignal on_stop([&] {
    base::Log(base::LogLevel::kInfo, "stopping");
    service.Stop();
    (*server)->GetHealthCheckService()->SetServingStatus(false);
    (*server)->Shutdown(std::chrono::system_clock::now() + kDrain);
  });
  (*server)->Wait();
  return daemon::kExitDone;
}

}  // namespace
}  // namespace fusionllm::services

int main(int argc, char** argv) { return fusionllm::services::Main(argc, argv); }
