// Small tensors and checkpoints for the tests of this folder.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "lib/checkpoint/writer.h"
#include "lib/tensor/tensor.h"

namespace fusionllm::checkpoint {

// f32 tensors that own their data: element i of a tensor is `first + i`.
class SampleTensors {
 public:
  std::vector<NamedTensor> Make(const std::vector<std::string>& names, float first, tensor::Shape shape = {2, 3}) {
    std::vector<NamedTensor> result;
    for (const std::string& name : names) {
      owned_.push_back(std::make_unique<tensor::Tensor>(tensor::TensorType{tensor::DType::kF32, shape}));
      for (int64_t i = 0; i < shape.elements(); ++i) owned_.back()->f32()[i] = first + static_cast<float>(i);
      result.push_back({name, std::as_const(*owned_.back()).view()});
    }
    return result;
  }

 private:
  std::vector<std::unique_ptr<tensor::Tensor>> owned_;
};

// What stage `stage` of a model with one parameter a stage holds at `step`.
inline ShardContents SampleShard(SampleTensors& tensors, int64_t step, int stage) {
  const std::string name = absl::StrCat("layer.", stage, ".weight");
  const auto first = static_cast<float>(1000 * step + 10 * stage);
  return {.model = tensors.Make({name}, first),
          .optimizer = tensors.Make({name + ".exp_avg", name + ".exp_avg_sq"}, first + 100),
          .residuals = tensors.Make({absl::StrCat("edge.", stage)}, first + 200, {4})};
}

inline Manifest SampleManifest(int64_t step) {
  Manifest manifest;
  manifest.job_name = "sample";
  manifest.spec_hash = "abc";
  manifest.plan_hash = "def";
  manifest.step = step;
  manifest.samples_consumed = 32 * step;
  manifest.seed = 1337;
  manifest.resolved_job = "kind: FusionJob\n";
  return manifest;
}

// Stages every shard; returns the manifest that commits them.
inline absl::StatusOr<Manifest> StageSample(const std::string& root, int64_t step, int stages) {
  Manifest manifest = SampleManifest(step);
  for (int stage = 0; stage < stages; ++stage) {
    SampleTensors tensors;
    absl::StatusOr<std::vector<FileEntry>> files = WriteShard(root, step, stage, stages, SampleShard(tensors, step, stage));
    if (!files.ok()) return files.status();
    manifest.files.insert(manifest.files.end(), files->begin(), files->end());
  }
  return manifest;
}

inline absl::StatusOr<std::string> SaveSample(const std::string& root, int64_t step, int stages, int64_t keep = 0) {
  absl::StatusOr<Manifest> manifest = StageSample(root, step, stages);
  if (!manifest.ok()) return manifest.status();
  const absl::StatusOr<CommittedCheckpoint> committed = CommitCheckpoint(root, *manifest, keep);
  if (!committed.ok()) return committed.status();
  return committed->path;
}

}  // namespace fusionllm::checkpoint
