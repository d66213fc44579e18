// The communicator over NCCL against a library of our own with its functions; cuda_nccl_test has NCCL itself. Where there is no toolkit the
// device is emulated (lib/kernels/cuda/emulated).
#include "lib/collective/nccl/nccl_communicator.h"

#include <cuda_runtime.h>

#include <algorithm>
#include <barrier>
#include <future>
#include <thread>
#include <utility>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "lib/base/shared_library.h"
#include "lib/base/status_macros.h"
#include "lib/collective/nccl/testing/fake_nccl.h"
#include "lib/collective/testing/communicator_conformance.h"

namespace fusionllm::collective {
namespace {

using kernels::cuda::Device;
using testing::CommunicatorConformance;
using ::testing::Contains;
using testing::FakeNcclControls;
using ::testing::HasSubstr;
using testing::Implementation;
using ::testing::IsEmpty;
using testing::TestRank;

const std::vector<std::string> kLibrary = {FUSIONLLM_FAKE_NCCL};

FakeNcclControls& Controls() {
  static FakeNcclControls* const controls = [] {
    FakeNcclControls* (*find)() = nullptr;
    EXPECT_TRUE(base::SharedLibrary::Open(kLibrary)->Find("fakeNcclControls", find).ok());
    FakeNcclControls* found = find();
    found->copy = [](void* to, const void* from, size_t bytes, void* stream) {
      EXPECT_EQ(cudaMemcpyAsync(to, from, bytes, cudaMemcpyDefault, static_cast<cudaStream_t>(stream)), cudaSuccess);
      EXPECT_EQ(cudaStreamSynchronize(static_cast<cudaStream_t>(stream)), cudaSuccess);
    };
    return found;
  }();
  return *controls;
}

bool NoCard() { return absl::IsNotFound(kernels::cuda::FindDevice(0).status()); }

class OnCard final : public TestRank {
 public:
  OnCard(std::unique_ptr<Device> device, std::unique_ptr<Communicator> communicator)
      : device_(std::move(device)), communicator_(std::move(communicator)) {}
  Communicator& communicator() override { return *communicator_; }

 private:
  const std::unique_ptr<Device> device_;
  const std::unique_ptr<Communicator> communicator_;
};

absl::StatusOr<std::unique_ptr<TestRank>> Join(Rendezvous& rendezvous, const GroupRank& group_rank, const Timeouts& timeout,
                                               std::stop_token stop) {
  Controls();
  FUSIONLLM_ASSIGN_OR_RETURN(auto device, Device::Open(0));
  const NcclOptions options = {.timeout = timeout, .libraries = kLibrary, .card = absl::StrCat("0000:3b:00.", group_rank.rank)};
  FUSIONLLM_ASSIGN_OR_RETURN(auto joined, JoinNccl(rendezvous, group_rank, *device, options, std::move(stop)));
  return std::make_unique<OnCard>(std::move(device), std::move(joined));
}

std::vector<Implementation> OnThisMachine() {
  if (NoCard()) return {};
  return {Implementation{.name = "Nccl", .join = Join}};
}
INSTANTIATE_TEST_SUITE_P(Nccl, CommunicatorConformance, ::testing::ValuesIn(OnThisMachine()),
                         [](const auto& info) { return info.param.name; });
GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(CommunicatorConformance);

class NcclCommunicatorTest : public ::testing::Test {
 protected:
  void SetUp() override {
    if (NoCard()) GTEST_SKIP() << kernels::cuda::FindDevice(0).status().message();
    Controls().Reset();
  }
  void TearDown() override {
    if (NoCard()) return;
    EXPECT_EQ(Controls().alive, 0) << "a communicator was neither destroyed nor aborted";
    Controls().Reset();
  }

