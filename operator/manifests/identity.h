// Names and labels of what the operator makes for a job. Names are functions of the job, so that making something twice is refused by the
// API server instead of making two.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

namespace fusionllm::op::manifests {

inline constexpr char kOriginLabel[] = "fusionllm.io/origin";  // the hub: whose objects these are
inline constexpr char kHubLabel[] = "fusionllm.io/hub";        // the same by its uid: two hubs may have been given the same origin
inline constexpr char kJobLabel[] = "fusionllm.io/job";
inline constexpr char kJobUidLabel[] = "fusionllm.io/job-uid";
inline constexpr char kRoleLabel[] = "fusionllm.io/role";
inline constexpr char kClusterLabel[] = "fusionllm.io/cluster";
inline constexpr char kIndexLabel[] = "fusionllm.io/index";
inline constexpr char kAttemptLabel[] = "fusionllm.io/attempt";
inline constexpr char kFinalizer[] = "fusionllm.io/cleanup";
// Of a job that is being deleted: it goes at once, and what is left of it is remembered. By a person who has seen that it is stuck.
inline constexpr char kForceDeleteAnnotation[] = "fusionllm.io/force-delete";
// Of a FusionJob, by Kueue: the LocalQueue that it waits in, and the WorkloadPriorityClass that it has there.
inline constexpr char kQueueNameLabel[] = "kueue.x-k8s.io/queue-name";
inline constexpr char kQueuePriorityLabel[] = "kueue.x-k8s.io/priority-class";
// Of an owner ConfigMap: what was made beside it, and where pods of its cluster find the broker.
inline constexpr char kPreparedAnnotation[] = "fusionllm.io/prepared";
inline constexpr char kBrokerAnnotation[] = "fusionllm.io/broker-address";
// Of an owner ConfigMap: the leader that wrote it last, counted, and of a Pod, the one that made it; of an owner ConfigMap: that it stays
// although its job is gone, as the job asked for.
inline constexpr char kEpochAnnotation[] = "fusionllm.io/epoch";
inline constexpr char kPreservedAnnotation[] = "fusionllm.io/preserved";
// Of the hub's owner ConfigMap: where the executors of an attempt go, how many the job wanted then, and the broker's address for other
// clusters.
inline constexpr char kPlacementAnnotation[] = "fusionllm.io/placement";
inline constexpr char kWantedAnnotation[] = "fusionllm.io/executors-wanted";
inline constexpr char kRemoteBrokerAnnotation[] = "fusionllm.io/broker-address-remote";
// Of an owner ConfigMap: what the preparation of its cluster waits for; where the executors there are reached from other clusters.
inline constexpr char kWaitingAnnotation[] = "fusionllm.io/waiting-for";
inline constexpr char kExecutorAddressesAnnotation[] = "fusionllm.io/executor-addresses";
// Which of them may have a Service there, whether that has an address or not: noted before it is made.
inline constexpr char kExecutorServicesAnnotation[] = "fusionllm.io/executor-services";
// Of the job's document on the hub: how many spares the job has, which the document itself leaves out.
inline constexpr char kSparesAnnotation[] = "fusionllm.io/spares";
// Of an executor's pod: where it is reached from other clusters.
inline constexpr char kAdvertisedAnnotation[] = "fusionllm.io/advertised-address";

// Of an executor that has ended because it was without contact with its broker for too long (adr/0013); its termination message begins so.
inline constexpr char kBrokerLostReason[] = "BrokerLost";

inline constexpr char kBrokerRole[] = "broker";
inline constexpr char kExecutorRole[] = "executor";
inline constexpr char kOwnerConfigMapRole[] = "anchor";
inline constexpr char kTombstoneRole[] = "tombstone";

struct JobIdentity {
  std::string name;
  std::string ns;
  std::string uid;
  std::string origin;    // of the hub, the same for all its jobs
  std::string hub = "";  // its uid; empty: unknown

  bool operator==(const JobIdentity&) const = default;
};

// One executor that a job wants. Its index counts within its cluster.
struct ExecutorSlot {
  std::string cluster;
  int index = 0;
  bool spare = false;

  bool operator==(const ExecutorSlot&) const = default;
};

int64_t CountTraining(const std::vector<ExecutorSlot>& slots);  // spares left out
// "paris-0": what plans, logs and pins call the device.
std::string DeviceName(const ExecutorSlot& slot);
// The executors of an attempt in one line, as it is kept, and back; nothing when the text is none or of another attempt.
std::string PlacementText(int64_t attempt, const std::vector<ExecutorSlot>& slots);
std::vector<ExecutorSlot> ParsePlacement(int64_t attempt, const std::string& text);
// HOST:PORT by device, in one line, and back; what is none is left out.
std::string AddressesText(const std::map<std::string, std::string>& addresses);
std::map<std::string, std::string> ParseAddresses(const std::string& text);
// "JOB-paris-0-r2"; `attempt` is the number of the attempt: each restart, resumption and resizing begins the next.
std::string ExecutorPodName(const JobIdentity& job, const ExecutorSlot& slot, int64_t attempt);
std::string BrokerPodName(const JobIdentity& job, int64_t attempt);
std::string OwnerConfigMapName(const JobIdentity& job);  // ConfigMap that owns everything of the job in a cluster
std::string JobDocumentName(const JobIdentity& job);     // ConfigMap: the job as the broker reads it
std::string BrokerServiceName(const JobIdentity& job);   // Service
// Service: "JOB-paris-0", the same for all attempts.
std::string ExecutorServiceName(const JobIdentity& job, const std::string& device);
std::string BrokerSecretName(const JobIdentity& job);  // Secret of the broker's pod
// Secret of the executor with this index in its cluster, and of its neighbours: one holds no more than 1 MiB.
inline constexpr int kExecutorsPerSecret = 100;
std::string ExecutorSecretName(const JobIdentity& job, int index);
std::string AuthoritySecretName(const JobIdentity& job);  // the job's CA, on the hub alone

// Of everything that belongs to the job.
std::map<std::string, std::string> JobLabels(const JobIdentity& job);
// Selects that, in a cluster.
std::string JobSelector(const JobIdentity& job);

}  // namespace fusionllm::op::manifests
