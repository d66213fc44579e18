#include "lib/objectstore/fetch.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "lib/base/testing/temp_folder.h"
#include "lib/objectstore/testing/fake_s3.h"

namespace fusionllm::objectstore {
namespace {

using base::ReadWholeFile;
using ::testing::HasSubstr;

class FetchTest : public ::testing::Test {
 protected:
  absl::StatusOr<std::string> Fetch(const std::string& key) {
    ObjectStore store(server_.Settings(), testing::FastRetryOptions());
    return objectstore::Fetch(store, *base::ParseObjectUri(absl::StrCat("s3://models/", key)), scratch_.path());
  }
  // But for prefixes that begin with `allowed`, unless that is empty. An object that is not there is denied, too, as S3 does then.
  void DenyListing(const std::string& allowed) {
    server_.SetHook([this, allowed](const testing::FakeRequest& request, kube::testing::RawConnection& connection) {
      const auto prefix = request.query.find("prefix");
      const bool lists = request.query.contains("list-type");
      if (lists && !allowed.empty() && prefix != request.query.end() && absl::StartsWith(prefix->second, allowed)) return false;
      if (!lists && server_.Get(request.bucket, request.key).has_value()) return false;
      return connection.Answer(403, testing::FakeS3::Error("AccessDenied", "Access Denied"));
    });
  }
  size_t Gets() const {
    const std::vector<std::string> log = server_.Log();
    return static_cast<size_t>(
        std::count_if(log.begin(), log.end(), [](const std::string& line) { return absl::StartsWith(line, "GET models/data/"); }));
  }

