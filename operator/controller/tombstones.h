// What is left in clusters that were away when their jobs were let go: one ConfigMap on the hub, in the operator's namespace, for each job
// and cluster, so that it outlives the operator, and `kubectl get configmaps -l fusionllm.io/role=tombstone` shows what is owed where.
// Thread-safe; calls block on the hub's API server.
#pragma once

#include <stop_token>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "lib/kube/client/api_client.h"
#include "operator/manifests/identity.h"

namespace fusionllm::op::controller {

struct Tombstone {
  std::string name, uid;  // of the ConfigMap
  std::string cluster;
  std::string ns, job, job_uid;
  bool preserve = false;  // what is left stays: it is only to be marked as what it is
};

class Tombstones {
 public:
  // `ns`: the operator's. `origin`, `hub`: whose they are (identity.h). `client` must outlive it.
  Tombstones(kube::ApiClient& client, std::string ns, std::string origin, std::string hub)
      : client_(client), ns_(std::move(ns)), origin_(std::move(origin)), hub_(std::move(hub)) {}

  // OK too if it is there already.
  absl::Status Set(const manifests::JobIdentity& job, const std::string& cluster, bool preserve, absl::Time now, std::stop_token stop);
  // Of one cluster.
  absl::StatusOr<std::vector<Tombstone>> In(const std::string& cluster, std::stop_token stop) const;
  // That one alone: what has been set since under its name is owed again, and stays.
  absl::Status Remove(const Tombstone& tombstone, std::stop_token stop);

 private:
  kube::ApiClient& client_;
  const std::string ns_, origin_, hub_;
};

}  // namespace fusionllm::op::controller
