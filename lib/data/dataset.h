// A dataset: samples addressed by index, delivered as batches of tensors.
//
// Immutable after opening, so all methods may be called from several threads at once. Fill blocks on disk reads.
// The order of training is not decided here: see sampler.h. Index order is file order, which is what evaluation uses.
#pragma once

#include <cstdint>
#include <memory>
#include <span>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "lib/data/config.h"
#include "lib/data/files.h"
#include "lib/tensor/tensor.h"

namespace fusionllm::data {

// One sample without the batch dimension. Text and tokens: i32 [T] and i32 [T], the targets one token further.
// Images: f32 [H, W, C] and an i32 scalar label.
struct SampleType {
  tensor::TensorType input;
  tensor::TensorType target;
};

class Dataset {
 public:
  virtual ~Dataset() = default;
  Dataset(const Dataset&) = delete;
  Dataset& operator=(const Dataset&) = delete;

  // Samples; at least 1.
  int64_t size() const { return size_; }
  const SampleType& sample_type() const { return sample_type_; }
  // Targets of one sample: T for windows, 1 for images. The loss is a mean over batch times this.
  int64_t targets_per_sample() const { return sample_type_.target.elements(); }
  // What it was made of; empty where samples are generated.
  const FilesRead& files() const { return files_; }

  // Writes the samples `indices` one after another into `inputs` [B, ...] and `targets` [B, ...], B = indices.size(). A view whose data is
  // null is left out: a first stage needs no targets, a last stage no inputs.
  // Errors: InvalidArgument for an index outside [0, size) or a view of another type (the message has both), or a token or label out of
  // range (the message names file and offset); DataLoss or Unavailable when a file has changed or cannot be read.
  absl::Status FillBatch(std::span<const int64_t> indices, const tensor::TensorView& inputs, const tensor::TensorView& targets) const;

 protected:
  Dataset(int64_t size, SampleType sample_type, FilesRead files = {})
      : size_(size), sample_type_(std::move(sample_type)), files_(std::move(files)) {}

  void SetTokenIds(const FilesRead::TokenIds& ids) { files_.ids = ids; }  // while it is being opened

  // `index` is in range; either pointer may be null; memory is that of sample_type().
  virtual absl::Status FillSample(int64_t index, void* input, void* target) const = 0;

 private:
  friend class SubsetDataset;
  int64_t size_;
  SampleType sample_type_;
  FilesRead files_;
};

// Opens `config.paths` (or the generator), ignoring validation. Blocks: lists folders, opens every file, reads headers.
// Of kind text a file that is named must be UTF-8 text and one that is found in a folder is skipped where it is not, unless
// config.encoding says otherwise (tokens.h).
// Errors: NotFound, InvalidArgument (bad config, empty or truncated files, fewer samples than one), Unavailable; messages name the path.
absl::StatusOr<std::unique_ptr<Dataset>> OpenDataset(const DatasetConfig& config);

struct TrainingData {
  std::unique_ptr<Dataset> training;
  std::unique_ptr<Dataset> validation;  // null when the config asks for none
};

// OpenDataset for training, and with DatasetSplit::kTest for validation. A fraction holds out floor(fraction * size) samples, at least one;
// it must leave one. Which ones config.held_out says. Those that are drawn evenly stand in a fixed random order (split.h), else in that of
// the files.
absl::StatusOr<TrainingData> OpenTrainingData(const DatasetConfig& config);

}  // namespace fusionllm::data
