#include "operator/controller/dry_run_results.h"

#include <gtest/gtest.h>

#include "absl/strings/str_cat.h"

namespace fusionllm::op::controller {
namespace {

const absl::Time kDryRunTime = absl::FromUnixSeconds(1'700'000'000);
const Refused kQuota = {.refusal = {.reason = lifecycle::kQuotaExceeded, .message = "no more pods"}, .retry_after = absl::Seconds(30)};
const Refused kTemplate = {.refusal = {.reason = kInvalidTemplate, .message = "no image"}, .retry_after = absl::InfiniteDuration()};

class DryRunResultsTest : public ::testing::Test {
 protected:
  static DryRunResults::Key Of(const std::string& cluster, int64_t attempt = 0, int64_t generation = 1, const std::string& job = "uid") {
    return {.job_uid = job, .cluster = cluster, .generation = generation, .attempt = attempt};
  }
  void ExpectNothingKnown(const DryRunResults::Key& key) {
    const DryRunResults::Result result = dry_run_.Of(key);
    EXPECT_FALSE(result.accepted);
    EXPECT_FALSE(result.refusal.has_value());
    EXPECT_EQ(result.retry_at, absl::InfinitePast());
    EXPECT_EQ(result.awaited, absl::InfiniteFuture());
  }

  DryRunResults dry_run_;
};

TEST_F(DryRunResultsTest, AnAcceptanceIsOfOneAttemptInOneCluster) {
  EXPECT_TRUE(dry_run_.Accept(Of("tokyo")));
  EXPECT_FALSE(dry_run_.Accept(Of("tokyo"))) << "no news";
  EXPECT_TRUE(dry_run_.Of(Of("tokyo")).accepted);
  ExpectNothingKnown(Of("paris"));
  ExpectNothingKnown(Of("tokyo", 0, 1, "another"));
  ExpectNothingKnown(Of("tokyo", 1));
  ExpectNothingKnown(Of("tokyo", 0, 2));
  EXPECT_TRUE(dry_run_.Of(Of("tokyo")).accepted) << "to look changes nothing";
  EXPECT_TRUE(dry_run_.Accept(Of("tokyo", 1)));
  ExpectNothingKnown(Of("tokyo", 0));
}

TEST_F(DryRunResultsTest, ARefusalIsOfTheSpecAndStaysUntilSomethingWasMade) {
  EXPECT_TRUE(dry_run_.Accept(Of("tokyo")));
  EXPECT_TRUE(dry_run_.Refuse(Of("tokyo"), kQuota, kDryRunTime));
  EXPECT_FALSE(dry_run_.Refuse(Of("tokyo"), kQuota, kDryRunTime + absl::Seconds(1))) << "no news";
  for (const int64_t attempt : {0, 1}) {
    const DryRunResults::Result result = dry_run_.Of(Of("tokyo", attempt));
    EXPECT_FALSE(result.accepted);
    EXPECT_EQ(result.refusal, kQuota.refusal);
    EXPECT_EQ(result.retry_at, kDryRunTime + absl::Seconds(31));
  }
  EXPECT_TRUE(dry_run_.Accept(Of("tokyo", 1)));
  EXPECT_EQ(dry_run_.Of(Of("tokyo", 1)).refusal, kQuota.refusal) << "that it would take them now is no Pod";
  EXPECT_FALSE(dry_run_.Succeed(Of("paris", 1)));
  EXPECT_TRUE(dry_run_.Succeed(Of("tokyo", 1)));
  EXPECT_FALSE(dry_run_.Succeed(Of("tokyo", 1)));
  EXPECT_FALSE(dry_run_.Of(Of("tokyo", 1)).refusal.has_value());
  EXPECT_TRUE(dry_run_.Of(Of("tokyo", 1)).accepted);
  EXPECT_TRUE(dry_run_.Refuse(Of("tokyo", 1), kTemplate, kDryRunTime));
  EXPECT_EQ(dry_run_.Of(Of("tokyo", 1)).retry_at, absl::InfiniteFuture());
  EXPECT_TRUE(dry_run_.Refuse(Of("tokyo", 1), kQuota, kDryRunTime)) << "other words";
  ExpectNothingKnown(Of("tokyo", 1, 2));
  EXPECT_FALSE(dry_run_.Succeed(Of("tokyo", 1, 2))) << "of this spec nothing was refused";
}

TEST_F(DryRunResultsTest, AnAnswerIsAwaitedSinceSomebodyWaitedForItFirst) {
  EXPECT_EQ(dry_run_.Await(Of("tokyo"), kDryRunTime), kDryRunTime);
  EXPECT_EQ(dry_run_.Await(Of("tokyo"), kDryRunTime + absl::Seconds(3)), kDryRunTime);
  EXPECT_EQ(dry_run_.Await(Of("paris"), kDryRunTime + absl::Seconds(3)), kDryRunTime + absl::Seconds(3));
  EXPECT_EQ(dry_run_.Of(Of("tokyo")).awaited, kDryRunTime);
  EXPECT_EQ(dry_run_.Await(Of("tokyo", 1), kDryRunTime + absl::Seconds(4)), kDryRunTime + absl::Seconds(4))
      << "each attempt is asked of anew";
}

TEST_F(DryRunResultsTest, OfTooManyJobsSomeAreForgottenAndOfTheOthersNothing) {
  for (size_t i = 0; i < DryRunResults::kMaxJobs + 10; ++i) {
    for (const std::string cluster : {"tokyo", "paris"}) dry_run_.Accept(Of(cluster, 0, 1, absl::StrCat("uid-", i)));
  }
  size_t known = 0;
  for (size_t i = 0; i < DryRunResults::kMaxJobs + 10; ++i) {
    const bool tokyo = dry_run_.Of(Of("tokyo", 0, 1, absl::StrCat("uid-", i))).accepted;
    EXPECT_EQ(dry_run_.Of(Of("paris", 0, 1, absl::StrCat("uid-", i))).accepted, tokyo);
    known += tokyo ? 1 : 0;
  }
  EXPECT_EQ(known, DryRunResults::kMaxJobs);
  dry_run_.Forget("uid-0");
  ExpectNothingKnown(Of("tokyo", 0, 1, "uid-0"));
}

TEST_F(DryRunResultsTest, AClusterIsForgottenWithTheLastOfItsJobs) {
  for (const std::string job : {"a", "b"}) dry_run_.Accept(Of("tokyo", 0, 1, job));
  dry_run_.Accept(Of("tokyo", 1, 1, "a"));  // of another attempt, in place of the first
  dry_run_.Accept(Of("paris", 0, 1, "a"));
  EXPECT_EQ(dry_run_.clusters(), 2u);
  dry_run_.Forget("a");
  EXPECT_EQ(dry_run_.clusters(), 1u) << "of Paris it was the only one";
  EXPECT_TRUE(dry_run_.Of(Of("tokyo", 0, 1, "b")).accepted);
  dry_run_.Forget("b");
  dry_run_.Forget("b");
  EXPECT_EQ(dry_run_.clusters(), 0u);
  for (size_t i = 0; i < DryRunResults::kMaxJobs + 10; ++i) dry_run_.Accept(Of(absl::StrCat("cluster-", i), 0, 1, absl::StrCat("uid-", i)));
  EXPECT_EQ(dry_run_.clusters(), DryRunResults::kMaxJobs) << "one for each job that is known";
}

}  // namespace
}  // namespace fusionllm::op::controller