  // What each of two ranks answers.
  std::vector<absl::Status> Run(const std::function<absl::Status(Communicator&)>& body, const NcclOptions& options = {}) {
    LocalRendezvous rendezvous;
    std::vector<absl::Status> statuses(2);
    const auto run = [&](int rank) -> absl::Status {
      FUSIONLLM_ASSIGN_OR_RETURN(auto device, Device::Open(0));
      NcclOptions own = options;
      own.libraries = kLibrary;
      if (own.card.empty()) own.card = absl::StrCat("0000:3b:00.", rank);
      FUSIONLLM_ASSIGN_OR_RETURN(auto joined,
                                 JoinNccl(rendezvous, {.group = "stage-0", .epoch = 7, .rank = rank, .size = 2}, *device, own));
      return body(*joined);
    };
    std::thread other([&] { statuses[1] = run(1); });
    statuses[0] = run(0);
    other.join();
    return statuses;
  }

  static absl::Status Sum(Communicator& c, const std::vector<int64_t>& counts) {
    std::vector<tensor::MemoryBlock> blocks;
    std::vector<tensor::TensorView> views;
    for (const int64_t count : counts) {
      const tensor::TensorType type = {tensor::DType::kF32, {count}};
      FUSIONLLM_ASSIGN_OR_RETURN(auto block, c.memory().Allocate(type.bytes()));
      FUSIONLLM_RETURN_IF_ERROR(c.memory().Zero(block.data(), type.bytes()));
      views.push_back({type, block.data()});
      blocks.push_back(std::move(block));
    }
    FUSIONLLM_RETURN_IF_ERROR(c.AllReduce(views));
    return c.Wait();
  }
  static absl::Status SumOfFive(Communicator& c) { return Sum(c, {5}); }
  static std::vector<std::string> Calls() {
    const base::MutexLock lock(Controls().mutex);
    return Controls().calls;
  }
};

TEST_F(NcclCommunicatorTest, OneGroupCallCarriesAllTensorsButEmptyOnes) {
  const auto statuses = Run([](Communicator& c) { return Sum(c, {5, 0, 3}); });
  EXPECT_TRUE(statuses[0].ok() && statuses[1].ok()) << statuses[0] << statuses[1];
  std::vector<std::string> calls = Calls();
  std::sort(calls.begin(), calls.end());
  EXPECT_EQ(calls, (std::vector<std::string>{"AllReduce 7[3]", "AllReduce 7[3]", "AllReduce 7[5]", "AllReduce 7[5]", "Destroy", "Destroy",
                                             "Finalize", "Finalize", "GroupEnd", "GroupEnd"}))
      << "7 is ncclFloat32";
}

TEST_F(NcclCommunicatorTest, WhatGoesWrongBehindTheScenesEndsTheGroupInNcclsWords) {
  std::barrier both_have_added(2);
  const auto statuses = Run([&](Communicator& c) {
    const absl::Status before = SumOfFive(c);
    both_have_added.arrive_and_wait();
    FUSIONLLM_RETURN_IF_ERROR(before);
    Controls().async_result = 6;  // ncclRemoteError
    const absl::Status status = SumOfFive(c);
    EXPECT_EQ(c.Wait(), status);
    EXPECT_EQ(SumOfFive(c), status);
    return status;
  });
  for (const absl::Status& status : statuses) {
    EXPECT_EQ(status.code(), absl::StatusCode::kUnavailable);
    EXPECT_THAT(
        std::string(status.message()),
        HasSubstr("of 2 of group 'stage-0' in plan epoch 7, AllReduce: NCCL 2.27.3 answers 'remote process exited': as the fake was told"));
  }
  EXPECT_EQ(Controls().aborted, 2) << "or its kernels would wait forever";
}

TEST_F(NcclCommunicatorTest, ACallThatFailsClosesItsGroupAndEndsTheCommunicator) {
  const auto statuses = Run([](Communicator& c) {
    Controls().call_result = 1;  // ncclUnhandledCudaError
    return SumOfFive(c);
  });
  for (const absl::Status& status : statuses) {
    EXPECT_EQ(status.code(), absl::StatusCode::kInternal);
    EXPECT_THAT(std::string(status.message()), HasSubstr("AllReduce: NCCL 2.27.3 answers 'unhandled cuda error'"));
  }
  EXPECT_THAT(Calls(), Contains("GroupEnd").Times(2));
  EXPECT_EQ(Controls().aborted, 2);
}

TEST_F(NcclCommunicatorTest, ACommunicatorThatCannotBeMadeSaysWhy) {
  Controls().init_result = 6;
  for (const absl::Status& status : Run(SumOfFive)) {
    EXPECT_THAT(std::string(status.message()), HasSubstr(", joining: NCCL 2.27.3 answers 'remote process exited'"));
  }
}

TEST_F(NcclCommunicatorTest, RankThatMeetsAndIsLostBeforeItJoinsIsNotWaitedForForever) {
  LocalRendezvous rendezvous;
  const GroupRank group_rank = {.group = "stage-0", .epoch = 7, .rank = 0, .size = 2};
  std::thread lost([&] {  // it tells who it is, and no more
    const PeerInfo own = {.kind = "nccl", .device = "card x"};
    EXPECT_TRUE(ExchangePeerInfo(rendezvous, {.group = "stage-0", .epoch = 7, .rank = 1, .size = 2}, own, absl::Minutes(1), {}).ok());
  });
  const auto device = Device::Open(0);
  ASSERT_TRUE(device.ok());
  const NcclOptions options = {.timeout = {.to_join = absl::Milliseconds(300)}, .libraries = kLibrary};
  const absl::Status status = JoinNccl(rendezvous, group_rank, **device, options).status();
  lost.join();
  EXPECT_EQ(status.code(), absl::StatusCode::kUnavailable);
  EXPECT_THAT(std::string(status.message()), HasSubstr("joining: the other replicas did not come within 300ms"));
  EXPECT_EQ(Controls().aborted, 1);
}

TEST_F(NcclCommunicatorTest, JoiningCanBeStopped) {
  LocalRendezvous rendezvous;
  std::stop_source stop;
  std::thread lost([&] {
    EXPECT_TRUE(ExchangePeerInfo(rendezvous, {.group = "stage-0", .epoch = 7, .rank = 1, .size = 2}, {.kind = "nccl", .device = "card x"},
                                 absl::Minutes(1), {})
                    .ok());
    stop.request_stop();
  });
  const auto device = Device::Open(0);
  ASSERT_TRUE(device.ok());
  const absl::Status status =
      JoinNccl(rendezvous, {.group = "stage-0", .epoch = 7, .rank = 0, .size = 2}, **device, {.libraries = kLibrary}, stop.get_token())
          .status();
  lost.join();
  EXPECT_EQ(status.code(), absl::StatusCode::kCancelled) << status;
}

TEST_F(NcclCommunicatorTest, TwoReplicasOnOneCardAreRefusedBeforeNcclIsAsked) {
  for (const absl::Status& status : Run(SumOfFive, {.card = "0000:5e:00.0"})) {
    EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
    EXPECT_THAT(std::string(status.message()), HasSubstr("replicas 0 and 1 of group 'stage-0' are both on card 0000:5e:00.0 of machine "));
  }
  EXPECT_THAT(Calls(), IsEmpty());
}

TEST_F(NcclCommunicatorTest, WithoutNcclOrWithAnOldOneItSaysWhatToDo) {
  const auto device = Device::Open(0);
  ASSERT_TRUE(device.ok());
  LocalRendezvous rendezvous;
  const auto join = [&](const std::vector<std::string>& libraries) {
    return JoinNccl(rendezvous, {.group = "g", .epoch = 1, .rank = 0, .size = 1}, **device, {.libraries = libraries}).status();
  };
  const absl::Status none = join({"libthere-is-none.so.2"});
  EXPECT_EQ(none.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(none.message()), HasSubstr("replicas on GPUs add their gradients by NCCL: cannot load libthere-is-none.so.2"));
  EXPECT_THAT(std::string(none.message()), HasSubstr("install NCCL 2 (Debian: libnccl2; pip: nvidia-nccl-cu13)"));
  Controls().version = 21605;
  EXPECT_THAT(std::string(join(kLibrary).message()), HasSubstr("is NCCL 2.16.5, and replicas on GPUs need 2.18.0 or newer: install"));
}

}  // namespace
}  // namespace fusionllm::collective
