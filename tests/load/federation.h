// A hub and members for load tests, the jobs on them, and what the operator has asked of them.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "lib/base/mutex.h"
#include "lib/base/testing/temp_folder.h"
#include "lib/daemon/monitoring_server.h"
#include "tests/load/sim_cluster.h"

namespace fusionllm::load {

struct JobRecord {
  std::string state;
  absl::Duration submitted;
  std::map<std::string, absl::Duration> reached;  // by state, for the first time
};

// What the operator asked one or more clusters for, by verb and kind ("create pods").
struct Traffic {
  std::map<std::string, int> requests;
  int total = 0, writes = 0;
  std::string Text() const;
};

struct MemberOptions {
  std::optional<int> worker_lost_timeout_s;  // absent: the default of FusionClusters
};

class Federation {
 public:
  explicit Federation(int members, const MemberOptions& options = {});
  ~Federation();

  SimCluster& hub() { return *hub_; }
  const std::vector<std::unique_ptr<SimCluster>>& members() const { return members_; }
  // The command line of an operator on this hub, and the file of its log.
  std::vector<std::string> Arguments(bool elect) const;
  const std::string& log() const { return log_; }

  // A job of so many executors on these clusters; on all of them if none is named.
  void Submit(const std::string& name, int executors, const std::vector<std::string>& clusters = {});
  // With this in its spec besides.
  void SubmitWith(const std::string& name, int executors, const nlohmann::json& more);
  void PatchJob(const std::string& name, const nlohmann::json& spec);
  void DeleteJob(const std::string& name);
  JobRecord Job(const std::string& name) const;
  int JobsIn(const std::string& state) const;
  int Jobs() const;
  // Members that the hub says are connected.
  int Connected() const;
  int RunningPods() const;
  // Pods that could be at work for the same thing at once: two of one index in a cluster (SimCluster::DuplicatePods), two of one name,
  // which has job, attempt, cluster and index, in two clusters; and the executors of an attempt that has more than `max_executors`. What an
  // earlier attempt has in a cluster that is away counts as no duplicate.
  std::vector<std::string> DuplicatePods(int max_executors) const;
  // Objects of the operator that are in the clusters, by "CLUSTER kind ns/name".
  std::vector<std::string> Leftovers() const;

  void ForgetRequests();
  std::vector<kube::testing::RecordedRequest> OperatorRequests(SimCluster& cluster) const;
  Traffic TrafficOf(SimCluster& cluster) const;
  Traffic TrafficOfMembers() const;
  int Writes() const;
  // Has `on_write` called with each write of the operator from now on, in any of the clusters, when it is done and not yet answered. Calls
  // may come from several threads at once, and must not ask the clusters for anything.
  void OnWrite(const std::function<void(const kube::testing::RecordedRequest&)>& on_write);

  // False: not within `timeout`.
  static bool WaitUntil(const std::function<bool()>& holds, absl::Duration timeout);
  // As that, but ends the program, saying what did not come.
  static void Await(const char* what, const std::function<bool()>& holds, absl::Duration timeout = absl::Minutes(10));
  // Until the operator has written nothing for `quiet`.
  void AwaitQuiet(absl::Duration quiet) const;

 private:
  void Note(const kube::InformerEvent& event);
  void AddMember(const std::string& name, const MemberOptions& options);

  const base::TempFolder folder_;
  const security::CertificateAuthority authority_;
  std::string log_;
  std::unique_ptr<daemon::MonitoringServer> brokers_;
  std::unique_ptr<SimCluster> hub_;
  std::vector<std::unique_ptr<SimCluster>> members_;
  mutable base::Mutex mutex_;
  std::map<std::string, JobRecord> jobs_ ABSL_GUARDED_BY(mutex_);
  std::map<std::string, bool> connected_ ABSL_GUARDED_BY(mutex_);
  std::unique_ptr<kube::Informer> watch_jobs_, watch_clusters_;
};

// Of `samples`, in milliseconds.
double QuantileMs(std::vector<absl::Duration> samples, double share);

}  // namespace fusionllm::load
