#include "lib/checkpoint/safetensors_image.h"

#include <algorithm>
#include <unordered_map>
#include <utility>

#include "lib/base/status_macros.h"
#include "lib/checkpoint/safetensors_header.h"

namespace fusionllm::checkpoint {

absl::StatusOr<SafetensorsImage> SafetensorsImage::Create(std::span<const NamedTensor> tensors,
                                                          const std::map<std::string, std::string>& metadata) {
  SafetensorsImage image;
  std::vector<TensorSpec> specs;
  std::unordered_map<std::string, const NamedTensor*> by_name;
  for (const NamedTensor& tensor : tensors) {
    specs.push_back({tensor.name, tensor.view.type});
    by_name[tensor.name] = &tensor;
    image.tensors_.push_back(tensor.name);
  }
  FUSIONLLM_ASSIGN_OR_RETURN(image.header_, FormatSafetensorsHeader(specs, metadata));
  image.bytes_ = static_cast<int64_t>(image.header_.size());
  for (const TensorSpec& spec : specs) {
    image.data_.push_back(by_name[spec.name]->view.bytes());
    image.bytes_ += static_cast<int64_t>(image.data_.back().size());
  }
  std::sort(image.tensors_.begin(), image.tensors_.end());
  return image;
}

int64_t SafetensorsImage::tensor_bytes() const {
  int64_t bytes = 0;
  for (const std::span<const std::byte> tensor : data_) bytes += static_cast<int64_t>(tensor.size());
  return bytes;
}

absl::Status SafetensorsImage::ForEachPiece(size_t limit, const std::function<absl::Status(std::span<const std::byte>)>& take) const {
  const auto cut = [&](std::span<const std::byte> bytes) -> absl::Status {
    for (; !bytes.empty(); bytes = bytes.subspan(std::min(limit, bytes.size()))) {
      FUSIONLLM_RETURN_IF_ERROR(take(bytes.first(std::min(limit, bytes.size()))));
    }
    return absl::OkStatus();
  };
  FUSIONLLM_RETURN_IF_ERROR(cut(std::as_bytes(std::span(header_))));
  for (const std::span<const std::byte> bytes : data_) FUSIONLLM_RETURN_IF_ERROR(cut(bytes));
  return absl::OkStatus();
}

}  // namespace fusionllm::checkpoint
