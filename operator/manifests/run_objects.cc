#include "operator/manifests/run_objects.h"

#include <algorithm>
#include <filesystem>
#include <iterator>

#include "absl/strings/escaping.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "lib/base/json_text.h"
#include "lib/base/object_uri.h"
#include "lib/job/parse.h"
#include "lib/job/store_use.h"
#include "lib/objectstore/settings.h"
#include "operator/manifests/pod_template.h"

namespace fusionllm::op::manifests {
namespace {

using nlohmann::json;

constexpr char kJobFolder[] = "/etc/fusionllm/job";
constexpr char kTlsFolder[] = "/etc/fusionllm/tls";
constexpr char kOutputFolder[] = "/var/lib/fusionllm";
constexpr char kTerminationLog[] = "/dev/termination-log";
// A container's log has stdout and stderr in it, and a broker's stdout is lines of JSON.
constexpr char kLogFormat[] = "json";
// In the Pod's own volume, which stays when a container is started again.
constexpr char kContactFile[] = "/tmp/broker-contact";
// For a last checkpoint, after the end of the step in progress.
constexpr int64_t kBrokerGraceSeconds = 120;
constexpr int64_t kExecutorGraceSeconds = 150;  // longer: it works for that checkpoint
// Besides, for that checkpoint to get to where the job wants it.
constexpr int64_t kCopyGraceSeconds = 600;
// For executors whose broker fetches what it begins with before it listens.
constexpr int64_t kFetchTimeoutSeconds = 6 * 3600;
// For a Pod to be made again, or a cut network to be mended: before the first step, and later where the others cannot go on without it (the
// one with the data, say). A restart of the whole job would wait for it as well.
constexpr int64_t kAwaitLostSeconds = 300;

json Metadata(const JobIdentity& identity, const std::string& name, const Owner& owner) {
  json metadata = {{"name", name}, {"namespace", identity.ns}, {"labels", JobLabels(identity)}};
  if (!owner.uid.empty()) {
    metadata["ownerReferences"] = {{{"apiVersion", owner.api_version},
                                    {"kind", owner.kind},
                                    {"name", owner.name},
                                    {"uid", owner.uid},
                                    {"controller", true},
                                    {"blockOwnerDeletion", true}}};
  }
  return metadata;
}

// The name of a volume's mount, from the user's volume source.
void AddUserVolume(PodParts& parts, const job::RawExtension& source, const char* name, const char* folder, bool read_only) {
  if (source.json.empty()) return;
  json volume = base::ParseJson(source.json);
  if (!volume.is_object()) volume = json::object();
  volume["name"] = name;
  parts.volumes.push_back(std::move(volume));
  json mount = {{"name", name}, {"mountPath", folder}};
  if (read_only) mount["readOnly"] = true;
  parts.mounts.push_back(std::move(mount));
}

void AddJobVolumes(PodParts& parts, const job::FusionJob& job, const std::string& cluster) {
  if (job.spec.model.graph.has_value()) AddUserVolume(parts, job.spec.model.graph->volume, "graph", kGraphFolder, /*read_only=*/true);
  if (HoldsData(job.spec.data, cluster)) AddUserVolume(parts, job.spec.data.volume, "data", kDataFolder, /*read_only=*/true);
  if (job.spec.checkpoint.has_value()) {
    AddUserVolume(parts, job.spec.checkpoint->volume, "checkpoints", kCheckpointFolder, /*read_only=*/false);
  }
}

// What the broker itself reads and writes in object stores.
bool DataLieInStore(const job::Data& data) {
  return std::any_of(data.path.begin(), data.path.end(), base::IsUri) ||
         (data.validation.has_value() && std::any_of(data.validation->path.begin(), data.validation->path.end(), base::IsUri));
}

// The Secret stays where it is: only the variables that are known get into the container, and neither the job nor the Pod holds a value.
void AddStoreVariables(PodParts& parts, const job::Spec& spec) {
  if (!spec.object_store.has_value() || !spec.object_store->secret_name.has_value()) return;
  for (const char* name : objectstore::kSettingsVariables) {
    if (absl::string_view(name) == "AWS_CA_BUNDLE") continue;  // names a file, which comes with a volume of the template
    const bool optional = absl::string_view(name) != "AWS_ACCESS_KEY_ID" && absl::string_view(name) != "AWS_SECRET_ACCESS_KEY";
    parts.env.push_back(
        {{"name", name},
         {"valueFrom", {{"secretKeyRef", {{"name", *spec.object_store->secret_name}, {"key", name}, {"optional", optional}}}}}});
  }
}

void AddSecretFiles(PodParts& parts, const std::string& secret, const std::vector<std::string>& files) {
  json items = json::array();
  for (const std::string& file : files) items.push_back({{"key", file}, {"path", file}});
  parts.volumes.push_back({{"name", "tls"}, {"secret", {{"secretName", secret}, {"items", items}, {"defaultMode", 0440}}}});
  parts.mounts.push_back({{"name", "tls"}, {"mountPath", kTlsFolder}, {"readOnly", true}});
}

json ReadinessProbe() { return {{"httpGet", {{"path", "/readyz"}, {"port", "metrics"}}}, {"periodSeconds", 5}, {"timeoutSeconds", 3}}; }

std::map<std::string, std::string> PodLabels(const JobIdentity& identity, const char* role, int64_t attempt) {
  std::map<std::string, std::string> labels = JobLabels(identity);
  labels[kRoleLabel] = role;
  labels[kAttemptLabel] = absl::StrCat(attempt);
  return labels;
}

json MetricsPort() { return {{"name", "metrics"}, {"containerPort", kMetricsPort}}; }

json FieldVariable(const char* name, const char* field) { return {{"name", name}, {"valueFrom", {{"fieldRef", {{"fieldPath", field}}}}}}; }

// Of the scheduler beside a broker, unless the template says otherwise: those of the one in the chart. Without any, a namespace with a
// ResourceQuota would refuse each broker.
json SchedulerResources() { return {{"requests", {{"cpu", "50m"}, {"memory", "64Mi"}}}, {"limits", {{"memory", "1Gi"}}}}; }

absl::StatusOr<json> Finish(const PodParts& parts, const std::string& user_template, const char* field, const JobIdentity& identity,
                            const Owner& owner) {
  absl::StatusOr<json> pod = BuildPod(parts, user_template);
  if (!pod.ok()) return absl::Status(pod.status().code(), absl::StrCat("spec.", field, ".", std::string(pod.status().message())));
  const json ours = Metadata(identity, parts.name, owner);
  (*pod)["metadata"]["namespace"] = identity.ns;
  if (ours.contains("ownerReferences")) (*pod)["metadata"]["ownerReferences"] = ours["ownerReferences"];
  return pod;
}

}  // namespace

bool HoldsData(const job::Data& data, const std::string& cluster) {
  return data.clusters.empty() || std::find(data.clusters.begin(), data.clusters.end(), cluster) != data.clusters.end();
}

bool GraphIsAmongData(const job::Spec& spec) {
  return spec.model.graph.has_value() && spec.model.graph->file.has_value() && spec.model.graph->volume.json.empty();
}

std::string SiteCheckpoints(const job::FusionJob& job) {
  if (!job.spec.checkpoint.has_value() || job.spec.checkpoint->shards != job::Shards::kSite) return "";
  const job::Checkpoint& checkpoint = *job.spec.checkpoint;
  if (checkpoint.volume.json.empty() || base::IsUri(checkpoint.path)) return "";
  const json volume = base::ParseJson(checkpoint.volume.json);
  // These go with a Pod, or stay on a node that the next Pod may not run on. Of a CSI driver what lasts is a claim.
  constexpr const char* kFleeting[] = {"emptyDir", "ephemeral", "csi", "hostPath"};
  const bool lasts = volume.is_object() &&
                     std::none_of(std::begin(kFleeting), std::end(kFleeting), [&](const char* kind) { return volume.contains(kind); });
  const std::filesystem::path folder = (std::filesystem::path(kCheckpointFolder) / checkpoint.path).lexically_normal();
  // An absolute path elsewhere is in a volume of the templates, of which nothing is known.
  const std::string text = folder.has_filename() ? folder.string() : folder.parent_path().string();
  return lasts && (text == kCheckpointFolder || absl::StartsWith(text, absl::StrCat(kCheckpointFolder, "/"))) ? text : "";
}

std::vector<std::string> DataDevices(const job::FusionJob& job, const std::vector<ExecutorSlot>& slots) {
  const auto holds = [&](const ExecutorSlot& slot) { return HoldsData(job.spec.data, slot.cluster); };
  std::vector<std::string> devices;
  if (std::all_of(slots.begin(), slots.end(), holds)) return devices;
  const std::vector<std::string>& excluded = job.spec.strategy.exclude;
  for (const ExecutorSlot& slot : slots) {
    const bool out = std::find(excluded.begin(), excluded.end(), DeviceName(slot)) != excluded.end();
    if (!out && holds(slot)) devices.push_back(DeviceName(slot));
  }
  return devices;
}

Owner OwnerConfigMapReference(const JobIdentity& job, const std::string& owner_config_map_uid) {
  return {"v1", "ConfigMap", OwnerConfigMapName(job), owner_config_map_uid};
}

json OwnerConfigMapObject(const JobIdentity& job, const std::string& cluster) {
  json owner_config_map = {{"apiVersion", "v1"}, {"kind", "ConfigMap"}, {"metadata", Metadata(job, OwnerConfigMapName(job), {})}};
  owner_config_map["metadata"]["labels"][kRoleLabel] = kOwnerConfigMapRole;
  owner_config_map["metadata"]["labels"][kClusterLabel] = cluster;
  owner_config_map["metadata"]["annotations"] = {
      {"fusionllm.io/description", "Owns everything of this job in this cluster: deleting it ends the job's pods here."}};
  return owner_config_map;
}

std::string JobDocument(const job::FusionJob& job) {
  job::FusionJob inside = job;
  inside.spec.executors.spares = 0;  // or the planner would take them from the executors that are to train
  if (auto& graph = inside.spec.model.graph; graph.has_value() && graph->file.has_value() && !graph->volume.json.empty()) {
    graph->file = (std::filesystem::path(kGraphFolder) / *graph->file).lexically_normal().string();
  }
  job::ResolvePaths(kDataFolder, inside);
  if (inside.spec.checkpoint.has_value() && !inside.spec.checkpoint->volume.json.empty() &&
      !absl::StartsWith(inside.spec.checkpoint->path, "/")) {
    inside.spec.checkpoint->path = absl::StrCat(kCheckpointFolder, "/", inside.spec.checkpoint->path);
  }
  if (inside.spec.checkpoint.has_value() && inside.spec.checkpoint->replica.has_value()) {
    job::Replica& replica = *inside.spec.checkpoint->replica;
    if (!replica.volume.json.empty() && !absl::StartsWith(replica.path, "/"))
      replica.path = absl::StrCat(kReplicaFolder, "/", replica.path);
  }
  return job::ToYaml(inside);
}

json JobDocumentObject(const JobIdentity& identity, const job::FusionJob& job, const Owner& owner) {
  json document = {{"apiVersion", "v1"},
                   {"kind", "ConfigMap"},
                   {"metadata", Metadata(identity, JobDocumentName(identity), owner)},
                   {"data", {{"job.yaml", JobDocument(job)}}}};
  document["metadata"]["annotations"][kSparesAnnotation] = absl::StrCat(job.spec.executors.spares);
  return document;
}

json BrokerServiceObject(const JobIdentity& identity, const job::FusionJob& job, bool remote, const Owner& owner) {
  json selector = {{kJobUidLabel, identity.uid}, {kRoleLabel, kBrokerRole}};
  json service = {{"apiVersion", "v1"}, {"kind", "Service"}, {"metadata", Metadata(identity, BrokerServiceName(identity), owner)}};
  service["spec"] = {{"selector", selector},
                     // Executors dial the broker before it can be ready: it is ready when they have come.
                     {"publishNotReadyAddresses", true},
                     {"ports", {{{"name", "broker"}, {"port", job.spec.network.port}, {"targetPort", "broker"}, {"protocol", "TCP"}}}}};
  switch (job.spec.network.mode) {
    case job::NetworkMode::kAuto:
    case job::NetworkMode::kDirect:
    case job::NetworkMode::kRelay:
      service["spec"]["type"] = remote ? "NodePort" : "ClusterIP";
      break;
    case job::NetworkMode::kNodePort:
      service["spec"]["type"] = "NodePort";
      break;
    case job::NetworkMode::kLoadBalancer:
      service["spec"]["type"] = "LoadBalancer";
      break;
  }
  return service;
}

bool ExecutorsHaveServices(const job::FusionJob& job, const std::vector<ExecutorSlot>& slots) {
  const job::NetworkMode mode = job.spec.network.mode;
  if (mode != job::NetworkMode::kNodePort && mode != job::NetworkMode::kLoadBalancer) return false;
  return std::any_of(slots.begin(), slots.end(), [&](const ExecutorSlot& slot) { return slot.cluster != slots.front().cluster; });
}

bool ExecutorsNeedRelay(const job::FusionJob& job, const std::vector<ExecutorSlot>& slots, const std::set<std::string>& egress_only) {
  if (job.spec.network.mode == job::NetworkMode::kRelay) return true;
  const bool several =
      std::any_of(slots.begin(), slots.end(), [&](const ExecutorSlot& slot) { return slot.cluster != slots.front().cluster; });
  // Whether Pods of one cluster reach those of another only a user knows, who says Direct then.
  if (several && job.spec.network.mode == job::NetworkMode::kAuto) return true;
  return several && std::any_of(slots.begin(), slots.end(), [&](const ExecutorSlot& slot) { return egress_only.contains(slot.cluster); });
}

json ExecutorServiceObject(const JobIdentity& identity, const job::FusionJob& job, const ExecutorSlot& slot, const Owner& owner) {
  json service = {
      {"apiVersion", "v1"}, {"kind", "Service"}, {"metadata", Metadata(identity, ExecutorServiceName(identity, DeviceName(slot)), owner)}};
  json& labels = service["metadata"]["labels"];
  labels[kRoleLabel] = kExecutorRole;
  labels[kClusterLabel] = slot.cluster;
  labels[kIndexLabel] = absl::StrCat(slot.index);
  service["spec"] = {
      {"type", job.spec.network.mode == job::NetworkMode::kLoadBalancer ? "LoadBalancer" : "NodePort"},
      {"selector",
       {{kJobUidLabel, identity.uid}, {kRoleLabel, kExecutorRole}, {kClusterLabel, slot.cluster}, {kIndexLabel, labels[kIndexLabel]}}},
      // Its peers probe the way to it as soon as it has joined; that it is ready is noticed later.
      {"publishNotReadyAddresses", true},
      {"ports", {{{"name", "executor"}, {"port", kExecutorPort}, {"targetPort", "executor"}, {"protocol", "TCP"}}}}};
  return service;
}

json SecretObject(const JobIdentity& identity, const std::string& name, const std::map<std::string, std::string>& files,
                  const Owner& owner) {
  json data = json::object();
  for (const auto& [file, text] : files) data[file] = absl::Base64Escape(text);
  return {{"apiVersion", "v1"}, {"kind", "Secret"}, {"type", "Opaque"}, {"metadata", Metadata(identity, name, owner)}, {"data", data}};
}

absl::StatusOr<json> BrokerPod(const JobIdentity& identity, const job::FusionJob& job, const Attempt& attempt, const Images& images,
                               const Owner& owner) {
  std::vector<std::string> devices;
  for (const ExecutorSlot& slot : attempt.slots) devices.push_back(DeviceName(slot));
  PodParts parts;
  parts.name = BrokerPodName(identity, attempt.number);
  parts.labels = PodLabels(identity, kBrokerRole, attempt.number);
  parts.container = kBrokerRole;
  parts.image = images.broker;
  parts.pull_policy = images.pull_policy;
  const std::string scheduler = absl::StrCat("127.0.0.1:", kSchedulerPort);
  parts.command = {"fusion-broker",
                   "--job",
                   absl::StrCat(kJobFolder, "/job.yaml"),
                   "--output",
                   kOutputFolder,
                   "--base",
                   kDataFolder,
                   "--listen",
                   absl::StrCat("0.0.0.0:", job.spec.network.port),
                   "--scheduler",
                   scheduler,
                   "--tls",
                   kTlsFolder,
                   "--expected-executors",
                   absl::StrJoin(devices, ","),
                   "--executor-timeout-seconds",
                   absl::StrCat(kAwaitLostSeconds),
                   "--allow-join",
                   "--resume-journal",
                   "--attempt",
                   absl::StrCat(attempt.number),
                   "--final-report",
                   kTerminationLog,
                   "--metrics-address",
                   absl::StrCat("0.0.0.0:", kMetricsPort),
                   "--log-format",
                   kLogFormat};
  if (const std::vector<std::string> holders = DataDevices(job, attempt.slots); !holders.empty()) {
    parts.command.insert(parts.command.end(),
                         {"--data-device", absl::StrJoin(holders, ","), "--data-timeout-seconds", absl::StrCat(kAwaitLostSeconds)});
  }
  parts.ports = {{{"name", "broker"}, {"containerPort", job.spec.network.port}}, MetricsPort()};
  AddJobVolumes(parts, job, attempt.hub);
  const bool replica = job.spec.checkpoint.has_value() && job.spec.checkpoint->replica.has_value();
  if (replica) AddUserVolume(parts, job.spec.checkpoint->replica->volume, "replica", kReplicaFolder, /*read_only=*/false);
  if (job::BrokerNeedsStore(job.spec)) AddStoreVariables(parts, job.spec);
  parts.volumes.push_back({{"name", "job"}, {"configMap", {{"name", JobDocumentName(identity)}}}});
  parts.mounts.push_back({{"name", "job"}, {"mountPath", kJobFolder}, {"readOnly", true}});
  if (job.spec.broker.volume.json.empty()) {
    parts.volumes.push_back({{"name", "output"}, {"emptyDir", json::object()}});
    parts.mounts.push_back({{"name", "output"}, {"mountPath", kOutputFolder}});
  } else {
    AddUserVolume(parts, job.spec.broker.volume, "output", kOutputFolder, /*read_only=*/false);
  }
  AddSecretFiles(parts, BrokerSecretName(identity),
                 {"ca.pem", "ca.key", "token", "broker.pem", "broker.key", "scheduler.pem", "scheduler.key"});
  parts.readiness_probe = ReadinessProbe();
  // A sidecar: it is there before the broker, and ends with it.
  json sidecar = {{"name", "scheduler"},
                  {"image", images.scheduler},
                  {"restartPolicy", "Always"},
                  {"command",
                   {"fusion-scheduler", "--listen", scheduler, "--tls", kTlsFolder, "--metrics-address",
                    absl::StrCat("0.0.0.0:", kSchedulerMetricsPort), "--log-format", kLogFormat}},
                  {"ports", {{{"name", "sched-metrics"}, {"containerPort", kSchedulerMetricsPort}}}},
                  {"resources", SchedulerResources()},
                  {"volumeMounts", {{{"name", "tls"}, {"mountPath", kTlsFolder}, {"readOnly", true}}}}};
  // It plans for the graph, which it reads for itself.
  const char* const graph = GraphIsAmongData(job.spec) ? "data" : "graph";
  for (const json& mount : parts.mounts) {
    if (job.spec.model.graph.has_value() && mount["name"] == graph) sidecar["volumeMounts"].push_back(mount);
  }
  if (!images.pull_policy.empty()) sidecar["imagePullPolicy"] = images.pull_policy;
  parts.init_containers.push_back(std::move(sidecar));
  // Started again by the operator, which looks why it ended: what the job cannot survive must not be tried for ever.
  parts.restart_policy = "Never";
  parts.grace_period_seconds = kBrokerGraceSeconds;
  if (replica || !SiteCheckpoints(job).empty() || (job.spec.checkpoint.has_value() && base::IsUri(job.spec.checkpoint->path))) {
    parts.grace_period_seconds += kCopyGraceSeconds;
  }
  return Finish(parts, job.spec.broker.pod_template.json, "broker", identity, owner);
}

absl::StatusOr<json> ExecutorPod(const JobIdentity& identity, const job::FusionJob& job, const ExecutorSlot& slot, int64_t attempt,
                                 const ExecutorAddresses& addresses, const Images& images, const Owner& owner, const DeviceKind& hardware) {
  const std::string device = DeviceName(slot);
  PodParts parts;
  parts.name = ExecutorPodName(identity, slot, attempt);
  parts.labels = PodLabels(identity, kExecutorRole, attempt);
  parts.labels[kClusterLabel] = slot.cluster;
  parts.labels[kIndexLabel] = absl::StrCat(slot.index);
  parts.container = kExecutorRole;
  parts.image = images.executor;
  parts.pull_policy = images.pull_policy;
  parts.command = {"fusion-executor",
                   "--broker",
                   addresses.broker,
                   "--name",
                   device,
                   "--site",
                   slot.cluster,
                   "--tls",
                   kTlsFolder,
                   "--metrics-address",
                   absl::StrCat("0.0.0.0:", kMetricsPort),
                   "--log-format",
                   kLogFormat};
  const job::NetworkMode mode = job.spec.network.mode;
  const bool by_mode = mode == job::NetworkMode::kRelay || (mode == job::NetworkMode::kAuto && addresses.relay);
  if (by_mode || addresses.relay) parts.command.push_back("--relay");
  if (!by_mode && addresses.dialable) {
    parts.command.insert(parts.command.end(), {"--listen", absl::StrCat("$(POD_IP):", kExecutorPort)});
    parts.env.push_back(FieldVariable("POD_IP", "status.podIP"));
    parts.ports.push_back({{"name", "executor"}, {"containerPort", kExecutorPort}});
    if (!addresses.advertised.empty()) parts.command.insert(parts.command.end(), {"--advertise", addresses.advertised});
  }
  if (slot.spare) parts.command.push_back("--spare");
  parts.command.insert(parts.command.end(), {"--attempt", absl::StrCat(attempt)});
  if (const std::string folder = SiteCheckpoints(job); addresses.away && !folder.empty()) {
    parts.command.insert(parts.command.end(), {"--site-checkpoints", folder});
  }
  int64_t broker_lost_seconds = job.spec.executors.broker_lost_timeout_seconds;
  if (job::BrokerNeedsStore(job.spec)) {
    parts.command.insert(parts.command.end(), {"--broker-timeout-seconds", absl::StrCat(kFetchTimeoutSeconds)});
    broker_lost_seconds += kFetchTimeoutSeconds;
  }
  parts.command.insert(parts.command.end(), {"--contact-file", kContactFile, "--broker-lost-seconds", absl::StrCat(broker_lost_seconds),
                                             "--termination-log", kTerminationLog});
  if (DataLieInStore(job.spec.data) && HoldsData(job.spec.data, slot.cluster)) {
    AddStoreVariables(parts, job.spec);
    parts.env.push_back({{"name", "FUSIONLLM_SCRATCH"}, {"value", kScratchFolder}});
    parts.volumes.push_back({{"name", "scratch"}, {"emptyDir", json::object()}});
    parts.mounts.push_back({{"name", "scratch"}, {"mountPath", kScratchFolder}});
  }
  parts.ports.push_back(MetricsPort());
  AddJobVolumes(parts, job, slot.cluster);
  AddSecretFiles(parts, ExecutorSecretName(identity, slot.index), {"ca.pem", absl::StrCat(device, ".pem"), absl::StrCat(device, ".key")});
  parts.readiness_probe = ReadinessProbe();
  // In its place: an executor that crashed joins again and is given a stage, the others are left alone. One whose broker is gone for good
  // ends with 0, and its Pod with it.
  parts.restart_policy = "OnFailure";
  parts.grace_period_seconds = kExecutorGraceSeconds;
  absl::StatusOr<json> pod = Finish(parts, job.spec.executors.pod_template.json, "executors", identity, owner);
  if (!pod.ok()) return pod;
  if (!addresses.advertised.empty()) (*pod)["metadata"]["annotations"][kAdvertisedAnnotation] = addresses.advertised;
  const absl::Status asked = RequestHardware(job.spec.placement, hardware, kExecutorRole, *pod);
  if (!asked.ok()) return asked;
  UseCudaImage(images.executor, images.executor_cuda, kExecutorRole, *pod);
  ComputeOnGpu(kExecutorRole, *pod);
  return pod;
}

}  // namespace fusionllm::op::manifests
