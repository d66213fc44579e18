// The jobs of the hub, as those see them who reconcile them.
#pragma once

#include <memory>
#include <string>

#include "lib/kube/api/resource.h"
#include "operator/cache/job_view.h"

namespace fusionllm::op::cache {

// Thread-safe. The cache trails the server: one who has written says so, and asks before the next decision whether it can be seen.
class JobSource {
 public:
  virtual ~JobSource() = default;
  virtual std::shared_ptr<const JobView> Find(const kube::ObjectKey& key) const = 0;
  // The server's answer to a write of the job, after which it has this resource version.
  virtual void Wrote(const kube::ObjectKey& key, const std::string& resource_version) = 0;
  // Whether Find() shows what was written last; older than that is not acted upon.
  virtual bool SeenWrites(const kube::ObjectKey& key) = 0;
};

}  // namespace fusionllm::op::cache
