// What the operator keeps of the owner ConfigMap: it owns all that a job has in a cluster.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "lib/kube/watch/object.h"
#include "operator/manifests/identity.h"

namespace fusionllm::op::cache {

struct OwnerConfigMapView {
  std::string ns, name, uid;
  std::string job, job_uid;                               // whose it is
  std::string hub;                                        // uid of the hub that made it
  int64_t epoch = 0;                                      // of the leader that wrote it last; 0: none is said
  bool preserved = false;                                 // it stays although its job is gone
  std::string prepared;                                   // hash of what was made beside it; empty: not done yet
  std::string broker_address;                             // for pods of this cluster
  std::string remote_broker_address;                      // of the hub's: for pods of other clusters
  std::string placement;                                  // of the hub's: identity.h
  int64_t wanted = 0;                                     // of the hub's: executors that the job wanted when it was placed; 0: unknown
  std::map<std::string, std::string> executor_addresses;  // for pods of other clusters, by device
  std::string executor_services;                          // devices that may have a Service there, by commas; empty: none
  std::string waiting;                                    // what the preparation of its cluster waits for, in words
  bool terminating = false;

  bool operator==(const OwnerConfigMapView&) const = default;
};

// Whether it is this job's: its name and namespace are, which its labels alone do not make so.
bool IsOwnerConfigMapOf(const OwnerConfigMapView& owner_config_map, const manifests::JobIdentity& job);
// Whose it says that it is; nothing: its name is not that of such a job's owner ConfigMap.
std::optional<manifests::JobIdentity> JobOf(const OwnerConfigMapView& owner_config_map);

// From the JSON of the object as an API server gives it. `meta`, if given: its metadata. InvalidArgument when it is none.
absl::StatusOr<OwnerConfigMapView> ReadOwnerConfigMap(absl::string_view text, kube::ObjectMeta* meta = nullptr);

}  // namespace fusionllm::op::cache
