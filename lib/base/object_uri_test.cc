#include "lib/base/object_uri.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "absl/strings/str_cat.h"

namespace fusionllm::base {
namespace {

using ::testing::HasSubstr;

TEST(ObjectUriTest, ReadsBucketAndKeyWithoutSlashesAtTheEnds) {
  for (const char* text : {"s3://models/runs/a", "s3://models/runs/a/"}) {
    const absl::StatusOr<ObjectUri> uri = ParseObjectUri(text);
    ASSERT_TRUE(uri.ok()) << uri.status();
    EXPECT_EQ(*uri, (ObjectUri{.bucket = "models", .key = "runs/a"}));
    EXPECT_EQ(ToString(*uri), "s3://models/runs/a");
  }
  for (const char* text : {"s3://models", "s3://models/"})
    EXPECT_EQ(ParseObjectUri(text).value(), (ObjectUri{.bucket = "models", .key = ""}));
}

TEST(ObjectUriTest, RefusesWhatNoStoreHasOrWouldLeaveAFolder) {
  for (const char* text : {"", "models/a", "s3:/models/a", "S3://models/a", "gs://models/a", "s3://", "s3:///a", "s3://ab/a",
                           "s3://Models/a", "s3://-models/a", "s3://mo..dels/a", "s3://models//a", "s3://models/a//", "s3://models/../a",
                           "s3://models/a/./b", "s3://models/a/..", "s3://models/a\nb", "s3://user@models/a"}) {
    EXPECT_EQ(ParseObjectUri(text).status().code(), absl::StatusCode::kInvalidArgument) << text;
  }
  EXPECT_THAT(std::string(ParseObjectUri("gs://models/a").status().message()), HasSubstr("s3://"));
  EXPECT_FALSE(ParseObjectUri(absl::StrCat("s3://models/", std::string(1025, 'a'))).ok());
  EXPECT_TRUE(ParseObjectUri(absl::StrCat("s3://models/", std::string(1024, 'a'))).ok());
}

TEST(ObjectUriTest, TellsUrisFromPaths) {
  for (const char* uri : {"s3://a", "gs://models/x", "file:///etc"}) EXPECT_TRUE(IsUri(uri)) << uri;
  for (const char* path : {"", "data", "/data/a", "a/s3://b", "://x", "s3:/a", "./s3://a"}) EXPECT_FALSE(IsUri(path)) << path;
}

TEST(ObjectUriTest, JoinsNames) {
  EXPECT_EQ(ToString(JoinUri({.bucket = "models", .key = ""}, "a")), "s3://models/a");
  EXPECT_EQ(ToString(JoinUri({.bucket = "models", .key = "runs"}, "a/b")), "s3://models/runs/a/b");
}

}  // namespace
}  // namespace fusionllm::base
