#include "lib/data/shapes.h"

#include <algorithm>
#include <cstring>
#include <set>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "lib/base/philox.h"

namespace fusionllm::data {
namespace {

using tensor::DType;
using tensor::Tensor;
using ::testing::HasSubstr;

DatasetConfig Shapes(ShapesConfig shapes) {
  DatasetConfig config;
  config.kind = DatasetKind::kShapes;
  config.shapes = shapes;
  return config;
}

std::vector<float> Image(const Dataset& dataset, int64_t index) {
  const tensor::Shape& shape = dataset.sample_type().input.shape;
  Tensor inputs({DType::kF32, {1, shape[0], shape[1], shape[2]}});
  const absl::Status status = dataset.FillBatch(std::vector<int64_t>{index}, inputs.view(), {});
  EXPECT_TRUE(status.ok()) << status;
  return {inputs.f32(), inputs.f32() + inputs.shape().elements()};
}

TEST(ShapesTest, AreAFunctionOfSeedAndIndex) {
  const auto dataset = OpenDataset(Shapes({.samples = 100, .seed = 5})).value();
  const auto again = OpenDataset(Shapes({.samples = 7, .seed = 5})).value();
  const auto other = OpenDataset(Shapes({.samples = 7, .seed = 6})).value();
  EXPECT_EQ(Image(*dataset, 6), Image(*again, 6));
  EXPECT_NE(Image(*dataset, 6), Image(*other, 6));
  std::set<std::vector<float>> distinct;
  for (int64_t i = 0; i < 100; ++i) distinct.insert(Image(*dataset, i));
  EXPECT_EQ(distinct.size(), 100u);
}

// All machines train on the same bits: this hash holds on each of them.
TEST(ShapesTest, DrawTheSameBitsEverywhere) {
  const auto dataset = OpenDataset(Shapes({.samples = 10, .image_size = 16, .seed = 1})).value();
  std::string bytes;
  for (int64_t i = 0; i < 10; ++i) {
    const std::vector<float> image = Image(*dataset, i);
    bytes.append(reinterpret_cast<const char*>(image.data()), image.size() * sizeof(float));
  }
  EXPECT_EQ(base::StableHash(bytes), 10235294235296057264u);
}

TEST(ShapesTest, HaveEveryLabelEquallyOften) {
  const auto dataset = OpenDataset(Shapes({.samples = 30, .num_classes = 3})).value();
  std::vector<int64_t> indices(30);
  for (int64_t i = 0; i < 30; ++i) indices[static_cast<size_t>(i)] = i;
  Tensor labels({DType::kI32, {30}});
  ASSERT_TRUE(dataset->FillBatch(indices, {}, labels.view()).ok());
  for (int32_t label = 0; label < 3; ++label) EXPECT_EQ(std::count(labels.as<int32_t>(), labels.as<int32_t>() + 30, label), 10);
}

// An image that shows nothing could not be learned: both the figure and the background must be there, in every class and size.
TEST(ShapesTest, ShowAFigureThatStandsOutFromItsBackground) {
  for (const int64_t size : {8, 32, 64}) {
    const auto dataset = OpenDataset(Shapes({.samples = 200, .image_size = size})).value();
    for (int64_t i = 0; i < 200; ++i) {
      const std::vector<float> image = Image(*dataset, i);
      // Dark colours stay below byte 95 + noise, bright ones above 160 - noise; 128 parts them.
      const auto bright = std::count_if(image.begin(), image.end(), [](float value) { return value > 0; });
      const auto least = static_cast<int64_t>(image.size()) / 50;
      EXPECT_GT(bright, least) << "sample " << i << " of size " << size;
      EXPECT_LT(bright, static_cast<int64_t>(image.size()) - least) << "sample " << i << " of size " << size;
    }
  }
}

TEST(ShapesTest, RefuseNumbersOutOfRange) {
  EXPECT_THAT(OpenDataset(Shapes({.samples = 0})).status().message(), HasSubstr("shapes.samples is 0"));
  EXPECT_THAT(OpenDataset(Shapes({.image_size = 100000})).status().message(), HasSubstr("shapes.imageSize"));
  EXPECT_THAT(OpenDataset(Shapes({.num_classes = 11})).status().message(), HasSubstr("shapes.numClasses is 11"));
}

}  // namespace
}  // namespace fusionllm::data
