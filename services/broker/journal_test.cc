#include "services/broker/journal.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/resource.h>

#include <filesystem>

#include "lib/base/testing/temp_folder.h"

namespace fusionllm::services {
namespace {

// No file of this process may grow beyond `bytes` while it lives: writes then end half-way, as on a full disk.
class FileSizeLimit {
 public:
  explicit FileSizeLimit(rlim_t bytes) : former_handler_(signal(SIGXFSZ, SIG_IGN)) {
    getrlimit(RLIMIT_FSIZE, &former_);
    const rlimit limit = {bytes, former_.rlim_max};
    EXPECT_EQ(setrlimit(RLIMIT_FSIZE, &limit), 0);
  }
  ~FileSizeLimit() {
    setrlimit(RLIMIT_FSIZE, &former_);
    signal(SIGXFSZ, former_handler_);
  }

 private:
  rlimit former_ = {};
  void (*former_handler_)(int);
};

TEST(Journal, AnEntryThatDidNotFitLeavesNoHalfALine) {
  const base::TempFolder folder;
  const std::string path = folder / "broker.journal";
  JournalState state;
  {
    absl::StatusOr<Journal> journal = Journal::Open(path, &state);
    ASSERT_TRUE(journal.ok()) << journal.status();
    ASSERT_TRUE(journal->RecordStep(1, {.step = 1, .loss = 5}).ok());
    {
      const FileSizeLimit limit(std::filesystem::file_size(path) + 10);
      EXPECT_EQ(journal->RecordStep(1, {.step = 2, .loss = 4}).code(), absl::StatusCode::kUnavailable);
    }
    ASSERT_TRUE(journal->RecordStep(1, {.step = 3, .loss = 3}).ok());
  }
  JournalState again;
  const absl::StatusOr<Journal> reopened = Journal::Open(path, &again);
  ASSERT_TRUE(reopened.ok()) << reopened.status();
  ASSERT_EQ(again.steps.size(), 2);
  EXPECT_EQ(again.steps[0].second.step, 1);
  EXPECT_EQ(again.steps[1].second.step, 3);
}

TEST(Journal, ALineTornByTheDeathOfItsWriterIsDropped) {
  const base::TempFolder folder;
  const std::string path = folder / "broker.journal";
  JournalState state;
  ASSERT_TRUE(Journal::Open(path, &state)->RecordStep(1, {.step = 1, .loss = 5}).ok());
  const std::string whole = base::ReadWholeFile(path);
  folder.Write("broker.journal", whole + whole.substr(0, whole.size() / 2));
  JournalState again;
  absl::StatusOr<Journal> reopened = Journal::Open(path, &again);
  ASSERT_TRUE(reopened.ok()) << reopened.status();
  EXPECT_EQ(again.steps.size(), 1);
  ASSERT_TRUE(reopened->RecordStep(1, {.step = 2, .loss = 4}).ok());
  JournalState third;
  ASSERT_TRUE(Journal::Open(path, &third).ok());
  EXPECT_EQ(third.steps.size(), 2);
  // Damage before the last line is no torn line.
  folder.Write("broker.journal", whole.substr(0, whole.size() / 2) + "\n" + whole);
  EXPECT_EQ(Journal::Open(path, &third).status().code(), absl::StatusCode::kDataLoss);
}

}  // namespace
}  // namespace fusionllm::services
