#include "lib/data/split_files.h"

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "lib/base/testing/temp_folder.h"
#include "lib/data/dataset.h"

namespace fusionllm::data {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

class FilesOfSplitTest : public ::testing::Test {
 protected:
  // Of the folder "d", by their paths below it; or what is wrong.
  std::vector<std::string> Files(DatasetSplit split, std::vector<std::string> files, std::vector<std::string> paths = {"d"}) {
    const base::TempFolder folder;
    for (const std::string& file : files) folder.Write("d/" + file, "x");
    DatasetConfig config;
    config.split = split;
    config.base_folder = folder.path();
    config.paths = paths;
    const auto found = FilesOfSplit(config, {});
    if (!found.ok()) return {std::string(found.status().message())};
    std::vector<std::string> names;
    for (const std::string& file : *found) names.push_back(file.substr(folder.path().size() + 3));
    return names;
  }
  std::vector<std::string> Training(std::vector<std::string> files) { return Files(DatasetSplit::kTraining, std::move(files)); }
  std::vector<std::string> Test(std::vector<std::string> files) { return Files(DatasetSplit::kTest, std::move(files)); }
};

TEST_F(FilesOfSplitTest, PublishedNamesTellTheirSplit) {
  const std::vector<std::vector<std::string>> kPairs = {
      {"train-images-idx3-ubyte", "t10k-images-idx3-ubyte"},
      {"data_batch_1.bin", "test_batch.bin"},
      {"emnist-letters-train-images-idx3-ubyte", "emnist-letters-test-images-idx3-ubyte"},
      {"Train.idx", "VAL.idx"},
      {"training_set.idx", "validation_set.idx"},
      {"train/images.idx", "test/images.idx"},
      {"a/train/test.d/train.idx", "a/test/train.d/testing.idx"},
  };
  for (const std::vector<std::string>& pair : kPairs) {
    EXPECT_THAT(Training(pair), ElementsAre(pair[0]));
    EXPECT_THAT(Test(pair), ElementsAre(pair[1]));
  }
}

TEST_F(FilesOfSplitTest, AFolderThatTellsNoSplitsIsReadWhole) {
  EXPECT_THAT(Training({"a.idx", "latest.idx"}), ElementsAre("a.idx", "latest.idx"));
  EXPECT_THAT(Test({"a.idx", "latest.idx"}), ElementsAre("a.idx", "latest.idx"));
}

TEST_F(FilesOfSplitTest, TestFilesAreTrainedOnOnlyWhereThereAreNoOthers) {
  EXPECT_THAT(Training({"a.idx", "test.idx"}), ElementsAre("a.idx"));
  EXPECT_THAT(Training({"t10k-a.idx", "test.idx"}), ElementsAre("t10k-a.idx", "test.idx"));
}

TEST_F(FilesOfSplitTest, TrainingFilesAreNeverTestedOnUnlessNamed) {
  EXPECT_THAT(Test({"a.idx", "train.idx"}),
              ElementsAre(AllOf(HasSubstr("holds files for training (train.idx)"), HasSubstr("name the files"))));
  EXPECT_THAT(Files(DatasetSplit::kTest, {"train.idx"}, {"d/train.idx"}), ElementsAre("train.idx"));
}

TEST(TakeUnpackedArchivesTest, AnArchiveCountsOnlyWhereItsFileIsNotThere) {
  std::vector<std::string> paths = {"/m/a-idx3", "/m/a-idx3.gz", "/m/b.gz", "/m/c.idx3-ubyte", "/m/c-idx3-ubyte.bz2", "/n/a-idx3.xz"};
  EXPECT_THAT(TakeUnpackedArchives(paths), ElementsAre("/m/a-idx3.gz", "/m/c-idx3-ubyte.bz2"));
  EXPECT_THAT(paths, ElementsAre("/m/a-idx3", "/m/b.gz", "/m/c.idx3-ubyte", "/n/a-idx3.xz"));
}

TEST(PartsTest, TokensOfAFolderWithTrainAndValAreReadByTheirParts) {
  using std::string_literals::operator""s;
  const base::TempFolder folder;
  folder.Write("d/train.bin", "\1\0\2\0\3\0\4\0\5\0"s);
  folder.Write("d/val.bin", "\7\0\x8\0\x9\0"s);
  DatasetConfig config;
  config.kind = DatasetKind::kTokens;
  config.paths = config.validation_paths = {"d"};
  config.base_folder = folder.path();
  config.sequence_length = 2;
  const auto data = OpenTrainingData(config);
  ASSERT_TRUE(data.ok()) << data.status();
  EXPECT_EQ(data->training->size(), 2);
  EXPECT_EQ(data->validation->size(), 1);
}

}  // namespace
}  // namespace fusionllm::data
