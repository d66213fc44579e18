// fusion-broker: owns one training run. See run_loop.h; its stdout is the run's record, one JSON object a line.
#include <grpcpp/grpcpp.h>
#include <grpcpp/health_check_service_interface.h>
#include <signal.h>

#include <CLI/CLI.hpp>
#include <cstdio>
#include <thread>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "lib/base/status_macros.h"
#include "lib/transport/grpc/relay.h"
#include "services/broker/broker_setup.h"

namespace fusionllm::services {
namespace {

constexpr int kExitDone = 0;
constexpr int kExitFailed = 1;
constexpr int kExitBadInput = 2;
constexpr int kExitInfeasible = 3;
constexpr int kExitInterrupted = 130;

int Complain(const absl::Status& status, int code) {
  std::fprintf(stderr, "fusion-broker: %s\n", std::string(status.message()).c_str());
  return code;
}

int ExitCodeOf(const RunOutcome& outcome) {
  if (!outcome.refusal_reason.empty()) return outcome.refusal_reason == "SchedulerFailed" ? kExitFailed : kExitInfeasible;
  // What a stage found wrong with the job's files is the user's input; errors of the training itself have other codes.
  if (absl::IsInvalidArgument(outcome.status) || absl::IsNotFound(outcome.status)) return kExitBadInput;
  if (!outcome.status.ok()) return kExitFailed;
  return outcome.interrupted ? kExitInterrupted : kExitDone;
}

int Main(int argc, char** argv) {
  BrokerFlags flags;
  std::string expected;
  CLI::App app("Owns one training run: membership, plans, checkpoints, recovery");
  app.add_option("--job", flags.job_file, "Canonical job file")->required();
  app.add_option("--topology", flags.topology_file, "Topology to emulate");
  app.add_option("--output", flags.output_directory, "Folder of the run")->required();
  app.add_option("--base", flags.base_directory, "Folder that relative paths of the job start from")->required();
  app.add_option("--listen", flags.listen_address, "Address to listen on")->capture_default_str();
  app.add_option("--scheduler", flags.scheduler_address, "Address of the scheduler")->required();
  app.add_option("--tls", flags.tls_directory, "Folder with ca.pem, broker.pem, broker.key, token");
  app.add_option("--expect", expected, "Executors to wait for, separated by commas");
  app.add_option("--min-executors", flags.min_executors, "Wait, without limit, for so many executors in all")
      ->check(CLI::Range(1, 1'000'000));
  app.add_option("--data-device", flags.data_device, "The executor that alone has the training data: it gets the first stage");
  app.add_flag("--open", flags.open, "Enroll executors of other machines that know TLS/token, and relay for those that only dial out");
  app.add_option("--gather-seconds", flags.gather_seconds, "Plan with whoever has joined by then");
  app.add_option("--profiles", flags.profiles_file, "Saved profiles to use instead of measuring");
  app.add_flag("--fresh", flags.fresh, "Ignore checkpoints that exist");
  app.add_flag("--resume-journal", flags.resume_journal, "Take a run over from a broker that died");
  CLI11_PARSE(app, argc, argv);
  flags.expected = absl::StrSplit(expected, ',', absl::SkipEmpty());

  // Signals are taken by one thread, so that nothing happens inside a handler.
  sigset_t signals;
  sigemptyset(&signals);
  sigaddset(&signals, SIGINT);
  sigaddset(&signals, SIGTERM);
  pthread_sigmask(SIG_BLOCK, &signals, nullptr);
  signal(SIGPIPE, SIG_IGN);

  absl::StatusOr<BrokerSetup> setup = SetUp(flags);
  if (!setup.ok()) return Complain(setup.status(), absl::IsUnavailable(setup.status()) ? kExitFailed : kExitBadInput);
  RunLoop& loop = *setup->loop;

  grpc::EnableDefaultHealthCheckService(true);
  Attendance* joined = nullptr;  // for the handler, which is made first
  Attendance attendance(
      setup->attendance,
      {.on_joined = [&](const v1::Hello& hello) { loop.OnJoined(hello); },
       .on_message = [&](const std::string& name, const v1::ExecutorMessage& message) { loop.OnMessage(name, message); },
       .on_left = [&](const std::string& name, uint64_t incarnation, const std::string& why) { loop.OnLeft(name, incarnation, why); },
       .on_enroll =
           [&](const v1::EnrollRequest& request) {
             return setup->enroll(request, [&](const std::string& name) { return joined->IsAttending(name); });
           }});
  joined = &attendance;
  transport::Relay relay({.require_certificate = setup->attendance.require_certificate});
  grpc::ServerBuilder builder;
  int port = 0;
  builder.AddListeningPort(flags.listen_address, setup->credentials, &port);
  builder.RegisterService(&attendance);
  builder.RegisterService(setup->exchange.get());
  if (flags.open) builder.RegisterService(relay.service());
  builder.SetMaxReceiveMessageSize(64 << 20);
  // Executors ping to notice dead connections (broker_session.cc, relay_endpoint.h); the default would call that abuse.
  builder.AddChannelArgument(GRPC_ARG_HTTP2_MIN_RECV_PING_INTERVAL_WITHOUT_DATA_MS, 0);
  builder.AddChannelArgument(GRPC_ARG_HTTP2_MAX_PING_STRIKES, 0);
  builder.AddChannelArgument(GRPC_ARG_KEEPALIVE_PERMIT_WITHOUT_CALLS, 1);
  builder.AddChannelArgument(GRPC_ARG_KEEPALIVE_TIME_MS, 20'000);
  builder.AddChannelArgument(GRPC_ARG_ALLOW_REUSEPORT, 0);
  const std::unique_ptr<grpc::Server> server = builder.BuildAndStart();
  if (server == nullptr || port == 0)
    return Complain(absl::UnavailableError(absl::StrCat("cannot listen on ", flags.listen_address)), kExitFailed);
  std::printf("listening on %s:%d\n", flags.listen_address.substr(0, flags.listen_address.rfind(':')).c_str(), port);
  std::fflush(stdout);

  std::thread signal_thread([&] {
    int signal = 0;
    sigwait(&signals, &signal);
    loop.Stop();
  });
  const RunOutcome outcome = loop.Run(attendance);
  attendance.Shutdown(outcome.status.ok() ? "the run is over" : std::string(outcome.status.message()), !outcome.status.ok());
  relay.Shutdown();
  setup->exchange->Close();
  server->Shutdown(std::chrono::system_clock::now() + std::chrono::seconds(2));
  pthread_kill(signal_thread.native_handle(), SIGTERM);
  signal_thread.join();
  if (!outcome.status.ok()) return Complain(outcome.status, ExitCodeOf(outcome));
  return ExitCodeOf(outcome);
}

}  // namespace
}  // namespace fusionllm::services

int main(int argc, char** argv) { return fusionllm::services::Main(argc, argv); }
