#include "operator/placement/reservations.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace fusionllm::op::placement {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::SizeIs;

const absl::Time kReservedAt = absl::FromUnixSeconds(1'700'000'000);
const kube::ResourceList kEach = {{"cpu", 1000}};

class ReservationsTest : public ::testing::Test {
 protected:
  std::vector<kube::ResourceList> Seen(const std::string& cluster, const std::string& job,
                                       absl::flat_hash_map<std::string, int64_t> there = {}) {
    std::vector<kube::ResourceList> resources;
    for (const auto& of_pod : held_.ReservedByOthers(cluster, job, there, now_)) resources.push_back(*of_pod);
    return resources;
  }
  Reservations held_;
  absl::Time now_ = kReservedAt;
};

TEST_F(ReservationsTest, OthersSeeWhatIsHeldUntilItsPodsAreThere) {
  held_.Reserve("a", {{"paris", 0, false}, {"paris", 1, true}, {"tokyo", 0, false}}, kEach, now_);
  EXPECT_THAT(Seen("paris", "b"), SizeIs(2));
  EXPECT_THAT(Seen("tokyo", "b"), SizeIs(1));
  EXPECT_THAT(Seen("oslo", "b"), IsEmpty());
  EXPECT_THAT(Seen("paris", "a"), IsEmpty()) << "its own";
  EXPECT_THAT(Seen("paris", "b", {{"a", 1}}), SizeIs(1));
  EXPECT_THAT(Seen("paris", "b", {{"a", 7}}), IsEmpty());
}

TEST_F(ReservationsTest, TheBrokerIsTheFirstToCome) {
  const kube::ResourceList broker = {{"cpu", 50}};
  held_.Reserve("a", {{"paris", 0, false}, {"paris", 1, false}}, kEach, now_);
  held_.ReserveBroker("a", "paris", broker);
  EXPECT_THAT(Seen("paris", "b"), ElementsAre(broker, kEach, kEach));
  EXPECT_THAT(Seen("paris", "b", {{"a", 1}}), ElementsAre(kEach, kEach));
  EXPECT_THAT(Seen("paris", "b", {{"a", 3}}), IsEmpty());
  held_.Reserve("a", {{"paris", 0, false}}, kEach, now_);
  held_.ReserveBroker("a", "", broker);  // a hub that lends no devices
  EXPECT_THAT(Seen("", "b"), ElementsAre(broker));
  EXPECT_THAT(Seen("paris", "b"), ElementsAre(kEach));
}

TEST_F(ReservationsTest, TheLastWordOfAJobCounts) {
  held_.Reserve("a", {{"paris", 0, false}}, kEach, now_);
  held_.Reserve("a", {{"tokyo", 0, false}}, kEach, now_);
  EXPECT_THAT(Seen("paris", "b"), IsEmpty());
}

TEST_F(ReservationsTest, ReservationExpiresWithoutPods) {
  held_.Reserve("a", {{"paris", 0, false}}, kEach, now_);
  now_ += Reservations::kReservationTtl;
  EXPECT_THAT(Seen("paris", "b"), IsEmpty());
}

TEST_F(ReservationsTest, WhatAJobGivesBackIsFree) {
  held_.Reserve("a", {{"paris", 0, false}}, kEach, now_);
  held_.Reserve("b", {{"paris", 0, false}}, kEach, now_);
  held_.Release("a");
  held_.Release("nobody");
  EXPECT_THAT(Seen("paris", "c"), SizeIs(1));
}

TEST_F(ReservationsTest, ExpiredReservationIsPruned) {
  held_.Reserve("a", {{"paris", 0, false}}, kEach, now_);
  now_ += absl::Seconds(1);
  held_.Reserve("b", {{"paris", 0, false}}, kEach, now_);
  held_.Forget(kReservedAt + Reservations::kReservationTtl);
  EXPECT_EQ(held_.size(), 1u);
  EXPECT_THAT(Seen("paris", "c"), SizeIs(1));
}

}  // namespace
}  // namespace fusionllm::op::placement