  testing::FakeS3 server_;
  base::TempFolder scratch_;
};

TEST_F(FetchTest, AnObjectComesUnderItsName) {
  server_.Put("models", "data/tiny.bin", "tokens");
  server_.Put("models", "data/tiny.bin2", "others");
  const auto path = Fetch("data/tiny.bin");
  ASSERT_TRUE(path.ok()) << path.status();
  EXPECT_EQ(std::filesystem::path(*path).filename(), "tiny.bin");
  EXPECT_EQ(ReadWholeFile(*path), "tokens");
}

TEST_F(FetchTest, AFolderComesWithoutWhatIsHiddenOrOnlyStandsForAFolder) {
  server_.Put("models", "data/a.txt", "1");
  server_.Put("models", "data/sub/b.txt", "2");
  server_.Put("models", "data/", "");
  server_.Put("models", "data/.hidden", "x");
  server_.Put("models", "data2/c.txt", "3");
  const auto path = Fetch("data");
  ASSERT_TRUE(path.ok()) << path.status();
  EXPECT_EQ(ReadWholeFile(*path + "/a.txt"), "1");
  EXPECT_EQ(ReadWholeFile(*path + "/sub/b.txt"), "2");
  EXPECT_FALSE(std::filesystem::exists(*path + "/.hidden"));
  EXPECT_FALSE(std::filesystem::exists(*path + "/c.txt"));
}

TEST_F(FetchTest, MoreKeysThanAPageHoldsAllCome) {
  for (int i = 0; i < 2345; ++i) server_.Put("models", absl::StrFormat("data/%05d", i), absl::StrCat(i));
  const auto path = Fetch("data");
  ASSERT_TRUE(path.ok()) << path.status();
  EXPECT_EQ(ReadWholeFile(*path + "/02344"), "2344");
  EXPECT_EQ(Gets(), 2345u);
}

TEST_F(FetchTest, OnlyWhatHasChangedComesAgainAndWhatIsGoneGoes) {
  server_.Put("models", "data/a", "1");
  server_.Put("models", "data/b", "2");
  server_.Put("models", "data/c", "3");
  ASSERT_TRUE(Fetch("data").ok());
  EXPECT_EQ(Gets(), 3u);
  ASSERT_TRUE(Fetch("data").ok());
  EXPECT_EQ(Gets(), 3u);
  server_.Put("models", "data/a", "X");
  ObjectStore store(server_.Settings(), testing::FastRetryOptions());
  ASSERT_TRUE(store.Remove({.bucket = "models", .key = "data/b"}).ok());
  const auto path = Fetch("data");
  ASSERT_TRUE(path.ok()) << path.status();
  EXPECT_EQ(Gets(), 4u);
  EXPECT_EQ(ReadWholeFile(*path + "/a"), "X");
  EXPECT_FALSE(std::filesystem::exists(*path + "/b"));
}

TEST_F(FetchTest, KeysThatLeaveTheFolderAreRefused) {
  server_.Put("models", "data/../../etc/x", "1");
  const auto path = Fetch("data");
  EXPECT_EQ(path.status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(path.status().message()), HasSubstr("data/../../etc/x"));
}

// As tools that join a folder and a name with one slash too many leave it.
TEST_F(FetchTest, AKeyWithAnEmptyNameInItIsRefusedByThatKey) {
  server_.Put("models", "corpus//a.txt", "1");
  for (const char* folder : {"corpus", "corpus/"}) {
    const auto path = Fetch(folder);
    EXPECT_EQ(path.status().code(), absl::StatusCode::kInvalidArgument) << folder;
    EXPECT_THAT(std::string(path.status().message()), HasSubstr("'corpus//a.txt'")) << folder;
  }
}

TEST_F(FetchTest, AnObjectNeedsNoRightToList) {
  server_.Put("models", "data/tiny.bin", "tokens");
  server_.Put("models", "data/empty", "");
  DenyListing("");
  const auto path = Fetch("data/tiny.bin");
  ASSERT_TRUE(path.ok()) << path.status();
  EXPECT_EQ(ReadWholeFile(*path), "tokens");
  const auto empty = Fetch("data/empty");
  ASSERT_TRUE(empty.ok()) << empty.status();
  EXPECT_EQ(ReadWholeFile(*empty), "");
}

TEST_F(FetchTest, AFolderNeedsTheRightToListItsPrefixAlone) {
  server_.Put("models", "data/a", "1");
  server_.Put("models", "data-old/b", "2");
  DenyListing("data/");
  for (const char* uri : {"s3://models/data/", "s3://models/data"}) {
    ObjectStore store(server_.Settings(), testing::FastRetryOptions());
    const auto path = objectstore::Fetch(store, *base::ParseObjectUri(uri), scratch_.path());
    ASSERT_TRUE(path.ok()) << path.status();
    EXPECT_EQ(ReadWholeFile(*path + "/a"), "1");
  }
}

TEST_F(FetchTest, ASlashAtTheEndMeansTheFolderThoughThereIsAnObject) {
  server_.Put("models", "data", "object");
  server_.Put("models", "data/a", "1");
  ObjectStore store(server_.Settings(), testing::FastRetryOptions());
  const auto path = objectstore::Fetch(store, *base::ParseObjectUri("s3://models/data/"), scratch_.path());
  ASSERT_TRUE(path.ok()) << path.status();
  EXPECT_EQ(ReadWholeFile(*path + "/a"), "1");
  EXPECT_EQ(ReadWholeFile(*Fetch("data")), "object");
}

TEST_F(FetchTest, AFolderThatMayNotBeListedSaysSo) {
  server_.Put("models", "data/a", "1");
  DenyListing("");
  const auto path = Fetch("data/");
  EXPECT_EQ(path.status().code(), absl::StatusCode::kPermissionDenied) << path.status();
}

TEST_F(FetchTest, RejectsFileAndFolderOfOneNameBeforeFetching) {
  server_.Put("models", "data/a", "1");
  server_.Put("models", "data/a/b.txt", "2");
  const auto path = Fetch("data");
  EXPECT_EQ(path.status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(path.status().message()), HasSubstr("'data/a' and 'data/a/b.txt'"));
  EXPECT_EQ(Gets(), 0u);
}

TEST_F(FetchTest, WhatIsNotThereIsNamed) {
  const auto path = Fetch("data");
  EXPECT_EQ(path.status().code(), absl::StatusCode::kNotFound);
  EXPECT_THAT(std::string(path.status().message()), HasSubstr("s3://models/data"));
  ObjectStore store(server_.Settings(), testing::FastRetryOptions());
  EXPECT_EQ(CheckExists(store, {.bucket = "nowhere", .key = "data"}).code(), absl::StatusCode::kNotFound);
  server_.Put("models", "data/a", "1");
  EXPECT_TRUE(CheckExists(store, {.bucket = "models", .key = "data"}).ok());
}

}  // namespace
}  // namespace fusionllm::objectstore
