#include "lib/base/source_file.h"

#include <filesystem>
#include <vector>

#include "absl/strings/match.h"
#include "gtest/gtest.h"
#include "lib/base/testing/temp_folder.h"

namespace fusionllm::base {
namespace {

TEST(SourceFileTest, NamesTheFileThatShrankWhileInUse) {
  const TempFolder folder;
  const std::string path = folder.Write("f", "0123456789");
  for (const bool keep_open : {true, false}) {
    std::filesystem::resize_file(path, 10);
    const auto file = SourceFile::Open(path, keep_open);
    ASSERT_TRUE(file.ok()) << file.status();
    std::filesystem::resize_file(path, 4);
    std::vector<std::byte> bytes(6);
    const absl::Status status = file->ReadAt(2, bytes);
    EXPECT_EQ(status.code(), absl::StatusCode::kDataLoss);
    EXPECT_TRUE(absl::StrContains(status.message(), path) && absl::StrContains(status.message(), "ends at byte 4")) << status;
  }
}

}  // namespace
}  // namespace fusionllm::base
