// Pods and owner ConfigMaps as a cluster's cache keeps them: ten thousand of each, so what few have is apart, and what many have alike is
// shared. What decides gets them as views.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "lib/kube/watch/object.h"
#include "operator/cache/job_pod.h"
#include "operator/cache/owner_config_map_view.h"
#include "operator/cache/pod_view.h"

namespace fusionllm::op::cache {

class CachedPod : public JobPod {
 public:
  // From the JSON of a Pod; errors are those of ReadPod().
  static absl::StatusOr<kube::ObjectPtr> Decode(absl::string_view text);
  lifecycle::PodView View(const std::string& cluster) const;
  size_t Bytes() const override;

 private:
  // Of a pod that is not as it should be, or has ended.
  struct Words {
    std::string reason, message, disruption;
    std::optional<lifecycle::Progress> report;
  };

  bool broker_ = false, ready_ = false, killed_for_memory_ = false;
  lifecycle::PodPhase phase_ = lifecycle::PodPhase::kPending;
  int index_ = 0, container_restarts_ = 0;
  int64_t attempt_ = 0;
  std::optional<int> exit_code_;
  std::optional<absl::Time> deleted_at_;
  std::string address_;
  std::unique_ptr<const Words> words_;  // null: none
};

class CachedOwnerConfigMap : public kube::Object {
 public:
  // From the JSON of a ConfigMap; errors are those of ReadOwnerConfigMap().
  static absl::StatusOr<kube::ObjectPtr> Decode(absl::string_view text);
  OwnerConfigMapView View() const;
  const JobRefPtr& job() const { return job_; }
  size_t Bytes() const override;

 private:
  // Of the hub's owner ConfigMap, or one with Services for executors.
  struct Notes {
    std::string remote_broker_address, placement, executor_services, waiting;
    int64_t wanted = 0;
    std::map<std::string, std::string> executor_addresses;
    bool operator==(const Notes&) const = default;
  };

  JobRefPtr job_;
  int64_t epoch_ = 0;
  bool preserved_ = false;
  std::string prepared_, broker_address_;
  std::unique_ptr<const Notes> notes_;  // null: none
};

}  // namespace fusionllm::op::cache
