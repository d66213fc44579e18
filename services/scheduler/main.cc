// fusion-scheduler: answers Plan calls until SIGTERM or SIGINT. Prints "listening on HOST:PORT" to stdout once it serves.
#include <grpcpp/grpcpp.h>
#include <grpcpp/health_check_service_interface.h>
#include <signal.h>

#include <CLI/CLI.hpp>
#include <chrono>
#include <cstdio>
#include <thread>

#include "absl/strings/str_cat.h"
#include "services/credentials.h"
#include "services/scheduler/scheduler_service.h"
#include "services/version.h"

namespace fusionllm::services {
namespace {

constexpr int kExitDone = 0;
constexpr int kExitFailed = 1;
constexpr int kExitBadInput = 2;
constexpr int kMaxMessageBytes = 64 << 20;
constexpr int kMostThreads = 32;
constexpr std::chrono::seconds kDrain{10};  // for calls in progress, after a request to stop

int Complain(const std::string& message, int code) {
  std::fprintf(stderr, "fusion-scheduler: %s\n", message.c_str());
  return code;
}

int Main(int argc, char** argv) {
  std::string listen = "127.0.0.1:0", tls_directory;
  bool insecure = false;
  SchedulerOptions options;
  CLI::App app("Turns jobs and device profiles into plans, over gRPC.\nExample: fusion-scheduler --listen 127.0.0.1:0 --insecure");
  app.set_version_flag("--version", std::string("fusion-scheduler ") + kBuildVersion);
  app.add_option("--listen", listen, "Address to listen on; port 0: a free one")->capture_default_str();
  CLI::Option* tls =
      app.add_option("--tls", tls_directory, "Folder with ca.pem, scheduler.pem, scheduler.key: clients need a certificate of that CA");
  app.add_flag("--insecure", insecure, "Serve without TLS, whoever asks")->excludes(tls);
  app.add_option("--max-concurrent", options.max_concurrent, "Calls that may plan at a time")
      ->check(CLI::Range(1, 64))
      ->capture_default_str();
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    return app.exit(error) == 0 ? kExitDone : kExitBadInput;
  }
  if (tls_directory.empty() && !insecure) return Complain("give --tls FOLDER, or --insecure to serve without TLS", kExitBadInput);

  // Signals are taken by one thread, so that nothing happens inside a handler.
  sigset_t signals;
  sigemptyset(&signals);
  sigaddset(&signals, SIGINT);
  sigaddset(&signals, SIGTERM);
  pthread_sigmask(SIG_BLOCK, &signals, nullptr);
  signal(SIGPIPE, SIG_IGN);

  const absl::StatusOr<Credentials> credentials = LoadCredentials(tls_directory, "scheduler");
  if (!credentials.ok()) return Complain(std::string(credentials.status().message()), kExitBadInput);
  grpc::EnableDefaultHealthCheckService(true);
  SchedulerService service(options);
  grpc::ServerBuilder builder;
  int port = 0;
  builder.AddListeningPort(listen, credentials->server, &port);
  builder.RegisterService(&service);
  builder.SetMaxReceiveMessageSize(kMaxMessageBytes);
  builder.SetMaxSendMessageSize(kMaxMessageBytes);
  builder.SetResourceQuota(grpc::ResourceQuota("scheduler").SetMaxThreads(kMostThreads));
  builder.AddChannelArgument(GRPC_ARG_ALLOW_REUSEPORT, 0);  // a second server on the same port is a mistake
  const std::unique_ptr<grpc::Server> server = builder.BuildAndStart();
  if (server == nullptr || port == 0) return Complain(absl::StrCat("cannot listen on ", listen), kExitFailed);
  std::printf("listening on %s:%d\n", listen.substr(0, listen.rfind(':')).c_str(), port);
  std::fflush(stdout);

  std::thread stopper([&] {
    int signal = 0;
    sigwait(&signals, &signal);
    service.Stop();
    server->Shutdown(std::chrono::system_clock::now() + kDrain);
  });
  server->Wait();
  stopper.join();
  return kExitDone;
}

}  // namespace
}  // namespace fusionllm::services

int main(int argc, char** argv) { return fusionllm::services::Main(argc, argv); }
