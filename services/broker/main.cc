// fusion-broker: owns one training run. See run_loop.h; its stdout is the run's record, one JSON object a line.
#include <grpcpp/grpcpp.h>
#include <grpcpp/health_check_service_interface.h>
#include <grpcpp/resource_quota.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <filesystem>
#include <fstream>
#include <set>
#include <string>
#include <system_error>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_split.h"
#include "absl/time/time.h"
#include "lib/base/exit_code.h"
#include "lib/base/file_error.h"
#include "lib/base/host_port.h"
#include "lib/checkpoint/layout.h"
#include "lib/checkpoint/reader.h"
#include "lib/daemon/loop_check.h"
#include "lib/daemon/process_metrics.h"
#include "lib/daemon/program.h"
#include "lib/daemon/stop_signals.h"
#include "lib/transport/grpc/relay.h"
#include "proto/fusionllm/v1/broker.pb.h"
#include "services/broker/broker_setup.h"
#include "services/broker/checkpoints.h"
#include "services/broker/final_report.h"
#include "services/broker/run_log.h"
#include "services/broker/shard_collection.h"
#include "services/grpc_server.h"
#include "services/termination_sentence.h"
#include "services/version.h"

namespace fusionllm::services {
namespace {

using daemon::kExitFailed;

constexpr char kProgram[] = "fusion-broker";
// For a place of checkpoints to take anything, when the run is over.
constexpr absl::Duration kCopyTimeout = absl::Seconds(60);
// Where a job is deleted its executors are asked to end when its broker is. For them to say so, from the other end of a slow link.
constexpr std::chrono::milliseconds kNewsOfDeletion{1000};
// For a site to send anything. Longer than an absent one is waited for, so that its absence is what is reported.
constexpr absl::Duration kSilence = absl::Seconds(65);

void AddFlags(CLI::App& app, BrokerFlags& flags, std::string& expected, std::string& lost, std::string& final_report) {
  app.add_option("--job", flags.job_file, "Canonical job file")->required();
  app.add_option("--topology", flags.topology_file, "Topology to emulate");
  app.add_option("--output", flags.output_directory, "Folder of the run")->required();
  app.add_option("--base", flags.base_directory, "Folder that relative paths of the job start from")->required();
  app.add_option("--listen", flags.listen_address, "Address to listen on")->capture_default_str()->check([](const std::string& text) {
    return std::string(base::CheckListenable(text).message());
  });
  app.add_option("--scheduler", flags.scheduler_address, "Address of the scheduler")
      ->check([](const std::string& text) { return std::string(base::SplitHostPort(text).status().message()); })
      ->required();
  app.add_option("--tls", flags.tls_directory, "Folder with ca.pem, broker.pem, broker.key, token");
  app.add_flag("--insecure", flags.insecure, "Without --tls: serve other machines all the same, in clear");
  app.add_option("--expected-executors", expected, "Executors to wait for, separated by commas");
  app.add_option("--min-executors", flags.min_executors, "Wait, without limit, for so many executors in all")
      ->check(CLI::Range(1, 1'000'000));
  app.add_option("--data-device", flags.data_devices,
                 "The executors that have the training data, separated by commas: one gets the first stage")
      ->delimiter(',');
  app.add_option("--data-timeout-seconds", flags.data_timeout_seconds,
                 "When all of --data-device have been lost under the run: wait for one to be started again. 0: do not wait")
      ->check(daemon::CheckSeconds)
      ->capture_default_str();
  app.add_option("--executor-timeout-seconds", flags.executor_timeout_seconds,
                 "For executors of --expected-executors that are restarted after a loss: how long to wait for them before the first step, "
                 "and later "
                 "where no plan is possible without them. 0: none are restarted; wait a short while, and end the run if one never joins")
      ->check(daemon::CheckSeconds)
      ->capture_default_str();
  app.add_flag("--allow-join", flags.allow_join,
               "Enroll executors of other machines that know TLS/token, and relay for those that only dial out");
  app.add_flag("--closed", flags.closed, "No executors join but those of --expected-executors: wait for none of another site")
      ->excludes("--allow-join");
  app.add_option("--join-timeout-seconds", flags.join_timeout_seconds, "After this long, plan with the executors that have joined")
      ->check(daemon::CheckSeconds);
  app.add_option("--profiles", flags.profiles_file, "Saved profiles to use instead of measuring");
  app.add_option("--attempt", flags.attempt, "Of the job: executors that say another one do not attend")->check(CLI::NonNegativeNumber);
  app.add_flag("--fresh", flags.fresh, "Ignore checkpoints that exist");
  app.add_option("--lost-executors", lost, "With --resume-journal: executors that have ended, separated by commas");
  app.add_flag("--resume-journal", flags.resume_journal, "Take a run over from a broker that died; without a journal, begin");
  app.add_option("--final-report", final_report,
                 "File that gets the last /progress page when the run ends, with why; of a start that fails, why");
}

// For all calls together. An executor needs one for its stream, two to move checkpoints, and two for each neighbour behind the relay. How
// many of them one may have is bounded, too (executor_call_limiter.h).
int MostServingThreads(const BrokerFlags& flags) {
  constexpr int kMaxOwnCalls = 128;
  constexpr int kForAnExecutor = 32;
  const int executors =
      std::max(static_cast<int>(flags.expected.size()), flags.min_executors) + (flags.allow_join ? Enrollment::kEnrolledMax : 16);
  return kMaxOwnCalls + kForAnExecutor * executors;
}

// In place: `path` may be a file that is mounted, which nothing can be renamed to.
void WriteOrWarn(const std::string& path, const std::string& text) {
  errno = 0;
  std::ofstream out(path, std::ios::trunc);
  out << text << std::flush;
  if (!out) base::Log(base::LogLevel::kWarning, base::FileError(errno, "write", path).message());
}

// The last figures, for who comes when there is nothing left to scrape.
void KeepMetrics(const std::string& path, metrics::Registry& registry) { WriteOrWarn(path, registry.Text()); }

void WriteFinalReport(const std::string& path, const std::string& report) { WriteOrWarn(path, absl::StrCat(report, "\n")); }

// The run is over when its checkpoints are where the job wants them.
void FinishCopies(BrokerSetup& setup, RunOutcome& outcome) {
  if (setup.mirrors == nullptr) return;
  RunLoop& loop = *setup.loop;
  if (const std::string behind = setup.mirrors->DescribeLag(); !behind.empty())
    loop.LogEvent({.reason = "CopyingCheckpoints", .message = behind});
  loop.LogPendingEvents();
  const absl::Status copied = setup.mirrors->Finish(kCopyTimeout, {});
  loop.LogPendingEvents();
  if (copied.ok() || !outcome.status.ok()) return;
  loop.LogFailure(copied, "CheckpointNotCopied");
  outcome.status = copied;
}

// What sites have of the last checkpoint is brought here while their executors are there: the next start may be in others, and of a run
// that is done this is the model.
void BringShardsHome(BrokerSetup& setup, const RunOutcome& outcome) {
  if (!outcome.status.ok() || setup.checkpoint_directory.empty()) return;
  std::error_code none;
  const std::filesystem::path folder =
      std::filesystem::canonical(absl::StrCat(setup.checkpoint_directory, "/", checkpoint::kLatestName), none);
  if (none) return;
  // Holds it against removal.
  const auto reader = checkpoint::CheckpointReader::Open(folder.string(), checkpoint::SiteFilesPolicy::kSkip);
  if (!reader.ok() || reader->files_in_other_sites().empty()) return;
  int64_t bytes = 0;
  for (const checkpoint::FileEntry& file : reader->files_in_other_sites()) bytes += file.bytes;
  std::set<std::string> sites;
  for (const checkpoint::FileEntry& file : reader->files_in_other_sites()) sites.insert(file.site);
  RunLoop& loop = *setup.loop;
  absl::Status brought = absl::CancelledError("their executors were asked to end as well");
  if (!setup.shard_fetcher->AllShuttingDown(sites, outcome.interrupted ? kNewsOfDeletion : std::chrono::milliseconds(0))) {
    loop.LogEvent(
        {.reason = "CollectingShards",
         .message = absl::StrFormat("%d bytes of %s that lie in sites, so that it can be restored in any", bytes, folder.string())});
    loop.LogPendingEvents();
    brought = CollectShards(*setup.shard_fetcher, folder.string(), reader->files_in_other_sites(), kSilence);
  }
  if (!brought.ok()) {
    loop.LogEvent({.reason = "ShardsInSites",
                   .message = absl::StrFormat("parts of %s stay in their sites and nowhere else: %s", folder.string(), brought.message())});
  }
  loop.LogPendingEvents();
}

// The program that started the broker reports `error` as the reason, instead of an end without a reason. The file of the final report gets
// the sentence alone: of a run there is nothing to tell.
[[noreturn]] void EndAtStart(const absl::Status& error, int code, const daemon::CommonFlags& common, const std::string& final_report) {
  RunLog(stdout, 0, 0).Error(error, "");
  if (!final_report.empty()) WriteFinalReport(final_report, TerminationSentence(error.message()));
  if (common.logs_json()) daemon::ExitImmediately(code);
  daemon::ExitImmediately(error, code);
}

int Main(int argc, char** argv) {
  BrokerFlags flags;
  std::string expected, lost, final_report;
  daemon::CommonFlags common;
  CLI::App app("Owns one training run: membership, plans, checkpoints, recovery");
  AddFlags(app, flags, expected, lost, final_report);
  daemon::AddCommonFlags(app, kProgram, kBuildVersion, common);
  if (const auto code = daemon::ParseFlags(app, argc, argv, kProgram, common)) return *code;
  flags.expected = absl::StrSplit(expected, ',', absl::SkipEmpty());
  flags.lost_executors = absl::StrSplit(lost, ',', absl::SkipEmpty());
  flags.events_in_log = !common.logs_json();

  daemon::BlockStopSignals();
  metrics::Registry registry(kProgram, kBuildVersion);
  daemon::AddProcessMetrics(registry);
  absl::StatusOr<BrokerSetup> setup = SetUp(flags, registry);
  if (!setup.ok()) {
    EndAtStart(setup.status(), ExitCodeOfSetUp(setup.status(), flags.resume_journal), common, final_report);
  }
  RunLoop& loop = *setup->loop;

  ExecutorSessions* joined = nullptr;  // for the handler, which is made first
  ExecutorSessions sessions(
      setup->sessions,
      {.on_joined =
           [&](const v1::Hello& hello) {
             setup->on_connected(hello.name());
             loop.OnJoined(hello);
           },
       .on_message = [&](const std::string& name, uint64_t incarnation,
                         const v1::ExecutorMessage& message) { loop.OnMessage(name, incarnation, message); },
       .on_left = [&](const std::string& name, uint64_t incarnation, const std::string& why) { loop.OnLeft(name, incarnation, why); },
       .on_enroll =
           [&](const v1::EnrollRequest& request) {
             return setup->enroll(request, [&](const std::string& name) { return joined->IsConnected(name); });
           },
       .on_renew = setup->renew});
  joined = &sessions;
  setup->shard_fetcher->SendBy(
      [&sessions](const std::string& name, v1::BrokerMessage order) { return sessions.Send(name, std::move(order)); });
  transport::Relay relay({.require_certificate = setup->sessions.require_certificate,
                          .enter = [calls = setup->calls.get()](const grpc::ServerContext& context) { return calls->Enter(context); }});
  grpc::ServerBuilder builder;
  builder.RegisterService(&sessions);
  builder.RegisterService(setup->exchange.get());
  if (flags.allow_join) builder.RegisterService(relay.service());
  grpc::ResourceQuota quota("fusion-broker");
  builder.SetResourceQuota(quota.SetMaxThreads(MostServingThreads(flags)));
  // Executors ping to notice dead connections (broker_session.cc, relay_endpoint.h); the default would call that abuse.
  builder.AddChannelArgument(GRPC_ARG_HTTP2_MIN_RECV_PING_INTERVAL_WITHOUT_DATA_MS, 0);
  builder.AddChannelArgument(GRPC_ARG_HTTP2_MAX_PING_STRIKES, 0);
  builder.AddChannelArgument(GRPC_ARG_KEEPALIVE_PERMIT_WITHOUT_CALLS, 1);
  builder.AddChannelArgument(GRPC_ARG_KEEPALIVE_TIME_MS, 20'000);

  // Before it listens: who finds the broker in the log of a run finds its metrics there, too.
  std::atomic<bool> serving = false;
  daemon::LoopCheck alive("the loop of the run", [&](std::function<void()> task) { loop.Post(std::move(task)); });
  const auto monitoring = daemon::StartMonitoring(
      common, registry, [&] { return alive.Check(); },
      [&] { return serving ? absl::OkStatus() : absl::UnavailableError("not serving: starting or ending"); },
      [&] { return setup->run_metrics->ProgressJson(); });
  if (!monitoring.ok()) EndAtStart(monitoring.status(), base::ExitCodeFor(monitoring.status()), common, final_report);
  const auto server = Listen(builder, flags.listen_address, setup->credentials, common.logs_json());
  if (!server.ok()) EndAtStart(server.status(), kExitFailed, common, final_report);

  const daemon::OnStopSignal on_stop([&] {
    setup->shard_fetcher->CancelWaits();  // first: the loop's order to stop ends the waiting
    loop.Stop();
  });
  serving = true;
  RunOutcome outcome = loop.Run(sessions);
  serving = false;
  setup->shard_fetcher->SetShutdownTimeout(absl::ToChronoMilliseconds(kCopyTimeout));
  FinishCopies(*setup, outcome);
  BringShardsHome(*setup, outcome);
  KeepMetrics(absl::StrCat(flags.output_directory, "/metrics.prom"), registry);
  if (!final_report.empty()) WriteFinalReport(final_report, FinalReport(setup->run_metrics->ProgressJson(), ExitCodeOf(outcome), outcome));
  (*server)->GetHealthCheckService()->SetServingStatus(false);
  sessions.Shutdown(outcome.status.ok() ? "the run is over" : std::string(outcome.status.message()), !outcome.status.ok());
  relay.Shutdown();
  setup->shard_fetcher->Close();
  setup->exchange->Close();
  (*server)->Shutdown(std::chrono::system_clock::now() + std::chrono::seconds(2));
  if (outcome.status.ok()) return ExitCodeOf(outcome);
  // What was written of a checkpoint that came to nothing; on a full disk it is in the way of the one who makes room.
  if (!setup->checkpoint_directory.empty()) (void)CleanUp(setup->checkpoint_directory, /*executors_are_running=*/false);
  // Among lines of JSON the record has it.
  return common.logs_json() ? ExitCodeOf(outcome) : daemon::ReportError(outcome.status, ExitCodeOf(outcome));
}

}  // namespace
}  // namespace fusionllm::services

int main(int argc, char** argv) { return fusionllm::services::Main(argc, argv); }
