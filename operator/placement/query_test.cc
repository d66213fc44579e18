#include "operator/placement/query.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "lib/job/parse.h"
#include "lib/wire/profile_json.h"

namespace fusionllm::op::placement {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

constexpr char kPinnedJob[] = R"(
apiVersion: fusionllm.io/v1alpha1
kind: FusionJob
metadata: {name: test}
spec:
  model: {family: mlp, config: {layers: [192, 16, 10]}}
  data: {kind: shapes, shapes: {imageSize: 8}}
  training: {steps: 5, globalBatchSize: 8}
  executors: {replicas: 3, spares: 1}
  strategy: {pins: [{ops: "*", device: mars-0}]}
)";

class PlacementQueryTest : public ::testing::Test {
 protected:
  PlacementQueryTest() {
    const auto job = job::ParseFusionJob(kPinnedJob, "job");
    EXPECT_TRUE(job.ok()) << job.status();
    job_ = *job;
    job_.spec.network.mode = job::NetworkMode::kDirect;
  }
  void Offer(const std::string& name, std::map<std::string, int64_t> products, int64_t room) {
    offers_.push_back({.name = name, .room = room, .products = std::move(products), .each = {{"cpu", 2000}, {"memory", 1 << 30}}});
    facts_.push_back({.name = name, .local = name == "hub"});
  }
  cache::ClusterFacts& Facts(const std::string& name) {
    return *std::find_if(facts_.begin(), facts_.end(), [&](const cache::ClusterFacts& facts) { return facts.name == name; });
  }
  absl::StatusOr<PlacementQuery> Ask() { return PlacementQueryOf(job_, attempt_, SearchSpaceOf(job_, offers_), facts_); }
  // Of a query's document, what can be read.
  static std::string Words(const PlacementQuery& query) {
    const auto profiles = wire::ParseProfiles(query.profiles_document);
    EXPECT_TRUE(profiles.ok()) << profiles.status();
    std::string words;
    for (const auto& device : profiles->devices) {
      absl::StrAppendFormat(&words, "%s in %s: %s, %d MiB\n", device.name, device.site, device.specification, device.memory_bytes >> 20);
    }
    for (const auto& link : profiles->links) {
      absl::StrAppendFormat(&words, "%s -> %s: %g B/s, %g s\n", link.src, link.dst, link.bandwidth_bytes_per_second, link.OneWaySeconds());
    }
    return words;
  }

  job::FusionJob job_;
  int64_t attempt_ = 0;
  std::vector<ClusterCandidate> offers_;
  std::vector<cache::ClusterFacts> facts_;
};

TEST_F(PlacementQueryTest, EachExecutorThatACluserCouldTakeIsADevice) {
  Offer("hub", {{"", 9}}, 9);
  Offer("paris", {{"NVIDIA-L4", 1}, {"Tesla-T4", 1}}, 2);
  Facts("paris").links["hub"] = {.bytes_per_s = 2.5e6, .latency_s = 0.01};
  const auto query = Ask();
  ASSERT_TRUE(query.ok()) << query.status();
  EXPECT_EQ(Words(*query),
            "hub-0 in hub: cpu, 1024 MiB\n"
            "hub-1 in hub: cpu, 1024 MiB\n"
            "hub-2 in hub: cpu, 1024 MiB\n"
            "paris-0 in paris: nvidia-t4, 15258 MiB\n"
            "paris-1 in paris: nvidia-l4, 22888 MiB\n"
            "hub-0 -> hub-1: 1.25e+09 B/s, 0.0001 s\n"
            "paris-0 -> paris-1: 1.25e+09 B/s, 0.0001 s\n"
            "hub-0 -> paris-0: 2.5e+06 B/s, 0.01 s\n"
            "paris-0 -> hub-0: 2.5e+06 B/s, 0.01 s\n");
  const auto job = job::ParseFusionJob(query->job_document, "asked");
  ASSERT_TRUE(job.ok()) << job.status();
  EXPECT_EQ(job->spec.executors.replicas, 3);
  EXPECT_EQ(job->spec.executors.spares, 0);
  EXPECT_TRUE(job->spec.strategy.pins.empty()) << "there is no such device";
}

// As the attempt itself is fitted: else the scheduler refuses the query of a job that it would plan.
TEST_F(PlacementQueryTest, ALaterAttemptAsksForNoMoreStagesThanItCouldHave) {
  Offer("hub", {{"", 9}}, 2);
  Offer("paris", {{"", 9}}, 2);
  job_.spec.executors.min = 2;
  job_.spec.executors.spares = 0;
  job_.spec.strategy.stages = 5;
  const auto stages = [&]() -> int64_t {
    const auto query = Ask();
    EXPECT_TRUE(query.ok()) << query.status();
    const auto job = job::ParseFusionJob(query.ok() ? query->job_document : "", "asked");
    return job.ok() ? job->spec.strategy.stages : -1;
  };
  attempt_ = 1;
  EXPECT_EQ(stages(), 3) << "so many does the job have";
  job_.spec.strategy.exclude = {"hub-0", "paris-1"};
  EXPECT_EQ(stages(), 2) << "two of the four may train";
  job_.spec.strategy.stages = 0;
  EXPECT_EQ(stages(), 0) << "the planner decides";
  job_.spec.strategy.exclude.clear();
  job_.spec.strategy.stages = 3;
  EXPECT_EQ(stages(), 3);
  job_.spec.strategy.stages = 2;
  job_.spec.strategy.replicas = 2;
  const auto replicas = [&]() -> int64_t {
    const auto query = Ask();
    EXPECT_TRUE(query.ok()) << query.status();
    const auto job = job::ParseFusionJob(query.ok() ? query->job_document : "", "asked");
    return job.ok() ? job->spec.strategy.replicas : -1;
  };
  EXPECT_EQ(replicas(), 0) << "three executors are no two times two";
  job_.spec.strategy.stages = 1;
  job_.spec.strategy.replicas = 3;
  EXPECT_EQ(replicas(), 3) << "three times one they are";
  job_.spec.strategy.stages = 4;
  job_.spec.strategy.replicas = 1;
  EXPECT_EQ(replicas(), 1) << "of one pipeline the stages are lowered, and it stays one";
}

