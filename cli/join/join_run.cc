#include "cli/join/join_run.h"

#include <grpcpp/grpcpp.h>
#include <poll.h>

#include <algorithm>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/strip.h"
#include "cli/join/join_folder.h"
#include "cli/join/log_tailer.h"
#include "cli/run/child_process.h"
#include "cli/run/listen_address.h"
#include "cli/run/run_job.h"
#include "lib/base/host_port.h"
#include "lib/base/status_macros.h"
#include "lib/kernels/devices.h"
#include "lib/security/certificate_authority.h"
#include "lib/security/credential_files.h"
#include "lib/security/grpc/credentials.h"
#include "lib/security/grpc_messages/uncompressed_messages.h"
#include "lib/security/join_token.h"
#include "proto/fusionllm/v1/broker.grpc.pb.h"
#include "services/join_metadata.h"
#include "services/version.h"

namespace fusionllm::cli {
namespace {

// As services/executor/main.cc says it.
constexpr int kExecutorRunFailed = 5;
constexpr int kEchoMs = 500;  // between two looks at the executor's log
constexpr size_t kMaxAnswerBytes = 16 << 20;
constexpr int kKillAfterMs = 10'000;  // from the request to end to SIGKILL

// Of those who dial it, which of a run elsewhere are not on this machine.
absl::Status CheckNotLoopback(const char* option, const std::string& address, const std::string& broker) {
  FUSIONLLM_ASSIGN_OR_RETURN(const base::HostPort at, base::SplitHostPort(address));
  const absl::StatusOr<base::HostPort> run = base::SplitHostPort(broker);
  if (!base::IsLoopback(at.host) || !run.ok() || base::IsLoopback(run->host)) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat(option, " ", address, ": the run is at ", broker, ", and ", at.host,
                   " leads each of its machines to itself; name an address of this machine that the others dial"));
}

absl::Status CheckOwnAddress(const std::string& address, bool advertised) {
  if (const absl::Status listen = CheckListen(address); !listen.ok()) {
    return absl::InvalidArgumentError(absl::StrCat("--listen: ", listen.message()));
  }
  FUSIONLLM_ASSIGN_OR_RETURN(const base::HostPort at, base::SplitHostPort(address));
  if (!advertised && base::IsWildcardAddress(at.host)) {
    return absl::InvalidArgumentError(absl::StrCat(
        "--listen ", address, ": name the address of this machine that the others dial, or say --advertise; ", at.host, " stands for any"));
  }
  return absl::OkStatus();
}

// What the broker or gRPC said, as an error whose sentence tells what to do.
absl::Status Explain(const grpc::Status& status, const std::string& address, const std::string& ca_pem) {
  const std::string& said = status.error_message();
  switch (status.error_code()) {
    case grpc::StatusCode::PERMISSION_DENIED:
    case grpc::StatusCode::UNAUTHENTICATED:
    case grpc::StatusCode::ALREADY_EXISTS:
    case grpc::StatusCode::UNIMPLEMENTED:
      return absl::InvalidArgumentError(said);
    case grpc::StatusCode::DEADLINE_EXCEEDED:
      return absl::UnavailableError(absl::StrCat("no answer from ", address, "; is the run still waiting there?"));
    case grpc::StatusCode::UNAVAILABLE:
      if (absl::StrContains(said, "andshake") || absl::StrContains(said, "CERTIFICATE_VERIFY")) {
        if (const absl::Status dates = security::CheckDates(ca_pem, "the certificate of the run that this token is for"); !dates.ok()) {
          return absl::InvalidArgumentError(absl::StrCat(address, " cannot be trusted: ", dates.message()));
        }
        return absl::InvalidArgumentError(
            absl::StrCat("what listens at ", address,
                         " is not the run that this token is for: it is another program, or its certificate is of "
                         "another authority (each start of a run prints a new token)"));
      }
      return absl::UnavailableError(WhyUnreachable(address, said));
    default:
      return absl::Status(static_cast<absl::StatusCode>(status.error_code()), said);
  }
}

class Work {
  using Clock = std::chrono::steady_clock;

