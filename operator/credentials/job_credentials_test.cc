#include "operator/credentials/job_credentials.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "absl/time/clock.h"
#include "lib/security/credential_files.h"
#include "operator/credentials/authority_cache.h"

namespace fusionllm::op {
namespace {

using ::testing::Contains;
using ::testing::HasSubstr;
using ::testing::Key;
using ::testing::Not;

const absl::Time kNow = absl::FromUnixSeconds(1'800'000'000);

security::CredentialTexts Of(const Files& files, const std::string& name) {
  return {files.at("ca.pem"), files.at(name + ".pem"), files.at(name + ".key")};
}

TEST(JobCredentialsTest, EveryPodCanProveWhoItIs) {
  const auto made = JobCredentials::Create("train", kNow);
  ASSERT_TRUE(made.ok()) << made.status();
  const auto broker = made->BrokerFiles(kNow);
  const auto executors = made->ExecutorFiles({"paris-0", "paris-1"}, kNow);
  ASSERT_TRUE(broker.ok() && executors.ok());
  for (const char* name : {"broker", "scheduler"}) EXPECT_TRUE(security::CheckCredentials(Of(*broker, name), name, kNow).ok()) << name;
  for (const char* name : {"paris-0", "paris-1"}) EXPECT_TRUE(security::CheckCredentials(Of(*executors, name), name, kNow).ok()) << name;
  EXPECT_TRUE(security::CheckCredentials(Of(*executors, "paris-0"), "paris-0", kNow + absl::Hours(24 * 300)).ok()) << "jobs run for long";
}

TEST(JobCredentialsTest, ExecutorsCannotMakeCertificates) {
  const auto made = JobCredentials::Create("train", kNow);
  ASSERT_TRUE(made.ok());
  const auto executors = made->ExecutorFiles({"paris-0"}, kNow);
  ASSERT_TRUE(executors.ok());
  EXPECT_THAT(*executors, Not(Contains(Key("ca.key"))));
  EXPECT_THAT(*executors, Not(Contains(Key("token"))));
}

TEST(JobCredentialsTest, AnOperatorThatStartsAnewGoesOnWithTheSameAuthority) {
  const auto made = JobCredentials::Create("train", kNow);
  ASSERT_TRUE(made.ok());
  const auto again = JobCredentials::FromFiles(made->AuthorityFiles());
  ASSERT_TRUE(again.ok()) << again.status();
  EXPECT_EQ(again->AuthorityFiles(), made->AuthorityFiles());
  const auto later = again->ExecutorFiles({"paris-7"}, kNow);
  ASSERT_TRUE(later.ok());
  EXPECT_EQ(later->at("ca.pem"), made->AuthorityFiles().at("ca.pem"));
}

TEST(JobCredentialsTest, DamageIsNamed) {
  const auto made = JobCredentials::Create("train", kNow);
  ASSERT_TRUE(made.ok());
  Files files = made->AuthorityFiles();
  files.erase("ca.key");
  EXPECT_THAT(std::string(JobCredentials::FromFiles(files).status().message()), HasSubstr("ca.key"));
  files = made->AuthorityFiles();
  files["ca.pem"] = "nonsense";
  EXPECT_FALSE(JobCredentials::FromFiles(files).ok());
}

TEST(AuthorityCacheTest, TheOldestGoesWhenThereAreTooMany) {
  AuthorityCache cache;
  const JobCredentials first = JobCredentials::Create("train", absl::Now()).value();
  const JobCredentials second = JobCredentials::Create("train", absl::Now()).value();
  EXPECT_FALSE(cache.Find("a").has_value());
  cache.Put("a", first);
  cache.Put("a", second);
  EXPECT_EQ(cache.Find("a").value().AuthorityFiles(), second.AuthorityFiles());
  for (size_t i = 0; i < AuthorityCache::kMost; ++i) cache.Put(std::to_string(i), first);
  EXPECT_FALSE(cache.Find("a").has_value());
  EXPECT_TRUE(cache.Find("0").has_value());
}

}  // namespace
}  // namespace fusionllm::op
