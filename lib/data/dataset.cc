#include "lib/data/dataset.h"

#include <algorithm>
#include <functional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "lib/base/status_macros.h"
#include "lib/data/images.h"
#include "lib/data/shapes.h"
#include "lib/data/split.h"
#include "lib/data/tokens.h"

namespace fusionllm::data {
namespace {

absl::Status CheckView(absl::string_view what, const tensor::TensorView& view, size_t batch, const tensor::TensorType& sample) {
  std::vector<int64_t> dims = {static_cast<int64_t>(batch)};
  dims.insert(dims.end(), sample.shape.dims().begin(), sample.shape.dims().end());
  const tensor::TensorType wanted{sample.dtype, tensor::Shape(std::move(dims))};
  if (view.data == nullptr || view.type == wanted) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("the ", what, " of this batch are ", wanted.ToString(), " but the buffer is ", view.type.ToString()));
}

}  // namespace

absl::Status Dataset::FillBatch(std::span<const int64_t> indices, const tensor::TensorView& inputs,
                                const tensor::TensorView& targets) const {
  FUSIONLLM_RETURN_IF_ERROR(CheckView("inputs", inputs, indices.size(), sample_type_.input));
  FUSIONLLM_RETURN_IF_ERROR(CheckView("targets", targets, indices.size(), sample_type_.target));
  auto* input = inputs.as<std::byte>();
  auto* target = targets.as<std::byte>();
  for (const int64_t index : indices) {
    if (index < 0 || index >= size_) {
      return absl::InvalidArgumentError(absl::StrCat("sample ", index, " is outside the dataset of ", size_, " samples"));
    }
    FUSIONLLM_RETURN_IF_ERROR(FillSample(index, input, target));
    if (input != nullptr) input += sample_type_.input.bytes();
    if (target != nullptr) target += sample_type_.target.bytes();
  }
  return absl::OkStatus();
}

// Some of another dataset's samples, which it shares with its sibling.
class SubsetDataset : public Dataset {
 public:
  using Choice = std::function<int64_t(int64_t index)>;  // pure

  SubsetDataset(std::shared_ptr<const Dataset> whole, int64_t size, Choice choice)
      : Dataset(size, whole->sample_type(), whole->files()), whole_(std::move(whole)), choice_(std::move(choice)) {}

 protected:
  absl::Status FillSample(int64_t index, void* input, void* target) const override {
    return whole_->FillSample(choice_(index), input, target);
  }

 private:
  const std::shared_ptr<const Dataset> whole_;
  const Choice choice_;
};

absl::StatusOr<std::unique_ptr<Dataset>> OpenDataset(const DatasetConfig& config) {
  switch (config.kind) {
    case DatasetKind::kText:
    case DatasetKind::kTokens:
      return OpenTokenWindows(config);
    case DatasetKind::kCifar10:
      return OpenCifar10(config);
    case DatasetKind::kIdx:
      return OpenIdx(config);
    case DatasetKind::kShapes:
      return OpenShapes(config);
  }
  return absl::InvalidArgumentError("unknown data kind");
}

absl::StatusOr<TrainingData> OpenTrainingData(const DatasetConfig& config) {
  const double fraction = config.validation_fraction;
  if (!(fraction >= 0 && fraction < 1)) {
    return absl::InvalidArgumentError(absl::StrCat("the validation fraction is ", fraction, " but must be at least 0 and below 1"));
  }
  if (fraction > 0 && !config.validation_paths.empty()) {
    return absl::InvalidArgumentError("validation has both a path and a fraction: give one of them");
  }
  if (config.kind == DatasetKind::kShapes && !config.validation_paths.empty()) {
    return absl::InvalidArgumentError("shapes are generated and have no validation path: give a validation fraction");
  }
  TrainingData data;
  FUSIONLLM_ASSIGN_OR_RETURN(data.training, OpenDataset(config));
  if (!config.validation_paths.empty()) {
    DatasetConfig validation = config;
    validation.paths = config.validation_paths;
    validation.split = DatasetSplit::kTest;
    absl::StatusOr<std::unique_ptr<Dataset>> opened = OpenDataset(validation);
    if (!opened.ok()) {
      return absl::Status(opened.status().code(), absl::StrCat("spec.data.validation.path: ", opened.status().message()));
    }
    data.validation = *std::move(opened);
    if (data.validation->sample_type().input != data.training->sample_type().input) {
      return absl::InvalidArgumentError(absl::StrCat("validation samples are ", data.validation->sample_type().input.ToString(),
                                                     " but training samples ", data.training->sample_type().input.ToString()));
    }
  } else if (fraction > 0) {
    const std::shared_ptr<const Dataset> whole = std::move(data.training);
    const auto held_out = std::max<int64_t>(1, static_cast<int64_t>(static_cast<double>(whole->size()) * fraction));
    const int64_t kept = whole->size() - held_out;
    if (kept < 1) {
      return absl::InvalidArgumentError(
          absl::StrCat("the data has ", whole->size(), " samples: holding out ", held_out, " for validation leaves none for training"));
    }
    if (config.held_out == ValidationSplit::kEnd) {
      data.training = std::make_unique<SubsetDataset>(whole, kept, [](int64_t index) { return index; });
      data.validation = std::make_unique<SubsetDataset>(whole, held_out, [kept](int64_t index) { return kept + index; });
    } else {
      FUSIONLLM_ASSIGN_OR_RETURN(const EvenSplit split, EvenSplit::Create(whole->size(), held_out));
      data.training = std::make_unique<SubsetDataset>(whole, kept, [split](int64_t index) { return split.Kept(index); });
      data.validation = std::make_unique<SubsetDataset>(whole, held_out, [split](int64_t index) { return split.HeldOut(index); });
    }
  }
  return data;
}

}  // namespace fusionllm::data
