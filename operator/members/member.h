// One cluster that lends devices, as the reconciler sees it: what is cached of it, and a client for writes.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "lib/kube/client/api_client.h"
#include "operator/lifecycle/observation.h"
#include "operator/members/anchor_view.h"

namespace fusionllm::op {

// Thread-safe. The caches trail the cluster: whoever has written says so, and asks before the next decision whether it can be seen.
class Member {
 public:
  virtual ~Member() = default;
  virtual const std::string& name() const = 0;
  // Its caches are complete and its watches alive.
  virtual bool reachable() const = 0;
  // Out of reach for so long that what ran there counts as lost.
  virtual bool lost() const = 0;
  virtual kube::ApiClient& client() const = 0;
  virtual std::vector<PodView> PodsOf(const std::string& job_uid) const = 0;
  virtual std::optional<AnchorView> AnchorOf(const std::string& job_uid) const = 0;
  // Of all jobs, other hubs' of the same origin with them.
  virtual std::vector<AnchorView> Anchors() const = 0;
  // The server's answer to a write of a pod or an anchor of the job.
  virtual void Wrote(const std::string& job_uid, const kube::Resource& resource, const std::string& answer) = 0;
  // Whether the caches show all that was written for the job.
  virtual bool SeenWrites(const std::string& job_uid) = 0;
};

// The clusters that lend devices now.
class Members {
 public:
  virtual ~Members() = default;
  // Those beside the hub.
  virtual std::vector<std::shared_ptr<Member>> Remote() const = 0;
  // What the hub is called as one that lends devices; nothing: it lends none.
  virtual std::optional<std::string> LocalName() const = 0;
};

}  // namespace fusionllm::op
