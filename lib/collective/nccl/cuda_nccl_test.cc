// NCCL itself, where there are cards: as much of it as one card can show, and the whole suite where there are four.
#include <memory>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "lib/base/status_macros.h"
#include "lib/collective/nccl/nccl_communicator.h"
#include "lib/collective/nccl/nccl_library.h"
#include "lib/collective/testing/communicator_conformance.h"

namespace fusionllm::collective {
namespace {

using kernels::cuda::Device;
using testing::CommunicatorConformance;
using testing::Implementation;
using testing::TestRank;

absl::Status RealCards(size_t count) {
  FUSIONLLM_ASSIGN_OR_RETURN(const auto devices, kernels::cuda::Devices());
  if (devices.size() < count || devices.front().name == "emulated card") {
    return absl::NotFoundError(absl::StrCat("NCCL itself needs ", count, " real cards"));
  }
  return NcclLibrary::Load(NcclOptions().libraries).status();
}

class RankOnCard final : public TestRank {
 public:
  RankOnCard(std::unique_ptr<Device> device, std::unique_ptr<Communicator> communicator)
      : device_(std::move(device)), communicator_(std::move(communicator)) {}
  Communicator& communicator() override { return *communicator_; }

 private:
  const std::unique_ptr<Device> device_;
  const std::unique_ptr<Communicator> communicator_;
};

TEST(CudaNcclTest, AGroupOfOneAddsUp) {
  const absl::Status there = RealCards(1);
  if (absl::IsNotFound(there) || absl::IsFailedPrecondition(there)) GTEST_SKIP() << there.message();
  ASSERT_TRUE(there.ok()) << there;
  const auto device = Device::Open(0);
  ASSERT_TRUE(device.ok()) << device.status();
  LocalRendezvous rendezvous;
  const auto group = JoinNccl(rendezvous, {.group = "stage-0", .epoch = 1, .rank = 0, .size = 1}, **device);
  ASSERT_TRUE(group.ok()) << group.status();
  std::vector<float> values(1001);
  for (size_t i = 0; i < values.size(); ++i) values[i] = static_cast<float>(i) - 500.5f;
  const tensor::TensorType type = {tensor::DType::kF32, {static_cast<int64_t>(values.size())}};
  auto block = (*device)->memory().Allocate(type.bytes());
  ASSERT_TRUE(block.ok() && (*device)->memory().CopyIn(block->data(), values.data(), type.bytes()).ok());
  const tensor::TensorView view[] = {{type, block->data()}};
  ASSERT_TRUE((*group)->AllReduce(view).ok());
  ASSERT_TRUE((*group)->Broadcast(view, 0).ok());
  EXPECT_TRUE((*group)->Wait().ok());
  std::vector<float> sums(values.size());
  ASSERT_TRUE((*device)->memory().CopyOut(sums.data(), block->data(), type.bytes()).ok());
  EXPECT_EQ(sums, values);
}

absl::StatusOr<std::unique_ptr<TestRank>> JoinOnCardOfItsOwn(Rendezvous& rendezvous, const GroupRank& group_rank, const Timeouts& timeout,
                                                             std::stop_token stop) {
  FUSIONLLM_ASSIGN_OR_RETURN(auto device, Device::Open(group_rank.rank));
  FUSIONLLM_ASSIGN_OR_RETURN(auto joined, JoinNccl(rendezvous, group_rank, *device, {.timeout = timeout}, std::move(stop)));
  return std::make_unique<RankOnCard>(std::move(device), std::move(joined));
}

std::vector<Implementation> OnFourCards() {
  if (!RealCards(4).ok()) return {};
  return {Implementation{.name = "RealNccl", .join = JoinOnCardOfItsOwn}};
}
INSTANTIATE_TEST_SUITE_P(RealNccl, CommunicatorConformance, ::testing::ValuesIn(OnFourCards()),
                         [](const auto& info) { return info.param.name; });

}  // namespace

namespace testing {
GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(CommunicatorConformance);  // where there are fewer cards
}  // namespace testing

}  // namespace fusionllm::collective
