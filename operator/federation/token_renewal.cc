#include "operator/federation/token_renewal.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <utility>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "lib/base/log.h"
#include "lib/base/status_macros.h"
#include "lib/base/truncate_utf8.h"
#include "lib/kube/api/api_error.h"
#include "lib/kube/api/json_fields.h"
#include "lib/kube/api/time.h"
#include "lib/kubeapi/pod_policy.h"
#include "operator/manifests/resources.h"

namespace fusionllm::op::federation {
namespace {

using nlohmann::json;

constexpr char kAddAgain[] =
    "run `fusionctl cluster add` again, or make one that ends with a Secret, as the chart's notes for role member tell";
constexpr absl::Duration kCallTimeout = absl::Seconds(10);
constexpr size_t kMaxReasonBytes = 256;

// The one user of a kubeconfig in JSON, who has a token and nothing else; null: it is another kind of kubeconfig.
json* UserOf(json& config) {
  if (kube::TextAt(config, "kind") != "Config" || kube::ListOf(kube::At(config, "users")).size() != 1) return nullptr;
  const json& user = kube::At(config["users"][0], "user");
  const bool token_alone = user.is_object() && user.size() == 1 && !kube::TextAt(user, "token").empty();
  return token_alone ? &config["users"][0]["user"] : nullptr;
}

absl::Duration LifeOf(const kube::ServiceAccountToken& token) { return *token.expires_at - token.issued_at; }

}  // namespace

struct TokenRenewal::Registered {
  kube::ObjectKey key;
  std::string uid, resource_version, data_key;
  std::string text;    // the kubeconfig
  json config;         // the same; null: not one of the kind that is renewed
  bool asked = false;  // by its label
  bool by_fusionctl = false;
  absl::StatusOr<kube::ServiceAccountToken> token = absl::UnknownError("");

