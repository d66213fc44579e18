// What a cache keeps of a pod that may be of a job: where it is, what it takes there, and of which job it is.
#pragma once

#include <memory>
#include <string>
#include <utility>

#include "lib/kube/watch/pod_resources.h"

namespace fusionllm::op::cache {

// Whose an object is, as it says itself.
struct JobRef {
  std::string name;
  std::string uid;
  std::string hub;         // uid of the hub that made it
  std::string owner = "";  // of a pod: uid of the owner ConfigMap; empty: not asked for

  bool operator==(const JobRef&) const = default;
  template <class H>
  friend H AbslHashValue(H state, const JobRef& job) {
    return H::combine(std::move(state), job.name, job.uid, job.hub, job.owner);
  }
};
// One for all objects of a job and owner; null: the labels name none.
using JobRefPtr = std::shared_ptr<const JobRef>;
JobRefPtr JobRefOf(const kube::ObjectMeta& meta);
// The same job's, with this owner.
JobRefPtr OwnedBy(const JobRef& job, const std::string& owner);

struct JobPod : kube::PodResources {
  size_t Bytes() const override {
    return PodResources::Bytes() + (job == nullptr ? 0 : job->name.size() + job->uid.size() + job->hub.size() + job->owner.size());
  }
  JobRefPtr job;
  bool executor = false;
};

// Of the labels nothing stays but `job` and `executor`: they would be half of what a cached pod takes. Errors: those of a decoder.
absl::Status ReadJobPod(absl::string_view json, JobPod& pod);

}  // namespace fusionllm::op::cache
