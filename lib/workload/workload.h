// A FusionJob turned into things that can be planned and run: graphs, data, optimizer, batches.
//
// Every process of a run resolves the same canonical job by itself, so all agree without exchanging graphs; `graph_hash` proves it.
// Plain data once made. Resolve may read files that the job names (graph.file), not the training data.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "lib/autodiff/training_graph.h"
#include "lib/data/config.h"
#include "lib/data/dataset.h"
#include "lib/data/sampler.h"
#include "lib/job/fusion_job.h"
#include "lib/kernels/optimizer.h"
#include "lib/runtime/learning_rate.h"
#include "lib/runtime/stage_executor.h"
#include "lib/workload/forward_graph.h"

namespace fusionllm::workload {

struct Workload {
  job::FusionJob job;
  std::string base_directory;        // the job's relative paths start here
  autodiff::TrainingGraph training;  // typed for micro_batch_size and the job's precision
  uint64_t graph_hash = 0;           // of its text form, batch and precision
  int64_t micro_batch_size = 1;
  int micro_batches = 1;
  int64_t targets_per_sample = 1;  // tokens, or 1 for images
  data::DatasetConfig data;
  kernels::OptimizerConfig optimizer;
  runtime::LearningRateSchedule learning_rate;
};

// A micro-batch size of `auto` becomes job::DefaultMicroBatchSize here; the planner may choose another.
// Errors: InvalidArgument naming the field or op, also where the samples do not fit and that is known without the data, by spec.data alone;
// NotFound for a graph file.
absl::StatusOr<std::unique_ptr<Workload>> Resolve(const job::FusionJob& job, const std::string& base_directory);

// Stage settings that do not depend on the plan.
runtime::StageConfig StageConfigOf(const Workload& workload);

// Samples fit a placeholder that has their type and shape behind the batch, or takes them flat, as [batch, values]: an MLP reads a flat
// image. Any other shape of as many values would read them in another order than they are in.
// Errors: InvalidArgument naming the op and both shapes, or a role that data does not fill.
absl::Status CheckSamplesFit(const Workload& workload, const data::SampleType& sample);

// Feeds the placeholders of a stage from the job's dataset: roles "tokens" and "images" get inputs, "labels" targets.
// One thread at a time.
class DatasetSource : public runtime::BatchSource {
 public:
  // Opens the data. Errors: those of data::OpenTrainingData, and InvalidArgument when samples do not fit the graph's placeholders or one
  // has another role.
  static absl::StatusOr<std::unique_ptr<DatasetSource>> Open(const Workload& workload);

  // Step `first_step` starts at this position of the sample order; without the call step 1 starts at 0.
  void StartAt(int64_t first_step, data::DataCursor cursor);
  // Where the order stands after `step` steps: what a checkpoint of that step keeps.
  data::DataCursor CursorAfter(int64_t step) const;

  absl::Status Fill(bool evaluation, int64_t step, int micro_batch, const opdag::Op& placeholder, tensor::TensorView out) override;

  // Of the validation data, or of those to train on where there are none.
  std::optional<int64_t> EvaluationSamples() const override { return EvaluationData().size(); }

  // In one sentence what is read, what is left out and what is held out: for those who start a run, once.
  std::string Summary() const;
  // What is odd about the files, a sentence each, beginning with the field: validation data that are trained on, files that stand twice.
  std::vector<std::string> Warnings() const;
  // What it is made of; no validation files where a fraction is held out.
  data::FilesRead TrainingFiles() const;
  int64_t TrainingSamples() const { return data_.training->size(); }
  data::FilesRead ValidationFiles() const;

 private:
  const data::Dataset& EvaluationData() const { return data_.validation != nullptr ? *data_.validation : *data_.training; }
  std::string EpochsText() const;
  std::string EvaluatedText() const;
  DatasetSource(const Workload& workload, data::TrainingData data, const data::Sampler& sampler);
  const Workload& workload_;
  data::TrainingData data_;
  data::Sampler sampler_;
  int64_t first_step_ = 1;
  data::DataCursor start_;
};

}  // namespace fusionllm::workload
