// One look's dealings with what clusters say of a job's Pods (dry_run_results.h): asks those that were not asked, and learns from what is
// made.
//
// "here" is the cluster whose part of the job is being looked at, as it is in `seen`.
#pragma once

#include <stop_token>

#include "operator/cache/member.h"
#include "operator/controller/dry_run_results.h"
#include "operator/lifecycle/decide.h"
#include "operator/manifests/run_objects.h"

namespace fusionllm::op::controller {

class AdmissionDryRun {
 public:
  // How long a job's beginning waits for a member to say whether it would take its pods.
  static constexpr absl::Duration kAnswerTimeout = absl::Seconds(5);

  // All must outlive it. `generation`: of the job's spec.
  AdmissionDryRun(DryRunResults& results, int64_t generation, const manifests::Images& images)
      : dry_run_(results), generation_(generation), images_(images) {}

  // Fills in what is known of each cluster.
  void Observe(lifecycle::Observation& seen) const;
  // Whether `cluster` has refused something and is not asked again yet.
  bool IsClosed(const lifecycle::Observation& seen, const std::string& cluster) const;
  // What has the name of an object of the job there and is not the job's, in words; empty: nothing is known to.
  std::string ConflictIn(const lifecycle::Observation& seen, const std::string& cluster) const;
  // Asks whether it would take what the job lacks here, unless it was asked for this attempt already. `hub`: the hub's name as a cluster;
  // empty: it lends no devices. That it would is passed to the others by RecordOutcome(), when what is made beside the pods was not refused
  // either. Blocks on the API server.
  void Try(cache::Member& member, const lifecycle::Observation& seen, lifecycle::ClusterView& here, const std::string& hub,
           std::stop_token stop);
  // What came of the attempt to make, or remove, what is due here. True: it was refused, which the job's status says.
  bool RecordOutcome(const lifecycle::Observation& seen, const lifecycle::Decision& decision, const lifecycle::ClusterView& here,
                     const absl::Status& status);

  // What is known has changed, which other parts of the job want to know.
  bool changed() const { return changed_; }
  // It has changed since the decision: another look tells it.
  bool needs_requeue() const { return needs_requeue_; }

 private:
  DryRunResults::Key KeyOf(const lifecycle::Observation& seen, const std::string& cluster) const {
    return {.job_uid = seen.identity.uid, .cluster = cluster, .generation = generation_, .attempt = seen.persisted.attempt};
  }

  DryRunResults& dry_run_;
  const int64_t generation_;
  const manifests::Images& images_;
  bool accepts_ = false;  // Try() was answered so
  bool changed_ = false, needs_requeue_ = false;
};

}  // namespace fusionllm::op::controller
