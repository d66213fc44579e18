// The Workloads of jobs on the hub, as cached.
#pragma once

#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <string>

#include "lib/kube/api/resource.h"
#include "operator/kueue/queue_status.h"

namespace fusionllm::op::kueue {

class WorkloadSource {
 public:
  virtual ~WorkloadSource() = default;
  // Of that namespace. The first time that somebody asks it begins to find out, which blocks on the API server.
  virtual WorkloadAccess Access(const std::string& ns) = 0;
  // Null: there is none of ours.
  virtual std::shared_ptr<const nlohmann::json> Find(const kube::ObjectKey& key) const = 0;
  // The server's answer to a write, after which the Workload has this resource version; and to the deletion of the one with this uid.
  virtual void Wrote(const kube::ObjectKey& key, const std::string& resource_version) = 0;
  virtual void Deleted(const kube::ObjectKey& key, const std::string& uid) = 0;
  // Whether Find() shows what was written last.
  virtual bool SeenWrites(const kube::ObjectKey& key) = 0;
};

}  // namespace fusionllm::op::kueue