  static Registered Of(const kube::ObjectKey& key, const std::string& data_key, const std::string& answer) {
    const json secret = kube::ParseJson(answer);
    Registered read{.key = key,
                    .uid = kube::TextAt(secret, "metadata", "uid"),
                    .resource_version = kube::TextAt(secret, "metadata", "resourceVersion"),
                    .data_key = data_key};
    const bool read_text = absl::Base64Unescape(kube::TextAt(secret, "data", data_key), &read.text);
    read.asked = kube::TextAt(secret, "metadata", "labels", kubeapi::kRenewToken) == "true";
    read.by_fusionctl = kube::TextAt(secret, "metadata", "labels", kubeapi::kManagedByLabel) == kubeapi::kFusionctlManager;
    if (!read_text || !read.asked || read.uid.empty() || read.resource_version.empty()) return read;
    json config = kube::ParseJson(read.text);
    const json* const user = UserOf(config);
    if (user == nullptr) return read;
    read.token = kube::ReadServiceAccountToken(kube::TextAt(*user, "token"));
    read.config = std::move(config);
    return read;
  }
};

TokenRenewal::TokenRenewal(std::string ns, kube::ApiClient& hub, kube::Clock& clock, std::function<absl::Status()> may_write,
                           std::function<void(const std::string& cluster)> on_change)
    : ns_(std::move(ns)), hub_(hub), clock_(clock), may_write_(std::move(may_write)), on_change_(std::move(on_change)) {}

kube::ReconcileResult TokenRenewal::Reconcile(const std::string& cluster, const kubeapi::KubeConfigSource& source,
                                              const std::string& kubeconfig, kube::ApiClient& member, const std::stop_token& stop) {
  if (!may_write_().ok()) return kube::ReconcileResult::RequeueAfter(kStandbyRecheck);
  const kube::ObjectKey key{ns_, source.location};
  const absl::StatusOr<std::string> answer = hub_.Get(manifests::kSecrets, key, {.timeout = kCallTimeout, .stop = stop});
  if (absl::IsCancelled(answer.status())) return kube::ReconcileResult::Done();
  // Of a Secret that cannot be read CredentialsValid tells.
  if (!answer.ok()) return kube::ReconcileResult::RequeueAfter(kMaxRetry);
  const Registered registered = Registered::Of(key, source.key, *answer);
  // Another member may stand behind it, and this one's connection is made again in a moment.
  if (registered.text != kubeconfig) return kube::ReconcileResult::RequeueAfter(kMinRetry);
  if (!registered.asked && !registered.by_fusionctl) {
    Report(cluster, {});
    return kube::ReconcileResult::RequeueAfter(kRecheck);
  }
  const auto not_renewable = [&](const std::string& what) {
    Report(cluster, {.managed = true, .reason = "NotRenewable", .message = absl::StrCat("its token ", what, ": ", kAddAgain)});
    return kube::ReconcileResult::RequeueAfter(kRecheck);
  };
  if (!registered.asked) return not_renewable("is of an earlier release");
  if (registered.config.is_null()) return not_renewable("is not found: the kubeconfig is not JSON with one user, of a token alone");
  if (!registered.token.ok()) return not_renewable(std::string(registered.token.status().message()));
  const kube::ServiceAccountToken& token = *registered.token;
  if (!token.expires_at.has_value()) return not_renewable("never ends");
  if (token.secret.empty()) return not_renewable("is bound to no Secret, whose deletion would end it");
  const absl::Duration until = token.issued_at + LifeOf(token) / 2 - clock_.Now();
  if (until <= absl::ZeroDuration()) return Renew(cluster, registered, member, stop);
  Report(cluster,
         {.managed = true, .renewed = true, .reason = "Renewed", .message = absl::StrCat("until ", kube::TimeText(*token.expires_at))});
  return kube::ReconcileResult::RequeueAfter(std::min(until, kRecheck));
}

kube::ReconcileResult TokenRenewal::Renew(const std::string& cluster, const Registered& registered, kube::ApiClient& member,
                                          const std::stop_token& stop) {
  {
    const base::MutexLock lock(mutex_);
    const absl::Duration soonest = states_[cluster].written_at + kMinInterval, now = clock_.Monotonic();
    if (now < soonest) return kube::ReconcileResult::RequeueAfter(soonest - now);
  }
  const absl::StatusOr<std::string> token = NewToken(registered, member, stop);
  if (absl::IsCancelled(token.status())) return kube::ReconcileResult::Done();
  if (!token.ok()) return Failed(cluster, *registered.token, token.status());
  const absl::Status written = Write(registered, *token, stop);
  // Somebody else wrote meanwhile, perhaps a newer token: what is there now is looked at.
  if (kube::IsApiConflict(written) || kube::IsApiNotFound(written)) return kube::ReconcileResult::RequeueAfter(kMinRetry);
  if (!written.ok()) return Failed(cluster, *registered.token, written);
  {
    const base::MutexLock lock(mutex_);
    states_[cluster].failures = 0;
    states_[cluster].written_at = clock_.Monotonic();
  }
  const std::string until = absl::StrCat("until ", kube::TimeText(*kube::ReadServiceAccountToken(*token)->expires_at));
  base::Log(base::LogLevel::kInfo, absl::StrCat("cluster ", cluster, ": has a new token, ", until));
  Report(cluster, {.managed = true, .renewed = true, .reason = "Renewed", .message = until});
  return kube::ReconcileResult::RequeueAfter(kMinInterval);
}

absl::StatusOr<std::string> TokenRenewal::NewToken(const Registered& registered, kube::ApiClient& member,
                                                   const std::stop_token& stop) const {
  const kube::ServiceAccountToken& old = *registered.token;
  FUSIONLLM_ASSIGN_OR_RETURN(std::string token, kube::RequestToken(member, old, std::min(LifeOf(old), kubeapi::kTokenLife),
                                                                   {.timeout = kCallTimeout, .stop = stop}));
  FUSIONLLM_ASSIGN_OR_RETURN(const kube::ServiceAccountToken read, kube::ReadServiceAccountToken(token));
  if (*read.expires_at > *old.expires_at) return token;
  return absl::FailedPreconditionError(
      absl::StrCat("the member gives a token until ", kube::TimeText(*read.expires_at), ", which is no later than the one at hand"));
}

absl::Status TokenRenewal::Write(const Registered& registered, const std::string& token, const std::stop_token& stop) {
  json config = registered.config;
  (*UserOf(config))["token"] = token;
  const std::string text = config.dump(2, ' ', false, json::error_handler_t::replace);
  const json patch = {{"metadata", {{"uid", registered.uid}, {"resourceVersion", registered.resource_version}}},
                      {"data", {{registered.data_key, absl::Base64Escape(text)}}}};
  return hub_
      .Patch(manifests::kSecrets, registered.key, kube::PatchType::kMerge, patch.dump(-1, ' ', false, json::error_handler_t::replace),
             {.field_manager = manifests::kFieldManager}, {.timeout = kCallTimeout, .stop = stop})
      .status();
}

kube::ReconcileResult TokenRenewal::Failed(const std::string& cluster, const kube::ServiceAccountToken& token, const absl::Status& why) {
  int failures = 0;
  {
    const base::MutexLock lock(mutex_);
    failures = states_[cluster].failures++;
  }
  const std::string message = absl::StrCat("its token, until ", kube::TimeText(*token.expires_at),
                                           ", cannot be renewed: ", base::TruncateUtf8(std::string(why.message()), kMaxReasonBytes));
  base::Log(base::LogLevel::kWarning, absl::StrCat("cluster ", cluster, ": ", message));
  Report(cluster, {.managed = true, .reason = "RenewalFailed", .message = message});
  return kube::ReconcileResult::RequeueAfter(std::min(kMinRetry * (1 << std::min(failures, 10)), kMaxRetry));
}

void TokenRenewal::Report(const std::string& cluster, TokenFinding finding) {
  {
    const base::MutexLock lock(mutex_);
    std::optional<TokenFinding>& kept = states_[cluster].finding;
    if (kept == finding) return;
    kept = std::move(finding);
  }
  on_change_(cluster);
}

std::optional<TokenFinding> TokenRenewal::Of(const std::string& cluster) const {
  const base::MutexLock lock(mutex_);
  const auto at = states_.find(cluster);
  return at == states_.end() ? std::nullopt : at->second.finding;
}

void TokenRenewal::Forget(const std::string& cluster) {
  const base::MutexLock lock(mutex_);
  states_.erase(cluster);
}

}  // namespace fusionllm::op::federation