TEST_F(PlacementQueryTest, AFirstAttemptAsksAsTheUserWrote) {
  Offer("hub", {{"", 9}}, 2);
  Offer("paris", {{"", 9}}, 1);
  job_.spec.executors.min = 2;
  job_.spec.executors.spares = 0;
  job_.spec.strategy.stages = 3;
  job_.spec.strategy.exclude = {"hub-0"};
  const auto query = Ask();
  ASSERT_TRUE(query.ok()) << query.status();
  EXPECT_THAT(query->job_document, HasSubstr("stages: 3")) << "a mistake that its user should learn of";
}

TEST_F(PlacementQueryTest, AsManyAsTheJobAllowsAndNoMoreThanASearchCanWeigh) {
  job_.spec.executors.replicas = 60;
  job_.spec.placement.clusters = {{"paris", 0, 7}, {"oslo", 0, std::nullopt}};
  job_.spec.placement.spread = job::Spread::kFastest;
  Offer("oslo", {{"", 100}}, 100);
  Offer("paris", {{"", 100}}, 100);
  const auto profiles = wire::ParseProfiles(Ask()->profiles_document);
  ASSERT_TRUE(profiles.ok());
  EXPECT_EQ(std::ssize(profiles->devices), kMaxQueryDevices);
  EXPECT_EQ(std::count_if(profiles->devices.begin(), profiles->devices.end(), [](const auto& d) { return d.site == "paris"; }), 7);
}

TEST_F(PlacementQueryTest, TheWayIsWhatEitherSaysOrUnknown) {
  facts_ = {{.name = "hub", .local = true}, {.name = "paris"}, {.name = "oslo"}, {.name = "rome", .egress_only = true}};
  Facts("paris").links["oslo"] = {.bytes_per_s = 5e6, .latency_s = 0.02};
  Facts("oslo").links["paris"] = {.bytes_per_s = 4e6};
  Facts("oslo").ingress_bytes_per_s = 3e6;
  Facts("rome").links["hub"] = {.bytes_per_s = 1e6, .latency_s = 0.04};
  const auto words = [&](const char* from, const char* to, job::NetworkMode mode = job::NetworkMode::kDirect) {
    const cache::LinkEstimate way = LinkBetween(from, to, mode, facts_);
    return absl::StrFormat("%g %g", way.bytes_per_s, way.latency_s);
  };
  EXPECT_EQ(words("paris", "oslo"), "3e+06 0.02") << "no more enters oslo";
  EXPECT_EQ(words("oslo", "paris"), "4e+06 0.02");
  EXPECT_EQ(words("paris", "hub"), "1.25e+07 0.03") << "unknown";
  EXPECT_EQ(words("rome", "hub"), "1e+06 0.04");
  EXPECT_EQ(words("paris", "rome"), "1e+06 0.07") << "by the hub: nobody dials into rome";
  EXPECT_EQ(words("paris", "oslo", job::NetworkMode::kRelay), "3e+06 0.06");
  EXPECT_EQ(words("paris", "oslo", job::NetworkMode::kAuto), "3e+06 0.06") << "nobody has said that they are routed";
}

TEST_F(PlacementQueryTest, WhatTheSchedulerCannotKnowIsNotAsked) {
  Offer("hub", {{"", 9}}, 9);
  Offer("paris", {{"NVIDIA-A10G", 2}}, 2);
  EXPECT_THAT(std::string(Ask().status().message()), HasSubstr("paris: no figures are known of NVIDIA-A10G"));
  offers_[1].products = {{"NVIDIA-A10G", 0}, {"Tesla-T4", 2}};
  EXPECT_TRUE(Ask().ok()) << "no executor gets one of those";
  job_.spec.model.family.reset();
  job_.spec.model.graph = job::GraphSource{.file = "model.dag"};
  EXPECT_THAT(std::string(Ask().status().message()), HasSubstr("spec.model.graph.file"));
}

TEST_F(PlacementQueryTest, WhatIsStatedGoesBeforeWhatWasMeasuredAndThatBeforeDefaults) {
  Offer("hub", {{"", 9}}, 9);
  Offer("paris", {{"", 9}}, 9);
  const auto way = [&] { return LinkBetween("hub", "paris", job::NetworkMode::kDirect, facts_); };
  EXPECT_EQ(way().bytes_per_s, kUnknownLink.bytes_per_s);
  Facts("paris").measured["hub"] = {.bytes_per_s = 3e6};
  EXPECT_EQ(way().bytes_per_s, 3e6) << "of the other direction, for want of this one";
  EXPECT_EQ(way().latency_s, kUnknownLink.latency_s) << "each figure by itself";
  Facts("hub").measured["paris"] = {.bytes_per_s = 4e6, .latency_s = 0.02};
  EXPECT_EQ(way().bytes_per_s, 4e6);
  EXPECT_EQ(way().latency_s, 0.02);
  Facts("paris").links["hub"] = {.bytes_per_s = 9e6};
  EXPECT_EQ(way().bytes_per_s, 9e6);
  EXPECT_EQ(way().latency_s, 0.02);
  Facts("hub").egress_bytes_per_s = 2e6;
  EXPECT_EQ(way().bytes_per_s, 2e6);
}

}  // namespace
}  // namespace fusionllm::op::placement
