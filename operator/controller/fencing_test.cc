// Two leaders: one that was stopped and wakes up, and the one that has led since.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <limits>

#include "operator/controller/leader_epoch.h"
#include "operator/controller/testing/frozen_caches.h"
#include "operator/controller/testing/two_clusters_fixture.h"

namespace fusionllm::op::controller {
namespace {

using nlohmann::json;
using testing::DirectMember;
using ::testing::ElementsAre;
using testing::FrozenJobs;
using testing::FrozenMember;
using ::testing::IsEmpty;
using ::testing::SizeIs;
using testing::TwoClustersTest;

class FixedFence : public Fence {
 public:
  explicit FixedFence(int64_t epoch) : epoch_(epoch) {}
  int64_t epoch() const override { return epoch_; }
  absl::Status OnHigherEpoch(int64_t other, std::stop_token) override {
    ++outranked_;
    if (!leads_) return absl::FailedPreconditionError("another leads");
    epoch_ = other + 1;
    return absl::OkStatus();
  }
  int64_t epoch_;
  bool leads_ = false;  // as the server would say
  int outranked_ = 0;
};

// Something that happens just before a request goes out.
class InterruptedTransport : public kube::Transport {
 public:
  explicit InterruptedTransport(std::shared_ptr<kube::Transport> inner) : inner_(std::move(inner)) {}
  absl::StatusOr<kube::HttpResponse> Send(const kube::HttpRequest& request, const kube::UnaryLimits& limits,
                                          std::stop_token stop) override {
    if (before_ && request.method == method_ && request.target.find(target_) != std::string::npos) std::exchange(before_, nullptr)();
    return inner_->Send(request, limits, std::move(stop));
  }
  absl::StatusOr<kube::HttpResponse> Stream(const kube::HttpRequest&, const kube::StreamLimits&, kube::StreamSink&,
                                            std::stop_token) override {
    return absl::UnimplementedError("no watches here");
  }
  std::string method_, target_;
  std::function<void()> before_;

 private:
  const std::shared_ptr<kube::Transport> inner_;
};

class FencingTest : public TwoClustersTest {
 protected:
  // The fixture's reconciler leads from now on, with this epoch.
  void LeadWith(Fence& fence) { reconciler_ = Leader(*jobs_, *hub_, members_, fence); }
  std::unique_ptr<JobReconciler> Leader(cache::JobSource& jobs, cache::Member& hub, cache::Members& members, Fence& fence) {
    return std::make_unique<JobReconciler>(ReconcilerOptions{.images = {"b", "s", "e", ""}, .fence = &fence}, jobs, hub, members,
                                           *tombstones_, progress_, events_, clock_);
  }
  // The leader is stopped as it is now: what it knows stays the same from now on.
  void StopOldLeader() {
    FrozenJobs now(*jobs_->Find({"default", "train"}));
    old_jobs_ = std::make_unique<FrozenJobs>(now);
    const std::string uid = now.view_.identity.uid;
    auto transport = std::make_shared<InterruptedTransport>(tokyo_server_.NewTransport());
    old_transport_ = transport.get();
    old_tokyo_client_ = NewClient(transport);
    old_hub_ = std::make_unique<FrozenMember>(*member_, *client_, uid);
    old_tokyo_ = std::make_shared<FrozenMember>(*tokyo_, *old_tokyo_client_, uid);
    old_members_.remote_ = {old_tokyo_};
    old_ = Leader(*old_jobs_, *old_hub_, old_members_, old_fence_);
  }
  kube::ReconcileResult WakeOldLeader(const std::string& cluster) { return old_->Reconcile({cluster, "default", "train"}, {}); }
  json Epoch(DirectMember& member) { return member.OwnerConfigMaps().at(0).epoch; }

