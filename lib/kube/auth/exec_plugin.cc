#include "lib/kube/auth/exec_plugin.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <utility>

#include "absl/strings/escaping.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "lib/base/json_text.h"
#include "lib/base/log.h"
#include "lib/base/mutex.h"
#include "lib/base/status_macros.h"
#include "lib/kube/api/time.h"
#include "lib/kube/auth/certificate_expiry.h"
#include "lib/kube/auth/child_program.h"
#include "lib/kube/auth/small_file.h"

namespace fusionllm::kube {
namespace {

using nlohmann::json;

constexpr char kGroup[] = "client.authentication.k8s.io/";
// A new one is made a little before the old one expires: the server's clock may be ahead of ours.
constexpr absl::Duration kExpiryMargin = absl::Seconds(10);
// What a program prints is used at least so long, unless it is refused: with a shorter life the program would run for each request.
constexpr absl::Duration kMinUse = absl::Seconds(5);
// From a failure, or from credentials that are refused, to the next run: doubled each time.
constexpr absl::Duration kFirstPause = absl::Seconds(1), kLongestPause = absl::Minutes(1);
// The authority of a cluster is part of one variable of the program's environment, which may take 128 KiB.
constexpr size_t kMaxAuthorityBytes = size_t{64} << 10;
constexpr absl::Duration kSayAgain = absl::Minutes(1);

std::string Text(const json& object, const char* field) {
  const auto found = object.find(field);
  return found != object.end() && found->is_string() ? found->get<std::string>() : "";
}

// What the program gets: $KUBERNETES_EXEC_INFO.
absl::StatusOr<std::string> ExecInfo(const ExecConfig& exec, const ClientConfig& config) {
  json spec = {{"interactive", false}};
  if (exec.provide_cluster_info) {
    json cluster = {{"server", config.server}};
    if (!config.tls_server_name.empty()) cluster["tls-server-name"] = config.tls_server_name;
    if (config.insecure) cluster["insecure-skip-tls-verify"] = true;
    if (!config.proxy_url.empty()) cluster["proxy-url"] = config.proxy_url;
    std::string ca = config.ca.data;
    if (!config.ca.path.empty()) {
      FUSIONLLM_ASSIGN_OR_RETURN(ca, ReadSmallFile(config.ca.path, kMaxAuthorityBytes));
    }
    if (!ca.empty()) cluster["certificate-authority-data"] = absl::Base64Escape(ca);
    if (!config.exec_cluster_config.empty()) cluster["config"] = base::ParseJson(config.exec_cluster_config);
    spec["cluster"] = std::move(cluster);
  }
  return json({{"kind", "ExecCredential"}, {"apiVersion", exec.api_version}, {"spec", std::move(spec)}})
      .dump(-1, ' ', false, json::error_handler_t::replace);
}

class ExecPlugin : public CredentialSource {
 public:
  ExecPlugin(ExecConfig exec, std::string info, Clock& clock, const ExecMetrics* metrics, absl::Duration timeout)
      : exec_(std::move(exec)), info_(std::move(info)), clock_(clock), metrics_(metrics), timeout_(timeout) {}
  ~ExecPlugin() override {
    if (metrics_ != nullptr) metrics_->Forget(this);
  }

  absl::StatusOr<std::shared_ptr<const Credentials>> Get(std::stop_token stop) override {
    // Held while the program runs: who comes meanwhile wants the same answer.
    const base::MutexLock lock(mutex_);
    const absl::Duration now = clock_.Monotonic();
    const bool usable = last_ != nullptr && !refused_;
    if (usable && (clock_.Now() < expires_ - kExpiryMargin || now < made_at_ + kMinUse)) return last_;
    if (now < run_at_) return why_not_;
    Forgive(now);
    absl::StatusOr<ExecCredential> credential = Run(stop);
    if (absl::IsCancelled(credential.status())) return credential.status();
    if (!credential.ok()) {
      PauseFrom(clock_.Monotonic(), std::string(credential.status().message()));
      return why_not_;
    }
    made_at_ = clock_.Monotonic();
    expires_ = credential->expires;
    refused_ = false;
    why_not_ = absl::OkStatus();
    if (last_ == nullptr || *last_ != credential->credentials) {
      last_ = std::make_shared<const Credentials>(std::move(credential->credentials));
      TellExpiry();
    }
    return last_;
  }