 public:
  Work(ChildProcess child, SignalWatch& signals, std::string log)
      : child_(std::move(child)), signals_(signals), echo_(std::move(log), stderr) {}

  // Shows what the executor has to say: that its run is away, say. Until the executor has ended: asked to after a first signal, made to
  // after a second or when it takes too long.
  ExitStatus Wait() {
    while (!child_.Poll()) {
      pollfd fd = {signals_.fd(), POLLIN, 0};
      const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(kill_at_ - Clock::now());
      const int ready = poll(&fd, 1, interrupted_ ? static_cast<int>(std::clamp<int64_t>(left.count(), 0, kEchoMs)) : kEchoMs);
      echo_.Show();
      const int before = signals_.stop_requests();
      signals_.Take();
      const bool asked = signals_.stop_requests() > before;
      if (interrupted_ && (asked || (ready == 0 && Clock::now() >= kill_at_))) child_.Kill();
      if (asked && !interrupted_) {
        interrupted_ = true;
        kill_at_ = Clock::now() + std::chrono::milliseconds(kKillAfterMs);
        child_.Signal(SIGTERM);
      }
    }
    echo_.ShowRest();
    return *child_.Poll();
  }
  bool interrupted() const { return interrupted_; }

 private:
  ChildProcess child_;
  SignalWatch& signals_;
  LogTailer echo_;
  bool interrupted_ = false;
  Clock::time_point kill_at_;
};

}  // namespace

std::string WhyUnreachable(absl::string_view address, absl::string_view said) {
  if (!absl::StartsWith(said, "DNS resolution failed")) {
    return absl::StrCat("cannot reach ", address, ": ", said, "; does the run wait there, and does a firewall let it be dialled?");
  }
  // "DNS resolution failed for HOST:PORT: C-ares status is not ARES_SUCCESS qtype=A name=HOST is_balancer=0: Domain name not found"
  const size_t last = said.rfind(": ");
  return absl::StrCat("cannot reach ", address, ": no address is found for its name",
                      last == absl::string_view::npos ? "" : absl::StrCat(" (", said.substr(last + 2), ")"),
                      "; is it written right, and does this machine know it?");
}

absl::StatusOr<Enrolled> Enroll(const JoinOptions& options) {
  if (const absl::Status address = base::CheckDialable(options.address); !address.ok()) {
    return absl::InvalidArgumentError(absl::StrCat("ADDR: ", address.message()));
  }
  const absl::StatusOr<security::JoinToken> token = security::ParseJoinToken(options.token);
  if (!token.ok()) return absl::InvalidArgumentError(absl::StrCat("--token: ", std::string(token.status().message())));
  FUSIONLLM_ASSIGN_OR_RETURN(const auto credentials, security::ServerTlsChannel(token->ca_pem));
  grpc::ChannelArguments arguments;
  arguments.SetSslTargetNameOverride("broker");
  arguments.SetMaxReceiveMessageSize(kMaxAnswerBytes);
  security::RefuseCompressedMessages(arguments);
  const auto stub = v1::Broker::NewStub(grpc::CreateCustomChannel(options.address, credentials, arguments));
  grpc::ClientContext context;
  context.set_deadline(std::chrono::system_clock::now() + std::chrono::duration_cast<std::chrono::system_clock::duration>(
                                                              std::chrono::duration<double>(options.enroll_limit_s)));
  context.AddMetadata(services::kJoinTokenMetadata, std::string(absl::StripAsciiWhitespace(options.token)));
  FUSIONLLM_ASSIGN_OR_RETURN(security::PemKeyPair key, security::GenerateKeyPair());
  v1::EnrollRequest request;
  request.set_protocol_version(services::kProtocolVersion);
  request.set_token(options.token);
  request.set_name(options.name);
  request.set_public_key_pem(key.public_key_pem);
  v1::EnrollResponse response;
  if (const grpc::Status status = stub->Enroll(&context, request, &response); !status.ok())
    return Explain(status, options.address, token->ca_pem);
  const security::PemCredentials texts{response.ca_certificate_pem(), response.certificate_pem(), std::move(key.private_key_pem)};
  FUSIONLLM_RETURN_IF_ERROR(security::CheckCredentials(texts, response.name()));
  return Enrolled{response.name(), texts.ca_pem, texts.certificate_pem, texts.private_key_pem};
}

