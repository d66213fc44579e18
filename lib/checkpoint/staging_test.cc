#include "lib/checkpoint/staging.h"

#include <barrier>
#include <filesystem>
#include <string>
#include <thread>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "lib/base/testing/temp_folder.h"
#include "lib/checkpoint/incoming_file.h"
#include "lib/checkpoint/layout.h"
#include "lib/checkpoint/testing/sample.h"
#include "lib/checkpoint/writer.h"

namespace fusionllm::checkpoint {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;

TEST(StagingTest, AFolderThatGoesBeforeTheFileIsThereIsMadeAgain) {
  const base::TempFolder root;
  const std::string folder = StagingFolder(root.path(), 12);
  int calls = 0;
  const absl::Status created = CreateInStaging(folder, [&] {
    if (++calls == 1) fs::remove(folder);  // a writer that failed
    return WriteHashedFile(absl::StrCat(folder, "/file"), "text").status();
  });
  EXPECT_TRUE(created.ok()) << created;
  EXPECT_EQ(calls, 2);
  EXPECT_TRUE(fs::exists(absl::StrCat(folder, "/file")));
}

TEST(StagingTest, AFolderThatGoesTimeAndAgainIsAnError) {
  const base::TempFolder root;
  const std::string folder = StagingFolder(root.path(), 12);
  const absl::Status created = CreateInStaging(folder, [&] {
    fs::remove(folder);
    return WriteHashedFile(absl::StrCat(folder, "/file"), "text").status();
  });
  EXPECT_TRUE(absl::IsNotFound(created)) << created;
  EXPECT_THAT(created.message(), HasSubstr(folder));
}

// A stage and a file that comes from elsewhere, beside stages that fail and take the empty folder away.
TEST(StagingTest, AWriterThatFailsDoesNotMakeOthersFail) {
  constexpr int kRounds = 200, kFailures = 10;  // fewer in a round than attempts are made
  const base::TempFolder root;
  SampleTensors tensors, tensors_of_failing;
  const ShardContents contents = SampleShard(tensors, 12, 0);
  ShardContents twice = SampleShard(tensors_of_failing, 12, 1);
  twice.model.push_back(twice.model.front());
  std::barrier round_begins(2);
  const std::jthread failing([&] {
    for (int round = 0; round < kRounds; ++round) {
      round_begins.arrive_and_wait();
      for (int i = 0; i < kFailures; ++i) EXPECT_FALSE(WriteShard(root.path(), 12, 1, 2, twice).ok());
    }
  });
  for (int round = 0; round < kRounds; ++round) {
    round_begins.arrive_and_wait();
    const absl::Status incoming = IncomingFile::Create(root.path(), 12, "model.safetensors", 4, 1).status();  // and it goes again
    EXPECT_TRUE(incoming.ok()) << incoming << " in round " << round;
    const auto written = WriteShard(root.path(), 12, 0, 2, contents);
    EXPECT_TRUE(written.ok()) << written.status() << " in round " << round;
    if (!written.ok()) continue;
    for (const FileEntry& file : *written) fs::remove(absl::StrCat(StagingFolder(root.path(), 12), "/", file.name));
  }
}

}  // namespace
}  // namespace fusionllm::checkpoint