  void Refused(const Credentials& used) override {
    const base::MutexLock lock(mutex_);
    if (last_ == nullptr || refused_ || *last_ != used) return;
    refused_ = true;
    Forgive(clock_.Monotonic());
    // The first time at once: they may have been revoked, or the server's clock is ahead.
    if (pause_ == absl::ZeroDuration()) {
      pause_ = kFirstPause;
      return;
    }
    PauseFrom(made_at_, absl::StrCat("the server refuses what ", exec_.command, " has printed"));
  }

 private:
  // Runs the program, and logs what it says of itself.
  absl::StatusOr<ExecCredential> Run(const std::stop_token& stop) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    ChildProgram program = {.argv = {exec_.command}, .env = exec_.env, .timeout = timeout_};
    program.argv.insert(program.argv.end(), exec_.args.begin(), exec_.args.end());
    program.env.emplace_back("KUBERNETES_EXEC_INFO", info_);
    ProgramReport report;
    const absl::StatusOr<std::string> text = RunProgram(program, stop, report);
    if (metrics_ != nullptr && !absl::IsCancelled(text.status())) metrics_->Ran(text.status(), report);
    absl::StatusOr<ExecCredential> credential = text.ok() ? ParseExecCredential(*text, exec_.api_version) : text.status();
    if (absl::IsNotFound(text.status()) && !exec_.install_hint.empty()) {
      credential = absl::NotFoundError(absl::StrCat(text.status().message(), ". ", exec_.install_hint.substr(0, 500)));
    } else if (text.ok() && !credential.ok()) {
      credential = absl::InvalidArgumentError(absl::StrCat(exec_.command, ": ", credential.status().message()));
    }
    if (!absl::IsCancelled(credential.status())) Say(credential.status(), report.errors);
    return credential;
  }

  void TellExpiry() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    if (metrics_ == nullptr) return;
    const std::string& certificate = last_->certificate_pem;
    metrics_->Expires(this, CertificateExpiry(certificate).value_or(absl::InfiniteFuture()), clock_);
  }

  // Once for each change and, while it goes on, once a minute.
  void Say(const absl::Status& end, const std::string& errors) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    if (end.ok() && errors.empty()) return;
    std::string sentence(end.ok() ? exec_.command : end.message());
    const absl::Duration now = clock_.Monotonic();
    if (sentence == said_ && now < say_again_) return;
    say_again_ = now + kSayAgain;
    base::Log(end.ok() ? base::LogLevel::kInfo : base::LogLevel::kWarning,
              absl::StrCat("credentials: ", sentence, errors.empty() ? "" : ", with stderr: ", errors));
    said_ = std::move(sentence);
  }

  // Credentials that have served for a while end a row of failures.
  void Forgive(absl::Duration now) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    if (why_not_.ok() && last_ != nullptr && now - made_at_ >= kLongestPause) pause_ = absl::ZeroDuration();
  }

  // The error says for how long, not until when: it becomes part of statuses, which are not to change with each run.
  void PauseFrom(absl::Duration moment, const std::string& why) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    pause_ = std::clamp(2 * pause_, kFirstPause, kLongestPause);
    run_at_ = moment + pause_;
    why_not_ =
        NoCredentials(absl::UnauthenticatedError(absl::StrCat(why, "; it is run again ", absl::FormatDuration(pause_), " after that")));
  }

  const ExecConfig exec_;
  const std::string info_;
  Clock& clock_;
  const ExecMetrics* const metrics_;
  const absl::Duration timeout_;
  base::Mutex mutex_;
  std::shared_ptr<const Credentials> last_ ABSL_GUARDED_BY(mutex_);  // null: none were made yet
  bool refused_ ABSL_GUARDED_BY(mutex_) = false;                     // by the server
  absl::Time expires_ ABSL_GUARDED_BY(mutex_);
  absl::Duration made_at_ ABSL_GUARDED_BY(mutex_);
  // Not run again before, and what is answered until then. OK: the last run went well, and what it printed was not refused.
  absl::Duration run_at_ ABSL_GUARDED_BY(mutex_) = -absl::InfiniteDuration();
  absl::Status why_not_ ABSL_GUARDED_BY(mutex_);
  absl::Duration pause_ ABSL_GUARDED_BY(mutex_);
  std::string said_ ABSL_GUARDED_BY(mutex_);
  absl::Duration say_again_ ABSL_GUARDED_BY(mutex_) = -absl::InfiniteDuration();
};

}  // namespace

