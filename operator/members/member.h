// One cluster that lends devices, as the reconciler sees it: what is cached of it, and a client for writes.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "lib/kube/client/api_client.h"
#include "operator/lifecycle/observation.h"

namespace fusionllm::op {

struct AnchorView {
  std::string uid;
  std::string prepared;               // hash of what was made beside it; empty: not done yet
  std::string broker_address;         // for pods of this cluster
  std::string remote_broker_address;  // of the hub's: for pods of other clusters
  std::string placement;              // of the hub's: identity.h
  bool terminating = false;

  bool operator==(const AnchorView&) const = default;
};

// Thread-safe. The caches trail the cluster; whoever has just written must not expect to see it.
class Member {
 public:
  virtual ~Member() = default;
  virtual const std::string& name() const = 0;
  // Its caches are complete and its watches alive.
  virtual bool reachable() const = 0;
  virtual kube::ApiClient& client() const = 0;
  virtual std::vector<PodView> PodsOf(const std::string& job_uid) const = 0;
  virtual std::optional<AnchorView> AnchorOf(const std::string& job_uid) const = 0;
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
