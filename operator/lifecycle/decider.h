// How Decide() (decide.h) comes to its decision: what is there, what is said of it, what is done. Internal to this folder.
//
// One object decides once. decide.cc goes by the job's state, decide_executors.cc by its executors.
#pragma once

#include <map>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "operator/lifecycle/decide.h"
#include "operator/lifecycle/failed_reason.h"
#include "operator/lifecycle/failure.h"
#include "operator/lifecycle/observation.h"
#include "operator/lifecycle/pod_diagnosis.h"

namespace fusionllm::op::lifecycle {

// A cluster that is back and has nothing of the job sends nothing that would bring the job back.
inline constexpr absl::Duration kClusterRecheckPeriod = absl::Seconds(5);

class Decider {
 public:
  // `observed` must outlive it.
  explicit Decider(const Observation& observed) : seen_(observed), spec_(observed.job.spec) { decision_.persisted = observed.persisted; }

  Decision Run();

 private:
  // ---- what there is ----
  std::vector<const PodView*> Pods() const;
  // Where no look has succeeded for so long that what ran there counts as gone.
  bool Lost(const std::string& cluster) const;
  // Why pods of that cluster cannot be seen or made now, for a message; empty: they can.
  std::string UnreachableReason(const std::string& cluster) const;
  // Those in which pods of the job may be that were not seen here: in words, for a message; empty: none.
  std::string UnlistedClusters() const;
  // How a cluster is called in the middle of a sentence.
  std::string Called(const std::string& cluster) const;
  // What has to be there before pods can be made in that cluster.
  std::string WaitingIn(const std::string& cluster) const;
  // Whether it has refused something and is not asked again yet.
  bool RefusesPods(const ClusterView& cluster) const { return cluster.refusal.has_value() && seen_.now < cluster.retry_at; }
  // The first cluster of this attempt that refuses something, one that has not been asked again with success before any other; null: none
  // does.
  const ClusterView* Refusing() const;
  const ClusterView* Cluster(const std::string& name) const;
  const PodView* Broker(int64_t attempt) const;
  // All at once: jobs may have ten thousand.
  using Place = std::pair<absl::string_view, int>;  // cluster and index
  std::map<Place, const PodView*> Executors(int64_t attempt) const;
  // Whether the next attempt finds what this one has saved: a relative path without a volume goes with the broker's Pod.
  bool CheckpointSurvivesBroker() const;
  // When it is deleted without waiting for its kubelet's word, which may never come; infinite: not.
  absl::Time ForceAt(const PodView& pod) const;
  // Its node has been away for so long that it counts as gone. If that is to come it is looked at again then.
  bool Stranded(const PodView& pod);
  // How that is judged.
  PodView AsLostWithNode(const PodView& pod) const;
  static bool Ended(const PodView& pod) { return pod.phase == PodPhase::kSucceeded || pod.phase == PodPhase::kFailed; }

  // ---- what to say ----
  void Condition(JobCondition type, bool status, const char* reason, std::string message);
  void AddEvent(bool warning, const char* reason, std::string message);
  void RequeueAt(absl::Time at);

  // ---- what to do ----
  void Remove(const PodView& pod);
  void ForceRemove(const PodView& pod);
  // Why, in words behind those of a broker that ended; empty: none, or all have been there.
  std::string UnstartedExecutorsText() const;
  // The broker first: it ends the run with a checkpoint, for which it needs the executors. True when no pod is left.
  bool ShutDownPods();
  // True while there are any that the next attempt must wait for: two must not write the same checkpoint, or wait for the same device. A
  // broker that lives ends first, with a checkpoint if it can: for that it needs the executors. What a lost cluster may still run is none
  // of these, it is removed when the cluster is back; and what turns up of an earlier attempt once the next one has begun holds nothing up.
  bool RemoveOldAttempts();
  void Fail(FailedReason why, std::string message);
  // False: the job has failed.
  bool CountRestart(RestartCause cause, const std::string& why);
  void NextAttempt(RestartCause cause, const std::string& why);
  // The job starts again no more, for it makes steps or will not.
  void EndRestarting(const char* reason, const char* message);
  // From when the job's wait to be ready counts: its creation, resumption or scheduling, or the end of the attempt before. Attempts in a
  // row of which none gets ready share one wait: what fails again and again is not waited for longer than what hangs.
  absl::Time WaitsSince() const;
  void PendingDeadline(const std::string& why);

  // ---- by the state of the job ----
  void Delete();
  // When the last of what is left of a deleted job should have gone; infinite: something was not even asked to.
  absl::Time CleanupDeadline() const;
  std::string LeftoverText() const;  // where one can look
  void HandleFinishedJob();
  void Suspend();
  // Of a job that is held back as if it were suspended.
  void Queue();
  // The attempt that was suspended is over; so is one whose spec is refused.
  void LeaveSuspended();
  // The job has failed, or, if it has made steps, waits for another spec. `message`: what is wrong, and with which field.
  void RefuseSpec(FailedReason why, const std::string& message);
  void AwaitAnotherSpec(const std::string& reason, const std::string& message);
  void RunAttempt();
  // True: the attempt does not begin now.
  bool WaitForPlacement();
  // Nothing is made anywhere before all clusters of the attempt would take their part, however long one refuses its own: what would wait
  // for that part would hold devices in vain, and is removed. True: so it is.
  bool WaitForClusters();
  // The same while they have not answered yet, of which nothing is said.
  void WaitForAnswers();
  void Finish();
  bool PastDeadline();
  bool RunCompleted() const;
  bool BrokerDrained() const;  // a broker that is gone: it was drained, and ended in order
  // Before anything is made: with that, each cluster would start Pods that find nothing to train on.
  bool MissingData();
  // False: the job has failed.
  bool Restart(const PodView& pod);
  // Another number of executors takes another attempt, which goes on from the checkpoint that this one leaves.
  void Resize();

  // ---- by its executors ----
  void ManageExecutors();
  // That the job was ready belongs to the attempt before: else its broker, which is about to go, would count as lost besides.
  void SetRestarting();
  void SetDegraded(const char* missing, const std::string& count);
  void SetScheduled();
  void SetQuotaReserved();
  // Whether more would train if the job started again from its checkpoint, without the clusters that are lost, than train now.
  bool RestartImprovesPlacement() const;
  // Of an executor in a cluster that is lost. False: the job has failed, or starts again, without that cluster.
  bool HandleLostExecutor(const manifests::ExecutorSlot& slot);
  // False: the job has failed, or starts again.
  bool ReplaceExecutor(const PodView& pod);
  // Whether an executor's failure is one of the whole job, by its rules: then it has failed, or starts again.
  bool EscalateToJob(RestartCause cause, const FailurePolicyResult& verdict, const std::string& cluster);
  // Its executors go elsewhere from the next attempt on, unless no restart is left.
  void LeaveCluster(RestartCause cause, const std::string& cluster, const FailurePolicyResult& verdict);

  const Observation& seen_;
  const job::Spec& spec_;
  Decision decision_;
};

}  // namespace fusionllm::op::lifecycle
