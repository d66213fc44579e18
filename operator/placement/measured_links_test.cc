#include "operator/placement/measured_links.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "absl/strings/str_format.h"

namespace fusionllm::op::placement {
namespace {

class LearnedLinksTest : public ::testing::Test {
 protected:
  LearnedLinksTest() { job_.spec.network.mode = job::NetworkMode::kDirect; }
  static std::string Link(const std::string& src, const std::string& dst, double bytes_per_s, double rtt_s) {
    return absl::StrFormat(R"({"src":"%s","dst":"%s","bandwidth_bytes_per_second":%g,"rtt_seconds":%g})", src, dst, bytes_per_s, rtt_s);
  }
  void Learn(const std::string& links, const std::vector<std::string>& used = {"paris", "san-jose"}) {
    ways_.Learn("{\"step\":3,\"links\":[" + links + "]}", job_, used, clusters_, now_);
  }
  cache::LinkEstimate Of(const std::string& from, const std::string& to) {
    std::vector<cache::ClusterFacts> clusters = clusters_;
    ways_.AddTo(clusters, now_);
    for (const cache::ClusterFacts& facts : clusters) {
      if (facts.name == from && facts.measured.contains(to)) return facts.measured.at(to);
    }
    return {};
  }

  job::FusionJob job_;
  absl::Time now_ = absl::FromUnixSeconds(1'700'000'000);
  std::vector<cache::ClusterFacts> clusters_ = {{.name = "paris"}, {.name = "san-jose"}, {.name = "oslo"}};
  MeasuredLinks ways_;
};

TEST_F(LearnedLinksTest, TheBestOfWhatDevicesFindIsTheWayOfTheirClusters) {
  Learn(Link("paris-0", "san-jose-1", 2e6, 0.2) + "," + Link("paris-1", "san-jose-0", 5e6, 0.1) + "," +
        Link("paris-0", "paris-1", 1e9, 1e-4));
  EXPECT_EQ(Of("paris", "san-jose").bytes_per_s, 5e6);
  EXPECT_EQ(Of("paris", "san-jose").latency_s, 0.05);
  EXPECT_EQ(Of("san-jose", "paris").bytes_per_s, 0) << "one direction says nothing here of the other";
}

TEST_F(LearnedLinksTest, WhatHardlyDiffersIsTheSameAndAQuestionIsNotPutAgainForIt) {
  Learn(Link("paris-0", "san-jose-0", 4e6, 0.1));
  Learn(Link("paris-0", "san-jose-0", 4.9e6, 0.11));
  EXPECT_EQ(Of("paris", "san-jose").bytes_per_s, 4e6);
  EXPECT_EQ(Of("paris", "san-jose").latency_s, 0.05);
  Learn(Link("paris-0", "san-jose-0", 8e6, 0.11));
  EXPECT_EQ(Of("paris", "san-jose").bytes_per_s, 8e6);
}

TEST_F(LearnedLinksTest, ADayOldIsNothing) {
  Learn(Link("paris-0", "san-jose-0", 4e6, 0.1));
  now_ += MeasuredLinks::kMaxAge - absl::Seconds(1);
  Learn(Link("paris-0", "san-jose-0", 4e6, 0.1));  // the same, and so much newer
  now_ += absl::Seconds(2);
  EXPECT_EQ(Of("paris", "san-jose").bytes_per_s, 4e6);
  now_ += MeasuredLinks::kMaxAge;
  EXPECT_EQ(Of("paris", "san-jose").bytes_per_s, 0);
}

TEST_F(LearnedLinksTest, AJobSpeaksOfItsOwnClustersAlone) {
  Learn(Link("paris-0", "oslo-0", 4e6, 0.1));
  EXPECT_EQ(Of("paris", "oslo").bytes_per_s, 0);
}

TEST_F(LearnedLinksTest, OfLinksByTheRelayNothingIsLearned) {
  clusters_[1].egress_only = true;
  Learn(Link("paris-0", "san-jose-0", 4e6, 0.1));
  clusters_[1].egress_only = false;
  EXPECT_EQ(Of("paris", "san-jose").bytes_per_s, 0);
  for (const auto mode : {job::NetworkMode::kRelay, job::NetworkMode::kAuto}) {
    job_.spec.network.mode = mode;
    Learn(Link("paris-0", "san-jose-0", 4e6, 0.1));
    EXPECT_EQ(Of("paris", "san-jose").bytes_per_s, 0);
  }
}

TEST_F(LearnedLinksTest, NonsenseIsLeftOut) {
  for (const char* links : {"7", "{}", R"({"src":7,"dst":[]})", R"({"src":"-0","dst":"-1","bandwidth_bytes_per_second":1e6})"})
    Learn(links);
  for (const double rate : {-1.0, 0.0, 1.0, 1e30}) Learn(Link("paris-0", "san-jose-0", rate, 0.1));
  Learn(Link("paris-0", "san-jose-0", 1e6, 1e6));
  Learn(Link("paris-0", "san-jose-0", 1e6, -1));
  ways_.Learn("no JSON", job_, {"paris"}, clusters_, now_);
  ways_.Learn(R"({"links":7})", job_, {"paris"}, clusters_, now_);
  EXPECT_EQ(Of("paris", "san-jose").bytes_per_s, 0);
}

}  // namespace
}  // namespace fusionllm::op::placement
