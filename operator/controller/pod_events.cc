#include "operator/controller/pod_events.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <tuple>
#include <utility>

#include "absl/strings/str_cat.h"
#include "lib/base/truncate_utf8.h"
#include "lib/kube/api/json_fields.h"
#include "operator/manifests/resources.h"

namespace fusionllm::op::controller {
namespace {

using nlohmann::json;

constexpr size_t kReasonBytes = 128, kMessageBytes = 512;

// Its kubelet has it, and none of its containers says anything.
bool Waits(const lifecycle::PodView& pod) {
  return pod.phase == lifecycle::PodPhase::kPending && pod.reason.empty() && !pod.deleted_at.has_value();
}

// As the kinds of sources have it, which say when in different fields.
std::string TimeOf(const json& event) {
  std::string newest;
  for (const std::string& time : {kube::TextAt(event, "series", "lastObservedTime"), kube::TextAt(event, "lastTimestamp"),
                                  kube::TextAt(event, "eventTime"), kube::TextAt(event, "metadata", "creationTimestamp")}) {
    newest = std::max(newest, time);
  }
  return newest;
}

// Null: there is none.
json NewestWarning(const json& list) {
  json newest;
  for (const json& event : kube::ListOf(kube::At(list, "items"))) {
    if (kube::TextAt(event, "type") != "Warning" || kube::TextAt(event, "reason").empty()) continue;
    if (newest.is_null() || TimeOf(event) > TimeOf(newest)) newest = event;
  }
  return newest;
}

}  // namespace

PodEvents::ByPod PodEvents::Ask(cache::Member& member, const lifecycle::ClusterView& here, const lifecycle::Observation& seen, ByPod known,
                                Answer& answer, const std::stop_token& stop) {
  ByPod now;
  size_t asked = 0;
  for (const lifecycle::PodView& pod : here.pods) {
    if (!Waits(pod)) continue;
    const auto before = known.find(pod.uid);
    if (before == known.end() && now.size() >= kMaxPods) continue;
    Said said = before == known.end() ? Said{std::max(pod.created_at, seen.created_at), "", ""} : before->second;
    // One from the future says that the clocks differ.
    said.asked = std::min(said.asked, seen.now);
    if (seen.now - said.asked >= kAskAfter && asked < kMaxPods && here.reachable) {
      ++asked;
      said.asked = seen.now;
      const auto list = member.client().List(manifests::kEvents, seen.identity.ns,
                                             {.field_selector = absl::StrCat("involvedObject.uid=", pod.uid)}, {.stop = stop});
      const json newest = list.ok() ? NewestWarning(kube::ParseJson(*list)) : json();
      std::string reason = base::TruncateUtf8(kube::TextAt(newest, "reason"), kReasonBytes);
      std::string message = base::TruncateUtf8(kube::TextAt(newest, "message"), kMessageBytes);
      answer.changed = answer.changed || (list.ok() && std::tie(reason, message) != std::tie(said.reason, said.message));
      if (list.ok()) std::tie(said.reason, said.message) = std::make_pair(std::move(reason), std::move(message));
    }
    answer.requeue_after = std::min(answer.requeue_after, said.asked + kAskAfter - seen.now);
    now.emplace(pod.uid, std::move(said));
  }
  return now;
}

PodEvents::Answer PodEvents::Observe(cache::Member& member, const lifecycle::ClusterView& here, lifecycle::Observation& seen,
                                     const std::stop_token& stop) {
  Answer answer;
  const bool any = std::any_of(here.pods.begin(), here.pods.end(), Waits);
  ByPod known;
  {
    const base::MutexLock lock(mutex_);
    const auto job = said_.find(seen.identity.uid);
    if (job == said_.end() && !any) return answer;
    if (job != said_.end() && job->second.contains(here.name)) known = job->second.at(here.name);
  }
  ByPod now = Ask(member, here, seen, std::move(known), answer, stop);
  const base::MutexLock lock(mutex_);
  auto& clusters = said_[seen.identity.uid];
  clusters[here.name] = std::move(now);
  std::erase_if(clusters, [](const auto& entry) { return entry.second.empty(); });
  for (lifecycle::ClusterView& cluster : seen.clusters) {
    const auto said = clusters.find(cluster.name);
    for (lifecycle::PodView& pod : cluster.pods) {
      if (said == clusters.end() || !Waits(pod) || !said->second.contains(pod.uid)) continue;
      pod.reason = said->second.at(pod.uid).reason;
      pod.message = said->second.at(pod.uid).message;
    }
  }
  if (clusters.empty()) said_.erase(seen.identity.uid);
  return answer;
}

void PodEvents::Forget(const std::string& job_uid) {
  const base::MutexLock lock(mutex_);
  said_.erase(job_uid);
}

}  // namespace fusionllm::op::controller
