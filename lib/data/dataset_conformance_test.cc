// What every kind of dataset must do, files or none: the same samples whatever the batch, the thread and the process that asks.
#include <algorithm>
#include <atomic>
#include <cstdint>
#include <memory>
#include <numeric>
#include <string>
#include <thread>
#include <vector>

#include "gtest/gtest.h"
#include "lib/base/testing/temp_folder.h"
#include "lib/data/dataset.h"

namespace fusionllm::data {
namespace {

struct Kind {
  DatasetKind kind;
  int64_t samples;  // of what Config() writes
};

std::string Noise(size_t bytes) {
  std::string text;
  for (size_t i = 0; i < bytes; ++i) text += static_cast<char>(i * 37 + i / 11);
  return text;
}

std::vector<std::byte> BytesOf(const tensor::Tensor& tensor) { return {tensor.bytes().begin(), tensor.bytes().end()}; }

class DatasetConformance : public ::testing::TestWithParam<Kind> {
 protected:
  DatasetConfig Config() {
    DatasetConfig config;
    config.kind = GetParam().kind;
    config.base_folder = folder_.path();
    config.sequence_length = 5;
    config.shapes = {.samples = 12, .image_size = 8, .num_classes = 3};
    switch (config.kind) {
      case DatasetKind::kText:
        config.paths = {"text"};
        folder_.Write("text", Noise(62));
        config.encoding = TextEncoding::kBytes;
        break;
      case DatasetKind::kTokens:
        config.paths = {"tokens.u32"};
        folder_.Write("tokens.u32", Ids(62));
        break;
      case DatasetKind::kCifar10: {
        config.paths = {"batch.bin"};
        std::string records;
        for (char label = 0; label < 6; ++label) records += label + Noise(3072).replace(0, 1, 1, static_cast<char>(label * 9));
        folder_.Write("batch.bin", records);
        break;
      }
      case DatasetKind::kIdx:
        config.paths = {"images", "labels"};
        folder_.Write("images", std::string("\0\0\x08\x03\0\0\0\x07\0\0\0\x04\0\0\0\x03", 16) + Noise(7 * 12));
        folder_.Write("labels", std::string("\0\0\x08\x01\0\0\0\x07", 8) + std::string("\0\1\2\3\4\5\6", 7));
        break;
      case DatasetKind::kShapes:
        break;
    }
    return config;
  }

  std::unique_ptr<Dataset> Open() {
    auto dataset = OpenDataset(Config());
    EXPECT_TRUE(dataset.ok()) << dataset.status();
    return dataset.ok() ? *std::move(dataset) : nullptr;
  }

  // Inputs and targets of the samples, one after another.
  struct Batch {
    std::vector<std::byte> inputs, targets;
    bool operator==(const Batch&) const = default;
  };
  static Batch Fill(const Dataset& dataset, const std::vector<int64_t>& indices) {
    tensor::Tensor inputs(TypeOf(dataset.sample_type().input, indices.size())),
        targets(TypeOf(dataset.sample_type().target, indices.size()));
    const absl::Status status = dataset.FillBatch(indices, inputs.view(), targets.view());
    EXPECT_TRUE(status.ok()) << status;
    return {BytesOf(inputs), BytesOf(targets)};
  }
  static tensor::TensorType TypeOf(const tensor::TensorType& sample, size_t batch) {
    std::vector<int64_t> dims = {static_cast<int64_t>(batch)};
    dims.insert(dims.end(), sample.shape.dims().begin(), sample.shape.dims().end());
    return {sample.dtype, tensor::Shape(dims)};
  }
  static std::vector<int64_t> All(const Dataset& dataset) {
    std::vector<int64_t> indices(static_cast<size_t>(dataset.size()));
    std::iota(indices.begin(), indices.end(), 0);
    return indices;
  }

  static bool Images() { return GetParam().kind != DatasetKind::kText && GetParam().kind != DatasetKind::kTokens; }
  static std::string Ids(int count) {
    std::string bytes;
    for (int id = 0; id < count; ++id) bytes += std::string{static_cast<char>(id), static_cast<char>(id % 3), 0, 0};
    return bytes;
  }

