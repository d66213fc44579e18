#include "cli/join/join_folder.h"

#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <optional>
#include <thread>
#include <vector>

#include "gtest/gtest.h"
#include "lib/base/testing/temp_folder.h"

namespace fusionllm::cli {
namespace {

namespace fs = std::filesystem;

size_t Entries(const std::string& folder) {
  return static_cast<size_t>(std::distance(fs::directory_iterator(folder), fs::directory_iterator()));
}

TEST(JoinFolderTest, IsPrivateAndGoesWithItsOwner) {
  const base::TempFolder parent;
  {
    const auto folder = JoinFolder::Create(parent.path());
    ASSERT_TRUE(folder.ok()) << folder.status();
    struct stat status = {};
    ASSERT_EQ(stat(folder->path().c_str(), &status), 0);
    EXPECT_EQ(status.st_mode & 0777, 0700);
  }
  EXPECT_TRUE(fs::is_empty(parent.path()));
}

TEST(JoinFolderTest, TheNextOneRemovesWhatKilledProcessesLeftAndNothingElse) {
  const base::TempFolder parent;
  parent.Write("fusionctl-join-killed/lab.key", "secret");
  parent.Write("fusionctl-join-a-file", "kept: no folder");
  parent.Write("other/lab.key", "kept: another's");
  fs::create_directory_symlink(parent / "other", parent / "fusionctl-join-link");
  const auto living = JoinFolder::Create(parent.path());
  ASSERT_TRUE(living.ok()) << living.status();
  EXPECT_FALSE(fs::exists(parent / "fusionctl-join-killed"));
  const auto another = JoinFolder::Create(parent.path());
  ASSERT_TRUE(another.ok()) << another.status();
  EXPECT_TRUE(fs::exists(living->path())) << "it is in use";
  EXPECT_TRUE(fs::exists(parent / "fusionctl-join-a-file"));
  EXPECT_TRUE(fs::exists(parent / "other/lab.key"));
}

TEST(JoinFolderTest, ManyAtOnceKeepTheirs) {
  const base::TempFolder parent;
  std::vector<std::optional<JoinFolder>> folders(16);
  {
    std::vector<std::jthread> threads;
    for (auto& folder : folders) {
      threads.emplace_back([&] {
        auto made = JoinFolder::Create(parent.path());
        if (made.ok() && fs::exists(made->path())) folder.emplace(*std::move(made));
      });
    }
  }
  for (const auto& folder : folders) {
    ASSERT_TRUE(folder.has_value());
    EXPECT_TRUE(fs::exists(folder->path()));
  }
  EXPECT_EQ(Entries(parent.path()), folders.size());
  folders.clear();
  EXPECT_TRUE(fs::is_empty(parent.path()));
}

TEST(JoinFolderTest, AFolderThatIsNotThereIsNamed) {
  const auto folder = JoinFolder::Create("/nowhere/at/all");
  EXPECT_TRUE(absl::IsUnavailable(folder.status()));
  EXPECT_NE(folder.status().message().find("/nowhere/at/all"), absl::string_view::npos);
}

}  // namespace
}  // namespace fusionllm::cli
