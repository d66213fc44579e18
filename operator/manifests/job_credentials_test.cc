#include "operator/manifests/job_credentials.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "absl/time/clock.h"
#include "lib/security/credential_files.h"
#include "operator/manifests/authority_cache.h"

namespace fusionllm::op::manifests {
namespace {

using ::testing::Contains;
using ::testing::HasSubstr;
using ::testing::Key;
using ::testing::Not;

const absl::Time kNow = absl::FromUnixSeconds(1'800'000'000);

security::PemCredentials Of(const Files& files, const std::string& name) {
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
}

TEST(JobCredentialsTest, RenewedFilesHaveTheSameKeysAndEndLater) {
  const auto made = JobCredentials::Create("train", kNow);
  ASSERT_TRUE(made.ok()) << made.status();
  const Files files = *made->BrokerFiles(kNow);
  EXPECT_EQ(*made->Renewed(files, kNow + absl::Hours(24)), files);
  const absl::Time late = kNow + security::kCertificateValidity - absl::Hours(1);
  const absl::StatusOr<Files> renewed = made->Renewed(files, late);
  ASSERT_TRUE(renewed.ok()) << renewed.status();
  for (const auto& [name, text] : files) {
    const bool certificate = name == "broker.pem" || name == "scheduler.pem";
    EXPECT_EQ(renewed->at(name) == text, !certificate) << name;
  }
  for (const char* name : {"broker", "scheduler"}) {
    EXPECT_TRUE(security::CheckCredentials(Of(*renewed, name), name, late + absl::Hours(24 * 80)).ok()) << name;
  }
  EXPECT_FALSE(JobCredentials::Create("train", kNow)->Renewed(files, late).ok()) << "another authority's";
}

TEST(JobCredentialsTest, ExecutorsCannotMakeCertificates) {
  const auto made = JobCredentials::Create("train", kNow);
  ASSERT_TRUE(made.ok());
  const auto executors = made->ExecutorFiles({"paris-0"}, kNow);
  ASSERT_TRUE(executors.ok());
  EXPECT_THAT(*executors, Not(Contains(Key("ca.key"))));
  EXPECT_THAT(*executors, Not(Contains(Key("token"))));
}

TEST(JobCredentialsTest, RestartedOperatorKeepsAuthority) {
  const auto made = JobCredentials::Create("train", kNow);
  ASSERT_TRUE(made.ok());
  const auto again = JobCredentials::FromFiles(made->AuthorityFiles());
  ASSERT_TRUE(again.ok()) << again.status();
  EXPECT_EQ(again->AuthorityFiles(), made->AuthorityFiles());
  const auto later = again->ExecutorFiles({"paris-7"}, kNow);
  ASSERT_TRUE(later.ok());
  EXPECT_EQ(later->at("ca.pem"), made->AuthorityFiles().at("ca.pem"));
}

TEST(JobCredentialsTest, AnAuthorityHasEnoughLeftForHalfItsLife) {
  const auto made = JobCredentials::Create("train", kNow);
  ASSERT_TRUE(made.ok());
  EXPECT_TRUE(made->HasEnoughLeft(kNow + JobCredentials::kValidity - JobCredentials::kMinRemaining));
  EXPECT_FALSE(made->HasEnoughLeft(kNow + JobCredentials::kValidity - JobCredentials::kMinRemaining + absl::Seconds(1)));
  EXPECT_FALSE(made->HasEnoughLeft(kNow + 2 * JobCredentials::kValidity));
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
  const JobCredentials first = JobCredentials::Create("train", kNow).value();
  const JobCredentials second = JobCredentials::Create("train", kNow).value();
  EXPECT_FALSE(cache.Find("a", kNow).has_value());
  cache.Put("a", first, kNow);
  cache.Put("a", second, kNow);
  EXPECT_EQ(cache.Find("a", kNow).value().AuthorityFiles(), second.AuthorityFiles());
  for (size_t i = 0; i < AuthorityCache::kMaxEntries; ++i) cache.Put(std::to_string(i), first, kNow);
  EXPECT_FALSE(cache.Find("a", kNow).has_value());
  EXPECT_TRUE(cache.Find("0", kNow).has_value());
}

TEST(AuthorityCacheTest, WhatHasBeenOfNoUseForAWhileGoes) {
  AuthorityCache cache;
  const JobCredentials authority = JobCredentials::Create("train", kNow).value();
  const absl::Duration moment = absl::Seconds(1);
  cache.Put("unused", authority, kNow);
  cache.Put("used", authority, kNow);
  EXPECT_TRUE(cache.Find("used", kNow + moment).has_value());
  cache.Forget(kNow + AuthorityCache::kEntryTtl - moment);
  EXPECT_TRUE(cache.Find("unused", kNow).has_value());
  cache.Forget(kNow + AuthorityCache::kEntryTtl);
  EXPECT_FALSE(cache.Find("unused", kNow).has_value());
  EXPECT_TRUE(cache.Find("used", kNow + moment).has_value());
  // Its place in the order has gone with it: put again it is the youngest, and of as many as there may be none is missing.
  cache.Put("unused", authority, kNow);
  for (size_t i = 2; i < AuthorityCache::kMaxEntries; ++i) cache.Put(std::to_string(i), authority, kNow);
  EXPECT_TRUE(cache.Find("unused", kNow).has_value());
  EXPECT_TRUE(cache.Find("used", kNow).has_value());
}

}  // namespace
}  // namespace fusionllm::op::manifests
