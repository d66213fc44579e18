#include "lib/planning/micro_batch_choice.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <memory>
#include <optional>
#include <utility>
#include <variant>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "lib/base/status_macros.h"
#include "lib/planning/micro_batch_sizes.h"
#include "lib/runtime/device_throttle.h"
#include "lib/scheduler/assignment.h"
#include "lib/scheduler/infinity.h"

namespace fusionllm::planning {
namespace {

using scheduler::kInfinity;

// Sizes that are within so much of the best by a quick search are searched in full, so many of them.
constexpr double kNearBest = 0.03;
constexpr size_t kMaxFinalists = 3;

// Time of a step to an equal loss (docs/design/adr/0003).
double CostOf(const plan::PlanResult& answer) {
  const auto* plan = std::get_if<plan::Plan>(&answer);
  if (plan == nullptr) return kInfinity;
  return plan->predicted_step_seconds * (1 + scheduler::kTimePerNat * plan->loss_cost);
}

class Choice {
 public:
  Choice(const workload::Workload& workload, const Profiles& profiles, const PlanOptions& options)
      : job_(workload), profiles_(profiles), options_(options), sizes_(workload), first_(workload.micro_batch_size) {}

  absl::StatusOr<PlannedWorkload> Run() {
    FUSIONLLM_ASSIGN_OR_RETURN(const std::vector<int64_t> sizes, SizesThatResolve());
    PlanOptions quick = options_;
    quick.search_budget = std::min(options_.search_budget, scheduler::kQuickSearchBudget);
    quick.explain = false;
    FUSIONLLM_ASSIGN_OR_RETURN(const std::vector<SizeCost> weighed,
                               SearchSizes(sizes, first_, [&](int64_t size) { return Cost(size, quick); }));
    std::vector<SizeCost> finalists;
    double least = kInfinity;
    for (const SizeCost& size : weighed) least = std::min(least, size.cost);
    if (least == kInfinity) return Refused(weighed);
    for (const SizeCost& size : weighed) {
      if (size.cost <= least * (1 + kNearBest)) finalists.push_back(size);
    }
    std::stable_sort(finalists.begin(), finalists.end(), [](const SizeCost& a, const SizeCost& b) { return a.cost < b.cost; });
    if (finalists.size() > kMaxFinalists) finalists.resize(kMaxFinalists);
    FUSIONLLM_ASSIGN_OR_RETURN(PlannedWorkload planned, Best(finalists));
    Tell(weighed, planned);
    return planned;
  }

 private:
  // A graph may be written for one size alone.
  absl::StatusOr<std::vector<int64_t>> SizesThatResolve() {
    std::vector<int64_t> sizes;
    absl::Status first_error;
    for (const int64_t size : sizes_.PlannableOn(profiles_)) {
      const absl::Status status = sizes_.At(size).status();
      if (status.ok()) sizes.push_back(size);
      if (size == first_) first_error = status;
    }
    FUSIONLLM_RETURN_IF_ERROR(first_error);
    return sizes;
  }

  absl::StatusOr<PlannedWorkload> PlanAt(int64_t size, const PlanOptions& options) {
    FUSIONLLM_ASSIGN_OR_RETURN(const workload::Workload* const workload, sizes_.At(size));
    FUSIONLLM_ASSIGN_OR_RETURN(const Profiles profiles, sizes_.ProfilesAt(size, profiles_));
    return PlanWithFixedMicroBatchSize(*workload, profiles, options);
  }

  absl::StatusOr<double> Cost(int64_t size, const PlanOptions& options) {
    FUSIONLLM_ASSIGN_OR_RETURN(const PlannedWorkload planned, PlanAt(size, options));
    Note(size, planned.answer);
    return CostOf(planned.answer);
  }

  void Note(int64_t size, const plan::PlanResult& answer) {
    plan::MicroBatchSize& size_result = size_results_[size];
    size_result = {.size = size};
    if (const auto* plan = std::get_if<plan::Plan>(&answer)) {
      size_result.predicted_step_seconds = plan->predicted_step_seconds;
    } else {
      size_result.refused = std::get<plan::PlanError>(answer).message;
    }
  }

  absl::StatusOr<PlannedWorkload> Best(const std::vector<SizeCost>& finalists) {
    std::optional<PlannedWorkload> best;
    int64_t best_size = 0;
    double best_cost = kInfinity;
    for (const SizeCost& finalist : finalists) {
      FUSIONLLM_ASSIGN_OR_RETURN(PlannedWorkload planned, PlanAt(finalist.size, options_));
      Note(finalist.size, planned.answer);
      double cost = CostOf(planned.answer);
      if (finalist.size == first_) cost *= 1 - kMinSizeGain;
      if (best.has_value() && cost >= best_cost) continue;
      best = std::move(planned);
      best_size = finalist.size;
      best_cost = cost;
    }
    FUSIONLLM_ASSIGN_OR_RETURN(JobAtSize chosen, AtMicroBatchSize(job_, profiles_, best_size));
    best->workload = std::move(chosen.workload);
    best->profiles = std::move(chosen.profiles);
    return *std::move(best);
  }

