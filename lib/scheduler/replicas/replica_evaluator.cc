#include "lib/scheduler/replicas/replica_evaluator.h"

#include <algorithm>
#include <numeric>
#include <set>
#include <utility>
#include <variant>

#include "lib/scheduler/closed_form.h"
#include "lib/scheduler/infinity.h"

namespace fusionllm::scheduler::replicas {
namespace {

constexpr double kShorter = 1 - 1e-9;
constexpr int kCutGrid = 96;
constexpr size_t kMaxCachedEntries = 2'000'000;  // ops and links, of all Problems that are kept
constexpr int64_t kStepsOfASimulation = 2'000;   // of the dynamic program

double SecondsOf(const Evaluation& evaluation) { return evaluation.feasible() ? evaluation.step_s : kInfinity; }

}  // namespace

ReplicaEvaluator::ReplicaEvaluator(const Problem& problem)
    : problem_(problem),
      max_subs_(std::clamp<size_t>(kMaxCachedEntries / (1 + problem.request().ops.size() + problem.request().links.size()), 8, 256)) {}

ReplicaEvaluator::Sub& ReplicaEvaluator::SubFor(int share, const Sharing& sharing) {
  const auto key = std::pair(share, sharing);
  if (const auto found = subs_.find(key); found != subs_.end()) return found->second;
  if (subs_.size() >= max_subs_) subs_.clear();
  Sub& sub = subs_[key];
  sub.request = problem_.request();
  sub.request.micro_batches = share;
  for (const auto& [resource, pipelines] : sharing) sub.request.resources[resource].bytes_per_s /= pipelines;
  // Constraints are for the plan as a whole.
  sub.request.pins.clear();
  sub.request.first_device.clear();
  sub.request.stages = 0;
  sub.request.min_executors = 1;
  sub.request.max_executors = 0;
  sub.request.use_all_devices = false;
  auto created = Problem::Create(sub.request, [this] { return problem_.Stopped(); });
  // The whole problem is valid and has fewer liberties.
  sub.problem = std::get<std::unique_ptr<Problem>>(*std::move(created));
  sub.evaluator = std::make_unique<Evaluator>(*sub.problem);
  return sub;
}

std::vector<std::pair<int, int>> ReplicaEvaluator::StagePairs(const std::vector<int>& begins) const {
  const auto stage_of = [&](int position) {
    return static_cast<int>(std::upper_bound(begins.begin(), begins.end(), position) - begins.begin()) - 1;
  };
  std::set<std::pair<int, int>> pairs;
  for (const ChainValue& value : problem_.values()) {
    const int src = stage_of(value.producer);
    for (const int consumer : value.consumers) {
      const int dst = stage_of(consumer);
      if (dst == src) continue;
      pairs.insert({src, dst});
      if (value.differentiable) pairs.insert({dst, src});
    }
  }
  return {pairs.begin(), pairs.end()};
}

std::vector<ReplicaEvaluator::Sharing> ReplicaEvaluator::SharingOf(const ReplicaGrid& grid) {
  if (stage_pairs_.first != grid.begins) stage_pairs_ = {grid.begins, StagePairs(grid.begins)};
  std::vector<std::set<int>> used(grid.pipelines());
  std::map<int, int> users;
  for (int d = 0; d < grid.pipelines(); ++d) {
    for (const auto& [src, dst] : stage_pairs_.second) {
      const int from = grid.devices[src][d], to = grid.devices[dst][d];
      problem_.links().ForEachResource(from, to, problem_.link(from, to), [&](int r) { used[d].insert(r); });
    }
    for (const int r : used[d]) ++users[r];
  }
  std::vector<Sharing> sharing(grid.pipelines());
  for (int d = 0; d < grid.pipelines(); ++d) {
    for (const int r : used[d]) {
      if (users[r] > 1) sharing[d].emplace_back(r, users[r]);
    }
  }
  return sharing;
}

Evaluation ReplicaEvaluator::EvaluatePipeline(const ReplicaGrid& grid, int pipeline, int share, const Sharing& sharing, Effort effort) {
  Assignment assignment = grid.Pipeline(pipeline);
  PipelineKey key{grid.begins, assignment.devices, share, effort, sharing};
  if (const auto found = remembered_.find(key); found != remembered_.end()) return found->second;
  Evaluator& evaluator = *SubFor(share, sharing).evaluator;
  const int64_t work = evaluator.work(), evaluations = evaluator.evaluations();
  const Evaluation evaluation = evaluator.Evaluate(assignment, effort);
  work_ += evaluator.work() - work;
  evaluations_ += evaluator.evaluations() - evaluations;
  if (remembered_.size() >= kMaxCachedResults) remembered_.clear();
  remembered_.emplace(std::move(key), evaluation);
  return evaluation;
}

// One after another to the pipeline that would finish first, by the closed form: first micro-batch through and back, then one for each
// period of the slowest stage or crossing.
std::vector<int> ReplicaEvaluator::ShareByEstimate(const ReplicaGrid& grid) const {
  const ClosedForm form(problem_);
  const int count = grid.pipelines();
  std::vector<double> fill_s(count, 0), period_s(count, 0);
  for (int d = 0; d < count; ++d) {
    for (int s = 0; s < grid.stages(); ++s) {
      const int end = s + 1 < grid.stages() ? grid.begins[s + 1] : problem_.positions();
      const double stage_s = form.StageSeconds(grid.begins[s], end, grid.devices[s][d]);
      fill_s[d] += stage_s;
      period_s[d] = std::max(period_s[d], stage_s);
    }
    for (int s = 1; s < grid.stages(); ++s) {
      const auto crossing = form.CrossingAt(grid.begins[s], grid.devices[s - 1][d], grid.devices[s][d], period_s[d]);
      if (crossing.seconds() == kInfinity) continue;  // the evaluation says why that cannot be
      fill_s[d] += crossing.seconds();
      period_s[d] = std::max({period_s[d], crossing.forward_s, crossing.backward_s});
    }
  }
  std::vector<int> shares(count, 1);
  for (int left = problem_.request().micro_batches - count; left > 0; --left) {
    int first = 0;
    for (int d = 1; d < count; ++d) {
      if (fill_s[d] + shares[d] * period_s[d] < fill_s[first] + shares[first] * period_s[first]) first = d;
    }
    ++shares[first];
  }
  return shares;
}

ReplicaEvaluation ReplicaEvaluator::Evaluate(const ReplicaGrid& grid, Effort effort) {
  const std::vector<Sharing> sharing = SharingOf(grid);
  const int count = grid.pipelines();
  std::vector<int> shares = ShareByEstimate(grid);
  std::vector<double> seconds(count);
  for (int d = 0; d < count; ++d) seconds[d] = SecondsOf(EvaluatePipeline(grid, d, shares[d], sharing[d], effort));
  // From the slowest to who finishes first with one more, while that makes the slowest faster.
  for (int moves = 0; moves < problem_.request().micro_batches; ++moves) {
    const int slowest = static_cast<int>(std::max_element(seconds.begin(), seconds.end()) - seconds.begin());
    if (shares[slowest] == 1) break;
    int taker = -1;
    double taker_s = kInfinity;
    for (int d = 0; d < count; ++d) {
      if (d == slowest) continue;
      const double per_micro_batch_s = seconds[d] / shares[d];
      if (taker < 0 || seconds[d] + per_micro_batch_s < taker_s) {
        taker = d;
        taker_s = seconds[d] + per_micro_batch_s;
      }
    }
    if (taker < 0) break;
    const double more_s = SecondsOf(EvaluatePipeline(grid, taker, shares[taker] + 1, sharing[taker], effort));
    if (more_s >= seconds[slowest] * kShorter) break;
    --shares[slowest];
    ++shares[taker];
    seconds[slowest] = SecondsOf(EvaluatePipeline(grid, slowest, shares[slowest], sharing[slowest], effort));
    seconds[taker] = more_s;
  }
  return EvaluateWithShares(grid, shares, effort);
}

ReplicaEvaluation ReplicaEvaluator::EvaluateWithShares(const ReplicaGrid& grid, const std::vector<int>& shares, Effort effort) {
  ReplicaEvaluation result{.shares = shares};
  const std::vector<Sharing> sharing = SharingOf(grid);
  const double whole = std::accumulate(shares.begin(), shares.end(), 0.0);
  for (int d = 0; d < grid.pipelines(); ++d) {
    const Evaluation evaluation = EvaluatePipeline(grid, d, shares[d], sharing[d], effort);
    if (!evaluation.feasible()) {
      result.feasibility = evaluation.feasibility;
      result.failed_pipeline = d;
      result.failure = evaluation;
      return result;
    }
    result.pipelines_s = std::max(result.pipelines_s, evaluation.step_s);
    result.loss_cost += evaluation.loss_cost * shares[d] / whole;
  }
  result.sync_s = AllReduceSeconds(problem_, Chains(grid));
  if (result.sync_s == kInfinity) result.feasibility = Evaluation::Feasibility::kDisconnected;
  return result;
}

Chain ReplicaEvaluator::ChainOf(const std::vector<int>& devices, int64_t bytes) {
  std::pair key(devices, bytes);
  std::sort(key.first.begin(), key.first.end());
  auto found = chains_.find(key);
  if (found == chains_.end()) {
    if (chains_.size() >= kMaxCachedResults) chains_.clear();
    Chain chain = FastestChain(problem_, key.first, bytes, chain_effort_);
    const double seconds = AllReduceSeconds(problem_, {&chain, 1});
    found = chains_.emplace(std::move(key), FoundChain{std::move(chain), seconds}).first;
  }
  const Chain by_pipeline{.devices = devices, .gradient_bytes = bytes};
  const bool as_fast = AllReduceSeconds(problem_, {&by_pipeline, 1}) <= found->second.seconds * (1 + kSameSeconds);
  return as_fast ? by_pipeline : found->second.chain;
}

void ReplicaEvaluator::UseFullChainSearch() {
  chain_effort_ = Effort::kFull;
  chains_.clear();
}

std::vector<Chain> ReplicaEvaluator::Chains(const ReplicaGrid& grid) {
  std::vector<Chain> chains;
  for (int s = 0; s < grid.stages(); ++s) {
    const int end = s + 1 < grid.stages() ? grid.begins[s + 1] : problem_.positions();
    chains.push_back(ChainOf(grid.devices[s], GradientBytes(problem_, grid.begins[s], end)));
  }
  return chains;
}

std::vector<PlannedPipeline> ReplicaEvaluator::PipelinePlans(const ReplicaGrid& grid, const std::vector<int>& shares,
                                                             absl::string_view planner) {
  const std::vector<Sharing> sharing = SharingOf(grid);
  std::vector<PlannedPipeline> plans;
  for (int d = 0; d < grid.pipelines(); ++d) plans.push_back(SubFor(shares[d], sharing[d]).evaluator->ToPlan(grid.Pipeline(d), planner));
  return plans;
}

std::vector<std::vector<int>> ReplicaEvaluator::Cuts(const ReplicaGrid& grid, int pipeline, const std::vector<int>& order, int share,
                                                     size_t limit) {
  Sub& sub = SubFor(share, SharingOf(grid)[pipeline]);
  if (sub.chain == nullptr) sub.chain = std::make_unique<ChainSearch>(*sub.problem, kCutGrid);
  const int64_t before = sub.chain->work();
  std::vector<std::vector<int>> cuts;
  for (const ChainSearch::Result& result : sub.chain->Partition(order, false, limit)) cuts.push_back(result.assignment.begins);
  work_ += (sub.chain->work() - before) / kStepsOfASimulation;
  return cuts;
}

}  // namespace fusionllm::scheduler::replicas
