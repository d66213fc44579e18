#include "operator/controller/job_secrets.h"

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "lib/base/status_macros.h"
#include "lib/kube/api/api_error.h"
#include "lib/kube/api/json_fields.h"
#include "operator/manifests/resources.h"

namespace fusionllm::op::controller {
namespace {

using kube::At;
using nlohmann::json;

manifests::Files FilesOf(const json& secret) {
  manifests::Files files;
  for (const auto& [file, text] : kube::MappingOf(At(secret, "data")).items()) {
    std::string plain;
    if (text.is_string() && absl::Base64Unescape(text.get<std::string>(), &plain)) files[file] = std::move(plain);
  }
  return files;
}

}  // namespace

absl::StatusOr<manifests::JobCredentials> JobSecrets::Authority(const manifests::Owner& owner, bool renew) {
  const std::string name = manifests::AuthoritySecretName(job_);
  FUSIONLLM_ASSIGN_OR_RETURN(json there, objects_.Find(manifests::kSecrets, name));
  if (there.is_null()) {
    FUSIONLLM_ASSIGN_OR_RETURN(manifests::JobCredentials left, RestoreOrMake());
    FUSIONLLM_ASSIGN_OR_RETURN(manifests::JobCredentials made, Renewed(std::move(left), renew));
    const json secret = manifests::SecretObject(job_, name, made.AuthorityFiles(), owner);
    const absl::Status created =
        member_.client().Create(manifests::kSecrets, job_.ns, secret.dump(), {.field_manager = manifests::kFieldManager}, call_).status();
    if (created.ok()) {
      Keep(made);
      return made;
    }
    if (!kube::IsApiAlreadyExists(created)) return created;
    FUSIONLLM_ASSIGN_OR_RETURN(there, objects_.Find(manifests::kSecrets, name));
  }
  FUSIONLLM_ASSIGN_OR_RETURN(manifests::JobCredentials found, manifests::JobCredentials::FromFiles(FilesOf(there)));
  const std::string before = found.certificate_pem();
  FUSIONLLM_ASSIGN_OR_RETURN(manifests::JobCredentials authority, Renewed(std::move(found), renew));
  if (authority.certificate_pem() != before) {
    FUSIONLLM_RETURN_IF_ERROR(
        objects_.Put(manifests::kSecrets, manifests::SecretObject(job_, name, authority.AuthorityFiles(), owner), there));
  }
  Keep(authority);
  return authority;
}

absl::StatusOr<manifests::JobCredentials> JobSecrets::Renewed(manifests::JobCredentials authority, bool renew) const {
  if (!renew || authority.HasEnoughLeft(now_)) return authority;
  return manifests::JobCredentials::Create(job_.name, now_);
}

absl::StatusOr<manifests::JobCredentials> JobSecrets::RestoreOrMake() {
  if (authorities_ != nullptr) {
    if (std::optional<manifests::JobCredentials> kept = authorities_->Find(job_.uid, now_); kept.has_value()) return *std::move(kept);
  }
  // One that cannot be read now may be there: pods would be shut out by a new authority.
  FUSIONLLM_ASSIGN_OR_RETURN(const json broker, objects_.Find(manifests::kSecrets, manifests::BrokerSecretName(job_)));
  if (absl::StatusOr<manifests::JobCredentials> kept = manifests::JobCredentials::FromFiles(FilesOf(broker)); kept.ok()) return kept;
  return manifests::JobCredentials::Create(job_.name, now_);
}

absl::StatusOr<manifests::JobCredentials> JobSecrets::AuthorityOn(cache::Member& hub) {
  if (authorities_ != nullptr) {
    if (std::optional<manifests::JobCredentials> kept = authorities_->Find(job_.uid, now_); kept.has_value()) return *std::move(kept);
  }
  const std::string name = manifests::AuthoritySecretName(job_);
  FUSIONLLM_ASSIGN_OR_RETURN(const json there, JobObjects(hub, job_, call_).Find(manifests::kSecrets, name));
  if (there.is_null()) return absl::UnavailableError(absl::StrCat("Secret ", name, " in cluster ", hub.name(), " is gone"));
  FUSIONLLM_ASSIGN_OR_RETURN(manifests::JobCredentials authority, manifests::JobCredentials::FromFiles(FilesOf(there)));
  Keep(authority);
  return authority;
}

absl::Status JobSecrets::ForBroker(const manifests::JobCredentials& authority, const manifests::Owner& owner) {
  return Ensure(manifests::BrokerSecretName(job_), authority, {"broker.key", "scheduler.key"}, owner,
                [&] { return authority.BrokerFiles(now_); });
}

absl::Status JobSecrets::ForExecutors(const manifests::JobCredentials& authority, const std::vector<manifests::ExecutorSlot>& slots,
                                      const std::string& cluster, const manifests::Owner& owner) {
  std::map<std::string, std::vector<std::string>> devices;  // by Secret
  for (const manifests::ExecutorSlot& slot : slots) {
    if (slot.cluster == cluster) devices[manifests::ExecutorSecretName(job_, slot.index)].push_back(manifests::DeviceName(slot));
  }
  for (const auto& secret : devices) {
    std::vector<std::string> files;
    for (const std::string& device : secret.second) files.push_back(absl::StrCat(device, ".key"));
    FUSIONLLM_RETURN_IF_ERROR(Ensure(secret.first, authority, files, owner, [&] { return authority.ExecutorFiles(secret.second, now_); }));
  }
  return absl::OkStatus();
}

absl::Status JobSecrets::Ensure(const std::string& name, const manifests::JobCredentials& authority, const std::vector<std::string>& wanted,
                                const manifests::Owner& owner, const std::function<absl::StatusOr<manifests::Files>()>& make) {
  FUSIONLLM_ASSIGN_OR_RETURN(const json there, objects_.Find(manifests::kSecrets, name));
  const manifests::Files have = FilesOf(there);
  const auto issued_by = have.find("ca.pem");
  const bool current = issued_by != have.end() && issued_by->second == authority.certificate_pem();
  const bool whole = std::all_of(wanted.begin(), wanted.end(), [&](const std::string& file) { return have.contains(file); });
  absl::StatusOr<manifests::Files> files = current && whole ? authority.Renewed(have, now_) : make();
  if (!files.ok()) files = make();  // what cannot be read is of no use
  FUSIONLLM_RETURN_IF_ERROR(files.status());
  if (*files == have) return absl::OkStatus();
  return objects_.Put(manifests::kSecrets, manifests::SecretObject(job_, name, *files, owner), there);
}

void JobSecrets::Keep(const manifests::JobCredentials& authority) {
  if (authorities_ != nullptr) authorities_->Put(job_.uid, authority, now_);
}

}  // namespace fusionllm::op::controller
