#include "lib/data/images.h"

#include <random>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "lib/base/testing/temp_folder.h"

namespace fusionllm::data {
namespace {

using tensor::DType;
using tensor::Tensor;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

DatasetConfig Images(const base::TempFolder& folder, DatasetKind kind, std::vector<std::string> paths) {
  DatasetConfig config;
  config.kind = kind;
  config.paths = std::move(paths);
  config.base_folder = folder.path();
  return config;
}

// A record whose planes hold 10, 20 and 30, the red pixel at row 1, column 2 excepted.
std::string CifarRecord(int label) {
  std::string record(1, static_cast<char>(label));
  for (const char value : {10, 20, 30}) record += std::string(1024, value);
  record[1 + 32 + 2] = '\xff';
  return record;
}

std::string Idx(std::vector<int> extents, std::string items) {
  std::string bytes = {0, 0, 8, static_cast<char>(extents.size())};
  for (const int extent : extents) bytes += {0, 0, static_cast<char>(extent >> 8), static_cast<char>(extent & 0xff)};
  return bytes + items;
}

std::vector<int32_t> Labels(const Dataset& dataset) {
  std::vector<int64_t> indices;
  for (int64_t i = 0; i < dataset.size(); ++i) indices.push_back(i);
  Tensor targets({DType::kI32, {dataset.size()}});
  const absl::Status status = dataset.FillBatch(indices, {}, targets.view());
  EXPECT_TRUE(status.ok()) << status;
  return {targets.as<int32_t>(), targets.as<int32_t>() + dataset.size()};
}

TEST(Cifar10Test, TurnsPlanesIntoNormalisedPixels) {
  const base::TempFolder folder;
  folder.Write("data_batch_1.bin", CifarRecord(7) + CifarRecord(3));
  const auto dataset = OpenDataset(Images(folder, DatasetKind::kCifar10, {"data_batch_1.bin"}));
  ASSERT_TRUE(dataset.ok()) << dataset.status();
  Tensor inputs({DType::kF32, {1, 32, 32, 3}}), targets({DType::kI32, {1}});
  ASSERT_TRUE((*dataset)->FillBatch(std::vector<int64_t>{1}, inputs.view(), targets.view()).ok());
  EXPECT_EQ(*targets.as<int32_t>(), 3);
  const float* pixel = inputs.f32() + (1 * 32 + 2) * 3;
  EXPECT_FLOAT_EQ(pixel[0], (1.0f - 0.4914f) / 0.2470f);
  EXPECT_FLOAT_EQ(pixel[1], (20 / 255.0f - 0.4822f) / 0.2435f);
  EXPECT_FLOAT_EQ(pixel[2], (30 / 255.0f - 0.4465f) / 0.2616f);
  EXPECT_FLOAT_EQ(inputs.f32()[0], (10 / 255.0f - 0.4914f) / 0.2470f);
}

TEST(Cifar10Test, LeavesTheTestBatchOfAFolderOut) {
  const base::TempFolder folder;
  folder.Write("c/data_batch_2.bin", CifarRecord(2));
  folder.Write("c/data_batch_1.bin", CifarRecord(1));
  folder.Write("c/test_batch.bin", CifarRecord(9));
  folder.Write("c/readme.html", "hello");
  DatasetConfig config = Images(folder, DatasetKind::kCifar10, {"c"});
  config.validation_paths = {"c/test_batch.bin"};
  const auto data = OpenTrainingData(config);
  ASSERT_TRUE(data.ok()) << data.status();
  EXPECT_THAT(Labels(*data->training), ElementsAre(1, 2));
  EXPECT_THAT(Labels(*data->validation), ElementsAre(9));
}

TEST(Cifar10Test, AFolderForValidationMeansItsTestBatchOrIsRefused) {
  const base::TempFolder folder;
  folder.Write("c/data_batch_1.bin", CifarRecord(1));
  DatasetConfig config = Images(folder, DatasetKind::kCifar10, {"c"});
  config.validation_paths = {"c"};
  EXPECT_THAT(OpenTrainingData(config).status().message(),
              AllOf(HasSubstr("spec.data.validation.path: "), HasSubstr("holds files for training (data_batch_1.bin)")));
  folder.Write("c/test_batch.bin", CifarRecord(9));
  const auto data = OpenTrainingData(config);
  ASSERT_TRUE(data.ok()) << data.status();
  EXPECT_THAT(Labels(*data->training), ElementsAre(1));
  EXPECT_THAT(Labels(*data->validation), ElementsAre(9));
}

TEST(Cifar10Test, NamesTheFileThatIsCutOffAndTheLabelOutOfRange) {
  const base::TempFolder folder;
  folder.Write("cut.bin", CifarRecord(1) + CifarRecord(2).substr(0, 3000));
  folder.Write("empty.bin", "");
  folder.Write("label.bin", CifarRecord(1) + CifarRecord(10));
  const auto open = [&](std::string path) { return OpenDataset(Images(folder, DatasetKind::kCifar10, {path})); };
  EXPECT_THAT(open("cut.bin").status().message(), AllOf(HasSubstr("cut.bin has 6073 bytes"), HasSubstr("3073")));
  EXPECT_THAT(open("empty.bin").status().message(), HasSubstr("empty.bin has 0 bytes"));
  EXPECT_THAT(open("label.bin").status().message(), HasSubstr("label 10 at byte 3073 of"));
  folder.Write("pointer.bin", "version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 5\n");
  EXPECT_THAT(open("pointer.bin").status().message(), HasSubstr("it is a pointer of Git LFS: fetch the file itself by `git lfs pull`"));
}

TEST(IdxTest, ReadsImagesAndLabelsFromAFolderOfBothSets) {
  const base::TempFolder folder;
  folder.Write("m/train-images-idx3-ubyte", Idx({2, 2, 3}, {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, '\xff'}));
  folder.Write("m/train-labels-idx1-ubyte", Idx({2}, {4, 5}));
  folder.Write("m/t10k-images-idx3-ubyte", Idx({1, 2, 3}, {0, 1, 2, 3, 4, 5}));
  folder.Write("m/t10k-labels-idx1-ubyte", Idx({1}, {9}));
  folder.Write("m/train-images-idx3-ubyte.gz", "\x1f\x8b");  // torchvision leaves both
  const auto dataset = OpenDataset(Images(folder, DatasetKind::kIdx, {"m"}));
  ASSERT_TRUE(dataset.ok()) << dataset.status();
  EXPECT_EQ((*dataset)->sample_type().input.ToString(), "f32[2, 3, 1]");
  EXPECT_THAT(Labels(**dataset), ElementsAre(4, 5));
  Tensor inputs({DType::kF32, {2, 2, 3, 1}});
  ASSERT_TRUE((*dataset)->FillBatch(std::vector<int64_t>{0, 1}, inputs.view(), {}).ok());
  EXPECT_FLOAT_EQ(inputs.f32()[11], (1.0f - 0.1307f) / 0.3081f);
  EXPECT_FLOAT_EQ(inputs.f32()[1], (1 / 255.0f - 0.1307f) / 0.3081f);
}

TEST(IdxTest, AFolderOfSeveralSetsIsRefusedUnlessTheirFilesAreNamed) {
  const std::string images = Idx({1, 1, 2}, {0, 1}), labels = Idx({1}, {4});
  const std::vector<std::vector<std::string>> sets = {{"MNIST/raw/train-", "FashionMNIST/raw/train-"},
                                                      {"EMNIST/emnist-letters-train-", "EMNIST/emnist-digits-train-"}};
  for (const std::vector<std::string>& set : sets) {
    const base::TempFolder folder;
    std::vector<std::string> named;
    for (const std::string& front : set) {
      folder.Write(front + "images-idx3-ubyte", images);
      folder.Write(front + "labels-idx1-ubyte", labels);
      for (const char* end : {"images-idx3-ubyte", "labels-idx1-ubyte"}) named.push_back(front + end);
    }
    const auto dataset = OpenDataset(Images(folder, DatasetKind::kIdx, {"."}));
    EXPECT_THAT(dataset.status().message(), AllOf(HasSubstr("holds several sets of images"), HasSubstr(set[0]), HasSubstr(set[1])));
    EXPECT_TRUE(OpenDataset(Images(folder, DatasetKind::kIdx, named)).ok());
  }
  const base::TempFolder parts;
  for (const char* number : {"0", "1"}) {
    parts.Write(std::string("m/train-images-") + number + "-idx3-ubyte", images);
    parts.Write(std::string("m/train-labels-") + number + "-idx1-ubyte", labels);
  }
  EXPECT_TRUE(OpenDataset(Images(parts, DatasetKind::kIdx, {"m"})).ok()) << "parts of one set";
}

// Their labels are out of range, which is reported if and only if they are read.
TEST(IdxTest, AFolderForValidationMeansItsTestFiles) {
  const base::TempFolder folder;
  folder.Write("m/train-images-idx3-ubyte", Idx({1, 1, 2}, {0, 1}));
  folder.Write("m/train-labels-idx1-ubyte", Idx({1}, {4}));
  folder.Write("m/t10k-images-idx3-ubyte", Idx({1, 1, 2}, {0, 1}));
  folder.Write("m/t10k-labels-idx1-ubyte", Idx({1}, {9}));
  folder.Write("m/t10k-labels-idx1-ubyte.gz", "\x1f\x8b");
  DatasetConfig config = Images(folder, DatasetKind::kIdx, {"m"});
  config.validation_paths = {"m"};
  const auto data = OpenTrainingData(config);
  ASSERT_TRUE(data.ok()) << data.status();
  EXPECT_THAT(Labels(*data->training), ElementsAre(4));
  EXPECT_THAT(Labels(*data->validation), ElementsAre(9));
}

TEST(IdxTest, GrayImagesAreRepeatedForModelsOfColour) {
  const base::TempFolder folder;
  folder.Write("gray", Idx({1, 1, 2}, {0, '\xff'}));
  folder.Write("colour", Idx({1, 1, 2, 3}, {1, 2, 3, 4, 5, 6}));
  folder.Write("labels", Idx({1}, {4}));
  const auto open = [&](std::string file, int64_t channels) {
    DatasetConfig config = Images(folder, DatasetKind::kIdx, {file, "labels"});
    config.image_channels = channels;
    return OpenDataset(config);
  };
  const auto dataset = open("gray", 3);
  ASSERT_TRUE(dataset.ok()) << dataset.status();
  ASSERT_EQ((*dataset)->sample_type().input.ToString(), "f32[1, 2, 3]");
  Tensor inputs({DType::kF32, {1, 1, 2, 3}});
  ASSERT_TRUE((*dataset)->FillBatch(std::vector<int64_t>{0}, inputs.view(), {}).ok());
  const float black = (0.0f - 0.1307f) / 0.3081f, white = (1.0f - 0.1307f) / 0.3081f;
  const std::vector<float> values(inputs.f32(), inputs.f32() + 6);
  EXPECT_THAT(values, ::testing::Pointwise(::testing::FloatEq(), {black, black, black, white, white, white}));
  EXPECT_EQ((*open("gray", 0))->sample_type().input.ToString(), "f32[1, 2, 1]");
  EXPECT_EQ((*open("gray", 2))->sample_type().input.ToString(), "f32[1, 2, 1]");
  EXPECT_EQ((*open("colour", 3))->sample_type().input.ToString(), "f32[1, 2, 3]");
}

TEST(IdxTest, SaysWhatIsWrongWithAFile) {
  const base::TempFolder folder;
  folder.Write("images", Idx({2, 1, 2}, "abcd"));
  folder.Write("labels", Idx({2}, {1, 2}));
  folder.Write("one-label", Idx({1}, {1}));
  folder.Write("cut", Idx({2, 1, 2}, "abc"));
  folder.Write("long", Idx({2, 1, 2}, "abcdefg"));
  folder.Write("header", Idx({2, 1, 2}, "").substr(0, 9));
  folder.Write("tiny", "ab");
  folder.Write("gzip", "\x1f\x8b\x08 and so on");
  folder.Write("huge", std::string("\0\0\x08\x03\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff", 16));
  folder.Write("none", Idx({0, 1, 2}, ""));
  folder.Write("no-labels", Idx({0}, ""));
  folder.Write("floats", std::string("\0\0\x0d\x01\0\0\0\0", 8));
  const auto error = [&](std::vector<std::string> paths) {
    return std::string(OpenDataset(Images(folder, DatasetKind::kIdx, paths)).status().message());
  };
  EXPECT_THAT(error({"cut", "labels"}), AllOf(HasSubstr("cut has 19 bytes"), HasSubstr("asks for 20: is it cut off?")));
  EXPECT_THAT(error({"long", "labels"}), AllOf(HasSubstr("long has 23 bytes"), HasSubstr("asks for 20: 3 bytes are too many")));
  EXPECT_THAT(error({"header", "labels"}), HasSubstr("ends inside its idx header"));
  EXPECT_THAT(error({"tiny", "labels"}), HasSubstr("2 bytes"));
  EXPECT_THAT(
      error({"gzip", "labels"}),
      HasSubstr("gzip is not an idx file of u8 labels [N] or images [N, H, W] or [N, H, W, C]; it is compressed (gzip): unpack it"));
  EXPECT_THAT(error({"huge", "labels"}), HasSubstr("extent"));
  EXPECT_THAT(error({"floats", "labels"}), HasSubstr("not an idx file"));
  EXPECT_THAT(error({"images", "one-label"}), AllOf(HasSubstr("2 images"), HasSubstr("1 labels")));
  EXPECT_THAT(error({"images"}), HasSubstr("as many label files"));
  EXPECT_THAT(error({"none", "no-labels"}), HasSubstr("no images"));
}

TEST(IdxTest, LabelsFarBackAreCheckedAtOpen) {
  const base::TempFolder folder;
  constexpr int64_t kCount = 3 * 65536 + 1;
  std::string images("\0\0\x08\x03\0\3\0\1\0\0\0\1\0\0\0\1", 16), labels("\0\0\x08\x01\0\3\0\1", 8);
  folder.Write("images", images + std::string(kCount, 'x'));
  labels += std::string(kCount, '\1');
  labels.back() = '\2';
  folder.Write("labels", labels);
  DatasetConfig config = Images(folder, DatasetKind::kIdx, {"images", "labels"});
  config.num_classes = 2;
  EXPECT_THAT(OpenDataset(config).status().message(), HasSubstr("label 2 at byte 196616 of"));
}

TEST(IdxTest, ReportsALabelOutsideTheClasses) {
  const base::TempFolder folder;
  folder.Write("images", Idx({2, 1, 2}, "abcd"));
  folder.Write("labels", Idx({2}, {1, 2}));
  DatasetConfig config = Images(folder, DatasetKind::kIdx, {"images", "labels"});
  config.num_classes = 2;
  EXPECT_THAT(OpenDataset(config).status().message(), HasSubstr("label 2 at byte 9 of"));
}

TEST(IdxTest, SurvivesRandomDamage) {
  const base::TempFolder folder;
  const std::string good = Idx({3, 2, 2}, "abcdefghijkl");
  folder.Write("labels", Idx({3}, {1, 2, 3}));
  int opened = 0;
  for (uint32_t seed = 0; seed < 300; ++seed) {
    SCOPED_TRACE(::testing::Message() << "seed " << seed);
    std::mt19937 engine(seed);
    std::string bad = good;
    for (int i = 0; i < 3; ++i) bad[engine() % bad.size()] = static_cast<char>(engine());
    folder.Write("images", bad.substr(0, engine() % 2 == 0 ? bad.size() : engine() % bad.size()));
    const auto dataset = OpenDataset(Images(folder, DatasetKind::kIdx, {"images", "labels"}));
    if (!dataset.ok()) continue;
    ++opened;
    EXPECT_EQ((*dataset)->size(), 3);
    EXPECT_EQ(Labels(**dataset).size(), 3u);
  }
  EXPECT_GT(opened, 0);
  EXPECT_LT(opened, 200);
}

}  // namespace
}  // namespace fusionllm::data
