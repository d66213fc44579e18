#include "lib/collective/communicator.h"

#include "absl/strings/str_format.h"
#include "lib/base/status_macros.h"

namespace fusionllm::collective {
namespace {

bool CanBeAdded(tensor::DType type) { return type == tensor::DType::kF32 || type == tensor::DType::kBF16; }

absl::Status CheckSum(absl::string_view call, size_t place, const tensor::TensorType& type) {
  if (CanBeAdded(type.dtype)) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrFormat("%s: tensor %d is %s, and sums are of f32 or bf16", call, place, type.ToString()));
}

// `more` has `size` times the elements of `less`.
absl::Status CheckShares(absl::string_view call, size_t place, const tensor::TensorType& less, const tensor::TensorType& more, int size) {
  if (less.dtype == more.dtype && less.elements() * size == more.elements()) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrFormat("%s: tensor %d is %s for each of %d replicas, which does not make %s of all", call,
                                                    place, less.ToString(), size, more.ToString()));
}

}  // namespace

std::string GroupRank::ToString() const {
  return absl::StrFormat("replica %d of %d of group '%s' in plan epoch %d", rank, size, group, epoch);
}

absl::Status CheckGroupRank(const GroupRank& group_rank) {
  if (group_rank.size >= 1 && group_rank.rank >= 0 && group_rank.rank < group_rank.size) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrFormat("there is no %s: they count from 0", group_rank.ToString()));
}

absl::Status CheckSums(absl::string_view call, std::span<const tensor::TensorView> tensors) {
  for (size_t i = 0; i < tensors.size(); ++i) FUSIONLLM_RETURN_IF_ERROR(CheckSum(call, i, tensors[i].type));
  return absl::OkStatus();
}

absl::Status CheckReduceScatter(std::span<const Exchange> exchanges, int size) {
  constexpr char kCall[] = "ReduceScatter";
  for (size_t i = 0; i < exchanges.size(); ++i) {
    FUSIONLLM_RETURN_IF_ERROR(CheckSum(kCall, i, exchanges[i].from.type));
    FUSIONLLM_RETURN_IF_ERROR(CheckShares(kCall, i, exchanges[i].to.type, exchanges[i].from.type, size));
  }
  return absl::OkStatus();
}

absl::Status CheckAllGather(std::span<const Exchange> exchanges, int size) {
  for (size_t i = 0; i < exchanges.size(); ++i) {
    FUSIONLLM_RETURN_IF_ERROR(CheckShares("AllGather", i, exchanges[i].from.type, exchanges[i].to.type, size));
  }
  return absl::OkStatus();
}

absl::Status CheckRoot(int root, int size) {
  if (root >= 0 && root < size) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrFormat("Broadcast: replica %d is none of the %d of the group", root, size));
}

}  // namespace fusionllm::collective
