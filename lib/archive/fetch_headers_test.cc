#include "lib/archive/fetch_headers.h"

#include <filesystem>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "lib/base/source_file.h"
#include "lib/base/testing/temp_folder.h"
#include "lib/checkpoint/reader.h"
#include "lib/checkpoint/testing/sample.h"
#include "lib/objectstore/testing/fake_s3.h"

namespace fusionllm::archive {
namespace {

using objectstore::testing::FakeRequest;
using objectstore::testing::FakeS3;

class FetchHeadersTest : public ::testing::Test {
 protected:
  FetchHeadersTest() { std::filesystem::create_directory(outline_); }
  void PutFolder(const std::string& folder, const std::string& key) {
    for (const auto& entry : std::filesystem::directory_iterator(folder)) {
      server_.Put("models", absl::StrCat(key, "/", entry.path().filename().string()), base::ReadWholeFile(entry.path().string()));
    }
  }
  FakeS3 server_;
  base::TempFolder folder_;
  const std::string outline_ = folder_ / "outline";
  objectstore::ObjectStore store_{server_.Settings(), objectstore::testing::FastRetryOptions()};
};

TEST_F(FetchHeadersTest, ACheckpointIsOpenedWithTheTensorsThatItHas) {
  const std::string saved = *checkpoint::SaveSample(folder_ / "saved", 10, 2);
  PutFolder(saved, "runs/step-000010");
  server_.Put("models", "runs/latest", "step-000010\n");
  const auto path = FetchHeaders(store_, {.bucket = "models", .key = "runs"}, outline_);
  ASSERT_TRUE(path.ok()) << path.status();
  const auto whole = checkpoint::CheckpointReader::Open(saved), outline = checkpoint::CheckpointReader::Open(*path);
  ASSERT_TRUE(outline.ok()) << outline.status();
  ASSERT_EQ(outline->tensors().size(), whole->tensors().size());
  EXPECT_EQ(outline->manifest()->step, 10);
  for (const auto& [name, tensor] : whole->tensors()) {
    ASSERT_TRUE(outline->Contains(name)) << name;
    EXPECT_EQ(outline->tensors().at(name).entry->shape, tensor.entry->shape) << name;
    EXPECT_EQ(outline->tensors().at(name).entry->dtype_name, tensor.entry->dtype_name) << name;
  }
}

TEST_F(FetchHeadersTest, AServerThatKnowsNoRangesIsReadNoFurtherThanNeeded) {
  checkpoint::SampleTensors tensors;
  ASSERT_TRUE(checkpoint::WriteSafetensors(folder_ / "f", tensors.Make({"w"}, 1, {100, 100})).ok());
  const std::string file = base::ReadWholeFile(folder_ / "f");
  server_.Put("models", "f.safetensors", file);
  server_.SetHook([&](const FakeRequest& request, kube::testing::RawConnection& connection) {
    return request.key == "f.safetensors" && connection.Answer(200, file);
  });
  const auto path = FetchHeaders(store_, {.bucket = "models", .key = "f.safetensors"}, outline_);
  ASSERT_TRUE(path.ok()) << path.status();
  const auto outline = checkpoint::CheckpointReader::Open(*path);
  ASSERT_TRUE(outline.ok()) << outline.status();
  EXPECT_EQ(outline->tensors().at("w").entry->shape, (tensor::Shape{100, 100}));
}

TEST_F(FetchHeadersTest, AnObjectThatChangesMeanwhileIsNotTakenForOne) {
  checkpoint::SampleTensors tensors;
  ASSERT_TRUE(checkpoint::WriteSafetensors(folder_ / "f", tensors.Make({"w"}, 1)).ok());
  const std::string file = base::ReadWholeFile(folder_ / "f");
  server_.Put("models", "f.safetensors", file);
  int asked = 0;
  server_.SetHook([&](const FakeRequest& request, kube::testing::RawConnection&) {
    if (request.key == "f.safetensors" && ++asked == 3) server_.Put("models", "f.safetensors", file + "more");
    return false;
  });
  EXPECT_TRUE(absl::IsFailedPrecondition(FetchHeaders(store_, {.bucket = "models", .key = "f.safetensors"}, outline_).status()));
}

}  // namespace
}  // namespace fusionllm::archive
