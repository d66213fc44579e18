#include "operator/members/cluster_cache.h"

#include <nlohmann/json.hpp>
#include <utility>

#include "absl/strings/str_cat.h"
#include "lib/base/log.h"
#include "lib/kube/api/api_error.h"
#include "operator/manifests/resources.h"
#include "operator/members/anchor_view.h"
#include "operator/members/pod_view.h"

namespace fusionllm::op {
namespace {

using nlohmann::json;

constexpr char kByJob[] = "job";
constexpr absl::Duration kCompareTimeout = absl::Minutes(2);

struct PodObject : kube::Object {
  PodView view;
};

struct AnchorObjectView : kube::Object {
  AnchorView view;
};

// Of the metadata what the caches go by. The rest, labels above all, would be half of what ten thousand Pods take.
absl::StatusOr<kube::ObjectMeta> MetadataOf(absl::string_view text) {
  auto decoded = kube::DecodeMetadata(text);
  if (!decoded.ok()) return decoded.status();
  const kube::ObjectMeta& all = (*decoded)->meta;
  kube::ObjectMeta meta{.ns = all.ns, .name = all.name, .uid = all.uid, .resource_version = all.resource_version};
  meta.deletion_timestamp = all.deletion_timestamp;
  meta.labels.reserve(2);
  for (const char* label : {kJobLabel, kJobUidLabel}) {
    if (const absl::string_view value = all.Label(label); !value.empty()) meta.labels.emplace_back(label, value);
  }
  return meta;
}

absl::StatusOr<kube::ObjectPtr> DecodePod(absl::string_view text, const std::string& cluster) {
  auto meta = MetadataOf(text);
  if (!meta.ok()) return meta.status();
  auto view = ReadPod(json::parse(text.begin(), text.end(), nullptr, /*allow_exceptions=*/false), cluster);
  if (!view.ok()) return view.status();
  auto pod = std::make_shared<PodObject>();
  pod->meta = *std::move(meta);
  pod->view = *std::move(view);
  return pod;
}

absl::StatusOr<kube::ObjectPtr> DecodeAnchor(absl::string_view text) {
  auto meta = MetadataOf(text);
  if (!meta.ok()) return meta.status();
  auto view = ReadAnchor(text);
  if (!view.ok()) return view.status();
  auto anchor = std::make_shared<AnchorObjectView>();
  anchor->meta = *std::move(meta);
  anchor->view = *std::move(view);
  return anchor;
}

std::vector<std::string> JobUid(const kube::Object& object) { return {std::string(object.meta.Label(kJobUidLabel))}; }

kube::Informer::Options PodOptions(const std::string& cluster, const std::string& origin) {
  return {.cluster = cluster,
          .scope = {.resource = kPods, .label_selector = absl::StrCat(kOriginLabel, "=", origin)},
          .decode = [cluster](absl::string_view text) { return DecodePod(text, cluster); }};
}

kube::Informer::Options AnchorOptions(const std::string& cluster, const std::string& origin) {
  return {.cluster = cluster,
          .scope = {.resource = kConfigMaps, .label_selector = absl::StrCat(kOriginLabel, "=", origin, ",", kRoleLabel, "=", kAnchorRole)},
          .decode = DecodeAnchor};
}

bool IsRefusal(const absl::Status& status) { return kube::IsApiUnauthorized(status) || kube::IsApiForbidden(status); }

absl::Status Lost(const std::string& what, const absl::Status& why) {
  const std::string text = why.ok() ? what : absl::StrCat(what, ": ", std::string(why.message()));
  return absl::Status(IsRefusal(why) ? why.code() : absl::StatusCode::kUnavailable, text);
}

}  // namespace

ClusterCache::ClusterCache(std::string name, const std::string& origin, kube::PulsedClient& reads, kube::ApiClient& writes,
                           kube::Clock& clock, const kube::InformerMetrics* metrics, JobChanged changed, std::function<void()> grew)
    : name_(std::move(name)),
      reads_(reads),
      writes_(writes),
      clock_(clock),
      pods_(reads, clock, metrics, PodOptions(name_, origin)),
      anchors_(reads, clock, metrics, AnchorOptions(name_, origin)),
      pod_writes_(pods_, clock),
      anchor_writes_(anchors_, clock),
      inventory_(name_, reads, clock, metrics, std::move(grew)) {
  const auto tell = [changed = std::move(changed)](const kube::InformerEvent& event) {
    const kube::ObjectMeta& meta = event.object->meta;
    changed({meta.ns, std::string(meta.Label(kJobLabel))}, !event.initial && !event.resync);
  };
  for (kube::Informer* informer : {&pods_, &anchors_}) {
    informer->AddIndex(kByJob, JobUid);
    informer->AddHandler(tell);
  }
}

void ClusterCache::Start() {
  pods_.Start();
  anchors_.Start();
  inventory_.Start();
}

void ClusterCache::Stop() {
  pods_.Stop();
  anchors_.Stop();
  inventory_.Stop();
}

bool ClusterCache::WaitForSync(absl::Duration patience) {
  return pods_.WaitForSync(patience) && anchors_.WaitForSync(patience) && inventory_.WaitForFirstLists(patience);
}

bool ClusterCache::Listed() const {
  if (!listed_) listed_ = pods_.State().synced && anchors_.State().synced && inventory_.WaitForFirstLists(absl::ZeroDuration());
  return listed_;
}

absl::Status ClusterCache::Connection() const {
  bool watching = true, synced = true;
  absl::Status why;
  for (const kube::Informer* informer : {&pods_, &anchors_}) {
    const kube::InformerState state = informer->State();
    watching = watching && state.watching;
    synced = synced && state.synced;
    if (!state.watching && (why.ok() || IsRefusal(state.last_error))) why = state.last_error;
  }
  if (!synced) return Lost("not listed yet", why);
  const absl::Duration now = clock_.Monotonic();
  const std::lock_guard lock(mutex_);
  if (watching) {
    lost_at_.reset();
    return absl::OkStatus();
  }
  if (!lost_at_.has_value()) lost_at_ = now;
  // A server that answers nothing is away; watches of one that answers end and begin again.
  if (reads_.Alive() && now - *lost_at_ < kLossPatience) return absl::OkStatus();
  return Lost(absl::StrCat("no watch for ", absl::FormatDuration(absl::Trunc(now - *lost_at_, absl::Seconds(1)))), why);
}

absl::Status ClusterCache::CompareWithServer(std::stop_token stop) {
  {
    // Of jobs that nobody asks about any more.
    const std::lock_guard lock(writes_mutex_);
    std::erase_if(written_, [this](const auto& of_job) { return AllSeenLocked(of_job.second); });
  }
  absl::Status first;
  for (kube::Informer* informer : {&pods_, &anchors_}) {
    const absl::StatusOr<bool> same = informer->IsConsistent({.timeout = kCompareTimeout, .stop = stop});
    if (!same.ok()) {
      first.Update(same.status());
    } else if (!*same) {
      base::Log(base::LogLevel::kError, absl::StrCat("cluster ", name_, ": the cache of ", informer == &pods_ ? "pods" : "anchors",
                                                     " is not what the server has; listing anew"));
      informer->StartOver();
    }
  }
  return first;
}

std::vector<PodView> ClusterCache::PodsOf(const std::string& job_uid) const {
  std::vector<PodView> views;
  for (const kube::ObjectPtr& pod : pods_.Find(kByJob, job_uid)) views.push_back(static_cast<const PodObject&>(*pod).view);
  return views;
}

std::optional<AnchorView> ClusterCache::AnchorOf(const std::string& job_uid) const {
  const std::vector<kube::ObjectPtr> found = anchors_.Find(kByJob, job_uid);
  if (found.empty()) return std::nullopt;
  return static_cast<const AnchorObjectView&>(*found.front()).view;
}

std::vector<AnchorView> ClusterCache::Anchors() const {
  std::vector<AnchorView> views;
  for (const kube::ObjectPtr& anchor : anchors_.All()) views.push_back(static_cast<const AnchorObjectView&>(*anchor).view);
  return views;
}

void ClusterCache::Wrote(const std::string& job_uid, const kube::Resource& resource, const std::string& answer) {
  const absl::StatusOr<kube::ObjectMeta> meta = MetadataOf(answer);
  if (!meta.ok() || meta->resource_version.empty()) return;  // metav1.Status: it is gone, which is no reason to wait
  const std::lock_guard lock(writes_mutex_);
  written_[job_uid].insert(meta->Key());
  (resource.plural == kPods.plural ? pod_writes_ : anchor_writes_).Wrote(meta->Key(), meta->resource_version);
}

bool ClusterCache::SeenWrites(const std::string& job_uid) {
  const std::lock_guard lock(writes_mutex_);
  const auto at = written_.find(job_uid);
  if (at == written_.end()) return true;
  if (!AllSeenLocked(at->second)) return false;
  written_.erase(at);
  return true;
}

bool ClusterCache::AllSeenLocked(const std::set<kube::ObjectKey>& keys) {
  const auto matters = [&](const kube::ObjectKey& key) { return keys.contains(key); };
  return pod_writes_.AllSeen(matters) && anchor_writes_.AllSeen(matters);
}

}  // namespace fusionllm::op
