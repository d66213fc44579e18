// Two networks small enough to train many times in one test, and how tests of the runtime train them.
//
// Functions that can fail report it to gtest.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "lib/runtime/testing/local_pipeline.h"

namespace fusionllm::runtime::testing {

constexpr int kSmallClasses = 17;  // the vocabulary, and the classes of labels
constexpr int kSmallMicroBatches = 4;

// Two blocks of two heads; tied: the head is the embedding, so the first and the last stage share a parameter. A width of 32 makes heads of
// 16, as tensor cores take them.
autodiff::TrainingGraph SmallGpt2(bool tied, int64_t width = 16);

// Two residual blocks with max pool and dropout between them: convolutions, four batch norms and skips that a cut may cross.
autodiff::TrainingGraph SmallResidualNetwork();

// With activations and their gradients in bf16.
autodiff::TrainingGraph InBf16(autodiff::TrainingGraph training);

// The training of a graph with its types at this micro-batch.
autodiff::TrainingGraph Differentiated(absl::StatusOr<opdag::Graph> graph, int64_t micro_batch = 2);

// Stages of equally many ops, AdamW with decay and clipping, all micro-batches in flight.
PipelineOptions SmallOptions(const autodiff::TrainingGraph& training, int stages, const std::string& backend);

// Runs on synthetic data, other data at every step; an error fails the test.
PipelineResult MustRun(const autodiff::TrainingGraph& training, const PipelineOptions& options);

// `inbox` takes from now on what a stage of equally many ops gets from the other stages and its replicas, from `first_step` on.
void ExpectMessages(const autodiff::TrainingGraph& training, int stage, int stages, int replicas, int64_t first_step, Inbox& inbox);

// The loss of each step, bit for bit.
std::vector<uint32_t> LossBits(const PipelineResult& result);

}  // namespace fusionllm::runtime::testing