  FixedFence old_fence_{1}, new_fence_{2};
  InterruptedTransport* old_transport_ = nullptr;
  std::unique_ptr<kube::ApiClient> old_tokyo_client_;
  std::unique_ptr<FrozenJobs> old_jobs_;
  std::unique_ptr<FrozenMember> old_hub_;
  std::shared_ptr<FrozenMember> old_tokyo_;
  testing::FakeMembers old_members_;
  std::unique_ptr<JobReconciler> old_;
};

TEST_F(FencingTest, OwnerConfigMapsCarryTheEpochOfTheLastLeader) {
  LeadWith(old_fence_);
  Submit2();
  SettleBoth();
  EXPECT_EQ(Epoch(*member_), 1);
  EXPECT_EQ(Epoch(*tokyo_), 1);
  LeadWith(new_fence_);
  server_.ForgetRequests();
  tokyo_server_.ForgetRequests();
  SettleBoth();
  EXPECT_EQ(Epoch(*tokyo_), 1) << "where nothing is to be written nothing is";
  EndBroker(0, 1, R"({"error":"x"})");
  SettleBoth();
  EXPECT_EQ(Epoch(*member_), 2);
  EXPECT_EQ(Epoch(*tokyo_), 2);
}

TEST_F(FencingTest, OwnerConfigMapIsCreatedWithItsEpoch) {
  LeadWith(old_fence_);
  Submit2();
  (void)Reconcile();
  (void)ReconcileTokyo();
  ASSERT_THAT(tokyo_->OwnerConfigMaps(), SizeIs(1));
  EXPECT_EQ(Epoch(*tokyo_), 1);
}

TEST_F(FencingTest, PodRecreationStampsLeaderEpoch) {
  LeadWith(old_fence_);
  Submit2();
  SettleBoth();
  LeadWith(new_fence_);
  ASSERT_TRUE(looking_->Delete(manifests::kPods, {"default", "train-local-0-r0"}, {.grace_period_seconds = 0}).ok());
  SettleBoth();
  EXPECT_EQ(Epoch(*member_), 2);
  EXPECT_EQ(Epoch(*tokyo_), 1);
  ASSERT_TRUE(tokyo_client_->Delete(manifests::kPods, {"default", "train-tokyo-0-r0"}, {.grace_period_seconds = 0}).ok());
  SettleBoth();
  EXPECT_EQ(Epoch(*tokyo_), 2);
}

// No one else has claimed anything: what protects them is that they are others.
TEST_F(FencingTest, WhatHasTakenTheNameOfSomethingThatWasSeenIsNotDeleted) {
  LeadWith(old_fence_);
  Submit2();
  SettleBoth();
  StopOldLeader();
  const auto replace = [&](const kube::Resource& resource, const std::string& name, const json& labels) {
    json next = json::parse(tokyo_client_->Get(resource, {"default", name}).value());
    for (const char* field : {"uid", "resourceVersion", "ownerReferences"}) next["metadata"].erase(field);
    next["metadata"]["labels"].update(labels);
    ASSERT_TRUE(tokyo_client_->Delete(resource, {"default", name}, {.grace_period_seconds = 0}).ok());
    ASSERT_TRUE(tokyo_client_->Create(resource, "default", next.dump()).ok());
  };
  replace(manifests::kPods, "train-tokyo-0-r0", json::object());
  old_tokyo_->pods_.at(0).phase = lifecycle::PodPhase::kFailed;
  (void)WakeOldLeader("tokyo");
  EXPECT_TRUE(TokyoPod("train-tokyo-0-r0").contains("spec"));
  replace(manifests::kConfigMaps, "train-anchor", {{manifests::kJobUidLabel, "another"}});
  old_jobs_->view_.deleted_at = clock_.Now();
  (void)WakeOldLeader("tokyo");
  EXPECT_TRUE(tokyo_client_->Get(manifests::kConfigMaps, {"default", "train-anchor"}).ok());
}

// helm/fusionllm/templates/admission.yaml compares it with the owner ConfigMap's.
TEST_F(FencingTest, PodsCarryTheEpochOfTheLeaderThatMadeThem) {
  LeadWith(old_fence_);
  Submit2();
  SettleBoth();
  EXPECT_EQ(TokyoPod("train-tokyo-0-r0")["metadata"]["annotations"][manifests::kEpochAnnotation], "1");
  LeadWith(new_fence_);
  EndBroker(0, 1, R"({"error":"x"})");
  SettleBoth();
  EXPECT_EQ(TokyoPod("train-tokyo-0-r1")["metadata"]["annotations"][manifests::kEpochAnnotation], "2");
}

TEST_F(FencingTest, ALeaderThatWakesUpAfterTheNextOneHasWrittenWritesNothing) {
  LeadWith(old_fence_);
  Submit2();
  SettleBoth();
  StopOldLeader();
  LeadWith(new_fence_);
  EndBroker(0, 1, R"({"error":"x"})");
  SettleBoth();
  ASSERT_TRUE(TokyoPod("train-tokyo-0-r1").contains("spec"));
  const auto before = std::make_tuple(server_.objects(), tokyo_server_.objects(), Job());
  const std::vector<lifecycle::PodView> hub_pods = old_hub_->pods_, tokyo_pods = old_tokyo_->pods_;
  const std::vector<std::pair<std::string, std::function<void()>>> operations = {
      {"make an executor of the attempt before", [&] { old_tokyo_->pods_.clear(); }},
      {"make a broker and an executor of the attempt before",
       [&] {
         old_hub_->pods_.clear();
         old_jobs_->view_.status.conditions.clear();
       }},
      {"delete a pod",
       [&] {
         old_tokyo_->pods_.at(0).phase = lifecycle::PodPhase::kFailed;
         old_tokyo_->pods_.at(0).created_at = clock_.Now() - absl::Hours(1);
       }},
      {"delete everything", [&] { old_jobs_->view_.deleted_at = clock_.Now(); }},
      {"keep everything", [&] { old_jobs_->view_.job->spec.preserve_resources_on_deletion = true; }},
  };
  for (const auto& [operation, have] : operations) {
    SCOPED_TRACE(operation);
    old_hub_->pods_ = hub_pods;
    old_tokyo_->pods_ = tokyo_pods;
    have();
    (void)WakeOldLeader("");
    EXPECT_FALSE(WakeOldLeader("tokyo").status.ok());
    EXPECT_EQ(std::make_tuple(server_.objects(), tokyo_server_.objects(), Job()), before);
  }
  EXPECT_GE(old_fence_.outranked_, 3);
}

TEST_F(FencingTest, StaleLeaderDoesNotOverwriteOwnerConfigMap) {
  LeadWith(old_fence_);
  Submit2();
  (void)Reconcile();
  StopOldLeader();
  ASSERT_THAT(old_tokyo_->owner_config_maps_, IsEmpty()) << "it is about to begin in Tokyo";
  old_transport_->method_ = "PATCH";
  old_transport_->target_ = "train-anchor";
  old_transport_->before_ = [this] {
    LeadWith(new_fence_);
    SettleBoth();
    EndBroker(0, 1, R"({"error":"x"})");
    SettleBoth();
  };
  const kube::ReconcileResult result = WakeOldLeader("tokyo");
  EXPECT_EQ(result.after, absl::Seconds(1)) << result.status;
  ASSERT_EQ(tokyo_->OwnerConfigMaps().size(), 1);
  EXPECT_EQ(Epoch(*tokyo_), 2);
  EXPECT_TRUE(TokyoPod("train-tokyo-0-r1").contains("spec"));
  EXPECT_FALSE(TokyoPod("train-tokyo-0-r0").contains("spec"));
  EXPECT_FALSE(WakeOldLeader("tokyo").status.ok()) << "it finds out";
}

// So that one that wakes up meanwhile makes them no more.
TEST_F(FencingTest, ALeaderClaimsBeforeItRemovesServicesThatAreIdle) {
  LeadWith(old_fence_);
  Submit2();
  SettleBoth();
  EndBroker(0, 0, "");
  (void)Reconcile();
  ASSERT_EQ(Condition("Complete"), "True Completed");
  ASSERT_TRUE(tokyo_client_->Delete(manifests::kPods, {"default", "train-tokyo-0-r0"}, {.grace_period_seconds = 0}).ok());
  LeadWith(new_fence_);
  tokyo_server_.ForgetRequests();
  (void)ReconcileTokyo();
  std::vector<std::string> writes;
  for (const auto& request : tokyo_server_.requests()) {
    const std::string path = request.target.substr(0, request.target.find('?'));
    if (request.method != "GET") writes.push_back(absl::StrCat(request.method, " ", path.substr(path.rfind('/'))));
  }
  EXPECT_THAT(writes, ElementsAre("PATCH /train-anchor", "DELETE /train-tokyo-0", "PATCH /train-anchor"));
}

// The claim found nothing there.
TEST_F(FencingTest, StoppedLeaderKeepsTheNextLeadersOwnerConfigMap) {
  LeadWith(old_fence_);
  Submit2();
  (void)Reconcile();
  StopOldLeader();
  ASSERT_THAT(old_tokyo_->owner_config_maps_, IsEmpty());
  old_transport_->method_ = "POST";
  old_transport_->target_ = "/configmaps";
  old_transport_->before_ = [this] {
    LeadWith(new_fence_);
    SettleBoth();
  };
  EXPECT_EQ(WakeOldLeader("tokyo").after, absl::Seconds(1));
  EXPECT_EQ(Epoch(*tokyo_), 2);
}

TEST_F(FencingTest, StampIsOfTheJobsOwnerConfigMapAloneAndKeepsLaterEpochs) {
  LeadWith(old_fence_);
  Submit2();
  SettleBoth();
  StopOldLeader();
  manifests::JobIdentity job = old_jobs_->view_.identity;
  FixedFence last(3);
  tokyo_server_.ForgetRequests();
  EXPECT_TRUE(StampLeaderEpoch(*tokyo_, job, old_fence_, {}).ok());
  for (const auto& request : tokyo_server_.requests()) EXPECT_EQ(request.method, "GET") << "it is claimed";
  old_transport_->method_ = "PATCH";
  old_transport_->target_ = "train-anchor";
  old_transport_->before_ = [&] { EXPECT_TRUE(StampLeaderEpoch(*tokyo_, job, last, {}).ok()); };
  EXPECT_TRUE(absl::IsUnavailable(StampLeaderEpoch(*old_tokyo_, job, new_fence_, {}).status()));
  EXPECT_EQ(Epoch(*tokyo_), 3);
  job.uid = "another";
  FixedFence later(4);
  EXPECT_EQ(StampLeaderEpoch(*tokyo_, job, later, {}).value(), std::nullopt);
  EXPECT_EQ(Epoch(*tokyo_), 3);
}

// One who may write to the namespace can write any number.
TEST_F(FencingTest, AnEpochThatNoLeaderCanHaveCountedIsWrittenOver) {
  LeadWith(old_fence_);
  Submit2();
  SettleBoth();
  StopOldLeader();
  const manifests::JobIdentity job = old_jobs_->view_.identity;
  FixedFence absurd(std::numeric_limits<int64_t>::max());
  ASSERT_TRUE(StampLeaderEpoch(*tokyo_, job, absurd, {}).ok());
  ASSERT_EQ(Epoch(*tokyo_), std::numeric_limits<int64_t>::max());
  EXPECT_TRUE(StampLeaderEpoch(*tokyo_, job, new_fence_, {}).ok());
  EXPECT_EQ(Epoch(*tokyo_), new_fence_.epoch());
}

TEST_F(FencingTest, LeaderWithResetEpochContinues) {
  FixedFence high(7);
  LeadWith(high);
  Submit2();
  SettleBoth();
  FixedFence low(1);  // somebody deleted the Lease
  low.leads_ = true;
  LeadWith(low);
  EndBroker(0, 1, R"({"error":"x"})");
  SettleBoth();
  EXPECT_EQ(low.epoch(), 8);
  EXPECT_EQ(Epoch(*tokyo_), 8);
  EXPECT_TRUE(TokyoPod("train-tokyo-0-r1").contains("spec"));
}

TEST_F(FencingTest, LeaderWithResetEpochWritesOwnerConfigMap) {
  FixedFence high(7);
  LeadWith(high);
  Submit2();
  SettleBoth();
  FixedFence low(1);
  low.leads_ = true;
  LeadWith(low);
  Patch(manifests::kFusionJobs, "train", {{"spec", {{"training", {{"steps", 200}}}}}});
  SettleBoth();
  EXPECT_EQ(Epoch(*member_), 8);
  EXPECT_EQ(Epoch(*tokyo_), 8);
}

}  // namespace
}  // namespace fusionllm::op::controller