  absl::StatusOr<PlannedWorkload> Refused(const std::vector<SizeCost>& weighed) { return PlanAt(weighed.front().size, options_); }

  void Tell(const std::vector<SizeCost>& weighed, PlannedWorkload& planned) const {
    auto* const plan = std::get_if<plan::Plan>(&planned.answer);
    if (plan == nullptr || weighed.size() < 2) return;
    std::vector<std::string> others;
    for (const auto& [size, size_result] : size_results_) {
      plan->micro_batch_sizes.push_back(size_result);
      if (size == plan->micro_batch_size) continue;
      if (!size_result.refused.empty()) {
        others.push_back(absl::StrFormat("%d: no plan", size));
      } else {
        others.push_back(absl::StrFormat("%d: %.3g s (%+.1f%%)", size, size_result.predicted_step_seconds,
                                         100 * (size_result.predicted_step_seconds / plan->predicted_step_seconds - 1)));
      }
    }
    if (!options_.explain) return;
    plan->explain.push_back(
        absl::StrFormat("micro-batches of %d were chosen (spec.training.microBatchSize: auto); a step with others, by a quick "
                        "search: of %s",
                        plan->micro_batch_size, absl::StrJoin(others, ", ")));
  }

  const workload::Workload& job_;
  const Profiles& profiles_;
  const PlanOptions& options_;
  MicroBatchSizes sizes_;
  const int64_t first_;
  std::map<int64_t, plan::MicroBatchSize> size_results_;
};

}  // namespace

absl::StatusOr<PlannedWorkload> PlanWithBestMicroBatchSize(const workload::Workload& workload, const Profiles& profiles,
                                                           const PlanOptions& options) {
  const int64_t begin = runtime::ThreadCpuNanoseconds();
  FUSIONLLM_ASSIGN_OR_RETURN(PlannedWorkload planned, Choice(workload, profiles, options).Run());
  const double cpu_seconds = static_cast<double>(runtime::ThreadCpuNanoseconds() - begin) * 1e-9;
  std::visit([&](auto& document) { document.search_cpu_seconds = cpu_seconds; }, planned.answer);
  return planned;
}

absl::StatusOr<std::string> MemoryHint(const workload::Workload& workload, const Profiles& profiles, const PlanOptions& options) {
  PlanOptions quick = options;
  quick.search_budget = std::min(options.search_budget, scheduler::kQuickSearchBudget);
  quick.explain = false;
  const job::Training& training = workload.job.spec.training;
  const auto fits = [&](int64_t size, job::Recompute recompute) -> absl::StatusOr<bool> {
    job::FusionJob job = workload.job;
    job.spec.training.micro_batch_size = size;
    job.spec.training.recompute = recompute;
    const auto other = workload::Resolve(job, workload.base_directory);
    if (!other.ok()) return false;  // a graph that is written for one size
    FUSIONLLM_ASSIGN_OR_RETURN(const PlannedWorkload planned, PlanWithFixedMicroBatchSize(**other, profiles, quick));
    return std::holds_alternative<plan::Plan>(planned.answer);
  };
  std::vector<std::string> ways;
  const bool may_recompute = training.recompute == job::Recompute::kNone;
  if (may_recompute) {
    const int64_t size = training.micro_batch_size > 0 ? training.micro_batch_size : MicroBatchSizes(workload).all().front();
    FUSIONLLM_ASSIGN_OR_RETURN(const bool fit, fits(size, job::Recompute::kFull));
    if (fit) ways.push_back("spec.training.recompute=full");
  }
  std::vector<int64_t> smaller;
  if (training.micro_batch_size > 0) {
    for (int64_t size = workload.micro_batch_size - 1; size > 0; --size) {
      if (training.global_batch_size % size == 0 && training.global_batch_size / size <= scheduler::kMaxMicroBatches)
        smaller.push_back(size);
    }
  }
  // The largest that fits: memory grows with the size, and what the least does not free no other frees.
  for (const job::Recompute recompute : {training.recompute, job::Recompute::kFull}) {
    if (smaller.empty() || (recompute != training.recompute && !(ways.empty() && may_recompute))) break;
    FUSIONLLM_ASSIGN_OR_RETURN(const bool any, fits(smaller.back(), recompute));
    if (!any) continue;
    size_t misses = 0, fitting = smaller.size() - 1;  // [misses, fitting) is open
    while (misses < fitting) {
      const size_t middle = (misses + fitting) / 2;
      FUSIONLLM_ASSIGN_OR_RETURN(const bool fit, fits(smaller[middle], recompute));
      if (fit) {
        fitting = middle;
      } else {
        misses = middle + 1;
      }
    }
    std::string way = absl::StrCat("spec.training.microBatchSize=", smaller[fitting]);
    if (recompute != training.recompute) absl::StrAppend(&way, " and spec.training.recompute=full");
    ways.push_back(std::move(way));
    break;
  }
  if (!ways.empty()) return absl::StrCat("; with ", absl::StrJoin(ways, ", or "), " it would fit");
  if (training.micro_batch_size == 0 || smaller.empty()) return "";
  return absl::StrCat("; it would not fit with any spec.training.microBatchSize");
}

}  // namespace fusionllm::planning
