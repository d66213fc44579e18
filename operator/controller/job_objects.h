// What is made beside a job's owner ConfigMap, in one cluster: nothing of anybody else's is overwritten. For one preparation (prepare.h).
// Blocks on the API server; errors are its.
#pragma once

#include <nlohmann/json.hpp>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "lib/kube/client/api_client.h"
#include "operator/cache/member.h"
#include "operator/manifests/identity.h"

namespace fusionllm::op::controller {

class JobObjects {
 public:
  // Both must outlive it.
  JobObjects(cache::Member& member, const manifests::JobIdentity& job, kube::CallOptions call)
      : member_(member), job_(job), call_(std::move(call)) {}

  // The job's object of that name; null: there is none. AlreadyExists: the one that exists is not owned by this job.
  absl::StatusOr<nlohmann::json> Find(const kube::Resource& resource, const std::string& name) const;
  // `there`: what Find() said, so that none is overwritten that has taken its name since, which is Unavailable.
  absl::Status Put(const kube::Resource& resource, nlohmann::json object, const nlohmann::json& there) const;
  // An error for an object that has a name of the job's and is not the job's.
  absl::Status NameConflict(const kube::Resource& resource, const std::string& name) const;

 private:
  cache::Member& member_;
  const manifests::JobIdentity& job_;
  const kube::CallOptions call_;
};

// Uid of the owner that controls the object; empty: it has none.
std::string OwnerUidOf(const nlohmann::json& object);
// The same owner's name.
std::string OwnerNameOf(const nlohmann::json& object);

}  // namespace fusionllm::op::controller
