// Replicas on the CUDA back end, which add their gradients by way of the host, in one process and by chunks, and by NCCL's calls; the
// library behind those is the tests' own (lib/collective/nccl/testing/fake_nccl.h), so that one card, emulated where there is none, is
// enough.
#include <cuda_runtime.h>

#include <map>
#include <memory>
#include <string>

#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"
#include "lib/base/mutex.h"
#include "lib/base/shared_library.h"
#include "lib/collective/chain_communicator.h"
#include "lib/collective/nccl/nccl_communicator.h"
#include "lib/collective/nccl/testing/fake_nccl.h"
#include "lib/collective/testing/in_memory_network.h"
#include "lib/kernels/cuda/cuda.h"
#include "lib/kernels/cuda/device.h"
#include "lib/runtime/testing/small_networks.h"

namespace fusionllm::runtime {
namespace {

using testing::InBf16;
using testing::LossBits;
using testing::MustRun;
using testing::PipelineOptions;
using testing::PipelineResult;
using testing::SmallOptions;

// As in cuda_stage_test: fp32 sums in another order, after three steps.
constexpr float kReplicaLossTolerance = 1e-4f;

PipelineOptions ReplicasOnCuda(const autodiff::TrainingGraph& training, int replicas) {
  PipelineOptions options = SmallOptions(training, 2, "ref");
  options.make_backend = [] { return kernels::cuda::CreateCudaBackend(0); };
  options.config.replicas = replicas;
  options.config.micro_batches = options.config.in_flight = testing::kSmallMicroBatches / replicas;
  return options;
}

PipelineOptions ByNccl(PipelineOptions options) {
  options.join = [](collective::Rendezvous& rendezvous, const collective::GroupRank& group_rank, kernels::Backend& backend) {
    return collective::JoinNccl(rendezvous, group_rank, *kernels::cuda::DeviceOf(backend),
                                {.libraries = {FUSIONLLM_FAKE_NCCL}, .card = absl::StrCat("0000:3b:00.", group_rank.rank)});
  };
  return options;
}

class CudaReplicaTest : public ::testing::Test {
 protected:
  void SetUp() override {
    const auto device = kernels::cuda::FindDevice(0);
    // The one answer on which a test may be left out: there is no card, and it says so.
    if (absl::IsNotFound(device.status())) GTEST_SKIP() << device.status().message();
    ASSERT_TRUE(device.ok()) << device.status();
    collective::testing::FakeNcclControls* (*find)() = nullptr;
    ASSERT_TRUE(base::SharedLibrary::Open({FUSIONLLM_FAKE_NCCL})->Find("fakeNcclControls", find).ok());
    controls_ = find();
    controls_->Reset();
    controls_->copy = [](void* to, const void* from, size_t bytes, void* stream) {
      EXPECT_EQ(cudaMemcpyAsync(to, from, bytes, cudaMemcpyDefault, static_cast<cudaStream_t>(stream)), cudaSuccess);
      EXPECT_EQ(cudaStreamSynchronize(static_cast<cudaStream_t>(stream)), cudaSuccess);
    };
  }

  void ExpectReplicasAsOne(const autodiff::TrainingGraph& training) const {
    const PipelineResult one = MustRun(training, ReplicasOnCuda(training, 1));
    const PipelineResult by_host = MustRun(training, ReplicasOnCuda(training, 2));
    const PipelineResult by_nccl = MustRun(training, ByNccl(ReplicasOnCuda(training, 2)));
    ASSERT_EQ(one.steps.size(), by_host.steps.size());
    for (size_t i = 0; i < one.steps.size(); ++i) {
      EXPECT_NEAR(by_host.steps[i].loss, one.steps[i].loss, kReplicaLossTolerance * one.steps[i].loss) << "step " << i + 1;
    }
    EXPECT_EQ(by_host.of_replica[1], by_host.parameters);
    EXPECT_EQ(LossBits(by_nccl), LossBits(by_host)) << "both add in the order of ranks";
    EXPECT_EQ(by_nccl.parameters, by_host.parameters);
    EXPECT_EQ(by_nccl.of_replica[1], by_nccl.parameters);
    EXPECT_EQ(controls_->alive, 0);

    std::map<std::string, collective::testing::InMemoryNetwork> networks;  // by group
    for (const char* group : {"stage-0", "stage-1"}) networks.try_emplace(group, 2);
    PipelineOptions options = ReplicasOnCuda(training, 2);
    options.join = [&](collective::Rendezvous&, const collective::GroupRank& group_rank, kernels::Backend& backend) {
      return collective::MakeChain(group_rank, backend.memory(), networks.at(group_rank.group).channel(group_rank.rank));
    };
    const PipelineResult by_chunks = MustRun(training, options);
    EXPECT_EQ(LossBits(by_chunks), LossBits(by_host));
    EXPECT_EQ(by_chunks.parameters, by_host.parameters);
    EXPECT_EQ(by_chunks.of_replica[1], by_chunks.parameters);
  }

  collective::testing::FakeNcclControls* controls_ = nullptr;
};

TEST_F(CudaReplicaTest, TiedGpt2LearnsAsWithOne) { ExpectReplicasAsOne(testing::SmallGpt2(true)); }
TEST_F(CudaReplicaTest, TiedGpt2LearnsInBf16AsWithOne) { ExpectReplicasAsOne(InBf16(testing::SmallGpt2(true))); }
TEST_F(CudaReplicaTest, AResidualNetworkLearnsAsWithOne) { ExpectReplicasAsOne(testing::SmallResidualNetwork()); }

TEST_F(CudaReplicaTest, AGroupCallCarriesAllGradientsOfAStage) {
  const autodiff::TrainingGraph training = testing::SmallGpt2(true);
  PipelineOptions options = ByNccl(ReplicasOnCuda(training, 2));
  options.steps = 1;
  MustRun(training, options);
  int groups = 0;
  const base::MutexLock lock(controls_->mutex);
  for (const std::string& call : controls_->calls) groups += call == "GroupEnd" ? 1 : 0;
  // On each replica: both stages add gradients, the last one losses with them, and the first one hears the decision.
  EXPECT_EQ(groups, 2 * 3);
}

TEST_F(CudaReplicaTest, WhatNcclFindsEndsTheTraining) {
  const autodiff::TrainingGraph training = testing::SmallGpt2(true);
  PipelineOptions options = ByNccl(ReplicasOnCuda(training, 2));
  options.steps = 100;
  options.after_step = [this](int64_t step, Inbox&) {
    if (step == 2) controls_->async_result = 6;  // ncclRemoteError
  };
  const auto source = testing::SyntheticSource(7, testing::kSmallClasses);
  const absl::Status status = testing::RunPipeline(training, options, *source).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kUnavailable);
  EXPECT_NE(status.message().find("NCCL 2.27.3 answers 'remote process exited'"), std::string::npos) << status;
  EXPECT_EQ(controls_->alive, 0);
}

}  // namespace
}  // namespace fusionllm::runtime