  const base::TempFolder folder_;
};

TEST_P(DatasetConformance, HasItsSamplesAndTheirTypes) {
  const auto dataset = Open();
  EXPECT_EQ(dataset->size(), GetParam().samples);
  EXPECT_EQ(dataset->targets_per_sample(), dataset->sample_type().target.elements());
  EXPECT_EQ(dataset->sample_type().target.dtype, tensor::DType::kI32);
  EXPECT_EQ(dataset->sample_type().input.dtype, Images() ? tensor::DType::kF32 : tensor::DType::kI32);
  EXPECT_EQ(dataset->sample_type().input.shape.rank(), Images() ? 3 : 1);
}

TEST_P(DatasetConformance, ASampleIsTheSameInEveryBatchAndAfterReopening) {
  const auto dataset = Open();
  const Batch all = Fill(*dataset, All(*dataset));
  Batch single, backwards;
  for (int64_t i = 0; i < dataset->size(); ++i) {
    const Batch one = Fill(*dataset, {i});
    single.inputs.insert(single.inputs.end(), one.inputs.begin(), one.inputs.end());
    single.targets.insert(single.targets.end(), one.targets.begin(), one.targets.end());
    backwards.inputs.insert(backwards.inputs.begin(), one.inputs.begin(), one.inputs.end());
    backwards.targets.insert(backwards.targets.begin(), one.targets.begin(), one.targets.end());
  }
  EXPECT_TRUE(single == all);
  std::vector<int64_t> indices = All(*dataset);
  std::reverse(indices.begin(), indices.end());
  EXPECT_TRUE(Fill(*dataset, indices) == backwards);
  EXPECT_FALSE(backwards == all) << "samples differ, or this test shows nothing";
  EXPECT_TRUE(Fill(*Open(), All(*dataset)) == all);
  EXPECT_TRUE(Fill(*dataset, {3, 3}).inputs == Fill(*Open(), {3, 3}).inputs) << "a sample may stand twice";
}

TEST_P(DatasetConformance, EitherHalfOfASampleCanBeLeftOut) {
  const auto dataset = Open();
  const Batch both = Fill(*dataset, {2, 0});
  tensor::Tensor inputs(TypeOf(dataset->sample_type().input, 2)), targets(TypeOf(dataset->sample_type().target, 2));
  ASSERT_TRUE(dataset->FillBatch(std::vector<int64_t>{2, 0}, inputs.view(), {}).ok());
  ASSERT_TRUE(dataset->FillBatch(std::vector<int64_t>{2, 0}, {}, targets.view()).ok());
  EXPECT_TRUE((Batch{BytesOf(inputs), BytesOf(targets)}) == both);
}

TEST_P(DatasetConformance, RefusesIndicesAndBuffersThatDoNotFit) {
  const auto dataset = Open();
  tensor::Tensor inputs(TypeOf(dataset->sample_type().input, 1)), wrong({tensor::DType::kU8, {1, 2}});
  for (const int64_t index : {int64_t{-1}, dataset->size(), INT64_MAX, INT64_MIN}) {
    EXPECT_EQ(dataset->FillBatch(std::vector<int64_t>{index}, inputs.view(), {}).code(), absl::StatusCode::kInvalidArgument) << index;
  }
  EXPECT_EQ(dataset->FillBatch(std::vector<int64_t>{0}, wrong.view(), {}).code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(dataset->FillBatch(std::vector<int64_t>{0, 1}, inputs.view(), {}).code(), absl::StatusCode::kInvalidArgument);
}

TEST_P(DatasetConformance, ThreadsMayReadAtOnce) {
  const auto dataset = Open();
  const Batch want = Fill(*dataset, All(*dataset));
  std::atomic<int> different = 0;
  std::vector<std::thread> threads;
  for (int t = 0; t < 3; ++t) {
    threads.emplace_back([&] {
      for (int round = 0; round < 20; ++round) different += Fill(*dataset, All(*dataset)) == want ? 0 : 1;
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(different, 0);
}

TEST_P(DatasetConformance, TrainingAndValidationPartTheSamples) {
  DatasetConfig config = Config();
  config.validation_fraction = 0.34;
  config.held_out = ValidationSplit::kEnd;  // those drawn evenly: split_test
  const auto parts = OpenTrainingData(config);
  ASSERT_TRUE(parts.ok()) << parts.status();
  const auto whole = Open();
  ASSERT_EQ(parts->training->size() + parts->validation->size(), whole->size());
  Batch joined = Fill(*parts->training, All(*parts->training));
  const Batch rest = Fill(*parts->validation, All(*parts->validation));
  joined.inputs.insert(joined.inputs.end(), rest.inputs.begin(), rest.inputs.end());
  joined.targets.insert(joined.targets.end(), rest.targets.begin(), rest.targets.end());
  EXPECT_TRUE(joined == Fill(*whole, All(*whole)));
}

INSTANTIATE_TEST_SUITE_P(Kinds, DatasetConformance,
                         ::testing::Values(Kind{DatasetKind::kText, 12}, Kind{DatasetKind::kTokens, 12}, Kind{DatasetKind::kCifar10, 6},
                                           Kind{DatasetKind::kIdx, 7}, Kind{DatasetKind::kShapes, 12}),
                         [](const auto& info) { return std::string(Name(info.param.kind)); });

}  // namespace
}  // namespace fusionllm::data
