#include "lib/data/dataset.h"

#include <algorithm>
#include <cmath>
#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "lib/base/testing/temp_folder.h"

namespace fusionllm::data {
namespace {

using tensor::DType;
using tensor::Tensor;
using ::testing::AllOf;
using ::testing::HasSubstr;

DatasetConfig TextConfig(const base::TempFolder& folder) {
  DatasetConfig config;
  config.paths = {"text"};
  config.base_folder = folder.path();
  config.sequence_length = 4;
  return config;
}

int32_t FirstToken(const Dataset& dataset, int64_t index) {
  Tensor inputs({DType::kI32, {1, 4}});
  const absl::Status status = dataset.FillBatch(std::vector<int64_t>{index}, inputs.view(), {});
  EXPECT_TRUE(status.ok()) << status;
  return inputs.as<int32_t>()[0];
}

TEST(DatasetTest, HoldsOutTheLastFractionOfTheWindows) {
  const base::TempFolder folder;
  std::string text;
  for (char c = 'a'; c <= 'j'; ++c) text += std::string(4, c);  // ten windows, one letter each
  folder.Write("text", text + ".");
  DatasetConfig config = TextConfig(folder);
  config.validation_fraction = 0.25;
  config.held_out = ValidationSplit::kEnd;
  const auto data = OpenTrainingData(config);
  ASSERT_TRUE(data.ok()) << data.status();
  ASSERT_EQ(data->training->size(), 8);
  ASSERT_EQ(data->validation->size(), 2);
  EXPECT_EQ(FirstToken(*data->training, 7), 'h');
  EXPECT_EQ(FirstToken(*data->validation, 0), 'i');
  EXPECT_EQ(FirstToken(*data->validation, 1), 'j');
  Tensor inputs({DType::kI32, {1, 4}});
  EXPECT_FALSE(data->training->FillBatch(std::vector<int64_t>{8}, inputs.view(), {}).ok());
}

TEST(DatasetTest, HoldsOutAFractionOfEachPartOfTheWindows) {
  const base::TempFolder folder;
  std::string text;
  for (char c = 'a'; c <= 'j'; ++c) text += std::string(16, c);  // forty windows, four of each letter
  folder.Write("text", text + ".");
  DatasetConfig config = TextConfig(folder);
  config.validation_fraction = 0.25;
  const auto data = OpenTrainingData(config);
  ASSERT_TRUE(data.ok()) << data.status();
  ASSERT_EQ(data->validation->size(), 10);
  std::string kept, held_out;
  for (int64_t i = 0; i < data->training->size(); ++i) kept += static_cast<char>(FirstToken(*data->training, i));
  for (int64_t i = 0; i < data->validation->size(); ++i) held_out += static_cast<char>(FirstToken(*data->validation, i));
  EXPECT_EQ(kept, "aaabbbcccdddeeefffggghhhiiijjj");
  EXPECT_NE(held_out, "abcdefghij") << "the first of them are of all parts";
  std::sort(held_out.begin(), held_out.end());
  EXPECT_EQ(held_out, "abcdefghij");
}

TEST(DatasetTest, KeepsTrainingAndValidationFilesApart) {
  const base::TempFolder folder;
  folder.Write("text", "aaaaaaaaa");
  folder.Write("held", "bbbbb");
  DatasetConfig config = TextConfig(folder);
  config.validation_paths = {"held"};
  const auto data = OpenTrainingData(config);
  ASSERT_TRUE(data.ok()) << data.status();
  EXPECT_EQ(FirstToken(*data->training, 1), 'a');
  EXPECT_EQ(FirstToken(*data->validation, 0), 'b');
  EXPECT_EQ(OpenTrainingData(TextConfig(folder)).value().validation, nullptr);
}

TEST(DatasetTest, RefusesAValidationThatCannotBe) {
  const base::TempFolder folder;
  folder.Write("text", "aaaaa");
  const auto error = [&](double fraction, std::vector<std::string> paths, DatasetKind kind) {
    DatasetConfig config = TextConfig(folder);
    config.kind = kind;
    config.validation_fraction = fraction;
    config.validation_paths = std::move(paths);
    return std::string(OpenTrainingData(config).status().message());
  };
  EXPECT_THAT(error(1, {}, DatasetKind::kText), HasSubstr("fraction is 1"));
  EXPECT_THAT(error(std::nan(""), {}, DatasetKind::kText), HasSubstr("fraction is nan"));
  EXPECT_THAT(error(-0.1, {}, DatasetKind::kText), HasSubstr("fraction is -0.1"));
  EXPECT_THAT(error(0.5, {}, DatasetKind::kText), HasSubstr("leaves none for training"));
  EXPECT_THAT(error(0.5, {"text"}, DatasetKind::kText), HasSubstr("both a path and a fraction"));
  EXPECT_THAT(error(0, {"text"}, DatasetKind::kShapes), HasSubstr("no validation path"));
  EXPECT_THAT(error(0, {"missing"}, DatasetKind::kText), HasSubstr("does not exist"));
}

TEST(DatasetTest, RefusesABufferOrAnIndexThatDoesNotFit) {
  const base::TempFolder folder;
  folder.Write("text", "aaaaaaaaa");
  const auto dataset = OpenDataset(TextConfig(folder)).value();
  Tensor wrong({DType::kF32, {1, 4}}), right({DType::kI32, {1, 4}});
  EXPECT_THAT(dataset->FillBatch(std::vector<int64_t>{0}, wrong.view(), {}).message(),
              AllOf(HasSubstr("i32[1, 4]"), HasSubstr("f32[1, 4]")));
  EXPECT_THAT(dataset->FillBatch(std::vector<int64_t>{0, 1}, {}, right.view()).message(), HasSubstr("i32[2, 4]"));
  EXPECT_THAT(dataset->FillBatch(std::vector<int64_t>{2}, right.view(), {}).message(), HasSubstr("sample 2 is outside"));
  EXPECT_THAT(dataset->FillBatch(std::vector<int64_t>{-1}, right.view(), {}).message(), HasSubstr("sample -1 is outside"));
}

}  // namespace
}  // namespace fusionllm::data
