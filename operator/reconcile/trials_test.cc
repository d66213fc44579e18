#include "operator/reconcile/trials.h"

#include <gtest/gtest.h>

#include "absl/strings/str_cat.h"

namespace fusionllm::op {
namespace {

const absl::Time kTrialTime = absl::FromUnixSeconds(1'700'000'000);
const Refused kQuota = {.refusal = {.reason = kQuotaExceeded, .message = "no more pods"}, .again = absl::Seconds(30)};
const Refused kTemplate = {.refusal = {.reason = kInvalidTemplate, .message = "no image"}, .again = absl::InfiniteDuration()};

class TrialsTest : public ::testing::Test {
 protected:
  static Trials::About Of(const std::string& cluster, int64_t attempt = 0, int64_t generation = 1, const std::string& job = "uid") {
    return {.job_uid = job, .cluster = cluster, .generation = generation, .attempt = attempt};
  }
  void ExpectNothingKnown(const Trials::About& about) {
    const Trials::Standing standing = trials_.Of(about);
    EXPECT_FALSE(standing.accepted);
    EXPECT_FALSE(standing.refusal.has_value());
    EXPECT_EQ(standing.again, absl::InfinitePast());
    EXPECT_EQ(standing.awaited, absl::InfiniteFuture());
  }

  Trials trials_;
};

TEST_F(TrialsTest, AnAcceptanceIsOfOneAttemptInOneCluster) {
  EXPECT_TRUE(trials_.Accept(Of("tokyo")));
  EXPECT_FALSE(trials_.Accept(Of("tokyo"))) << "no news";
  EXPECT_TRUE(trials_.Of(Of("tokyo")).accepted);
  ExpectNothingKnown(Of("paris"));
  ExpectNothingKnown(Of("tokyo", 0, 1, "another"));
  ExpectNothingKnown(Of("tokyo", 1));
  ExpectNothingKnown(Of("tokyo", 0, 2));
  EXPECT_TRUE(trials_.Of(Of("tokyo")).accepted) << "to look changes nothing";
  EXPECT_TRUE(trials_.Accept(Of("tokyo", 1)));
  ExpectNothingKnown(Of("tokyo", 0));
}

TEST_F(TrialsTest, ARefusalIsOfTheSpecAndStaysUntilSomethingWasMade) {
  EXPECT_TRUE(trials_.Accept(Of("tokyo")));
  EXPECT_TRUE(trials_.Refuse(Of("tokyo"), kQuota, kTrialTime));
  EXPECT_FALSE(trials_.Refuse(Of("tokyo"), kQuota, kTrialTime + absl::Seconds(1))) << "no news";
  for (const int64_t attempt : {0, 1}) {
    const Trials::Standing standing = trials_.Of(Of("tokyo", attempt));
    EXPECT_FALSE(standing.accepted);
    EXPECT_EQ(standing.refusal, kQuota.refusal);
    EXPECT_EQ(standing.again, kTrialTime + absl::Seconds(31));
  }
  EXPECT_TRUE(trials_.Accept(Of("tokyo", 1)));
  EXPECT_EQ(trials_.Of(Of("tokyo", 1)).refusal, kQuota.refusal) << "that it would take them now is no Pod";
  EXPECT_FALSE(trials_.Succeed(Of("paris", 1)));
  EXPECT_TRUE(trials_.Succeed(Of("tokyo", 1)));
  EXPECT_FALSE(trials_.Succeed(Of("tokyo", 1)));
  EXPECT_FALSE(trials_.Of(Of("tokyo", 1)).refusal.has_value());
  EXPECT_TRUE(trials_.Of(Of("tokyo", 1)).accepted);
  EXPECT_TRUE(trials_.Refuse(Of("tokyo", 1), kTemplate, kTrialTime));
  EXPECT_EQ(trials_.Of(Of("tokyo", 1)).again, absl::InfiniteFuture());
  EXPECT_TRUE(trials_.Refuse(Of("tokyo", 1), kQuota, kTrialTime)) << "other words";
  ExpectNothingKnown(Of("tokyo", 1, 2));
  EXPECT_FALSE(trials_.Succeed(Of("tokyo", 1, 2))) << "of this spec nothing was refused";
}

TEST_F(TrialsTest, AnAnswerIsAwaitedSinceSomebodyWaitedForItFirst) {
  EXPECT_EQ(trials_.Await(Of("tokyo"), kTrialTime), kTrialTime);
  EXPECT_EQ(trials_.Await(Of("tokyo"), kTrialTime + absl::Seconds(3)), kTrialTime);
  EXPECT_EQ(trials_.Await(Of("paris"), kTrialTime + absl::Seconds(3)), kTrialTime + absl::Seconds(3));
  EXPECT_EQ(trials_.Of(Of("tokyo")).awaited, kTrialTime);
  EXPECT_EQ(trials_.Await(Of("tokyo", 1), kTrialTime + absl::Seconds(4)), kTrialTime + absl::Seconds(4)) << "each attempt is asked of anew";
}

TEST_F(TrialsTest, OfTooManyJobsSomeAreForgottenAndOfTheOthersNothing) {
  for (size_t i = 0; i < Trials::kMostJobs + 10; ++i) {
    for (const std::string cluster : {"tokyo", "paris"}) trials_.Accept(Of(cluster, 0, 1, absl::StrCat("uid-", i)));
  }
  size_t known = 0;
  for (size_t i = 0; i < Trials::kMostJobs + 10; ++i) {
    const bool tokyo = trials_.Of(Of("tokyo", 0, 1, absl::StrCat("uid-", i))).accepted;
    EXPECT_EQ(trials_.Of(Of("paris", 0, 1, absl::StrCat("uid-", i))).accepted, tokyo);
    known += tokyo ? 1 : 0;
  }
  EXPECT_EQ(known, Trials::kMostJobs);
  trials_.Forget("uid-0");
  ExpectNothingKnown(Of("tokyo", 0, 1, "uid-0"));
}

TEST_F(TrialsTest, AClusterIsForgottenWithTheLastOfItsJobs) {
  for (const std::string job : {"a", "b"}) trials_.Accept(Of("tokyo", 0, 1, job));
  trials_.Accept(Of("tokyo", 1, 1, "a"));  // of another attempt, in place of the first
  trials_.Accept(Of("paris", 0, 1, "a"));
  EXPECT_EQ(trials_.clusters(), 2u);
  trials_.Forget("a");
  EXPECT_EQ(trials_.clusters(), 1u) << "of Paris it was the only one";
  EXPECT_TRUE(trials_.Of(Of("tokyo", 0, 1, "b")).accepted);
  trials_.Forget("b");
  trials_.Forget("b");
  EXPECT_EQ(trials_.clusters(), 0u);
  for (size_t i = 0; i < Trials::kMostJobs + 10; ++i) trials_.Accept(Of(absl::StrCat("cluster-", i), 0, 1, absl::StrCat("uid-", i)));
  EXPECT_EQ(trials_.clusters(), Trials::kMostJobs) << "one for each job that is known";
}

}  // namespace
}  // namespace fusionllm::op
