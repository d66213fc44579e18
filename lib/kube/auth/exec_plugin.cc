#include "lib/kube/auth/exec_plugin.h"

#include <cstdlib>
#include <mutex>
#include <nlohmann/json.hpp>
#include <utility>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "lib/base/log.h"
#include "lib/base/status_macros.h"
#include "lib/kube/api/time.h"
#include "lib/kube/auth/child_program.h"

namespace fusionllm::kube {
namespace {

using nlohmann::json;

constexpr char kGroup[] = "client.authentication.k8s.io/";
// A new one is made a little before the old one expires: the server's clock may be ahead of ours.
constexpr absl::Duration kExpiryMargin = absl::Seconds(10);

std::string Text(const json& object, const char* field) {
  const auto found = object.find(field);
  return found != object.end() && found->is_string() ? found->get<std::string>() : "";
}

// What the program is told: $KUBERNETES_EXEC_INFO.
std::string ExecInfo(const ExecConfig& exec, const ClientConfig& config) {
  json spec = {{"interactive", false}};
  if (exec.provide_cluster_info) {
    json cluster = {{"server", config.server}};
    if (!config.tls_server_name.empty()) cluster["tls-server-name"] = config.tls_server_name;
    if (config.insecure) cluster["insecure-skip-tls-verify"] = true;
    if (!config.proxy_url.empty()) cluster["proxy-url"] = config.proxy_url;
    if (!config.ca.data.empty()) cluster["certificate-authority-data"] = absl::Base64Escape(config.ca.data);
    if (!config.exec_cluster_config.empty()) cluster["config"] = json::parse(config.exec_cluster_config, nullptr, false);
    spec["cluster"] = std::move(cluster);
  }
  return json({{"kind", "ExecCredential"}, {"apiVersion", exec.api_version}, {"spec", std::move(spec)}})
      .dump(-1, ' ', false, json::error_handler_t::replace);
}

class ExecPlugin : public CredentialSource {
 public:
  ExecPlugin(ExecConfig exec, const ClientConfig& config, Clock& clock, absl::Duration timeout)
      : exec_(std::move(exec)), info_(ExecInfo(exec_, config)), clock_(clock), timeout_(timeout) {}

  absl::StatusOr<std::shared_ptr<const Credentials>> Get(std::stop_token stop) override {
    // Held while the program runs: whoever comes meanwhile wants the same answer.
    const std::lock_guard lock(mutex_);
    if (last_ != nullptr && clock_.Now() < expires_ - kExpiryMargin) return last_;
    ChildProgram program = {.argv = {exec_.command}, .env = exec_.env, .timeout = timeout_};
    program.argv.insert(program.argv.end(), exec_.args.begin(), exec_.args.end());
    program.env.emplace_back("KUBERNETES_EXEC_INFO", info_);
    const absl::StatusOr<std::string> text = RunProgram(program, stop);
    if (absl::IsNotFound(text.status()) && !exec_.install_hint.empty()) {
      return NoCredentials(absl::NotFoundError(absl::StrCat(text.status().message(), ". ", exec_.install_hint.substr(0, 500))));
    }
    if (!text.ok()) return NoCredentials(text.status());
    absl::StatusOr<ExecCredential> credential = ParseExecCredential(*text, exec_.api_version);
    if (!credential.ok()) {
      return NoCredentials(absl::InvalidArgumentError(absl::StrCat(exec_.command, ": ", credential.status().message())));
    }
    expires_ = credential->expires;
    if (last_ == nullptr || *last_ != credential->credentials) {
      last_ = std::make_shared<const Credentials>(std::move(credential->credentials));
    }
    return last_;
  }

  void Refused(const Credentials& used) override {
    const std::lock_guard lock(mutex_);
    if (last_ != nullptr && *last_ == used) expires_ = absl::InfinitePast();
  }

 private:
  const ExecConfig exec_;
  const std::string info_;
  Clock& clock_;
  const absl::Duration timeout_;
  std::mutex mutex_;
  std::shared_ptr<const Credentials> last_;
  absl::Time expires_ = absl::InfinitePast();
};

}  // namespace

absl::StatusOr<std::shared_ptr<CredentialSource>> MakeExecPlugin(const ExecConfig& exec, const ClientConfig& config, Clock& clock,
                                                                 absl::Duration timeout) {
  if (exec.api_version != absl::StrCat(kGroup, "v1") && exec.api_version != absl::StrCat(kGroup, "v1beta1")) {
    return absl::InvalidArgumentError(
        absl::StrCat("exec.apiVersion must be ", kGroup, "v1 or ", kGroup, "v1beta1, not \"", exec.api_version.substr(0, 100), "\""));
  }
  return std::make_shared<ExecPlugin>(exec, config, clock, timeout);
}

absl::StatusOr<ExecCredential> ParseExecCredential(absl::string_view text, absl::string_view api_version) {
  const json object = json::parse(text.begin(), text.end(), nullptr, /*allow_exceptions=*/false);
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
  if (const std::string expires = Text(*status, "expirationTimestamp"); !expires.empty()) {
    const absl::StatusOr<absl::Time> time = TimeFromText(expires);
    if (!time.ok()) return absl::InvalidArgumentError("printed an expirationTimestamp that is no time");
    credential.expires = *time;
  }
  return credential;
}

}  // namespace fusionllm::kube
