#include "lib/scheduler/schedule_variants.h"

#include <algorithm>

#include "absl/status/status.h"
#include "absl/strings/str_format.h"
#include "lib/base/status_macros.h"

namespace fusionllm::scheduler {
namespace {

StageTiming ChunkOf(const StageTiming& stage, int chunks) {
  StageTiming chunk = stage;
  chunk.forward_s = (stage.forward_s - stage.codec_forward_s) / chunks + stage.codec_forward_s;
  chunk.backward_s = (stage.backward_s - stage.codec_backward_s) / chunks + stage.codec_backward_s;
  chunk.weights_s = stage.weights_s / chunks;
  chunk.update_s = stage.update_s / chunks;
  return chunk;
}

}  // namespace

absl::StatusOr<PipelineInput> SplitBackward(const StepModel& pipeline) {
  PipelineInput split = pipeline.input;
  if (std::all_of(split.stages.begin(), split.stages.end(), [](const StageTiming& stage) { return stage.weights_s == 0; })) {
    return absl::FailedPreconditionError("no op computes gradients of weights apart from those of its inputs");
  }
  split.schedule = schedule::k1F1B;
  split.split_backward = true;
  PipelineInput deeper = split;
  for (StageTiming& stage : deeper.stages) {
    stage.in_flight = std::clamp(stage.in_flight + split.workers() - 1, stage.in_flight, std::max(stage.in_flight, stage.max_kept));
  }
  PipelineSimulator simulator;
  return simulator.Run(deeper).step_s < simulator.Run(split).step_s ? deeper : split;
}

absl::Status CheckVirtualStages(int chunks) {
  if (chunks >= 2 && chunks <= kMaxVirtualStages) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrFormat("%d virtual stages: must lie between 2 and %d", chunks, kMaxVirtualStages));
}

absl::StatusOr<PipelineInput> Interleave(const StepModel& pipeline, int chunks) {
  const PipelineInput& plain = pipeline.input;
  const int workers = plain.workers();
  FUSIONLLM_RETURN_IF_ERROR(CheckVirtualStages(chunks));
  if (workers < 2) return absl::InvalidArgumentError("one stage cannot be interleaved");
  const bool goes_round = std::any_of(plain.links.begin(), plain.links.end(), [](const StageLink& link) { return link.backward.used; });
  if (goes_round && !pipeline.wrap_around.forward.used) {
    return absl::FailedPreconditionError("the device of the last stage is not joined to that of the first");
  }
  PipelineInput input = plain;
  input.schedule = schedule::k1F1B;
  input.virtual_stages = chunks;
  input.shared_links = static_cast<int>(pipeline.shared_links.size());
  input.stages.clear();
  input.links.clear();
  for (int c = 0; c < chunks; ++c) {
    for (const StageTiming& stage : plain.stages) input.stages.push_back(ChunkOf(stage, chunks));
  }
  for (int w = 0; w < workers; ++w) {
    StageTiming& limits = input.stages[w];
    const int passes = chunks * plain.micro_batches;
    limits.in_flight = std::min(passes, 2 * (workers - w - 1) + (chunks - 1) * workers + 1);
    const int fits = plain.stages[w].max_kept * chunks;
    if (plain.stages[w].max_kept > 0 && limits.in_flight > fits) {
      return absl::FailedPreconditionError(absl::StrFormat("stage %d must keep %d parts of micro-batches, of %d each, and has room for %d",
                                                           w, limits.in_flight, chunks, fits));
    }
  }
  for (const StageLink& link : plain.links) {
    const bool neighbours = link.dst == link.src + 1;
    for (int c = 0; c < (neighbours ? chunks : 1); ++c) {
      StageLink copy = link;
      copy.src = link.src + c * workers;
      copy.dst = link.dst + (neighbours ? c : chunks - 1) * workers;
      input.links.push_back(copy);
    }
  }
  for (int c = 0; goes_round && c + 1 < chunks; ++c) {
    StageLink around = pipeline.wrap_around;
    around.src = c * workers + workers - 1;
    around.dst = (c + 1) * workers;
    input.links.push_back(around);
  }
  return input;
}

}  // namespace fusionllm::scheduler
