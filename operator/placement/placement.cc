#include "operator/placement/placement.h"

#include <algorithm>
#include <limits>
#include <nlohmann/json.hpp>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "lib/base/json_text.h"
#include "lib/base/pluralize.h"
#include "lib/job/fusion_job_fields.h"
#include "operator/cache/pod_requirements.h"
#include "operator/manifests/run_objects.h"

namespace fusionllm::op::placement {
namespace {

constexpr int64_t kNoLimit = std::numeric_limits<int64_t>::max();

// What the job gives one cluster.
struct Share {
  const ClusterCandidate* candidate = nullptr;
  int64_t min_count = 0, max_count = kNoLimit;
  int64_t count = 0;
  int64_t ranked = 0;  // that the ranking has there
  bool data = true;    // may read the job's data

  int64_t limit() const { return std::min(max_count, candidate->room.value_or(kNoLimit)); }
  bool full() const { return count >= limit(); }
};

std::string NamesOf(const std::vector<ClusterCandidate>& candidates) {
  const auto name = [](std::string* out, const ClusterCandidate& candidate) { absl::StrAppend(out, candidate.name); };
  return candidates.empty() ? "none" : absl::StrJoin(candidates, ", ", name);
}

std::string TooMany() {
  return absl::StrCat("A job has parts in ", job::kMaxClusters, " clusters at most, and its status has no room for more");
}

class Allotment {
 public:
  Allotment(const job::FusionJob& job, const std::vector<ClusterCandidate>& candidates, std::optional<int64_t> more_clusters = std::nullopt)
      : spec_(job.spec), offers_(candidates), more_(more_clusters.value_or(kNoLimit)) {}

  SearchSpace Options() {
    if (!Open() || !CheckBounds() || !TakeMinima() || !LeavesChoice()) return {};
    SearchSpace space{.wanted = out_.wanted};
    for (const Share& share : shares_) {
      const int64_t max_count = OpenNumber() ? std::max(share.min_count, DevicesIn(share)) : out_.wanted;
      space.clusters.push_back({share.candidate, share.min_count, std::min(share.limit(), max_count)});
    }
    return space;
  }

  Placement Run(const Ranking& ranking) {
    if (!Open() || !CheckBounds() || !TakeMinima()) return std::move(out_);
    if (!ranking.empty() && LeavesChoice()) Rank(ranking);
    if (!TakeWhereTheDataIs()) return std::move(out_);
    for (; total_ < out_.wanted; ++total_) {
      if (!TakeOne()) break;
    }
    if (total_ < spec_.executors.min) {
      out_.problem = absl::StrCat(total_, " of the ", spec_.executors.min, " executors that must train find room. ", Shortages());
      return std::move(out_);
    }
    if (total_ < out_.wanted) out_.shortage = absl::StrCat(total_, " of ", out_.wanted, " executors find room. ", Shortages());
    for (const Share& share : shares_) {
      for (int64_t i = 0; i < share.count; ++i) out_.slots.push_back({share.candidate->name, static_cast<int>(i), false});
    }
    TakeSpares();
    return std::move(out_);
  }

 private:
  bool Refuse(std::string problem) {
    out_.problem = std::move(problem);
    return false;
  }

  // The clusters that the job may use.
  bool Open() {
    std::vector<cache::LabelRequirement> selector;
    if (!spec_.placement.cluster_selector.json.empty()) {
      const auto parsed = base::ParseJson(spec_.placement.cluster_selector.json);
      auto read = cache::ReadLabelSelector(parsed);
      if (!read.ok()) return Refuse(absl::StrCat("spec.placement.clusterSelector: ", std::string(read.status().message())));
      selector = *std::move(read);
    }
    for (const job::PlacementCluster& named : spec_.placement.clusters) {
      const bool known = std::any_of(offers_.begin(), offers_.end(), [&](const auto& candidate) { return candidate.name == named.name; });
      if (named.min > 0 && !known) {
        return Refuse(absl::StrCat("spec.placement.clusters: ", named.name, " must have ", base::Pluralize(named.min, "executor"),
                                   ", and there is no such cluster; there are: ", NamesOf(offers_)));
      }
    }
    for (const ClusterCandidate& candidate : offers_) Consider(candidate, selector);
    // The order in which a job names its clusters is its preference.
    const auto rank = [&](const Share& share) {
      const auto& named = spec_.placement.clusters;
      return std::find_if(named.begin(), named.end(), [&](const auto& each) { return each.name == share.candidate->name; }) - named.begin();
    };
    std::stable_sort(shares_.begin(), shares_.end(), [&](const Share& a, const Share& b) { return rank(a) < rank(b); });
    if (!shares_.empty()) return true;
    return Refuse(closed_.empty() ? absl::StrCat("no cluster may be used; there are: ", NamesOf(offers_))
                                  : absl::StrCat("no cluster can be used: ", absl::StrJoin(closed_, "; ")));
  }

