// fusion-executor: one device. Joins the broker of a run and runs the stages it is given.
#include <grpcpp/grpcpp.h>
#include <signal.h>

#include <CLI/CLI.hpp>
#include <chrono>
#include <cstdio>
#include <thread>

#include "services/credentials.h"
#include "services/executor/broker_session.h"
#include "services/executor/checkpoint_client.h"
#include "services/executor/data_plane.h"
#include "services/executor/stage_host.h"
#include "services/version.h"

namespace fusionllm::services {
namespace {

constexpr int kExitDone = 0;
constexpr int kExitFailed = 1;
constexpr int kExitBadInput = 2;
constexpr int kExitRunFailed = 5;  // the run, not this executor

int Complain(const absl::Status& status, int code) {
  std::fprintf(stderr, "fusion-executor: %s\n", std::string(status.message()).c_str());
  return code;
}

int Main(int argc, char** argv) {
  HostOptions host_options{.build_version = kBuildVersion};
  DataPlaneOptions data_options;
  SessionOptions session_options;
  std::string tls_directory;
  bool relay = false;
  CLI::App app("Runs stages of a training run on this machine's device");
  app.add_option("--broker", session_options.address, "Address of the broker")->required();
  app.add_option("--name", host_options.name, "Name of this device")->required();
  app.add_option("--site", host_options.site, "Site of this device, when no topology says");
  app.add_option("--tls", tls_directory, "Folder with ca.pem, NAME.pem, NAME.key");
  app.add_option("--listen", data_options.listen_address, "Address for other executors")->capture_default_str();
  app.add_flag("--relay", relay, "Meet peers that cannot be dialled at the broker; without --listen be met there too");
  app.add_option("--memory-bytes", host_options.memory_bytes, "Memory this device may use; 0: all");
  app.add_option("--incarnation", host_options.incarnation, "Grows with every start; 0: from the clock");
  app.add_flag("--spare", host_options.spare, "Stay in the backup pool");
  app.add_option("--patience-seconds", session_options.patience_seconds, "How long the broker may stay away")->capture_default_str();
  CLI11_PARSE(app, argc, argv);
  if (host_options.incarnation == 0) {
    host_options.incarnation = static_cast<uint64_t>(std::chrono::system_clock::now().time_since_epoch().count());
  }
  sigset_t signals;
  sigemptyset(&signals);
  sigaddset(&signals, SIGINT);
  sigaddset(&signals, SIGTERM);
  pthread_sigmask(SIG_BLOCK, &signals, nullptr);
  signal(SIGPIPE, SIG_IGN);

  absl::StatusOr<Credentials> credentials = LoadCredentials(tls_directory, host_options.name);
  if (!credentials.ok()) return Complain(credentials.status(), kExitBadInput);
  session_options.credentials = credentials->channel;
  data_options.name = host_options.name;
  data_options.incarnation = host_options.incarnation;
  if (relay) {
    data_options.relay_address = session_options.address;
    data_options.reachable = app.count("--listen") > 0;
  }
  absl::StatusOr<std::unique_ptr<DataPlane>> data_plane = DataPlane::Create(data_options, *credentials);
  if (!data_plane.ok()) return Complain(data_plane.status(), kExitFailed);

  BrokerSession session(session_options);
  CheckpointClient checkpoints({.address = session_options.address, .credentials = credentials->channel, .executor = host_options.name});
  StageHost host(host_options, **data_plane, checkpoints, [&](v1::ExecutorMessage message) { session.Report(std::move(message)); });
  std::thread signal_thread([&] {
    int signal = 0;
    sigwait(&signals, &signal);
    session.Stop();
  });
  bool run_failed = false;
  const absl::Status status =
      session.Run([&] { return host.Hello(); },
                  [&](const v1::BrokerMessage& message) {
                    if (message.has_shutdown()) {
                      run_failed = message.shutdown().failed();
                      std::fprintf(stderr, "fusion-executor: told to end: %s\n", message.shutdown().reason().c_str());
                    }
                    host.OnMessage(message);
                  });
  host.Shutdown();
  (*data_plane)->Close();
  pthread_kill(signal_thread.native_handle(), SIGTERM);
  signal_thread.join();
  if (!status.ok() && !absl::IsCancelled(status)) return Complain(status, kExitFailed);
  return run_failed ? kExitRunFailed : kExitDone;
}

}  // namespace
}  // namespace fusionllm::services

int main(int argc, char** argv) { return fusionllm::services::Main(argc, argv); }
