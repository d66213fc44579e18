#include "tests/load/sim_cluster.h"

#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <nlohmann/json.hpp>
#include <utility>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "operator/manifests/identity.h"
#include "operator/manifests/resources.h"

namespace fusionllm::load {
namespace {

using nlohmann::json;

struct PodState : kube::Object {
  std::string phase, role;
  std::string attempt;  // as LivePod has it
  bool on_node = false, started = false;
};

absl::StatusOr<kube::ObjectPtr> DecodePodState(absl::string_view text) {
  auto decoded = kube::DecodePod(text);
  if (!decoded.ok()) return decoded.status();
  const auto& pod = static_cast<const kube::Pod&>(**decoded);
  auto state = std::make_shared<PodState>();
  state->meta = pod.meta;
  state->phase = pod.phase;
  state->role = std::string(pod.meta.Label(op::manifests::kRoleLabel));
  if (state->role == op::manifests::kExecutorRole)
    state->attempt = absl::StrCat(pod.meta.Label(op::manifests::kJobLabel), " ", pod.meta.Label(op::manifests::kAttemptLabel));
  state->on_node = !pod.node.empty();
  state->started = !pod.pod_ip.empty();
  return state;
}

kube::testing::RawServerTls Certificate(const std::string& name, const security::CertificateAuthority& authority) {
  const auto issued = authority.Issue(name);
  if (!issued.ok()) {
    std::fprintf(stderr, "no certificate: %s\n", issued.status().ToString().c_str());
    std::abort();
  }
  return {.certificate_pem = issued->certificate_pem, .key_pem = issued->private_key_pem, .client_ca_pem = ""};
}

}  // namespace

std::string BrokerAddress() {
  const auto pid = static_cast<unsigned>(getpid());
  return absl::StrCat("127.", 64 + (pid >> 16) % 64, ".", (pid >> 8) % 256, ".", pid % 256);
}

SimCluster::SimCluster(std::string name, const security::CertificateAuthority& authority)
    : name_(std::move(name)),
      ca_pem_(authority.certificate_pem()),
      server_(kube::RealClock()),
      front_(server_, Certificate(name_, authority)),
      client_({server_.NewTransport(), kube::StaticCredentials({}), name_, kNamespace},
              {.user_agent = "load/1", .requests_per_second = 1e6, .burst = 1'000'000}, kube::RealClock()),
      kubelet_(admin_, kube::RealClock(), nullptr, {.scope = {.resource = op::manifests::kPods}, .decode = DecodePodState}) {
  server_.Serve(op::manifests::kFusionJobs);
  server_.Serve(op::manifests::kFusionClusters);
  const json ns = {{"apiVersion", "v1"}, {"kind", "Namespace"}, {"metadata", {{"name", kNamespace}}}};
  (void)admin_.Create(op::manifests::kNamespaces, "", ns.dump());
  const json text = {{"apiVersion", "v1"}, {"kind", "ConfigMap"}, {"metadata", {{"name", kData}}}};
  (void)admin_.Create(op::manifests::kConfigMaps, kNamespace, text.dump());
  // One node for all: a cluster that has none has no room.
  const json node = {{"apiVersion", "v1"},
                     {"kind", "Node"},
                     {"metadata", {{"name", NodeName()}}},
                     {"status",
                      {{"addresses", {{{"type", "InternalIP"}, {"address", "192.0.2.1"}}}},
                       {"allocatable", {{"cpu", "100000"}, {"memory", "100Ti"}, {"pods", "100000"}}},
                       {"conditions", {{{"type", "Ready"}, {"status", "True"}}}}}}};
  (void)admin_.Create(op::manifests::kNodes, "", node.dump());
  (void)admin_.Patch(op::manifests::kNodes, {"", NodeName()}, kube::PatchType::kMerge, json{{"status", node["status"]}}.dump(),
                     {.subresource = "status"});
  kubelet_.AddHandler([this](const kube::InformerEvent& event) { RunKubelet(event); });
  kubelet_.Start();
}

SimCluster::~SimCluster() { kubelet_.Stop(); }

std::string SimCluster::Kubeconfig() const {
  return absl::StrCat("clusters: [{name: c, cluster: {server: \"", front_.Url(), "\", certificate-authority-data: \"",
                      absl::Base64Escape(ca_pem_), "\"}}]\nusers: [{name: u, user: {token: ", Token(), "}}]\n",
                      "contexts: [{name: c, context: {cluster: c, user: u, namespace: ", kNamespace, "}}]\ncurrent-context: c\n");
}

bool SimCluster::Patch(const kube::ObjectMeta& pod, json patch, const std::string& subresource) {
  patch["metadata"]["uid"] = pod.uid;
  return admin_
      .Patch(op::manifests::kPods, pod.Key(), kube::PatchType::kMerge, patch.dump(),
             {.field_manager = "kubelet", .subresource = subresource})
      .ok();
}

void SimCluster::NoteDuplicates(const std::string& uid, const LivePod& pod, bool live) {
  std::map<std::string, LivePod>& alike = live_[pod.name.substr(0, pod.name.rfind("-r"))];
  if (!live) {
    alike.erase(uid);
  } else if (alike.emplace(uid, pod).second) {
    for (const auto& [other, beside] : alike) {
      if (other != uid) duplicates_.push_back(absl::StrCat(pod.name, " beside ", beside.name));
    }
  }
}

void SimCluster::RunKubelet(const kube::InformerEvent& event) {
  const auto& pod = static_cast<const PodState&>(*event.object);
  const kube::ObjectKey key = pod.meta.Key();
  const bool gone = event.kind == kube::InformerEvent::Kind::kDeleted;
  bool called = false;  // Running, though it may say Pending as it was before
  {
    const base::MutexLock lock(mutex_);
    // What runs and is gone although the kubelet has not ended it runs on.
    const bool runs_on = pod.phase == "Running" && !ended_.contains(pod.meta.uid);
    NoteDuplicates(pod.meta.uid, {pod.meta.name, pod.attempt}, gone ? runs_on : pod.phase != "Succeeded" && pod.phase != "Failed");
    if (!gone && !pod.meta.deletion_timestamp.empty()) ended_.insert(pod.meta.uid);
    if (gone || !pod.meta.deletion_timestamp.empty() || pod.phase == "Succeeded" || pod.phase == "Failed") running_.erase(pod.meta.uid);
    called = running_.contains(pod.meta.uid);
  }
  if (gone) return;
  if (!pod.meta.deletion_timestamp.empty()) {
    (void)admin_.Delete(op::manifests::kPods, key, {.uid = pod.meta.uid, .grace_period_seconds = 0});
  } else if (!pod.on_node) {
    Patch(pod.meta, {{"spec", {{"nodeName", NodeName()}}}}, "");
  } else if (!pod.started && pod.phase == "Pending" && !called) {
    const std::string ip = pod.role == op::manifests::kBrokerRole ? BrokerAddress() : "10.0.0.1";
    const json running = {{"name", pod.role}, {"ready", true}, {"state", {{"running", {{"startedAt", "2026-01-01T00:00:00Z"}}}}}};
    const json status = {{"phase", "Running"},
                         {"podIP", ip},
                         {"conditions", {{{"type", "PodScheduled"}, {"status", "True"}}, {{"type", "Ready"}, {"status", "True"}}}},
                         {"containerStatuses", {running}}};
    if (!Patch(pod.meta, {{"status", status}}, "status")) return;
    const base::MutexLock lock(mutex_);
    running_.insert(pod.meta.uid);
    last_start_ = kube::RealClock().Monotonic();
    ++starts_;
  }
}

int SimCluster::RunningPods() const {
  const base::MutexLock lock(mutex_);
  return static_cast<int>(running_.size());
}

int SimCluster::Starts() const {
  const base::MutexLock lock(mutex_);
  return starts_;
}

std::vector<LivePod> SimCluster::LivePods() const {
  const base::MutexLock lock(mutex_);
  std::vector<LivePod> pods;
  for (const auto& [alike, by_uid] : live_) {
    for (const auto& [uid, pod] : by_uid) pods.push_back(pod);
  }
  return pods;
}

std::vector<std::string> SimCluster::DuplicatePods() const {
  const base::MutexLock lock(mutex_);
  return duplicates_;
}

absl::Duration SimCluster::LastStart() const {
  const base::MutexLock lock(mutex_);
  return last_start_;
}

void SimCluster::SetAway(bool away) {
  front_.Cut(away);
  if (away) server_.BreakWatches();
}

absl::Status SimCluster::EndPod(const std::string& pod, const std::string& container, int exit_code, const std::string& message) {
  const json terminated = {{"exitCode", exit_code}, {"reason", exit_code == 0 ? "Completed" : "Error"}, {"message", message}};
  const json patch = {{"status",
                       {{"phase", exit_code == 0 ? "Succeeded" : "Failed"},
                        {"conditions", {{{"type", "PodScheduled"}, {"status", "True"}}, {{"type", "Ready"}, {"status", "False"}}}},
                        {"containerStatuses", {{{"name", container}, {"ready", false}, {"state", {{"terminated", terminated}}}}}}}}};
  return admin_.Patch(op::manifests::kPods, {kNamespace, pod}, kube::PatchType::kMerge, patch.dump(), {.subresource = "status"}).status();
}

}  // namespace fusionllm::load
