// fusion-executor: one device. Joins the broker of a run and runs the stages it is given.
#include <grpcpp/grpcpp.h>
#include <malloc.h>

#include <CLI/CLI.hpp>
#include <chrono>
#include <cstdio>
#include <memory>
#include <optional>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "lib/base/host_port.h"
#include "lib/checkpoint/site_store.h"
#include "lib/daemon/loop_check.h"
#include "lib/daemon/process_metrics.h"
#include "lib/daemon/program.h"
#include "lib/daemon/stop_signals.h"
#include "lib/job/name.h"
#include "lib/kernels/devices.h"
#include "lib/nvml/nvml.h"
#include "lib/security/certificate_authority.h"
#include "lib/security/renewal.h"
#include "proto/fusionllm/v1/broker.pb.h"
#include "services/credentials.h"
#include "services/executor/broker_channel.h"
#include "services/executor/broker_contact.h"
#include "services/executor/broker_session.h"
#include "services/executor/certificate_renewal.h"
#include "services/executor/checkpoint_client.h"
#include "services/executor/data_plane.h"
#include "services/executor/gpu_metrics.h"
#include "services/executor/stage_host.h"
#include "services/version.h"

namespace fusionllm::services {
namespace {

using daemon::kExitBadInput;
using daemon::kExitDone;
using daemon::kExitFailed;
using daemon::ReportError;
constexpr int kExitRunFailed = 5;  // the run, not this executor

constexpr char kProgram[] = "fusion-executor";

struct Flags {
  HostOptions host{.build_version = kBuildVersion};
  DataPlaneOptions data;
  SessionOptions session;
  BrokerContact::Options contact;
  double broker_lost_seconds = 0;
  std::string tls_directory, device = "auto";
  bool listens = false, relay = false, phases = false, insecure = false, renews = false;
  daemon::CommonFlags common;
};

// CLI11 takes "-1" for the greatest number where a flag has no sign, and CLI::NonNegativeNumber answers with 300 digits.
std::string CheckNotNegative(const std::string& text) { return absl::StartsWith(text, "-") ? text + " is negative" : ""; }

void AddFlags(CLI::App& app, Flags& flags) {
  app.add_option("--broker", flags.session.address, "Address of the broker")
      // Of a broker on this machine it may be one that stands for any.
      ->check([](const std::string& text) { return std::string(base::SplitHostPort(text).status().message()); })
      ->required();
  app.add_option("--name", flags.host.name, "Name of this device")->required()->check([](const std::string& text) {
    return std::string(security::CheckProcessName(text).message());
  });
  app.add_option("--site", flags.host.site, "Site of this device, when no topology says")->check([](const std::string& text) {
    return text.empty() || job::IsName(text) ? "" : absl::StrCat("'", text, "' is no name: ", job::kNameRule);
  });
  CLI::Option* const tls = app.add_option("--tls", flags.tls_directory, "Folder with ca.pem, NAME.pem, NAME.key");
  app.add_flag("--renew-certificate", flags.renews, "Have the broker renew NAME.pem before it ends")->needs(tls);
  app.add_flag("--insecure", flags.insecure, "Without --tls: listen beyond this machine all the same, in clear");
  app.add_option("--site-checkpoints", flags.host.site_checkpoints,
                 "Folder of this site, shared by its executors and outliving them: shards of checkpoints stay there, instead of going to "
                 "the broker");
  CLI::Option* const listen = app.add_option("--listen", flags.data.listen_address, "Address for other executors")
                                  ->capture_default_str()
                                  ->check([](const std::string& text) { return std::string(base::CheckListenable(text).message()); });
  app.add_option("--advertise", flags.data.advertised_address,
                 "HOST:PORT that executors of other sites dial instead, when that leads to --listen: a forwarded port, a load balancer")
      ->needs(listen)
      ->check([](const std::string& text) { return std::string(base::CheckDialable(text).message()); });
  app.add_flag("--relay", flags.relay, "Meet peers that cannot be dialled at the broker; without --listen be met there too");
  app.add_option("--memory-bytes", flags.host.memory_bytes, "Memory this device may use; 0: all")->check(CheckNotNegative);
  app.add_option("--attempt", flags.host.attempt, "Of the job: a broker of a later one ends this program, with exit code 0")
      ->check(CheckNotNegative);
  app.add_option("--incarnation", flags.host.incarnation, "Grows with every start; 0: from the clock")->check(CheckNotNegative);
  app.add_option("--device", flags.device, "What computes: cpu, cuda:N, or auto, the first CUDA device if there is one")
      ->capture_default_str()
      ->check([](const std::string& text) { return std::string(kernels::CheckDeviceName(text).message()); });
  app.add_flag(
      "--allow-nondeterminism", flags.host.allow_nondeterminism,
      "On a GPU: the fastest algorithms by measurement, and fewer kernels; then bits differ from run to run and with the number of "
      "stages");
  CLI::Option* const closed = app.add_flag("--closed", flags.host.access.closed,
                                           "Give the run nothing of this machine but its processor: no data, graph, shared folder or "
                                           "credentials, unless the next options open one");
  app.add_option("--data", flags.host.access.data_folder, "With --closed: training data and graph files below this folder may be read")
      ->needs(closed);
  app.add_option("--shared-folder", flags.host.access.shared_folder,
                 "With --closed: checkpoints below this folder, which the run's machine has at the same path, are read and written there")
      ->needs(closed);
  app.add_flag("--object-stores", flags.host.access.object_stores, "With --closed: fetch data from stores with this machine's credentials")
      ->needs(closed);
  app.add_flag("--phases", flags.phases, "Print what it is doing on stdout, a line each");
  app.add_flag("--spare", flags.host.spare, "Be a spare: no stage until another executor is lost");
  app.add_option("--broker-timeout-seconds", flags.session.timeout_seconds, "How long the broker may stay away")
      ->check(daemon::CheckSeconds)
      ->capture_default_str();
  CLI::Option* const file =
      app.add_option("--contact-file", flags.contact.file,
                     "File that keeps, from one start of this program to the next, when the broker was last heard of");
  app.add_option("--broker-lost-seconds", flags.broker_lost_seconds,
                 "Where it was not for so long, a failure ends with exit code 0, so that it is not restarted; 0: never")
      ->needs(file)
      ->check(daemon::CheckSeconds);
  app.add_option("--termination-log", flags.contact.termination_log, "File that gets the reason of a failure, as Kubernetes shows it");
}

struct End {
  int code = kExitDone;
  std::string why;  // of a failure
};

End Fail(const absl::Status& status, int code) { return {.code = ReportError(status, code), .why = std::string(status.message())}; }

[[noreturn]] void ExitImmediately(const absl::Status& status, int code, BrokerContact& contact) {
  daemon::ExitImmediately(status, contact.ExitCode(code, std::string(status.message())));
}

End Attend(const Flags& flags, HostOptions host_options, BrokerContact& contact) {
  SessionOptions session_options = flags.session;
  DataPlaneOptions data_options = flags.data;
  if (host_options.incarnation == 0) {
    host_options.incarnation = static_cast<uint64_t>(std::chrono::system_clock::now().time_since_epoch().count());
  }
  if (const std::string& folder = host_options.site_checkpoints; !folder.empty()) {
    if (const absl::Status usable = checkpoint::CanKeepShards(folder); !usable.ok()) {
      base::Log(base::LogLevel::kWarning, absl::StrCat("--site-checkpoints: ", usable.message(), "; shards go to the broker"));
      host_options.site_checkpoints.clear();
    }
  }
  const absl::StatusOr<kernels::DeviceChoice> chosen = kernels::ChooseDevice(flags.device);
  if (!chosen.ok()) return Fail(chosen.status(), kExitBadInput);
  if (flags.phases) {
    host_options.on_phase = [](const std::string& phase) {
      std::printf("%s ..\n", phase.c_str());
      std::fflush(stdout);
    };
  }
  host_options.device = chosen->backend;
  host_options.device_by_default = flags.device == "auto";
  host_options.device_description = chosen->description;
  host_options.device_memory_bytes = chosen->memory_bytes;
  base::Log(base::LogLevel::kInfo, absl::StrCat("computing on ", chosen->description));
  daemon::BlockStopSignals();
  if (const absl::Status served = CheckServedPlaintext(flags.tls_directory, flags.insecure, data_options.listen_address); !served.ok()) {
    return Fail(served, kExitBadInput);
  }
  absl::StatusOr<Credentials> credentials = LoadCredentials(flags.tls_directory, host_options.name);
  if (!credentials.ok()) return Fail(credentials.status(), kExitBadInput);
  session_options.credentials = credentials->channel;
  session_options.on_contact = [&contact] { contact.RecordContact(); };
  data_options.name = host_options.name;
  data_options.incarnation = host_options.incarnation;
  if (flags.relay) {
    data_options.relay_address = session_options.address;
    data_options.reachable = flags.listens;
  }
  absl::StatusOr<std::unique_ptr<DataPlane>> data_plane = DataPlane::Create(data_options, *credentials);
  if (!data_plane.ok()) ExitImmediately(data_plane.status(), kExitFailed, contact);

  // Messages are taken in by the transport's threads and given back by the stage's: with a heap for each thread, what one has given back
  // is of no use to another, and a process keeps several times what its plan says.
  mallopt(M_ARENA_MAX, 2);

  metrics::Registry registry(kProgram, kBuildVersion);
  daemon::AddProcessMetrics(registry);
  std::shared_ptr<const nvml::Gpu> gpu;
  if (!chosen->pci_bus_id.empty()) {
    absl::StatusOr<std::unique_ptr<nvml::Gpu>> opened = nvml::Gpu::Open(chosen->pci_bus_id);
    if (!opened.ok()) base::Log(base::LogLevel::kWarning, absl::StrCat("no metrics of the card: ", opened.status().message()));
    if (opened.ok()) gpu = *std::move(opened);
  }
  AddGpuMetrics(registry, gpu);
  ExecutorMetrics executor_metrics(registry, host_options.name);
  BrokerSession session(session_options);
  CheckpointClient checkpoints({.address = session_options.address, .credentials = credentials->channel, .executor = host_options.name});
  StageHost host(host_options, **data_plane, checkpoints, executor_metrics,
                 [&](v1::ExecutorMessage message) { session.Report(std::move(message)); });
  // The stage's own thread may rightly be busy or wait for hours: alive is who still talks to the broker and to whom the stage answers.
  daemon::LoopCheck alive("the session with the broker", [&](std::function<void()> task) {
    session.Post([&host, task = std::move(task)] {
      (void)host.Hello();
      task();
    });
  });
  const auto monitoring = daemon::StartMonitoring(
      flags.common, registry, [&] { return alive.Check(); },
      [&] { return session.connected() ? absl::OkStatus() : absl::UnavailableError("not joined to the broker"); });
  if (!monitoring.ok()) ExitImmediately(monitoring.status(), base::ExitCodeFor(monitoring.status()), contact);
  const daemon::OnStopSignal on_stop([&] { session.Stop(); });
  std::optional<security::RenewalThread> renewal;
  // Not before it attends: the broker renews no others, and after a refusal the next try is an hour away.
  const auto renew_from_now_on = [&] {
    const std::shared_ptr<v1::Broker::Stub> broker =
        v1::Broker::NewStub(BrokerChannel(session_options.address, credentials->channel, /*own_connection=*/false));
    renewal.emplace("the certificate of this executor",
                    [broker, &flags] { return RenewFromBroker(flags.tls_directory, flags.host.name, *broker, absl::Now()); });
  };
  std::string run_failed;  // why
  const absl::Status status = session.Run([&] { return host.Hello(); },
                                          [&](const v1::BrokerMessage& message) {
                                            if (message.has_shutdown()) {
                                              const std::string reason = absl::StrCat("asked to end: ", message.shutdown().reason());
                                              if (message.shutdown().failed()) run_failed = reason;
                                              base::Log(run_failed.empty() ? base::LogLevel::kInfo : base::LogLevel::kWarning, reason);
                                            }
                                            if (message.has_welcome() && flags.renews && !renewal.has_value()) renew_from_now_on();
                                            host.OnMessage(message);
                                          });
  host.Shutdown();
  (*data_plane)->Close();
  if (absl::IsFailedPrecondition(status) && absl::StartsWith(status.message(), kSupersededAttempt)) {
    // As a failure it would be started again, and refused again.
    base::Log(base::LogLevel::kWarning, absl::StrCat("not wanted any more: ", status.message()));
    return {};
  }
  if (!status.ok() && !absl::IsCancelled(status)) return Fail(status, kExitFailed);
  return {.code = run_failed.empty() ? kExitDone : kExitRunFailed, .why = run_failed};
}

int Main(int argc, char** argv) {
  Flags flags;
  CLI::App app("Runs stages of a training run on this machine's device");
  AddFlags(app, flags);
  daemon::AddCommonFlags(app, kProgram, kBuildVersion, flags.common);
  if (const auto code = daemon::ParseFlags(app, argc, argv, kProgram, flags.common)) return *code;
  flags.listens = app.count("--listen") > 0;
  if (flags.broker_lost_seconds > 0) flags.contact.lost_after = absl::Seconds(flags.broker_lost_seconds);
  BrokerContact contact(flags.contact, absl::Now);
  const End end = Attend(flags, flags.host, contact);
  return contact.ExitCode(end.code, end.why);
}

}  // namespace
}  // namespace fusionllm::services

int main(int argc, char** argv) { return fusionllm::services::Main(argc, argv); }
