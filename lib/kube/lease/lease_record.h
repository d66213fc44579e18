// A Lease object of coordination.k8s.io/v1: who leads, and since when. Pure text in and out; not thread-safe.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "lib/kube/api/resource.h"

namespace fusionllm::kube {

inline Resource LeaseResource() { return {"coordination.k8s.io", "v1", "leases", "Lease", true}; }

class LeaseRecord {
 public:
  // One that does not exist yet, or no more: its first holder will be number `transitions`.
  explicit LeaseRecord(const ObjectKey& key, int64_t transitions = 0);
  static absl::StatusOr<LeaseRecord> Parse(absl::string_view json);

  const std::string& holder() const { return holder_; }  // empty: no process
  // How long a silence of the holder is borne.
  absl::Duration duration() const { return duration_; }
  // Counts changes of the holder: of two who believe to lead, the one with the greater number does.
  int64_t transitions() const { return transitions_; }
  // Of the object; empty: it is not on the server.
  const std::string& resource_version() const { return resource_version_; }
  // Whether the holder has written since `other` was read.
  bool SameRevision(const LeaseRecord& other) const {
    return resource_version_ == other.resource_version_ && holder_ == other.holder_ && renew_time_ == other.renew_time_;
  }

  // `identity` takes or renews the lease.
  void Hold(const std::string& identity, absl::Duration duration, absl::Time now);
  // It is not held any more; others need not wait.
  void Release(absl::Time now);

  // With the resource version it was read with, so that the server refuses it if somebody else has written since.
  std::string ToJson() const;

 private:
  LeaseRecord() = default;
  nlohmann::json object_;  // all of it: what others have added stays
  std::string holder_, renew_time_, resource_version_;
  absl::Duration duration_;
  int64_t transitions_ = 0;
};

}  // namespace fusionllm::kube
