// All stages of a plan, and of all its replicas, in one process, one thread each, joined by their inboxes and communicators: for tests of
// the runtime and what builds on it.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "lib/autodiff/training_graph.h"
#include "lib/collective/communicator.h"
#include "lib/collective/rendezvous.h"
#include "lib/kernels/backend.h"
#include "lib/runtime/stage_executor.h"

namespace fusionllm::runtime::testing {

struct PipelineOptions {
  std::vector<int> stage_of_forward_op;  // by forward op id; size of the forward graph
  int stages = 1;
  StageConfig config;  // with replicas: that of each, whichever `replica` says
  // Micro-batches of each replica, instead of config's for all; at most so many are in flight. Empty: as config says.
  std::vector<int> shares;
  std::string backend = "ref";
  std::function<absl::StatusOr<std::unique_ptr<kernels::Backend>>()> make_backend;  // one for each stage, instead of `backend`
  uint64_t parameter_seed = 1;
  int64_t first_step = 1;
  int64_t steps = 3;  // the last
  std::function<EdgeCodecPtr(int stage)> codecs = [](int) { return ExactEdgeCodec(); };
  std::function<EdgeCodecPtr(int stage, kernels::Backend& backend)> codecs_on;  // instead of `codecs`
  // How a stage meets the same one of the other replicas.
  std::function<absl::StatusOr<std::unique_ptr<collective::Communicator>>(collective::Rendezvous&, const collective::GroupRank&,
                                                                          kernels::Backend&)>
      join;  // empty: in this process
  // Called after each step, with the inbox of the first stage of the first replica.
  std::function<void(int64_t step, Inbox&)> after_step;
  // StageCallbacks' of each stage; at once from its thread.
  std::function<void(const TraceSpan&)> on_span;
  std::function<void(const StageStepTimes&)> on_stage_step;
  std::function<void(int stage, int64_t step)> on_step_begin;
  std::function<void(int64_t step, const EvaluationResult&)> on_evaluation;
  // What stage 0 of the first replica decides after a step; empty: to go on.
  std::function<StageCallbacks::Decision(int64_t step)> decide;
  // Called on each stage of each replica for the checkpoint of a step, one at a time.
  std::function<void(int replica, int stage, int64_t step)> checkpoint;
  // Called on each stage before its first step, after initialisation.
  std::function<void(int stage, StageExecutor&)> prepare;
  // Called for each stage that ends with an error, one at a time.
  std::function<void(int replica, int stage, const absl::Status&)> failed;
  // Called for each stage of the first replica after its last step, one at a time.
  std::function<void(int stage, StageExecutor&)> finish;
};

struct PipelineResult {
  std::vector<StepResult> steps;
  // Bytes of every parameter after the last step, by name; of the first replica, and of each.
  using Parameters = std::map<std::string, std::vector<std::byte>>;
  Parameters parameters;
  std::vector<Parameters> of_replica;
};

// Data for every micro-batch from a counter-based generator: token-like integers below `classes`, images uniform in [-1, 1).
std::unique_ptr<BatchSource> SyntheticSource(uint64_t seed, int64_t classes);

// Runs all steps; the first error of any stage wins and ends the others.
absl::StatusOr<PipelineResult> RunPipeline(const autodiff::TrainingGraph& training, const PipelineOptions& options, BatchSource& source);

// Contiguous pieces of the forward ops in graph order, of nearly equal count; placeholders go to stage 0.
std::vector<int> ContiguousStages(const autodiff::TrainingGraph& training, int stages);

}  // namespace fusionllm::runtime::testing
