#include "operator/placement/placer.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include "absl/strings/str_cat.h"
#include "lib/base/log.h"
#include "lib/base/status_macros.h"
#include "lib/job/fusion_job_fields.h"
#include "operator/placement/graph_file.h"

namespace fusionllm::op::placement {
namespace {

// The broker reads these itself, where it is.
std::string FilesOfBroker(const job::Spec& spec) {
  if (manifests::GraphIsAmongData(spec)) return "spec.model.graph.file";
  if (spec.model.init.from.has_value()) return "spec.model.init.from";
  return "";
}

}  // namespace

Placement Placer::Propose(const CandidatesRequest& asked_for, bool reserve) {
  job::FusionJob job = *asked_for.job;
  job.spec.executors.min = MinExecutorsToStart(job, asked_for.attempt);
  CandidatesRequest request = asked_for;
  request.job = &job;
  const std::string local = members_.LocalName().value_or("");
  const std::string files = FilesOfBroker(job.spec);
  if (!files.empty() && !manifests::HoldsData(job.spec.data, local)) {
    return {.problem = absl::StrCat("spec.data.clusters: the hub", local.empty() ? "" : absl::StrCat(", ", local, ","),
                                    " must be among them: the broker reads ", files, " there")};
  }
  const auto requirements = ExecutorRequirements(request.identity, job, *request.images, {});
  if (!requirements.ok()) return {.problem = std::string(requirements.status().message())};
  const HintResult asked = reserve && hints_ != nullptr ? QueryScheduler(request) : HintResult();
  if (asked.pending) return {.pending = true};
  const Ranking ranking = asked.hint.has_value() ? asked.hint->ranking : Ranking();
  const base::MutexLock lock(mutex_);
  const int64_t more_clusters = std::max<int64_t>(0, static_cast<int64_t>(job::kMaxClusters) - std::ssize(request.named));
  Placement placement = Place(job, Candidates(request, hub_, members_, &reservations_), ranking, more_clusters);
  if (placement.slots.empty() && !request.avoided.empty()) {
    // Rather back to where it went wrong than nowhere: how often is bounded by the restarts that are left.
    CandidatesRequest anywhere = request;
    anywhere.avoided.clear();
    Placement back = Place(job, Candidates(anywhere, hub_, members_, &reservations_), {}, more_clusters);
    if (!back.slots.empty()) placement = std::move(back);
  }
  if (placement.slots.empty() && job.spec.executors.min > asked_for.job->spec.executors.min) {
    const job::Strategy& strategy = job.spec.strategy;
    if (strategy.replicas > 1) {
      absl::StrAppend(&placement.problem, ". spec.strategy asks for ", strategy.replicas, " replicas",
                      strategy.stages > 1 ? absl::StrCat(" of ", strategy.stages, " stages") : "", ": ", strategy.MinExecutors());
    } else {
      absl::StrAppend(&placement.problem, ". spec.strategy.stages asks for ", strategy.stages);
    }
  }
  // Without a broker executors would hold their devices in vain.
  if (std::string problem = BrokerShortage(request, hub_, members_, &reservations_); !placement.slots.empty() && !problem.empty()) {
    placement.slots.clear();
    placement.shortage.clear();
    placement.problem = std::move(problem);
  }
  if (asked.hint.has_value()) {
    placement.follows_plan = !ranking.empty();
    placement.hint_reason = asked.hint->reason;
    placement.hint = asked.hint->message;
  }
  KeepMessage(request, placement);
  if (reserve && !placement.slots.empty()) {
    const auto broker = BrokerRequirements(request);
    reservations_.Reserve(request.identity.uid, placement.slots, requirements->requests, request.now);
    if (broker.ok()) reservations_.ReserveBroker(request.identity.uid, local, broker->requests);
  }
  return placement;
}

// Not under the lock, which others wait for: writing the query down takes a while. Capacity that another takes meanwhile is seen by
// Place().
Placer::HintResult Placer::QueryScheduler(const CandidatesRequest& request) {
  std::vector<ClusterCandidate> candidates;
  {
    const base::MutexLock lock(mutex_);
    candidates = Candidates(request, hub_, members_, &reservations_);
  }
  const SearchSpace space = SearchSpaceOf(*request.job, candidates);
  if (space.clusters.empty()) return {};
  const absl::StatusOr<PlacementQuery> query = QueryAbout(request, space);
  if (!query.ok()) {
    base::Log(base::LogLevel::kDebug, absl::StrCat("job ", request.identity.ns, "/", request.identity.name,
                                                   ": the scheduler is not asked: ", std::string(query.status().message())));
    return {};
  }
  const std::optional<PlacementHint> hint = hints_->HintFor(request.identity, *query);
  return {.pending = !hint.has_value(), .hint = hint};
}

absl::StatusOr<PlacementQuery> Placer::QueryAbout(const CandidatesRequest& request, const SearchSpace& space) const {
  std::vector<cache::ClusterFacts> clusters = members_.Clusters();
  if (measured_ != nullptr) measured_->AddTo(clusters, request.now);
  const std::optional<ConfigMapFile> graph = GraphInConfigMap(request.job->spec);
  if (!graph.has_value()) return PlacementQueryOf(*request.job, request.attempt, space, clusters);
  FUSIONLLM_ASSIGN_OR_RETURN(std::string text, ReadConfigMapFile(hub_.client(), request.identity.ns, *graph, {}));
  job::FusionJob job = *request.job;
  job.spec.model.graph = job::GraphSource{.inline_text = std::move(text)};
  return PlacementQueryOf(job, request.attempt, space, clusters);
}

void Placer::KeepMessage(const CandidatesRequest& request, Placement& placement) {
  const std::string& uid = request.identity.uid;
  if (placement.problem.empty() && placement.shortage.empty()) {
    said_.erase(uid);
    return;
  }
  std::erase_if(said_, [&](const auto& entry) { return request.now - entry.second.at >= kMessageRefresh; });
  const auto [at, first] = said_.try_emplace(uid, Said{placement.problem, placement.shortage, request.now});
  const Said& said = at->second;
  if (first) return;
  if (placement.problem.empty() != said.problem.empty() || placement.shortage.empty() != said.shortage.empty()) {
    at->second = {placement.problem, placement.shortage, request.now};
    return;
  }
  placement.problem = said.problem;
  placement.shortage = said.shortage;
}

}  // namespace fusionllm::op::placement