std::vector<std::string> ExecutorCommand(const JoinOptions& options, const std::string& bin_folder, const std::string& name,
                                         const std::string& credentials_folder) {
  std::vector<std::string> argv = {
      bin_folder + "/fusion-executor", "--broker", options.address, "--name",      name, "--tls", credentials_folder, "--relay",
      "--renew-certificate",           "--closed", "--device",      options.device};
  if (!options.data.empty()) argv.insert(argv.end(), {"--data", options.data});
  if (!options.shared_folder.empty()) argv.insert(argv.end(), {"--shared-folder", options.shared_folder});
  if (options.object_stores) argv.push_back("--object-stores");
  if (options.allow_nondeterminism) argv.push_back("--allow-nondeterminism");
  if (options.spare) argv.push_back("--spare");
  if (!options.site.empty()) argv.insert(argv.end(), {"--site", options.site});
  if (!options.site_checkpoints.empty()) argv.insert(argv.end(), {"--site-checkpoints", options.site_checkpoints});
  argv.insert(argv.end(), {"--log-level", options.log_level.value_or("warning"), "--phases"});  // both are shown as they come
  if (options.listen) argv.insert(argv.end(), {"--listen", *options.listen});
  if (options.advertise) argv.insert(argv.end(), {"--advertise", *options.advertise});
  return argv;
}

absl::StatusOr<int> JoinRun(const JoinOptions& options, SignalWatch& signals) {
  if (options.listen) FUSIONLLM_RETURN_IF_ERROR(CheckOwnAddress(*options.listen, options.advertise.has_value()));
  if (options.advertise) {
    FUSIONLLM_RETURN_IF_ERROR(CheckNotLoopback("--advertise", *options.advertise, options.address));
  } else if (options.listen) {
    FUSIONLLM_RETURN_IF_ERROR(CheckNotLoopback("--listen", *options.listen, options.address));
  }
  // Before the run hears of this machine: the executor would say it too late.
  if (const absl::Status there = kernels::ChooseDevice(options.device).status(); !there.ok()) {
    return absl::InvalidArgumentError(there.message());
  }
  std::string bin = options.bin_folder;
  if (bin.empty()) {
    FUSIONLLM_ASSIGN_OR_RETURN(bin, ProgramFolder());
  }
  // What gRPC logs of a failure stands before the sentence that says it. Unless the user has chosen; its thread is not there yet.
  setenv("GRPC_VERBOSITY", "NONE", /*overwrite=*/0);
  FUSIONLLM_ASSIGN_OR_RETURN(const Enrolled enrolled, Enroll(options));

  FUSIONLLM_ASSIGN_OR_RETURN(const JoinFolder kept, JoinFolder::Create(std::filesystem::temp_directory_path().string()));
  const std::string& folder = kept.path();
  FUSIONLLM_RETURN_IF_ERROR(
      security::WriteCredentials(folder, enrolled.name, {enrolled.ca_pem, enrolled.certificate_pem, enrolled.private_key_pem}));
  const std::string log = folder + "/executor.log";
  FUSIONLLM_ASSIGN_OR_RETURN(
      ChildProcess child,
      ChildProcess::Start({"fusion-executor", ExecutorCommand(options, bin, enrolled.name, folder), log, /*pipe_stdout=*/false}));
  absl::FPrintF(stderr, "joined the run at %s as %s\n", options.address, enrolled.name);

  Work work(std::move(child), signals, log);
  const ExitStatus end = work.Wait();
  if (work.interrupted()) return kExitInterrupted;
  if (end.exit_code == kExitDone) {
    absl::FPrintF(stderr, "the run is over\n");
    return kExitDone;
  }
  if (end.exit_code != kExecutorRunFailed) absl::FPrintF(stderr, "fusionctl: fusion-executor ended: %s\n", Describe(end));
  return kExitFailed;
}

}  // namespace fusionllm::cli