absl::Status CheckExecVersion(absl::string_view api_version) {
  if (api_version == absl::StrCat(kGroup, "v1") || api_version == absl::StrCat(kGroup, "v1beta1")) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("must be ", kGroup, "v1 or ", kGroup, "v1beta1, not \"", api_version.substr(0, 100), "\""));
}

absl::Status CheckExecCommand(absl::string_view command) {
  const bool named = !command.empty() && (command[0] == '/' || !absl::StrContains(command, '/'));
  if (named) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("must be an absolute path, or a name without '/' that is looked for in $PATH, not \"", command.substr(0, 100), "\""));
}

absl::StatusOr<std::shared_ptr<CredentialSource>> MakeExecPlugin(const ExecConfig& exec, const ClientConfig& config, Clock& clock,
                                                                 const ExecMetrics* metrics, absl::Duration timeout) {
  if (const absl::Status version = CheckExecVersion(exec.api_version); !version.ok()) {
    return absl::InvalidArgumentError(absl::StrCat("exec.apiVersion ", version.message()));
  }
  if (exec.needs_terminal) {
    return absl::InvalidArgumentError(
        absl::StrCat("exec.interactiveMode must be Never or IfAvailable: ", exec.command, " would ask at a terminal, and there is none"));
  }
  FUSIONLLM_ASSIGN_OR_RETURN(std::string info, ExecInfo(exec, config));
  return std::make_shared<ExecPlugin>(exec, std::move(info), clock, metrics, timeout);
}

absl::StatusOr<ExecCredential> ParseExecCredential(absl::string_view text, absl::string_view api_version) {
  const json object = base::ParseJson(text);
  if (!object.is_object() || Text(object, "kind") != "ExecCredential") return absl::InvalidArgumentError("printed no ExecCredential");
  if (Text(object, "apiVersion") != api_version) {
    return absl::InvalidArgumentError(absl::StrCat("printed an ExecCredential of another apiVersion than ", api_version));
  }
  const auto status = object.find("status");
  if (status == object.end() || !status->is_object()) return absl::InvalidArgumentError("printed an ExecCredential without a status");
  ExecCredential credential;
  credential.credentials = {Text(*status, "token"), Text(*status, "clientCertificateData"), Text(*status, "clientKeyData")};
  const Credentials& made = credential.credentials;
  if (made.certificate_pem.empty() != made.key_pem.empty()) {
    return absl::InvalidArgumentError("printed a client certificate without its key, or a key without its certificate");
  }
  if (made.token.empty() && made.certificate_pem.empty()) return absl::InvalidArgumentError("printed neither a token nor a certificate");
  if (made.token.find_first_of("\r\n") != std::string::npos) return absl::InvalidArgumentError("printed a token of several lines");
  if (!IsToken(made.token)) return absl::InvalidArgumentError(absl::StrCat("printed a token that ", kInvalidTokenMessage));
  if (const std::string expires = Text(*status, "expirationTimestamp"); !expires.empty()) {
    const absl::StatusOr<absl::Time> time = TimeFromText(expires);
    if (!time.ok()) return absl::InvalidArgumentError("printed an expirationTimestamp that is no time");
    credential.expires = *time;
  }
  return credential;
}

}  // namespace fusionllm::kube
