#include "tests/load/federation.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <nlohmann/json.hpp>

#include "absl/strings/escaping.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "lib/base/json_text.h"
#include "lib/kube/testing/fake_request.h"
#include "operator/manifests/resources.h"
#include "tests/load/operator_process.h"

namespace fusionllm::load {
namespace {

using nlohmann::json;

constexpr char kOperatorNamespace[] = "default";

void Check(const absl::Status& status, const char* what) {
  if (!status.ok()) Die(absl::StrCat(what, ": ", std::string(status.message())));
}

security::CertificateAuthority NewAuthority() {
  auto made = security::CertificateAuthority::Create({.common_name = "load test"});
  Check(made.status(), "certificate authority");
  return *std::move(made);
}

struct JsonView : kube::Object {
  json object;
};

absl::StatusOr<kube::ObjectPtr> DecodeWhole(absl::string_view text) {
  auto meta = kube::DecodeMetadata(text);
  if (!meta.ok()) return meta.status();
  auto view = std::make_shared<JsonView>();
  view->meta = (*meta)->meta;
  view->object = base::ParseJson(text);
  return view;
}

bool IsOperators(const kube::testing::RecordedRequest& request) { return absl::StartsWith(request.user_agent, "fusion-operator"); }

bool IsWrite(const std::string& verb) { return verb != "get" && verb != "list" && verb != "watch" && verb != "path"; }

void Count(const std::vector<kube::testing::RecordedRequest>& requests, Traffic& traffic) {
  for (const auto& request : requests) {
    const kube::testing::FakeRequest read = kube::testing::ReadRequest({.method = request.method, .target = request.target});
    ++traffic.total;
    if (IsWrite(request.verb)) ++traffic.writes;
    ++traffic.requests[absl::StrCat(request.verb, " ", read.plural.empty() ? "other" : read.plural, read.subresource.empty() ? "" : "/",
                                    read.subresource)];
  }
}

}  // namespace

std::string Traffic::Text() const {
  std::string text;
  for (const auto& [what, count] : requests) absl::StrAppend(&text, text.empty() ? "" : ", ", count, " ", what);
  return text;
}

Federation::Federation(int members, const MemberOptions& options) : authority_(NewAuthority()), log_(folder_ / "operator.log") {
  if (const char* log = std::getenv("FUSIONLLM_LOAD_LOG"); log != nullptr) log_ = log;
  // One page for the brokers of all jobs: running, and no further than before.
  auto page = daemon::MonitoringServer::Start(absl::StrCat(BrokerAddress(), ":9090"),
                                              {.metrics = [] { return ""; },
                                               .alive = [] { return absl::OkStatus(); },
                                               .ready = [] { return absl::OkStatus(); },
                                               .progress = [] { return R"({"phase":"training","step":7,"steps":100,"loss":3.5})"; }});
  Check(page.status(), "progress page of the brokers");
  brokers_ = *std::move(page);
  hub_ = std::make_unique<SimCluster>("hub", authority_);
  folder_.Write("kubeconfig", hub_->Kubeconfig());
  for (int i = 0; i < members; ++i) AddMember(absl::StrCat("m", i), options);
  const auto watch = [this](const kube::Resource& resource) {
    auto informer = std::make_unique<kube::Informer>(hub_->admin(), kube::RealClock(), nullptr,
                                                     kube::Informer::Options{.scope = {.resource = resource}, .decode = DecodeWhole});
    informer->AddHandler([this](const kube::InformerEvent& event) { Note(event); });
    informer->Start();
    return informer;
  };
  watch_jobs_ = watch(op::manifests::kFusionJobs);
  watch_clusters_ = watch(op::manifests::kFusionClusters);
}

Federation::~Federation() {
  watch_jobs_->Stop();
  watch_clusters_->Stop();
}

void Federation::AddMember(const std::string& name, const MemberOptions& options) {
  members_.push_back(std::make_unique<SimCluster>(name, authority_));
  const json secret = {{"apiVersion", "v1"},
                       {"kind", "Secret"},
                       {"metadata", {{"name", name}}},
                       {"data", {{"kubeconfig", absl::Base64Escape(members_.back()->Kubeconfig())}}}};
  Check(hub_->admin().Create(op::manifests::kSecrets, kOperatorNamespace, secret.dump()).status(), "secret");
  json cluster = {{"apiVersion", op::manifests::kFusionClusters.ApiVersion()},
                  {"kind", op::manifests::kFusionClusters.kind},
                  {"metadata", {{"name", name}}},
                  {"spec", {{"kubeConfig", {{"location", name}}}}}};
  if (options.worker_lost_timeout_s.has_value()) cluster["spec"]["workerLostTimeoutSeconds"] = *options.worker_lost_timeout_s;
  Check(hub_->admin().Create(op::manifests::kFusionClusters, "", cluster.dump()).status(), "FusionCluster");
}

std::vector<std::string> Federation::Arguments(bool elect) const {
  std::vector<std::string> arguments = {"--kubeconfig", folder_ / "kubeconfig", "--namespace", kOperatorNamespace, "--hub-address",
                                        "192.0.2.1",    "--metrics-address",    "127.0.0.1:0"};
  if (elect) arguments.emplace_back("--leader-elect");
  return arguments;
}

void Federation::Submit(const std::string& name, int executors, const std::vector<std::string>& clusters) {
  json more = json::object();
  for (const std::string& cluster : clusters) more["placement"]["clusters"].push_back({{"name", cluster}});
  SubmitWith(name, executors, more);
}

void Federation::PatchJob(const std::string& name, const json& spec) {
  const json patch = {{"spec", spec}};
  Check(hub_->admin().Patch(op::manifests::kFusionJobs, {kNamespace, name}, kube::PatchType::kMerge, patch.dump()).status(),
        "patch of a job");
}

void Federation::SubmitWith(const std::string& name, int executors, const json& more) {
  json object = {{"apiVersion", op::manifests::kFusionJobs.ApiVersion()},
                 {"kind", op::manifests::kFusionJobs.kind},
                 {"metadata", {{"name", name}, {"namespace", kNamespace}}},
                 {"spec",
                  {{"model", {{"family", "gpt2"}, {"preset", "tiny"}}},
                   {"data", {{"kind", "text"}, {"path", {"corpus.txt"}}, {"volume", {{"configMap", {{"name", kData}}}}}}},
                   {"training", {{"steps", 100}}},
                   {"network", {{"mode", "Relay"}}},
                   {"executors", {{"replicas", executors}}}}}};
  object["spec"].update(more);
  {
    const base::MutexLock lock(mutex_);
    jobs_[name].submitted = kube::RealClock().Monotonic();
  }
  Check(hub_->admin().Create(op::manifests::kFusionJobs, kNamespace, object.dump()).status(), "job");
}

void Federation::DeleteJob(const std::string& name) {
  Check(hub_->admin().Delete(op::manifests::kFusionJobs, {kNamespace, name}).status(), "deletion of a job");
}

void Federation::Note(const kube::InformerEvent& event) {
  const json& object = static_cast<const JsonView&>(*event.object).object;
  const std::string& name = event.object->meta.name;
  const bool gone = event.kind == kube::InformerEvent::Kind::kDeleted;
  const base::MutexLock lock(mutex_);
  if (object.value("kind", "") == op::manifests::kFusionClusters.kind) {
    connected_[name] = false;
    for (const json& condition : object.value(json::json_pointer("/status/conditions"), json::array())) {
      if (condition["type"] == "Connected") connected_[name] = condition["status"] == "True" && !gone;
    }
    return;
  }
  if (gone) {
    jobs_.erase(name);
    return;
  }
  JobRecord& job = jobs_[name];
  job.state = object.value(json::json_pointer("/status/state"), "");
  job.reached.emplace(job.state, kube::RealClock().Monotonic());
}

JobRecord Federation::Job(const std::string& name) const {
  const base::MutexLock lock(mutex_);
  const auto at = jobs_.find(name);
  return at == jobs_.end() ? JobRecord() : at->second;
}

int Federation::JobsIn(const std::string& state) const {
  const base::MutexLock lock(mutex_);
  return static_cast<int>(std::count_if(jobs_.begin(), jobs_.end(), [&](const auto& job) { return job.second.state == state; }));
}

int Federation::Jobs() const {
  const base::MutexLock lock(mutex_);
  return static_cast<int>(jobs_.size());
}

int Federation::Connected() const {
  const base::MutexLock lock(mutex_);
  return static_cast<int>(std::count_if(connected_.begin(), connected_.end(), [](const auto& each) { return each.second; }));
}

int Federation::RunningPods() const {
  int pods = hub_->RunningPods();
  for (const auto& member : members_) pods += member->RunningPods();
  return pods;
}

std::vector<std::string> Federation::DuplicatePods(int max_executors) const {
  std::vector<std::string> doubles;
  std::map<std::string, std::string> homes;                   // cluster by Pod
  std::map<std::string, std::vector<std::string>> executors;  // by job and attempt
  const auto look = [&](const SimCluster& cluster) {
    for (const std::string& two : cluster.DuplicatePods()) doubles.push_back(absl::StrCat(cluster.name(), ": ", two));
    for (const LivePod& pod : cluster.LivePods()) {
      if (const auto [home, first] = homes.emplace(pod.name, cluster.name()); !first && home->second != cluster.name()) {
        doubles.push_back(absl::StrCat(pod.name, " in ", home->second, " and ", cluster.name()));
      }
      if (!pod.attempt.empty()) executors[pod.attempt].push_back(pod.name);
    }
  };
  look(*hub_);
  for (const auto& member : members_) look(*member);
  for (const auto& [attempt, pods] : executors) {
    if (static_cast<int>(pods.size()) > max_executors)
      doubles.push_back(absl::StrCat("more than ", max_executors, ": ", absl::StrJoin(pods, " ")));
  }
  return doubles;
}

std::vector<std::string> Federation::Leftovers() const {
  std::vector<std::string> left;
  const std::string data = absl::StrCat("configmaps ", kNamespace, "/", kData);
  const auto look = [&](SimCluster& cluster) {
    for (const std::string& object : cluster.server().objects()) {
      if (object == data) continue;
      if (absl::StrContains(object, absl::StrCat(" ", kNamespace, "/")) && !absl::StartsWith(object, "events")) {
        left.push_back(absl::StrCat(cluster.name(), " ", object));
      }
    }
  };
  look(*hub_);
  for (const auto& member : members_) look(*member);
  return left;
}

void Federation::ForgetRequests() {
  hub_->server().ForgetRequests();
  for (const auto& member : members_) member->server().ForgetRequests();
}

std::vector<kube::testing::RecordedRequest> Federation::OperatorRequests(SimCluster& cluster) const {
  std::vector<kube::testing::RecordedRequest> requests = cluster.server().requests();
  std::erase_if(requests, [](const auto& request) { return !IsOperators(request); });
  return requests;
}

Traffic Federation::TrafficOf(SimCluster& cluster) const {
  Traffic traffic;
  Count(OperatorRequests(cluster), traffic);
  return traffic;
}

Traffic Federation::TrafficOfMembers() const {
  Traffic traffic;
  for (const auto& member : members_) Count(OperatorRequests(*member), traffic);
  return traffic;
}

int Federation::Writes() const { return TrafficOf(*hub_).writes + TrafficOfMembers().writes; }

void Federation::OnWrite(const std::function<void(const kube::testing::RecordedRequest&)>& on_write) {
  const auto filter = [on_write](const kube::testing::RecordedRequest& request) {
    if (IsWrite(request.verb) && IsOperators(request)) on_write(request);
  };
  hub_->server().OnRequest(filter);
  for (const auto& member : members_) member->server().OnRequest(filter);
}

bool Federation::WaitUntil(const std::function<bool()>& holds, absl::Duration timeout) {
  kube::Clock& clock = kube::RealClock();
  const absl::Duration end = clock.Monotonic() + timeout;
  while (!holds()) {
    if (clock.Monotonic() > end) return false;
    clock.WaitFor(absl::Milliseconds(2), {});
  }
  return true;
}

void Federation::Await(const char* what, const std::function<bool()>& holds, absl::Duration timeout) {
  if (!WaitUntil(holds, timeout)) Die(absl::StrCat("not within ", absl::FormatDuration(timeout), ": ", what));
}

void Federation::AwaitQuiet(absl::Duration quiet) const {
  kube::Clock& clock = kube::RealClock();
  int writes = -1;
  for (int now = Writes(); now != writes; now = Writes()) {
    writes = now;
    clock.WaitFor(quiet, {});
  }
}

double QuantileMs(std::vector<absl::Duration> samples, double share) {
  if (samples.empty()) return 0;
  std::sort(samples.begin(), samples.end());
  const auto rank = static_cast<size_t>(std::ceil(share * static_cast<double>(samples.size())));
  return absl::ToDoubleMilliseconds(samples[std::max<size_t>(rank, 1) - 1]);
}

}  // namespace fusionllm::load