  void Consider(const ClusterCandidate& candidate, const std::vector<cache::LabelRequirement>& selector) {
    Share share{.candidate = &candidate, .data = manifests::HoldsData(spec_.data, candidate.name)};
    const auto& clusters = spec_.placement.clusters;
    if (!clusters.empty()) {
      const auto named = std::find_if(clusters.begin(), clusters.end(), [&](const auto& each) { return each.name == candidate.name; });
      if (named == clusters.end()) return;
      share.min_count = named->min;
      share.max_count = named->max.value_or(kNoLimit);
    }
    const auto holds = [&](const cache::LabelRequirement& one) {
      const auto label = candidate.labels.find(one.key);
      return cache::Holds(one, label == candidate.labels.end() ? std::nullopt : std::optional(label->second));
    };
    if (!std::all_of(selector.begin(), selector.end(), holds)) return;
    if (!candidate.closed.empty()) {
      closed_.push_back(absl::StrCat(candidate.name, " ", candidate.closed));
      if (share.min_count > 0) missing_minimum_ = true;
      return;
    }
    shares_.push_back(share);
  }

  // Constraints that contradict each other, whatever room there is.
  bool CheckBounds() {
    int64_t min_count = 0, max_count = spec_.placement.clusters.empty() ? kNoLimit : 0;
    for (const job::PlacementCluster& named : spec_.placement.clusters) {
      min_count += named.min;
      const int64_t max = named.max.value_or(kNoLimit);
      max_count = max == kNoLimit || max_count == kNoLimit ? kNoLimit : max_count + max;
    }
    const std::optional<int64_t> named = RequestedExecutors(spec_.executors);
    out_.wanted = named.has_value() ? *named : AsManyAsThereAre(min_count);
    if (min_count > out_.wanted) {
      return Refuse(
          absl::StrCat("spec.placement.clusters: the minima add up to ", min_count, ", more than the ", out_.wanted, " executors wanted"));
    }
    const int64_t needed = spec_.executors.replicas.value_or(spec_.executors.min);
    if (max_count < needed) {
      return Refuse(
          absl::StrCat("spec.placement.clusters: the maxima add up to ", max_count, ", fewer than the ", needed, " executors wanted"));
    }
    if (missing_minimum_) return Refuse(absl::StrCat("a cluster that must have executors cannot be used: ", absl::StrJoin(closed_, "; ")));
    return true;
  }

  // A job that names no number and wants to be fast has as many as make it so.
  bool OpenNumber() const { return spec_.placement.spread == job::Spread::kFastest && !RequestedExecutors(spec_.executors).has_value(); }
  static int64_t DevicesIn(const Share& share) { return std::min(share.limit(), share.candidate->devices); }

  int64_t AsManyAsThereAre(int64_t min_count) const {
    int64_t all = 0;
    for (const Share& share : shares_) all += DevicesIn(share);
    // An executor's name holds four digits.
    // With fewer than its stages and replicas take a job would not be what its user wrote, in a later attempt either.
    return std::min(std::max({spec_.executors.min, min_count, all, spec_.strategy.MinExecutors()}),
                    job::kMaxExecutors - spec_.executors.spares);
  }

  bool TakeMinima() {
    for (Share& share : shares_) {
      if (share.min_count > share.limit()) {
        return Refuse(absl::StrCat("spec.placement.clusters: ", share.candidate->name, " must have ",
                                   base::Pluralize(share.min_count, "executor"), " and has room for ", *share.candidate->room, ". ",
                                   Shortages()));
      }
      if (share.min_count == 0) continue;
      if (IsOneTooMany(share)) {
        return Refuse(absl::StrCat("spec.placement.clusters: ", share.candidate->name, " must have ",
                                   base::Pluralize(share.min_count, "executor"), ". ", TooMany()));
      }
      Take(share, share.min_count);
      total_ += share.min_count;
    }
    return true;
  }

  // Whether there are two ways, and the job wants neither for other reasons than speed.
  bool LeavesChoice() const {
    const job::Spread spread = spec_.placement.spread;
    const bool in_order = spec_.placement.clusters.size() > 1;  // of preference
    if (spread != job::Spread::kFastest && (spread != job::Spread::kAuto || in_order)) return false;
    if (OpenNumber()) return total_ < out_.wanted && spec_.executors.min < out_.wanted;
    int64_t room = 0, open = 0;
    for (const Share& share : shares_) {
      room += std::min(share.limit(), out_.wanted);
      open += !share.full();
    }
    return open > 1 && total_ < out_.wanted && out_.wanted < room;
  }

  void Rank(const Ranking& ranking) {
    const auto place = [&](const Share& share) {
      return std::find_if(ranking.begin(), ranking.end(), [&](const auto& each) { return each.name == share.candidate->name; });
    };
    std::stable_sort(shares_.begin(), shares_.end(), [&](const Share& a, const Share& b) { return place(a) < place(b); });
    for (Share& share : shares_) {
      if (const auto at = place(share); at != ranking.end()) share.ranked = at->executors;
    }
    ranked_ = true;
    if (!OpenNumber()) return;
    int64_t enough = 0;
    for (const Share& share : shares_) enough += std::max(share.min_count, std::min(share.ranked, share.limit()));
    if (enough > 0) out_.wanted = std::min(out_.wanted, std::max(spec_.executors.min, enough));
  }

