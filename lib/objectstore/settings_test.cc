#include "lib/objectstore/settings.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>

namespace fusionllm::objectstore {
namespace {

using ::testing::HasSubstr;

absl::StatusOr<StoreSettings> From(std::map<std::string, std::string> variables) {
  return SettingsFrom([variables](const char* name) -> std::optional<std::string> {
    const auto found = variables.find(name);
    if (found == variables.end()) return std::nullopt;
    return found->second;
  });
}

TEST(StoreSettingsTest, AmazonIsMeantWhereNoEndpointIsGiven) {
  const auto settings = From({{"AWS_ACCESS_KEY_ID", "id"}, {"AWS_SECRET_ACCESS_KEY", "secret"}, {"AWS_DEFAULT_REGION", "eu-west-3"}});
  ASSERT_TRUE(settings.ok()) << settings.status();
  EXPECT_EQ(settings->endpoint, "https://s3.eu-west-3.amazonaws.com");
  EXPECT_EQ(settings->region, "eu-west-3");
  EXPECT_EQ(From({{"AWS_ACCESS_KEY_ID", "id"}, {"AWS_SECRET_ACCESS_KEY", "secret"}})->region, "us-east-1");
}

TEST(StoreSettingsTest, TheMoreParticularVariableGoesFirst) {
  const auto settings = From({{"AWS_ACCESS_KEY_ID", "id"},
                              {"AWS_SECRET_ACCESS_KEY", "secret"},
                              {"AWS_SESSION_TOKEN", "token"},
                              {"AWS_REGION", "local"},
                              {"AWS_DEFAULT_REGION", "other"},
                              {"AWS_ENDPOINT_URL", "http://other:1"},
                              {"AWS_ENDPOINT_URL_S3", "http://minio.store:9000/"},
                              {"AWS_CA_BUNDLE", "/etc/ca.pem"}});
  ASSERT_TRUE(settings.ok()) << settings.status();
  EXPECT_EQ(settings->endpoint, "http://minio.store:9000");
  EXPECT_EQ(settings->region, "local");
  EXPECT_EQ(settings->session_token, "token");
  EXPECT_EQ(settings->ca_file, "/etc/ca.pem");
}

TEST(StoreSettingsTest, WhiteSpaceAtTheEndsIsCutOff) {
  const auto settings = From({{"AWS_ACCESS_KEY_ID", "id\n"},
                              {"AWS_SECRET_ACCESS_KEY", " secret\r\n"},
                              {"AWS_SESSION_TOKEN", "token\t\n"},
                              {"AWS_REGION", " \n"},
                              {"AWS_DEFAULT_REGION", "local\n"},
                              {"AWS_ENDPOINT_URL", "http://minio.store:9000/\n"},
                              {"AWS_CA_BUNDLE", "/etc/ca.pem\n"}});
  ASSERT_TRUE(settings.ok()) << settings.status();
  EXPECT_EQ(settings->access_key_id, "id");
  EXPECT_EQ(settings->secret_access_key, "secret");
  EXPECT_EQ(settings->session_token, "token");
  EXPECT_EQ(settings->region, "local");
  EXPECT_EQ(settings->endpoint, "http://minio.store:9000");
  EXPECT_EQ(settings->ca_file, "/etc/ca.pem");
  EXPECT_THAT(std::string(From({{"AWS_ACCESS_KEY_ID", " \n"}, {"AWS_SECRET_ACCESS_KEY", "s"}}).status().message()),
              HasSubstr("AWS_ACCESS_KEY_ID is not set"));
}

TEST(StoreSettingsTest, LineBreakInValueIsNamedWithoutTheValue) {
  for (const char* name : {"AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN", "AWS_DEFAULT_REGION", "AWS_ENDPOINT_URL"}) {
    std::map<std::string, std::string> variables = {{"AWS_ACCESS_KEY_ID", "id"}, {"AWS_SECRET_ACCESS_KEY", "s"}};
    variables[name] = "hush\nword";
    const auto settings = From(variables);
    EXPECT_EQ(settings.status().code(), absl::StatusCode::kInvalidArgument) << name;
    EXPECT_THAT(std::string(settings.status().message()),
                ::testing::AllOf(HasSubstr(name), ::testing::Not(HasSubstr("hush")), ::testing::Not(HasSubstr("word"))));
  }
}

TEST(StoreSettingsTest, NamesBadVariablesWithoutSecrets) {
  EXPECT_THAT(std::string(From({}).status().message()), HasSubstr("AWS_ACCESS_KEY_ID"));
  EXPECT_THAT(std::string(From({{"AWS_ACCESS_KEY_ID", "id"}, {"AWS_SECRET_ACCESS_KEY", ""}}).status().message()),
              HasSubstr("AWS_SECRET_ACCESS_KEY"));
  for (const char* endpoint : {"minio:9000", "ftp://minio", "http://", "http://minio/path", "http://user@minio"}) {
    const auto settings = From({{"AWS_ACCESS_KEY_ID", "id"}, {"AWS_SECRET_ACCESS_KEY", "hush"}, {"AWS_ENDPOINT_URL", endpoint}});
    EXPECT_EQ(settings.status().code(), absl::StatusCode::kInvalidArgument) << endpoint;
    EXPECT_THAT(std::string(settings.status().message()), ::testing::Not(HasSubstr("hush")));
  }
  EXPECT_FALSE(From({{"AWS_ACCESS_KEY_ID", "id"}, {"AWS_SECRET_ACCESS_KEY", "s"}, {"AWS_REGION", "a:b"}}).ok());
}

}  // namespace
}  // namespace fusionllm::objectstore
