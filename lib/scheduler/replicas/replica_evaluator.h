// The time of a step of several pipelines side by side, with the micro-batches dealt out between them.
//
//   step = slowest pipeline, with its share of the micro-batches + all-reduce of the gradients (all_reduce.h)
//
// A pipeline's time is the Evaluator's, so codecs, memory, depth, the round trip of the global norm and the update are as with one
// pipeline. Pipeline 0 finds the norm and tells the others what was decided (adr/0020); that message is in no sum. The loss is the mean
// over all micro-batches of the step, so shares may differ; each pipeline has one at least. Nothing overlaps: the all-reduce begins when
// the slowest pipeline has finished. A resource that several pipelines use is taken to give each an equal part of its rate all the time;
// real messages miss each other now and then. Gradients on their way (BytesInFlight) are in no pipeline's memory here: lib/planning adds
// them to what a plan's stages take, and asks for another plan where that is too much.
//
// Keeps Problems by number of micro-batches and sharing of resources (fewer of large ones), and results by pipeline. One thread; borrows
// the Problem.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "lib/scheduler/chain_search.h"
#include "lib/scheduler/replicas/all_reduce.h"
#include "lib/scheduler/replicas/replica_grid.h"

namespace fusionllm::scheduler::replicas {

struct ReplicaEvaluation {
  Evaluation::Feasibility feasibility = Evaluation::Feasibility::kFeasible;  // of the pipeline that fails, or kDisconnected replicas
  int failed_pipeline = -1;                                                  // -1: replicas that cannot reach each other
  Evaluation failure;
  std::vector<int> shares;  // micro-batches of each pipeline; sum: the request's
  double pipelines_s = 0;   // the slowest
  double sync_s = 0;
  double loss_cost = 0;  // mean over micro-batches of that of their pipeline
  double step_s() const { return pipelines_s + sync_s; }
  bool feasible() const { return feasibility == Evaluation::Feasibility::kFeasible; }
  double cost_s() const { return step_s() * (1 + kTimePerNat * loss_cost); }  // as Evaluation's
};

class ReplicaEvaluator {
 public:
  static constexpr size_t kMaxCachedResults = 200'000;  // results of pipelines

  // `problem`: of the whole step. Its constraints for numbers of stages and pins are the caller's to look after.
  explicit ReplicaEvaluator(const Problem& problem);

  // Deals the micro-batches, then judges. Preconditions: as Evaluator's for every pipeline; no more pipelines than micro-batches.
  ReplicaEvaluation Evaluate(const ReplicaGrid& grid, Effort effort);
  // With the given shares, all >= 1.
  ReplicaEvaluation EvaluateWithShares(const ReplicaGrid& grid, const std::vector<int>& shares, Effort effort);

  // The plan of each pipeline, with its share. Precondition: feasible.
  std::vector<PlannedPipeline> PipelinePlans(const ReplicaGrid& grid, const std::vector<int>& shares, absl::string_view planner);
  // From here on chains are looked for with FastestChain's full effort: for the last few grids, not for all that a search tries.
  void UseFullChainSearch();
  // By stage. In the order of pipelines, which is that of the replicas' data, where no other is faster.
  std::vector<Chain> Chains(const ReplicaGrid& grid);

  // Cuts for the devices of a pipeline (`order`, one of each stage) that has this many micro-batches and shares resources as pipeline
  // `pipeline` of the grid does. Best estimate first.
  std::vector<std::vector<int>> Cuts(const ReplicaGrid& grid, int pipeline, const std::vector<int>& order, int share, size_t limit);

  const Problem& problem() const { return problem_; }
  int64_t work() const { return work_; }                // as Evaluator's, for budgets
  int64_t evaluations() const { return evaluations_; }  // simulations

 private:
  // How many pipelines use a resource, for those that more than one does: ascending by resource.
  using Sharing = std::vector<std::pair<int, int>>;
  struct Sub {
    PlanRequest request;
    std::unique_ptr<Problem> problem;
    std::unique_ptr<Evaluator> evaluator;
    std::unique_ptr<ChainSearch> chain;
  };
  struct PipelineKey {
    std::vector<int> begins, devices;
    int share;
    Effort effort;
    Sharing sharing;
    auto operator<=>(const PipelineKey&) const = default;
  };
  struct FoundChain {
    Chain chain;
    double seconds = 0;
  };

  Sub& SubFor(int share, const Sharing& sharing);
  // By pipeline. Which resources a pipeline uses depends on the cuts: values may skip stages.
  std::vector<Sharing> SharingOf(const ReplicaGrid& grid);
  Evaluation EvaluatePipeline(const ReplicaGrid& grid, int pipeline, int share, const Sharing& sharing, Effort effort);
  std::vector<int> ShareByEstimate(const ReplicaGrid& grid) const;
  std::vector<std::pair<int, int>> StagePairs(const std::vector<int>& begins) const;
  Chain ChainOf(const std::vector<int>& devices, int64_t bytes);

  const Problem& problem_;
  const size_t max_subs_;
  std::map<std::pair<int, Sharing>, Sub> subs_;
  std::map<PipelineKey, Evaluation> remembered_;
  Effort chain_effort_ = Effort::kQuick;
  std::map<std::pair<std::vector<int>, int64_t>, FoundChain> chains_;          // by the devices in ascending order
  std::pair<std::vector<int>, std::vector<std::pair<int, int>>> stage_pairs_;  // of the cuts last asked for
  int64_t work_ = 0;
  int64_t evaluations_ = 0;
};

}  // namespace fusionllm::scheduler::replicas