  // One executor at least reads the data and feeds the others.
  bool TakeWhereTheDataIs() {
    if (spec_.data.clusters.empty()) return true;
    if (std::any_of(shares_.begin(), shares_.end(), [](const Share& share) { return share.data && share.count > 0; })) return true;
    const auto open = std::find_if(shares_.begin(), shares_.end(), [&](const Share& share) { return share.data && MayTake(share); });
    if (open == shares_.end() || total_ >= out_.wanted) {
      const bool full = std::any_of(shares_.begin(), shares_.end(), [](const Share& share) { return share.data; });
      return Refuse(absl::StrCat("spec.data.clusters: no executor can be where the data is, in ", absl::StrJoin(spec_.data.clusters, ", "),
                                 full ? absl::StrCat(". ", Shortages()) : ""));
    }
    Take(*open);
    ++total_;
    return true;
  }

  bool IsOneTooMany(const Share& share) const { return share.count == 0 && !share.candidate->named && more_ == 0; }
  bool MayTake(const Share& share) {
    if (share.full()) return false;
    if (!IsOneTooMany(share)) return true;
    limited_ = true;
    return false;
  }
  bool Take(Share& share, int64_t executors = 1) {
    if (share.count == 0 && !share.candidate->named && more_ != kNoLimit) --more_;
    share.count += executors;
    return true;
  }

  bool TakeOne() {
    Share* best = nullptr;
    for (Share& share : shares_) {
      if (share.count < share.ranked && MayTake(share)) return Take(share);
    }
    for (Share& share : shares_) {
      if (!MayTake(share)) continue;
      if (best == nullptr || (InTurn() && share.count < best->count)) best = &share;
    }
    return best != nullptr && Take(*best);
  }

  bool InTurn() const { return !ranked_ && spec_.placement.spread != job::Spread::kPacked; }

  void TakeSpares() {
    size_t turn = 0;
    for (int64_t i = 0; i < spec_.executors.spares; ++i) {
      Share* taken = nullptr;
      for (size_t tried = 0; tried < shares_.size() && taken == nullptr; ++tried, ++turn) {
        Share& share = shares_[turn % shares_.size()];
        // A cluster's maximum bounds those that train; room is room.
        if (share.count < share.candidate->room.value_or(kNoLimit) && !IsOneTooMany(share)) taken = &share;
      }
      if (taken == nullptr) return;
      out_.slots.push_back({taken->candidate->name, static_cast<int>(taken->count), true});
      Take(*taken);
    }
  }

  std::string Shortages() const {
    std::vector<std::string> parts;
    if (limited_) parts.push_back(TooMany());
    for (const Share& share : shares_) {
      if (!share.candidate->room.has_value()) continue;
      if (share.candidate->shortage.empty()) {
        parts.push_back(absl::StrCat(share.candidate->name, ": room for ", *share.candidate->room));
      } else {
        parts.push_back(absl::StrCat(share.candidate->name, ": room for ", *share.candidate->room, "; ", share.candidate->shortage));
      }
    }
    for (const std::string& closed : closed_) parts.push_back(closed);
    return absl::StrJoin(parts, ". ");
  }

  const job::Spec& spec_;
  const std::vector<ClusterCandidate>& offers_;
  std::vector<Share> shares_;
  std::vector<std::string> closed_;
  bool missing_minimum_ = false;
  int64_t more_;          // clusters that may be taken and are not named
  bool limited_ = false;  // one was left out for that
  bool ranked_ = false;
  int64_t total_ = 0;
  Placement out_;
};

}  // namespace

std::optional<int64_t> RequestedExecutors(const job::Executors& executors) {
  if (executors.replicas.has_value())
    return std::clamp(*executors.replicas, executors.min, std::max(executors.min, executors.max.value_or(kNoLimit)));
  if (executors.max.has_value()) return std::max(executors.min, *executors.max);
  return std::nullopt;
}

int64_t MinExecutorsToStart(const job::FusionJob& job, int64_t attempt) {
  const job::Executors& executors = job.spec.executors;
  if (attempt > 0) return executors.min;
  int64_t max_count = RequestedExecutors(executors).value_or(job::kMaxExecutors);
  if (const auto& clusters = job.spec.placement.clusters; !clusters.empty()) {
    int64_t maxima = 0;
    for (const job::PlacementCluster& named : clusters) maxima += std::min(named.max.value_or(max_count), max_count);
    max_count = std::min(max_count, maxima);
  }
  return std::max(executors.min, std::min(job.spec.strategy.MinExecutors(), max_count));
}

SearchSpace SearchSpaceOf(const job::FusionJob& job, const std::vector<ClusterCandidate>& candidates) {
  return Allotment(job, candidates).Options();
}

Placement Place(const job::FusionJob& job, const std::vector<ClusterCandidate>& candidates, const Ranking& ranking,
                std::optional<int64_t> more_clusters) {
  return Allotment(job, candidates, more_clusters).Run(ranking);
}

}  // namespace fusionllm::op::placement
